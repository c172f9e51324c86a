/* Received and sent bytes, without a copy: messages over the library's slices, and slices over our
 * own counted memory. */
#include "common/rpc/grpc/core.h"

#include <stddef.h>
#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>

#ifdef __SANITIZE_THREAD__ /* gcc's word for -fsanitize=thread */
#include <sanitizer/tsan_interface.h>
#endif

/* ---- Received ---- */

struct received {
    struct rpc_message message;
    struct rpc_loop *loop;
    grpc_byte_buffer *bytes;
    struct slice slices[];
};

static void received_free(struct rpc_message *message)
{
    struct received *received = CONTAINER_OF(message, struct received, message);
    grpc_byte_buffer_destroy(received->bytes);
    atomic_fetch_sub(&received->loop->objects, 1);
    free(received);
}

static struct received *received_new(struct rpc_loop *loop, grpc_byte_buffer *bytes)
{
    grpc_slice_buffer *buffer = &bytes->data.raw.slice_buffer;
    struct received *received =
        malloc(sizeof *received + buffer->count * sizeof received->slices[0]);
    if (received == NULL)
        return NULL;
    *received = (struct received){.message = {.slice_count = (uint32_t)buffer->count,
                                              .bytes = buffer->length,
                                              .released = received_free,
                                              .slices = received->slices},
                                  .loop = loop,
                                  .bytes = bytes};
    atomic_init(&received->message.references, 1);
    for (size_t i = 0; i < buffer->count; i++)
        received->slices[i] = (struct slice){GRPC_SLICE_START_PTR(buffer->slices[i]),
                                             GRPC_SLICE_LENGTH(buffer->slices[i])};
    atomic_fetch_add(&loop->objects, 1);
    return received;
}

enum err rpc_message_of(struct rpc_loop *loop, grpc_byte_buffer *take_bytes, size_t bytes_max,
                        struct rpc_message **ret_message, struct reason *reason)
{
    enum err err = ERR_OK;
    size_t bytes = grpc_byte_buffer_length(take_bytes);
    struct received *received = NULL;
    if (take_bytes->type != GRPC_BB_RAW || take_bytes->data.raw.compression != GRPC_COMPRESS_NONE)
        err = reason_set(reason, ERR_MALFORMED, "message is compressed");
    else if (bytes > bytes_max)
        err = reason_set(reason, ERR_MALFORMED, "message has %zu bytes, the limit is %zu", bytes,
                         bytes_max);
    else if ((received = received_new(loop, take_bytes)) == NULL)
        err = reason_set(reason, ERR_NOMEM, "no memory for a message");
    if (err != ERR_OK) {
        grpc_byte_buffer_destroy(take_bytes);
        return err;
    }
    *ret_message = &received->message;
    return ERR_OK;
}

struct rpc_message *rpc_message_ref(struct rpc_message *message)
{
    atomic_fetch_add_explicit(&message->references, 1, memory_order_relaxed);
    return message;
}

void rpc_message_unref(struct rpc_message *message)
{
    if (message == NULL)
        return;
    unsigned before = atomic_fetch_sub_explicit(&message->references, 1, memory_order_acq_rel);
    check(before != 0);
    if (before == 1)
        message->released(message);
}

struct copied {
    struct rpc_message message;
    struct slice slice;
    uint8_t data[];
};

static void copied_free(struct rpc_message *message)
{
    free(CONTAINER_OF(message, struct copied, message));
}

struct rpc_message *rpc_message_empty(size_t bytes, uint8_t **ret_data)
{
    struct copied *copied = malloc(sizeof *copied + bytes);
    if (copied == NULL)
        return NULL;
    *copied = (struct copied){.message = {.slice_count = 1,
                                          .bytes = bytes,
                                          .released = copied_free,
                                          .slices = &copied->slice},
                              .slice = {copied->data, bytes}};
    atomic_init(&copied->message.references, 1);
    *ret_data = copied->data;
    return &copied->message;
}

struct rpc_message *rpc_message_new(struct slice bytes)
{
    uint8_t *data;
    struct rpc_message *message = rpc_message_empty(bytes.bytes, &data);
    if (message != NULL && bytes.bytes != 0)
        memcpy(data, bytes.data, bytes.bytes);
    return message;
}

void rpc_message_copy(const struct rpc_message *message, size_t offset, size_t bytes,
                      void *ret_data)
{
    check(offset <= message->bytes && bytes <= message->bytes - offset);
    uint8_t *to = ret_data;
    for (uint32_t i = 0; bytes > 0; i++) {
        struct slice slice = message->slices[i];
        if (offset >= slice.bytes) {
            offset -= slice.bytes;
            continue;
        }
        size_t here = slice.bytes - offset < bytes ? slice.bytes - offset : bytes;
        memcpy(to, slice.data + offset, here);
        to += here;
        bytes -= here;
        offset = 0;
    }
}

/* ---- Sent ---- */

/* On a thread of the library, which ordered it after slice_of_part() by atomic operations that the
 * thread sanitizer does not see: it is told, before it takes the drop for a race with whoever used
 * the memory before. */
static void part_sent(void *counted)
{
#ifdef __SANITIZE_THREAD__
    __tsan_acquire(counted);
#endif
    counted_unref(counted);
}

static grpc_slice slice_of_part(const struct rpc_part *part)
{
    check(part->offset <= part->counted->bytes &&
          part->bytes <= part->counted->bytes - part->offset);
    return grpc_slice_new_with_user_data(part->counted->data + part->offset, part->bytes, part_sent,
                                         counted_ref(part->counted));
}

static grpc_slice slice_of_header(struct buf *take_header)
{
    struct buf header = buf_detach(take_header);
    if (header.bytes == 0) {
        buf_release(&header);
        return grpc_empty_slice();
    }
    return grpc_slice_new_with_user_data(header.data, header.bytes, free, header.data);
}

static enum err sizes_check(const struct buf *header, const struct rpc_part *parts,
                            size_t part_count, size_t bytes_max)
{
    if (part_count > RPC_PARTS_MAX)
        return ERR_INVALID;
    size_t bytes = header->bytes;
    for (size_t i = 0; i < part_count && bytes <= bytes_max; i++)
        bytes = parts[i].bytes > bytes_max ? SIZE_MAX : bytes + parts[i].bytes;
    return bytes <= bytes_max ? ERR_OK : ERR_INVALID;
}

enum err rpc_bytes_of(struct buf *take_header, const struct rpc_part *parts, size_t part_count,
                      size_t bytes_max, grpc_byte_buffer **ret_bytes)
{
    enum { FEW = 16 };
    grpc_slice few[FEW];
    enum err err = sizes_check(take_header, parts, part_count, bytes_max);
    grpc_slice *slices = few;
    if (err == ERR_OK && part_count + 1 > FEW)
        slices = malloc((part_count + 1) * sizeof *slices);
    if (err == ERR_OK && slices == NULL)
        err = ERR_NOMEM;
    if (err != ERR_OK) {
        buf_clear(take_header);
        return err;
    }
    slices[0] = slice_of_header(take_header);
    for (size_t i = 0; i < part_count; i++)
        slices[i + 1] = slice_of_part(&parts[i]);
    *ret_bytes = grpc_raw_byte_buffer_create(slices, part_count + 1); /* takes its own references */
    for (size_t i = 0; i < part_count + 1; i++)
        grpc_slice_unref(slices[i]);
    if (slices != few)
        free(slices);
    return ERR_OK;
}
