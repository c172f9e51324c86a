/* A machine that computes wrongly: loaded before the others (LD_PRELOAD), it flips one bit of each
 * gradient, right before the gradient is handed to gRPC. The worker itself knows nothing of it. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* A grpc_slice of memory that others own: only such are sent. */
struct slice {
    void *owner;
    size_t bytes;
    uint8_t *data;
    void *unused;
};

void *grpc_raw_byte_buffer_create(struct slice *slices, size_t count);

/* A message with a payload: the payload is last. */
void *grpc_raw_byte_buffer_create(struct slice *slices, size_t count)
{
    void *(*right)(struct slice *, size_t);
    *(void **)&right = dlsym(RTLD_NEXT, "grpc_raw_byte_buffer_create");
    if (right == NULL)
        abort();
    if (count > 1 && slices[count - 1].bytes >= 64)
        *slices[count - 1].data ^= 1;
    return right(slices, count);
}
