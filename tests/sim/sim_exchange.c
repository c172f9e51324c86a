/* Exchange at the server: what workers' streams say to the shard core, and its answers. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/scoped.h"

/* Takes the references of the copies. */
void sim_exchange_answer(struct sim *sim, uint64_t number, const struct from_shard *message,
                         struct counted *const *take_copies, uint32_t count)
{
    struct message *bytes =
        sim_scratch_message(sim, wire_encode_from_shard(message, &sim->scratch));
    check(count <= MESSAGE_COPIES_MAX);
    for (uint32_t i = 0; i < count; i++)
        bytes->copies[bytes->copy_count++] = take_copies[i];
    network_send(sim, network_stream(sim, number), OPENER, bytes);
}

static void greet(struct sim *sim, const struct sim_server *server, struct stream *stream,
                  uint64_t member)
{
    const struct from_shard welcome = {
        .kind = FROM_SHARD_WELCOME,
        .welcome = {server->boot,
                    sim_server_holds(server) ? shard_generation(server->threads[0].shard) : 0}};
    stream->greeted = true;
    stream->member = member;
    sim_exchange_answer(sim, stream->number, &welcome, NULL, 0);
}

/* P2: a server without a shard is behind every generation. */
static void refuse(struct sim *sim, const struct stream *stream, const struct to_shard *message)
{
    struct from_shard refusal = {.kind = FROM_SHARD_ACK};
    if (message->kind == TO_SHARD_PUSH) {
        refusal.ack = (struct push_ack){message->push.id, ERR_BEHIND, 0};
    } else {
        refusal.kind = FROM_SHARD_REFUSAL;
        refusal.refusal = (struct pull_refusal){message->pull.id, ERR_BEHIND};
    }
    sim_exchange_answer(sim, stream->number, &refusal, NULL, 0);
}

/* A duplicate that was computed wrongly: it does no harm, but it is noticed. Once in a run, so that
 * nobody is found guilty of it. */
static bool spoil(struct sim *sim, struct sim_server *server, struct push *push)
{
    struct push_entry *entry = (struct push_entry *)(uintptr_t)&push->entries[0];
    if (sim->calm || sim->spoilt || push->entry_count == 0 || sim->run.async ||
        !ledger_counts(sim, sim_server_thread(server, entry->chunk), push, entry) ||
        sim_below(sim, 4) != 0)
        return false;
    sim->spoilt = true;
    entry->digest ^= 1;
    return true;
}

/* What came of a thread's part of a push. */
struct share {
    struct push_ack ack;
    bool answered;
    uint64_t after; /* async: to be said when so many gradients are taken */
};

/* Counts entries that lie one behind another and belong to one thread. */
static struct push_ack push_run(struct sim *sim, struct sim_server *server,
                                struct sim_thread *thread, struct stream *stream,
                                const struct push *said, const struct truth *said_truth,
                                struct cursor payload, struct share *ret_share)
{
    struct push what = *said;
    struct truth truth = *said_truth;
    const struct shard_statistics before = shard_statistics(thread->shard);
    mutate_push(sim, thread, &what, &truth);
    thread->effects.count = 0;
    shard_push(thread->shard, stream->number, &what, payload, &thread->effects);
    check(thread->effects.count > 0 && thread->effects.items[0].kind == SHARD_ACK);
    const struct push_ack ack = thread->effects.items[0].ack;
    sim_trace(sim, "s%u push of step %llu node %u:%u by w%u, id %llu: %s", server->index,
              (unsigned long long)what.step, what.node.level, what.node.index, stream->worker,
              (unsigned long long)what.id, err_name(ack.code));
    sim->options.progress->duplicates +=
        shard_statistics(thread->shard).duplicates - before.duplicates;
    sim->options.progress->busy += ack.code == ERR_BUSY;
    /* A sum in the order of arrival is wrong though every name is right. */
    ledger_pushed(sim, thread, sim->options.mutation == MUTATE_ARRIVAL_ORDER ? said : &what, &truth,
                  &ack, &before);
    ret_share->answered = mutate_pushed(sim, thread, &before);
    ret_share->after = thread->effects.items[0].after;
    sim_server_carry_out(sim, server, thread, false);
    return ack;
}

