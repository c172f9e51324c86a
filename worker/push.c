#include "worker/push.h"

#include "common/shared/shared_pool.h"

size_t push_bytes(const struct push *push)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < push->entry_count; i++)
        bytes += push->entries[i].bytes;
    return bytes;
}

static void encode_entries(const struct executor *executor, const struct whole *whole,
                           const struct model *model, const struct push *push, uint8_t *payload)
{
    for (uint32_t i = 0; i < push->entry_count; i++) {
        const struct push_entry *entry = &push->entries[i];
        enum codec codec = blocks_codec(model, entry->chunk, push->codec);
        check(entry->chunk < model->chunks_count);
        check(entry->part < model->parameters[model->chunks[entry->chunk].parameter].parts);
        check(entry->bytes == blocks_bytes(model, entry->chunk, push->codec));
        if (whole != NULL)
            whole_encode(whole, entry->chunk, codec, payload);
        else
            executor_encode(executor, entry->chunk, entry->part, codec, payload);
        payload += entry->bytes;
    }
}

enum err push_send(const struct executor *executor, const struct whole *whole,
                   const struct model *model, struct rpc_stream *stream, const struct push *push)
{
    size_t bytes = push_bytes(push);
    check(bytes > 0 && bytes <= WIRE_PAYLOAD_BYTES_MAX); /* the server refuses more */
    struct counted *payload = shared_pool_counted(rpc_stream_pool(stream), bytes);
    if (payload == NULL)
        return ERR_NOMEM;
    encode_entries(executor, whole, model, push, payload->data);
    enum err err = executor_encoded(executor);
    if (err != ERR_OK) {
        counted_unref(payload);
        return err;
    }
    struct to_shard message = {.kind = TO_SHARD_PUSH, .push = *push, .payload_bytes = bytes};
    struct rpc_part part = {payload, 0, bytes};
    struct buf header = {0};
    err = wire_encode_to_shard(&message, &header);
    if (err == ERR_OK)
        err = rpc_stream_send(stream, RPC_NORMAL, &header, &part, 1);
    else
        buf_release(&header);
    counted_unref(payload); /* the stream holds its own */
    return err;
}
