/* Chunks on their way from server to server. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "server/threads/transfer.h"

enum { AGAIN_US_MIN = 4000, AGAIN_DOUBLED_MAX = 7 /* as shard_thread.c */ };

void sim_transfers_release(struct sim_transfers *transfers)
{
    free(transfers->list);
}

static uint64_t add(struct sim_transfers *transfers, const struct sim_transfer *what)
{
    if (transfers->count == transfers->capacity) {
        transfers->capacity = transfers->capacity == 0 ? 64 : 2 * transfers->capacity;
        transfers->list = realloc(transfers->list, transfers->capacity * sizeof *transfers->list);
        check(transfers->list != NULL);
    }
    transfers->list[transfers->count++] = *what;
    return transfers->count;
}

static struct sim_transfer *find(struct sim *sim, uint64_t number)
{
    check(number > 0 && number <= sim->transfers.count);
    return &sim->transfers.list[number - 1];
}

static struct place place_of(uint32_t server)
{
    return (struct place){PLACE_SERVER, server};
}

/* ---- the old owner ---- */

static void put_request(struct sim *sim, uint64_t number, struct message *take_message)
{
    const struct sim_transfer *transfer = find(sim, number);
    uint64_t delay_us = network_delay_us(sim, place_of(transfer->from), place_of(transfer->to));
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + delay_us,
                                          .kind = EVENT_TRANSFER_ARRIVED,
                                          .index = transfer->to,
                                          .number = number,
                                          .message = take_message});
}

static void put_answer(struct sim *sim, uint64_t number, uint64_t at_us, enum err err)
{
    queue_put(&sim->queue, (struct event){.at_us = at_us,
                                          .kind = EVENT_TRANSFER_ANSWERED,
                                          .index = find(sim, number)->from,
                                          .number = number,
                                          .detail = err});
}

static struct message *encode(struct sim *sim, const struct shard *shard,
                              const struct transfer *header)
{
    size_t bytes = (size_t)header->weights * header->arrays * sizeof(float);
    check(wire_encode_transfer(header, &sim->scratch) == ERR_OK);
    check(buf_reserve(&sim->scratch, bytes) == ERR_OK);
    shard_transfer_copy(shard, header, sim->scratch.data + sim->scratch.bytes);
    sim->scratch.bytes += bytes;
    return sim_scratch_message(sim, ERR_OK);
}

void sim_transfer_send(struct sim *sim, const struct sim_server *server, struct sim_thread *thread,
                       const struct shard_effect *effect)
{
    const struct transfer *header = &effect->transfer.header;
    const struct sim_transfer transfer = {.from = server->index,
                                          .to = effect->transfer.to,
                                          .boot = server->boot,
                                          .thread = thread->number,
                                          .header = *header,
                                          .deadline_us =
                                              sim->now_us + (uint64_t)TRANSFER_MS * 1000};
    struct message *message = encode(sim, thread->shard, header);
    uint64_t number = add(&sim->transfers, &transfer);
    sim_trace(sim, "s%u sends chunk %u of version %llu to s%u", server->index, header->chunk,
              (unsigned long long)header->version, transfer.to);
    put_answer(sim, number, transfer.deadline_us, ERR_DEADLINE);
    if (network_lost(sim, place_of(transfer.from), place_of(transfer.to))) {
        message_unref(message);
        if (sim_below(sim, 2) == 0)
            put_answer(sim, number, sim->now_us + sim_restart_us(sim), ERR_UNREACHABLE);
        return;
    }
    if (!sim->calm && sim_below(sim, 1000) < sim->scenario.repeat_permille) {
        sim_fault(sim, FAULT_REPEAT_CALL);
        message->references++;
        put_request(sim, number, message);
    }
    put_request(sim, number, message);
}

/* Its shard, if that still waits for the answer. */
static struct sim_thread *caller(struct sim *sim, const struct sim_transfer *transfer)
{
    struct sim_server *server = &sim->servers[transfer->from];
    struct sim_thread *thread = &server->threads[transfer->thread];
    return server->up && server->boot == transfer->boot && thread->shard != NULL ? thread : NULL;
}

static void told(struct sim *sim, const struct sim_transfer *transfer, struct sim_thread *thread,
                 enum err err)
{
    shard_transferred(thread->shard, &transfer->header, err);
    shard_check(thread->shard);
    thread->failures = err == ERR_OK ? 0 : thread->failures;
    sim_server_work_later(sim, &sim->servers[transfer->from], thread);
}