/* A thread's share of a push, as server/threads/push.c; what the thread would answer. */
static struct share push_share(struct sim *sim, struct sim_server *server,
                               struct sim_thread *thread, struct stream *stream,
                               const struct to_shard *to, const struct truth *truth,
                               struct cursor payload)
{
    const struct push *whole = &to->push;
    struct share outcome = {{whole->id, ERR_OK, whole->entry_count}, true, 0};
    uint32_t at = 0;
    while (outcome.ack.code == ERR_OK && at < whole->entry_count) {
        uint32_t end = at;
        size_t bytes = 0;
        while (end < whole->entry_count &&
               sim_server_thread(server, whole->entries[end].chunk) == thread)
            bytes += whole->entries[end++].bytes;
        if (end == at) {
            cursor_skip(&payload, whole->entries[at++].bytes);
            continue;
        }
        struct push run = *whole;
        run.entries += at;
        run.entry_count = end - at;
        struct share one = {0};
        one.ack = push_run(sim, server, thread, stream, &run, truth, payload, &one);
        outcome.answered = outcome.answered && one.answered;
        if (one.after > outcome.after)
            outcome.after = one.after;
        if (one.ack.code != ERR_OK)
            outcome.ack = (struct push_ack){whole->id, one.ack.code, at + one.ack.first_refused};
        cursor_skip(&payload, bytes);
        at = end;
    }
    return outcome;
}

/* The answer is said: what it counts is acknowledged. */
static void acknowledge(struct sim *sim, const struct deferred *what)
{
    const struct from_shard answer = {.kind = FROM_SHARD_ACK, .ack = what->ack};
    for (uint32_t i = 0; i < what->count; i++)
        history_acked(sim, what->chunks[i], what->ticket);
    sim_exchange_answer(sim, what->stream, &answer, NULL, 0);
}

static bool is_taken(const struct sim_server *server, const struct deferred *what)
{
    for (uint32_t t = 0; t < server->thread_count; t++)
        if (what->after[t] > shard_taken(server->threads[t].shard))
            return false;
    return true;
}

void sim_exchange_taken(struct sim *sim, struct sim_server *server)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < server->deferred_count; i++) {
        struct deferred *what = &server->deferred[i];
        if (!is_taken(server, what) && sim->options.mutation != MUTATE_ACK_EARLY) {
            server->deferred[kept++] = *what;
            continue;
        }
        acknowledge(sim, what);
        free(what->chunks);
    }
    server->deferred_count = kept;
}

/* Async: said when all threads have taken what they counted of it (shard_thread.c). */
static void answer_later(struct sim *sim, struct sim_server *server, struct deferred *take_what,
                         const struct push *push)
{
    if (server->deferred_count == server->deferred_capacity) {
        server->deferred_capacity = 2 * server->deferred_capacity + 16;
        server->deferred =
            realloc(server->deferred, server->deferred_capacity * sizeof *server->deferred);
        check(server->deferred != NULL);
    }
    take_what->ticket = push->step * sim->scenario.spec.train.slots + push->node.index;
    take_what->count =
        take_what->ack.code == ERR_OK ? push->entry_count : take_what->ack.first_refused;
    take_what->chunks = calloc(take_what->count + 1, sizeof *take_what->chunks);
    check(take_what->chunks != NULL);
    for (uint32_t i = 0; i < take_what->count; i++)
        take_what->chunks[i] = push->entries[i].chunk;
    server->deferred[server->deferred_count++] = *take_what;
    sim_exchange_taken(sim, server);
}

/* One acknowledgement, however many threads: that of the first entry that was refused. */
static void push(struct sim *sim, struct sim_server *server, struct stream *stream,
                 const struct message *message, const struct slice *slices, uint32_t slice_count,
                 const struct to_shard *to)
{
    struct to_shard what = *to;
    struct cursor payload = {slices, slice_count, 0, 0};
    struct deferred answer = {.stream = stream->number,
                              .ack = {to->push.id, ERR_OK, to->push.entry_count}};
    uint32_t first = (uint32_t)sim_below(sim, server->thread_count);
    bool answered = true;
    cursor_skip(&payload, to->payload_offset);
    server->spoilt = spoil(sim, server, &what.push);
    for (uint32_t i = 0; i < server->thread_count; i++) {
        struct sim_thread *thread = &server->threads[(first + i) % server->thread_count];
        struct share share =
            push_share(sim, server, thread, stream, &what, &message->truth, payload);
        answered = answered && share.answered;
        answer.after[thread->number] = share.after;
        if (share.ack.code != ERR_OK &&
            (answer.ack.code == ERR_OK || share.ack.first_refused < answer.ack.first_refused))
            answer.ack = share.ack;
    }
    if (answered && sim->run.async)
        answer_later(sim, server, &answer, &what.push);
    else if (answered)
        sim_exchange_answer(sim, stream->number,
                            &(struct from_shard){.kind = FROM_SHARD_ACK, .ack = answer.ack}, NULL,
                            0);
}

