#include "worker/samples.h"

#include "common/arena.h"
#include "common/scoped.h"

#include <string.h>

enum { FETCH_MS = 30000 };

void samples_release(struct samples *samples)
{
    buf_release(&samples->slot_inputs);
    buf_release(&samples->slot_targets);
}

void samples_begin(struct samples *samples, uint64_t member, const struct proof *secret)
{
    samples->member = member;
    samples->secret = *secret;
    samples->failure = (struct reason){0};
}

/* ---- a copy on this machine ---- */

static enum err read_one(struct samples *samples, enum data_split split, uint64_t index,
                         uint64_t place, void *inputs, int32_t *targets)
{
    uint64_t tokens = samples->target_count;
    if (tokens > 1 || samples->input_bytes != 2 * sizeof(float))
        return data_sample_tokens(samples->data, split, index, (int32_t *)inputs + tokens * place,
                                  targets + tokens * place, &samples->failure);
    data_sample_point(samples->data, split, index, (float *)inputs + 2 * place, targets + place);
    return ERR_OK;
}

static enum err read_data(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                          void *ret_inputs, int32_t *ret_targets)
{
    struct samples *samples = context;
    for (uint32_t i = 0; i < count; i++) {
        if (kind == TICKET_VALIDATE)
            TRY(read_one(samples, DATA_VALIDATION, first + i, i, ret_inputs, ret_targets));
        else
            TRY(read_one(samples, DATA_TRAIN, sampler_sample(&samples->sampler, first + i), i,
                         ret_inputs, ret_targets));
    }
    return ERR_OK;
}

/* ---- served ---- */

/* A daemon read them from a file, which may have changed since it was judged. */
static bool are_below(struct slice numbers, uint32_t limit)
{
    bool all = true;
    for (size_t at = 0; at < numbers.bytes; at += sizeof(uint32_t)) {
        uint32_t number;
        memcpy(&number, numbers.data + at, sizeof number);
        all &= number < limit;
    }
    return all;
}

static enum err keep_slot(struct samples *samples, const struct samples_reply *reply)
{
    if (reply->inputs.bytes != reply->sample_count * samples->input_bytes ||
        reply->targets.bytes != reply->sample_count * samples->target_count * sizeof(int32_t))
        return reason_set(&samples->failure, ERR_MALFORMED,
                          "%u samples came with %zu bytes of inputs and %zu of targets",
                          reply->sample_count, reply->inputs.bytes, reply->targets.bytes);
    if (!are_below(reply->targets, samples->classes) ||
        (samples->tokens && !are_below(reply->inputs, samples->classes)))
        return reason_set(&samples->failure, ERR_MALFORMED,
                          "samples came with a token or target that is not below %u",
                          samples->classes);
    buf_clear(&samples->slot_inputs);
    buf_clear(&samples->slot_targets);
    TRY(buf_append(&samples->slot_inputs, reply->inputs.data, reply->inputs.bytes));
    TRY(buf_append(&samples->slot_targets, reply->targets.data, reply->targets.bytes));
    samples->slot_count = reply->sample_count;
    samples->has_slot = true;
    return ERR_OK;
}

static enum err fetch_slot(struct samples *samples, enum ticket_kind kind, uint64_t slot)
{
    scoped(buf_release) struct buf request = {0};
    scoped(buf_release) struct buf response = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct samples_request wanted = {.run = samples->run,
                                     .member = samples->member,
                                     .secret = samples->secret,
                                     .ticket = {.kind = kind}};
    if (kind == TICKET_TRAIN) {
        wanted.ticket.step = slot / samples->slots;
        wanted.slot = (uint32_t)(slot % samples->slots);
    } else {
        wanted.ticket.node.index = (uint32_t)slot; /* the piece */
    }
    samples->has_slot = false;
    samples->slot_kind = kind;
    samples->slot = slot;
    TRY(wire_encode_samples_request(&wanted, &request));
    TRY(rpc_call(samples->channel, "/roost.v1.Cluster/Samples", buf_slice(&request), FETCH_MS,
                 &response, &samples->failure));
    struct samples_reply reply;
    TRY(wire_decode_samples_reply(buf_slice(&response), &arena, &reply, &samples->failure));
    return keep_slot(samples, &reply);
}

static enum err read_served(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                            void *ret_inputs, int32_t *ret_targets)
{
    struct samples *samples = context;
    uint64_t slot = first / samples->sampler.slot_samples;
    uint64_t place = first % samples->sampler.slot_samples;
    if (!samples->has_slot || samples->slot_kind != kind || samples->slot != slot)
        TRY(fetch_slot(samples, kind, slot));
    check(samples->slot_inputs.bytes == samples->slot_count * samples->input_bytes);
    check(samples->slot_kind == kind && samples->slot == slot);
    if (place + count > samples->slot_count)
        return reason_set(&samples->failure, ERR_MALFORMED,
                          "slot %llu came with %u samples, not %llu", (unsigned long long)slot,
                          samples->slot_count, (unsigned long long)(place + count));
    memcpy(ret_inputs, samples->slot_inputs.data + place * samples->input_bytes,
           count * samples->input_bytes);
    memcpy(ret_targets,
           samples->slot_targets.data + place * samples->target_count * sizeof(int32_t),
           count * samples->target_count * sizeof(int32_t));
    return ERR_OK;
}

struct executor_samples samples_source(struct samples *samples)
{
    return (struct executor_samples){
        .context = samples,
        .read = samples->data != NULL ? read_data : read_served,
        .held_out = samples->held_out,
    };
}