void sim_transfer_answered(struct sim *sim, const struct event *event)
{
    struct sim_transfer *transfer = find(sim, event->number);
    struct sim_thread *thread = caller(sim, transfer);
    enum err err = (enum err)event->detail;
    if (transfer->answered || thread == NULL)
        return;
    transfer->answered = true;
    sim_trace(sim, "s%u hears of chunk %u of version %llu from s%u: %s", transfer->from,
              transfer->header.chunk, (unsigned long long)transfer->header.version, transfer->to,
              err_name(err));
    if (err == ERR_OK || err == ERR_TOO_LATE) {
        sim->options.progress->moved++;
        told(sim, transfer, thread, ERR_OK);
        return;
    }
    if (err_reaction(err) == REACT_REJOIN)
        return; /* another generation has begun there */
    uint64_t after_us = (uint64_t)AGAIN_US_MIN << thread->failures;
    thread->failures += thread->failures < AGAIN_DOUBLED_MAX;
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + after_us,
                                          .kind = EVENT_TRANSFER_AGAIN,
                                          .index = transfer->from,
                                          .number = event->number,
                                          .detail = err});
}

void sim_transfer_again(struct sim *sim, const struct event *event)
{
    const struct sim_transfer *transfer = find(sim, event->number);
    struct sim_thread *thread = caller(sim, transfer);
    if (thread != NULL)
        told(sim, transfer, thread, (enum err)event->detail);
}

/* ---- the new owner ---- */

/* The new owner has taken the chunk before, from this transfer or one like it. */
static bool was_taken(const struct sim *sim, uint32_t server, const struct transfer *header)
{
    for (size_t i = 0; i < sim->transfers.count; i++) {
        const struct sim_transfer *transfer = &sim->transfers.list[i];
        if (transfer->taken && transfer->to == server &&
            transfer->header.generation == header->generation &&
            transfer->header.version == header->version && transfer->header.chunk == header->chunk)
            return true;
    }
    return false;
}

static enum err arrive(struct sim *sim, struct sim_server *server, uint64_t number,
                       const struct message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_HEADER_BYTES_MAX};
    struct transfer header;
    struct slice payload;
    check(wire_decode_transfer((struct slice){message->data, message->bytes}, &arena, &header,
                               &payload, NULL) == ERR_OK);
    struct cursor cursor = {&payload, 1, 0, 0};
    struct sim_thread *thread = sim_server_thread(server, header.chunk);
    if (thread->shard == NULL)
        return ERR_BEHIND;
    thread->effects.count = 0;
    enum err err = shard_arrive(thread->shard, &header, cursor, &thread->effects);
    sim_trace(sim, "s%u is given chunk %u of version %llu: %s", server->index, header.chunk,
              (unsigned long long)header.version, err_name(err));
    ledger_arrived(sim, thread, &header, err, was_taken(sim, server->index, &header));
    find(sim, number)->taken |= err == ERR_OK;
    sim_server_carry_out(sim, server, thread, true);
    return err;
}

void sim_transfer_arrived(struct sim *sim, struct event *event)
{
    const struct sim_transfer *transfer = find(sim, event->number);
    struct sim_server *server = &sim->servers[transfer->to];
    if (!server->up) { /* the call waits for it, for a while, or fails */
        uint64_t at_us = sim->now_us + sim_restart_us(sim);
        if (sim_below(sim, 4) == 0)
            put_answer(sim, event->number, at_us, ERR_UNREACHABLE);
        else if (at_us < transfer->deadline_us) {
            event->message->references++;
            queue_put(&sim->queue, (struct event){.at_us = at_us,
                                                  .kind = EVENT_TRANSFER_ARRIVED,
                                                  .index = transfer->to,
                                                  .number = event->number,
                                                  .message = event->message});
        }
        return;
    }
    enum err err = arrive(sim, server, event->number, event->message);
    uint64_t delay_us = network_delay_us(sim, place_of(transfer->to), place_of(transfer->from));
    if (!network_lost(sim, place_of(transfer->to), place_of(transfer->from)))
        put_answer(sim, event->number, sim->now_us + delay_us, err);
    faults_spring(sim, TRAP_TRANSFER, event->number % 2 == 0 ? transfer->from : transfer->to);
}