/* A thread's share of a pull: weights are sent, OK; TOO_EARLY: parked; else refused. */
static enum err pull_share(struct sim *sim, struct sim_server *server, struct sim_thread *thread,
                           struct stream *stream, const struct truth *truth,
                           const struct pull *share)
{
    struct pull what = *share;
    mutate_pull(sim, thread, &what);
    thread->effects.count = 0;
    shard_pull(thread->shard, stream->number, &what, &thread->effects);
    const struct shard_effect *effect = &thread->effects.items[0];
    bool served = effect->kind == SHARD_WEIGHTS;
    enum err err = served ? ERR_OK : effect->refusal.code;
    sim_trace(sim, "s%u pull of version %llu by w%u, id %llu: %s", server->index,
              (unsigned long long)what.version, stream->worker, (unsigned long long)what.id,
              err_name(err));
    mutate_served(sim, thread, share->version);
    if (served || err == ERR_TOO_EARLY)
        ledger_pulled(sim, thread, truth);
    thread->parked += err == ERR_TOO_EARLY;
    stream->parked[thread->number] += err == ERR_TOO_EARLY;
    if (!served)
        thread->effects.count = 0; /* said once, for all threads */
    sim_server_carry_out(sim, server, thread, false);
    return err;
}

/* As server/threads/pull.c: weights come thread by thread, the worst refusal once. */
static void pull(struct sim *sim, struct sim_server *server, struct stream *stream,
                 const struct truth *truth, const struct to_shard *to)
{
    uint32_t first = (uint32_t)sim_below(sim, server->thread_count);
    struct from_shard refusal = {.kind = FROM_SHARD_REFUSAL, .refusal = {to->pull.id, ERR_OK}};
    bool parked = false;
    for (uint32_t i = 0; i < server->thread_count; i++) {
        struct sim_thread *thread = &server->threads[(first + i) % server->thread_count];
        uint32_t chunks[WIRE_ENTRIES_MAX];
        struct pull share = to->pull;
        share.chunks = chunks;
        share.chunk_count = 0;
        for (uint32_t c = 0; c < to->pull.chunk_count; c++)
            if (sim_server_thread(server, to->pull.chunks[c]) == thread)
                chunks[share.chunk_count++] = to->pull.chunks[c];
        if (share.chunk_count == 0)
            continue;
        enum err err = pull_share(sim, server, thread, stream, truth, &share);
        parked = parked || err == ERR_TOO_EARLY;
        if (err != ERR_OK &&
            (refusal.refusal.code == ERR_OK || refusal.refusal.code == ERR_TOO_EARLY))
            refusal.refusal.code = err;
    }
    if (refusal.refusal.code != ERR_OK)
        sim_exchange_answer(sim, stream->number, &refusal, NULL, 0);
    if (parked)
        faults_spring(sim, TRAP_PARK, server->index);
}

void sim_exchange_message(struct sim *sim, struct stream *stream, const struct message *message)
{
    struct sim_server *server = &sim->servers[stream->server];
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct to_shard to;
    /* What is received lies in pieces, cut anywhere. */
    size_t cut = sim_below(sim, message->bytes + 1);
    const struct slice slices[] = {{message->data, cut},
                                   {message->data + cut, message->bytes - cut}};
    check(wire_decode_to_shard(slices, 2, &arena, &to, NULL) == ERR_OK);
    if (!server->up)
        network_close(sim, stream, ACCEPTOR, false);
    else if (to.kind == TO_SHARD_HELLO)
        greet(sim, server, stream, to.hello.member);
    else if (!sim_server_holds(server))
        refuse(sim, stream, &to);
    else if (to.kind == TO_SHARD_PUSH)
        push(sim, server, stream, message, slices, 2, &to);
    else
        pull(sim, server, stream, &message->truth, &to);
}

void sim_exchange_lost(struct sim *sim, struct stream *stream)
{
    struct sim_server *server = &sim->servers[stream->server];
    if (!server->up || !sim_server_holds(server))
        return;
    for (uint32_t t = 0; t < server->thread_count; t++) {
        struct sim_thread *thread = &server->threads[t];
        shard_cancel(thread->shard, stream->number);
        thread->parked -= stream->parked[t];
        stream->parked[t] = 0;
        thread->effects.count = 0;
        sim_server_carry_out(sim, server, thread, false);
    }
}
