#include "worker/pull.h"

enum err pull_send(struct rpc_stream *stream, const struct pull *pull)
{
    struct to_shard message = {.kind = TO_SHARD_PULL, .pull = *pull};
    struct buf header = {0};
    enum err err = wire_encode_to_shard(&message, &header);
    if (err == ERR_OK)
        return rpc_stream_send(stream, RPC_URGENT, &header, NULL, 0);
    buf_release(&header);
    return err;
}

enum err pull_check(const struct model *model, const struct from_shard *message,
                    struct reason *reason)
{
    const struct weights *weights = &message->weights;
    size_t bytes = 0;
    for (uint32_t i = 0; i < weights->chunk_count; i++) {
        if (weights->chunks[i] >= model->chunks_count)
            return reason_set(reason, ERR_MALFORMED, "weights name chunk %u of %u",
                              weights->chunks[i], model->chunks_count);
        bytes += blocks_bytes(model, weights->chunks[i], weights->codec);
    }
    if (bytes != message->payload_bytes)
        return reason_set(reason, ERR_MALFORMED,
                          "weights of %u chunks came with %zu bytes, not %zu", weights->chunk_count,
                          message->payload_bytes, bytes);
    return ERR_OK;
}

void pull_receive(struct executor *executor, struct lent_weights *lent, const struct model *model,
                  const struct from_shard *message, struct rpc_message *received)
{
    const struct weights *weights = &message->weights;
    struct cursor cursor = {received->slices, received->slice_count, 0, 0};
    cursor_skip(&cursor, message->payload_offset);
    for (uint32_t i = 0; i < weights->chunk_count; i++) { /* pull_check() counted their bytes */
        uint32_t chunk = weights->chunks[i];
        enum codec codec = blocks_codec(model, chunk, weights->codec);
        if (codec != CODEC_FP32 || !lent_weights_keep(lent, chunk, &cursor, received))
            executor_decode(executor, chunk, codec, &cursor);
    }
    check(cursor_bytes(&cursor) == 0);
}
