/* A worker's streams to the servers: its pushes and pulls, and which of them wait for an answer. */
#include "tests/sim/sim.h"

#include "common/digest.h"
#include "common/scoped.h"

enum { UNANSWERED_US = 90000000 /* longer than any fault lasts, backoffs included */ };

static void sent(struct sim *sim, struct sim_worker *worker, uint32_t link, uint64_t id,
                 uint32_t pull_chunks)
{
    bool pull = pull_chunks > 0;
    struct sim_link *at = &worker->links[link];
    uint32_t count = 0;
    if (at->stream == 0 || at->count == SIM_UNANSWERED_MAX)
        sim_violated(sim, 6, "w%u sends to s%u without a stream, or too much", worker->index,
                     at->server);
    at->unanswered[at->count++] =
        (struct unanswered){.id = id, .pull = pull, .missing = pull_chunks, .sent_us = sim->now_us};
    for (uint32_t i = 0; i < at->count; i++)
        count += at->unanswered[i].pull == pull && !at->unanswered[i].parked;
    if (count > WIRE_CREDITS)
        sim_violated(sim, 6, "w%u has %u %s unanswered at s%u", worker->index, count,
                     pull ? "pulls" : "pushes", at->server);
}

void sim_link_pull(struct sim *sim, struct sim_worker *worker, uint32_t link,
                   const struct pull *pull)
{
    const struct to_shard to = {.kind = TO_SHARD_PULL, .pull = *pull};
    sent(sim, worker, link, pull->id, pull->chunk_count);
    sim_trace(sim, "w%u pulls %u chunks of version %llu from s%u, id %llu", worker->index,
              pull->chunk_count, (unsigned long long)pull->version, worker->links[link].server,
              (unsigned long long)pull->id);
    struct message *message = sim_scratch_message(sim, wire_encode_to_shard(&to, &sim->scratch));
    message->truth =
        (struct truth){.generation = worker->ticket.generation, .id = pull->id, .pull = true};
    network_send(sim, network_stream(sim, worker->links[link].stream), ACCEPTOR, message);
}

static void encode_entries(struct sim *sim, const struct sim_worker *worker,
                           const struct push *push, struct push_entry *entries, uint8_t *payload)
{
    for (uint32_t i = 0; i < push->entry_count; i++) {
        uint32_t bytes = compute_encode(&sim->compute, entries[i].chunk, entries[i].part,
                                        worker->gradients, payload);
        check(bytes == entries[i].bytes);
        entries[i].digest = digest_fast64((struct slice){payload, bytes});
        payload += bytes;
    }
}

void sim_link_push(struct sim *sim, struct sim_worker *worker, uint32_t link,
                   const struct push *push, struct push_entry *entries)
{
    struct to_shard to = {.kind = TO_SHARD_PUSH, .push = *push};
    sent(sim, worker, link, push->id, 0);
    for (uint32_t i = 0; i < push->entry_count; i++)
        to.payload_bytes += entries[i].bytes;
    scoped(free_scoped) uint8_t *payload = malloc(to.payload_bytes);
    check(payload != NULL);
    encode_entries(sim, worker, push, entries, payload);
    check(wire_encode_to_shard(&to, &sim->scratch) == ERR_OK);
    struct message *message =
        sim_scratch_message(sim, buf_append(&sim->scratch, payload, to.payload_bytes));
    message->truth = (struct truth){worker->ticket.generation,
                                    worker->ticket.step,
                                    worker->ticket.node,
                                    worker->ticket.version,
                                    push->id,
                                    false};
    sim_trace(sim, "w%u pushes %u pieces of step %llu node %u:%u to s%u, id %llu", worker->index,
              push->entry_count, (unsigned long long)push->step, push->node.level, push->node.index,
              worker->links[link].server, (unsigned long long)push->id);
    network_send(sim, network_stream(sim, worker->links[link].stream), ACCEPTOR, message);
}

void sim_link_open(struct sim *sim, struct sim_worker *worker, uint32_t link)
{
    struct sim_link *at = &worker->links[link];
    const struct to_shard hello = {.kind = TO_SHARD_HELLO,
                                   .hello = {worker->member, worker->secret}};
    check(at->server < SIM_SERVERS_MAX);
    if (at->stream != 0)
        network_close(sim, network_stream(sim, at->stream), OPENER, false);
    struct stream *stream = network_open(
        sim,
        (struct stream){.kind = STREAM_EXCHANGE, .worker = worker->index, .server = at->server});
    at->stream = stream->number;
    at->count = 0;
    network_send(sim, stream, ACCEPTOR,
                 sim_scratch_message(sim, wire_encode_to_shard(&hello, &sim->scratch)));
}

static struct unanswered *find_unanswered(struct sim_link *link, uint64_t id)
{
    for (uint32_t i = 0; i < link->count; i++)
        if (link->unanswered[i].id == id)
            return &link->unanswered[i];
    return NULL;
}

void sim_link_answered(struct sim_link *link, uint64_t id)
{
    struct unanswered *one = find_unanswered(link, id);
    if (one != NULL)
        *one = link->unanswered[--link->count];
}

/* Some of a pull's chunks have come; or it is parked, and will be answered. */
void sim_link_partly_answered(struct sim_link *link, uint64_t id, uint32_t chunks)
{
    struct unanswered *one = find_unanswered(link, id);
    if (one == NULL)
        return;
    one->missing -= chunks;
    one->parked |= chunks == 0;
    if (one->missing == 0)
        sim_link_answered(link, id);
}

/* 5: whatever is unanswered is so for a bounded time. */
void sim_link_check(struct sim *sim, const struct sim_worker *worker)
{
    for (uint32_t l = 0; l < worker->link_count; l++)
        for (uint32_t i = 0; i < worker->links[l].count; i++) {
            const struct unanswered *one = &worker->links[l].unanswered[i];
            if (sim->now_us - one->sent_us > UNANSWERED_US)
                sim_violated(sim, 5, "w%u waits for s%u's answer to %s %llu since %.3f s",
                             worker->index, worker->links[l].server, one->pull ? "pull" : "push",
                             (unsigned long long)one->id, (double)one->sent_us / 1e6);
        }
}
