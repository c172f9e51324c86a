/* A machine that computes wrongly: loaded before the others (LD_PRELOAD), it flips one bit of each
 * gradient, right before the digest is taken of it. The worker itself knows nothing of it. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

uint64_t XXH3_64bits(const void *data, size_t bytes);

uint64_t XXH3_64bits(const void *data, size_t bytes)
{
    uint64_t (*right)(const void *, size_t);
    *(void **)&right = dlsym(RTLD_NEXT, "XXH3_64bits");
    if (right == NULL)
        abort();
    if (bytes >= 64)
        *(uint8_t *)(uintptr_t)data ^= 1;
    return right(data, bytes);
}
