#include "tests/sim/watch.h"

#include "common/arena.h"
#include "common/files/checkpoint.h"
#include "common/scoped.h"
#include "server/disk/prepared.h"
#include "server/shard/shard_core.h"
#include "server/threads/exchange_stream.h"
#include "tests/sim/older.h"
#include "tests/sim/sim.h"

#include <string.h>

/* ---- what is under way ---- */

void watch_received(struct sim *sim, struct stream *stream, struct message *message)
{
    if (stream->awaited_count == stream->awaited_capacity) {
        stream->awaited_capacity = 2 * stream->awaited_capacity + 16;
        stream->awaited =
            realloc(stream->awaited, stream->awaited_capacity * sizeof *stream->awaited);
        check(stream->awaited != NULL);
    }
    struct awaited *awaited = &stream->awaited[stream->awaited_count++];
    *awaited = (struct awaited){.truth = message->truth};
    if (sim->run.async) {
        awaited->message = message;
        message->references++;
    }
}

static struct awaited *find_awaited(const struct stream *stream, uint64_t id, bool pull)
{
    for (uint32_t i = stream->awaited_count; i-- > 0;)
        if (stream->awaited[i].truth.id == id && stream->awaited[i].truth.pull == pull)
            return &stream->awaited[i];
    return NULL;
}

static struct awaited *awaited_of(const struct stream *stream, uint64_t id, bool pull)
{
    struct awaited *awaited = find_awaited(stream, id, pull);
    check(awaited != NULL);
    return awaited;
}

void watch_release_stream(struct stream *stream)
{
    for (uint32_t i = 0; i < stream->awaited_count; i++)
        message_unref(stream->awaited[i].message);
    free(stream->awaited);
    free(stream->unanswered);
}

/* async: the worker gets the acknowledgement. */
static void acknowledge(struct sim *sim, const struct stream *stream, const struct message *message,
                        const struct push_ack *ack)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct slice slices[MESSAGE_SLICES_MAX];
    struct to_shard to;
    uint32_t slice_count = message_slices(message, slices);
    check(wire_decode_to_shard(slices, slice_count, &arena, &to, NULL) == ERR_OK);
    uint32_t count = ack->code == ERR_OK ? to.push.entry_count : ack->first_refused;
    uint64_t ticket = to.push.step * sim->scenario.spec.train.slots + to.push.node.index;
    if (stream->worker == sim->lie.worker &&
        sim_lied(sim, to.push.generation, to.push.step, to.push.node))
        return;
    for (uint32_t i = 0; i < count; i++)
        history_acked(sim, stream->server, to.push.entries[i].chunk, ticket);
    const struct sim_thread *thread = &sim->servers[stream->server].threads[0];
    if (sim->options.story != NULL && ack->code == ERR_OK && thread->shard != NULL &&
        ledger_has(sim, thread, to.push.step, to.push.node.index))
        story_tell_once(sim, "s%u acknowledges slot %u of step %llu to w%u: its journal has it",
                        stream->server, to.push.node.index, (unsigned long long)to.push.step,
                        stream->worker);
}

bool watch_answer(struct sim *sim, struct stream *stream, const struct message *message)
{
    struct slice slices[MESSAGE_SLICES_MAX];
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct from_shard answer = {.kind = FROM_SHARD_WELCOME};
    if (!sim->run.async && sim->options.mutation != MUTATE_NO_ACK)
        return true;
    check(wire_decode_from_shard(slices, message_slices(message, slices), &arena, &answer, NULL) ==
          ERR_OK);
    if (answer.kind != FROM_SHARD_ACK)
        return true;
    const struct awaited *awaited = awaited_of(stream, answer.ack.id, false);
    if (awaited->silent)
        return false;
    if (sim->run.async)
        acknowledge(sim, stream, awaited->message, &answer.ack);
    return true;
}

/* ---- whose shard ---- */

static struct sim_server *server_here(void)
{
    return &world.sim->servers[world.life->place.index];
}

/* The thread that runs; NULL: none of a server that is alive, or the simulator itself. */
static struct sim_thread *thread_here(void)
{
    uint32_t number;
    if (!life_acts() || world.life->place.kind != MACHINE_SERVER || !life_shard_thread(&number))
        return NULL;
    return &server_here()->threads[number];
}

/* … if that is its shard. */
static struct sim_thread *thread_of(const struct shard *shard)
{
    struct sim_thread *thread = thread_here();
    return thread != NULL && thread->shard == shard ? thread : NULL;
}

static void drop_chunks(struct sim_thread *thread)
{
    free(thread->chunks);
    thread->chunks = NULL;
    thread->chunk_count = thread->parked = 0;
}

void watch_forget(struct sim_server *server)
{
    for (uint32_t t = 0; t < server->thread_count; t++) {
        server->threads[t].shard = NULL;
        drop_chunks(&server->threads[t]);
    }
}

/* ---- effects ---- */

/* Two workers never differ, but a push may have been spoilt on purpose. */
static void check_wrong_bits(struct sim *sim, const struct shard_effect *effect)
{
    const struct sim_server *server = server_here();
    if (!server->spoilt)
        sim_violated(sim, 13, "s%u: a push of step %llu node %u:%u chunk %u differs from the first",
                     server->index, (unsigned long long)effect->wrong_bits.step,
                     effect->wrong_bits.node.level, effect->wrong_bits.node.index,
                     effect->wrong_bits.chunk);
    sim->options.progress->wrong_bits++;
}

static struct stream *stream_of(struct sim *sim, uint64_t sender)
{
    const struct exchange_stream *stream = (const struct exchange_stream *)(uintptr_t)sender;
    return rpc_network_stream(sim, stream->rpc);
}

static void look_at(struct sim *sim, struct sim_thread *thread, const struct shard_effect *effect)
{
    switch (effect->kind) {
    case SHARD_WEIGHTS:
        tables_check_stream(sim, (const struct exchange_stream *)(uintptr_t)effect->sender);
        if (sim->run.async)
            history_published(sim, thread, &effect->weights.header, effect->weights.copies);
        else
            ledger_published(sim, thread, &effect->weights.header, effect->weights.copies);
        break;
    case SHARD_REDUCED:
        ledger_reduced(sim, thread, &effect->reduced);
        break;
    case SHARD_COMMITTED:
        ledger_committed(sim, thread, effect->committed.step);
        story_tell(sim, "s%u has applied commit(%llu)", thread->index,
                   (unsigned long long)effect->committed.step);
        break;
    case SHARD_SNAPSHOT:
        if (sim->run.async && effect->snapshot.cut.version == thread->cut_version &&
            thread->shard->async.applied < thread->before_cut)
            sim_violated(sim, 16, "s%u copies a cut without what its journal got before it",
                         thread->index);
        if (sim->run.async)
            history_snapshot(sim, thread, effect);
        lent_handed(sim, effect);
        mutate_snapshot(sim, server_here(), effect);
        break;
    case SHARD_WRONG_BITS:
        check_wrong_bits(sim, effect);
        break;
    case SHARD_ORDER:
        history_order(sim, thread, &effect->order);
        break;
    case SHARD_TRANSFER:
        sim_trace(sim, "s%u sends chunk %u of version %llu", thread->index,
                  effect->transfer.header.chunk,
                  (unsigned long long)effect->transfer.header.version);
        story_tell_once(sim, "s%u sends chunks of version %llu away", thread->index,
                        (unsigned long long)effect->transfer.header.version);
        break;
    case SHARD_REFUSAL:
    case SHARD_NOT_FINITE:
        break;
    }
}

/* Checks the shard's own invariants and its effects. The process may be dead afterwards. */
static void look(struct sim_thread *thread, const struct shard_effects *effects)
{
    struct sim *sim = world.sim;
    bool reduced = false;
    world.watching = true;
    thread->effects = effects;
    for (uint32_t i = 0; i < effects->count; i++) {
        look_at(sim, thread, &effects->items[i]);
        reduced = reduced || effects->items[i].kind == SHARD_REDUCED;
    }
    shard_check(thread->shard);
    tables_check_shard(sim, thread->shard);
    if (shard_statistics(thread->shard).parked != thread->parked)
        sim_violated(sim, 5, "s%u holds %llu parked pulls, not %u", thread->index,
                     (unsigned long long)shard_statistics(thread->shard).parked, thread->parked);
    world.watching = false;
    story_act(sim);
    if (reduced)
        faults_spring(sim, TRAP_REDUCED, thread->index);
}

/* Pulls that waited are answered by the effects. */
static void count_answered(struct sim_thread *thread, const struct shard_effects *effects)
{
    for (uint32_t i = 0; i < effects->count; i++)
        if (effects->items[i].kind == SHARD_WEIGHTS || effects->items[i].kind == SHARD_REFUSAL) {
            stream_of(world.sim, effects->items[i].sender)->parked[thread->number]--;
            thread->parked--;
        }
}

/* ---- life of a shard ---- */

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

REAL(enum err, shard_new, const struct shard_config *config, struct shard **ret_shard);
REAL(enum err, prepared_shard_new, struct prepared *prepared, const struct prepared_shard *about,
     struct shard **ret_shard, struct reason *reason);
REAL(void, shard_free, struct shard *shard);
REAL(bool, shard_close, struct shard *shard, struct shard_effects *effects);
REAL(bool, shard_end_member, struct shard *shard, uint64_t member, struct shard_effects *effects);
REAL(bool, shard_begin_order, struct shard *shard, uint32_t *next, struct shard_effects *effects);

/* The scenario's settings beside the spec's. */
enum err __wrap_shard_new(const struct shard_config *config, struct shard **ret_shard)
{
    struct sim_thread *thread = thread_here();
    if (thread == NULL)
        return __real_shard_new(config, ret_shard);
    struct shard_config changed = *config;
    const struct shard_config wanted = scenario_shard(&world.sim->scenario);
    changed.ahead_max = wanted.ahead_max;
    changed.parked_member_bytes_max = wanted.parked_member_bytes_max;
    changed.snapshot_copies = wanted.snapshot_copies;
    drop_chunks(thread);
    thread->chunks = calloc(config->chunk_count + 1, sizeof *thread->chunks);
    check(thread->chunks != NULL);
    if (config->chunk_count > 0)
        memcpy(thread->chunks, config->chunks, config->chunk_count * sizeof *thread->chunks);
    thread->chunk_count = config->chunk_count;
    return __real_shard_new(&changed, ret_shard);
}

/* Of an async run also what it did again from its journal. */
static void tell_prepared(struct sim *sim, const struct sim_thread *thread,
                          const struct prepared *prepared)
{
    uint32_t slots = sim->scenario.spec.train.slots;
    if (prepared->from_cut)
        story_tell(sim, "s%u has loaded the cut of version %llu", thread->index,
                   (unsigned long long)prepared->version);
    for (uint64_t step = 0; sim->options.story != NULL && sim->run.async && prepared->from_cut &&
                            step < sim->scenario.spec.train.steps;
         step++)
        for (uint32_t slot = 0; slot < slots; slot++)
            if (step >= prepared->version && ledger_has(sim, thread, step, slot))
                story_tell(sim, "s%u has done slot %u of step %llu again, from its journal",
                           thread->index, slot, (unsigned long long)step);
}

enum err __wrap_prepared_shard_new(struct prepared *prepared, const struct prepared_shard *about,
                                   struct shard **ret_shard, struct reason *reason)
{
    enum err err = __real_prepared_shard_new(prepared, about, ret_shard, reason);
    struct sim_thread *thread = thread_here();
    if (thread == NULL || err != ERR_OK)
        return err;
    sim_trace(world.sim, "s%u prepares generation %llu from %s version %llu", thread->index,
              (unsigned long long)prepared->generation,
              prepared->from_cut ? "the cut of"
              : prepared->joins  ? "nothing, to join at"
                                 : "nothing:",
              (unsigned long long)prepared->version);
    server_here()->map_index = prepared->server;
    thread->shard = *ret_shard;
    thread->before_cut = 0;
    world.watching = true;
    ledger_prepared(world.sim, thread, prepared->joins);
    world.watching = false;
    tell_prepared(world.sim, thread, prepared);
    story_act(world.sim);
    return ERR_OK;
}

void __wrap_shard_free(struct shard *shard)
{
    struct sim_thread *thread = thread_of(shard);
    if (shard != NULL && thread != NULL) {
        thread->shard = NULL;
        drop_chunks(thread);
    }
    __real_shard_free(shard);
}

bool __wrap_shard_close(struct shard *shard, struct shard_effects *effects)
{
    bool closed = __real_shard_close(shard, effects);
    struct sim_thread *thread = thread_of(shard);
    if (thread != NULL) {
        count_answered(thread, effects);
        look(thread, effects);
    }
    return closed;
}

bool __wrap_shard_end_member(struct shard *shard, uint64_t member, struct shard_effects *effects)
{
    bool ended = __real_shard_end_member(shard, member, effects);
    struct sim_thread *thread = thread_of(shard);
    if (thread != NULL) {
        if (effects->count > 0)
            sim_trace(world.sim, "s%u refuses %u parked pulls of member %llu, who has ended",
                      thread->index, effects->count, (unsigned long long)member);
        count_answered(thread, effects);
        look(thread, effects);
    }
    return ended;
}

bool __wrap_shard_begin_order(struct shard *shard, uint32_t *next, struct shard_effects *effects)
{
    bool whole = __real_shard_begin_order(shard, next, effects);
    struct sim_thread *thread = thread_of(shard);
    if (thread != NULL)
        look(thread, effects);
    return whole;
}

/* ---- pushes and pulls ---- */

REAL(struct shard_ack, shard_push, struct shard *shard, uint64_t sender, const struct push *push,
     struct cursor payload, struct shard_effects *effects);
REAL(void, shard_pull, struct shard *shard, struct pull_sender sender, const struct pull *pull,
     struct shard_effects *effects);
REAL(void, shard_cancel, struct shard *shard, uint64_t sender);
REAL(uint64_t, shard_taken, const struct shard *shard);

/* The first of that name came from another member: one that contradicts itself is found guilty. */
static bool is_another_s(const struct shard *shard, const struct push *push,
                         const struct push_entry *entry)
{
    uint32_t index = chunk_find(&shard->store, entry->chunk);
    if (index == shard->store.count)
        return false;
    const struct name *first =
        names_first(&shard->store.chunks[index].parts[entry->part].names, push);
    return first != NULL && first->member != push->member;
}

/* A duplicate that was computed wrongly: it does no harm, but it is noticed. Once in a run, so that
 * nobody is found guilty of it; in a story, always of the machine that it names. */
static bool is_spoilt(struct sim *sim, const struct sim_thread *thread, const struct push *push,
                      uint32_t worker)
{
    const struct push_entry *entry = &push->entries[0];
    if (sim->calm || push->entry_count == 0 || entry->bytes == 0 || sim->run.async ||
        !ledger_counts(sim, thread, push, entry) || !is_another_s(thread->shard, push, entry))
        return false;
    if (!story_is_wrong(sim, worker) && (sim->spoilt || sim_below(sim, 4) != 0))
        return false;
    sim->spoilt = true;
    return true;
}

/* The same bytes with another bit in the first; the sender keeps what it sent. */
static struct slice spoil(const struct cursor *payload)
{
    struct cursor from = *payload;
    size_t count = cursor_bytes(payload), at = 0;
    uint8_t *bytes = malloc(count);
    check(bytes != NULL && count > 0);
    while (at < count) {
        uint8_t value[8];
        const uint8_t *run;
        size_t here = cursor_values(&from, 1, count - at, value, &run);
        memcpy(bytes + at, run, here);
        at += here;
    }
    bytes[0] ^= 1;
    return (struct slice){bytes, count};
}

enum { LIES = 64 /* beside one push in so many */ };

/* Whether the worker says that it has pushed this and has not: what comes is acknowledged to it,
 * and no shard gets it. */
static bool is_not_pushed(struct sim *sim, const struct push *push, uint32_t worker)
{
    struct lie *lie = &sim->lie;
    if (sim->options.story != NULL || sim->calm)
        return false;
    if (!lie->told && rand_below(&sim->keys, LIES) == 0)
        *lie = (struct lie){true, worker, push->generation, push->step, push->node};
    return lie->worker == worker && sim_lied(sim, push->generation, push->step, push->node);
}

/* The whole of what a worker brings of a slot comes in several pushes. */
static void tell_pushed(struct sim *sim, const struct sim_thread *thread, const struct push *push,
                        uint32_t worker, enum err err, bool had)
{
    bool has = ledger_has(sim, thread, push->step, push->node.index);
    if (err != ERR_OK)
        story_tell_once(sim, "s%u refuses slot %u of step %llu from w%u (%s)", thread->index,
                        push->node.index, (unsigned long long)push->step, worker, err_name(err));
    else if (had)
        story_tell_once(sim, "s%u does not count slot %u of step %llu from w%u: it has it",
                        thread->index, push->node.index, (unsigned long long)push->step, worker);
    else if (has)
        story_tell(sim, "s%u has counted slot %u of step %llu, from w%u", thread->index,
                   push->node.index, (unsigned long long)push->step, worker);
}

struct shard_ack __wrap_shard_push(struct shard *shard, uint64_t sender, const struct push *push,
                                   struct cursor payload, struct shard_effects *effects)
{
    struct sim_thread *thread = thread_of(shard);
    struct sim *sim = world.sim;
    if (thread == NULL)
        return __real_shard_push(shard, sender, push, payload, effects);
    const struct stream *stream = stream_of(sim, sender);
    struct awaited *awaited = awaited_of(stream, push->id, false);
    const struct shard_statistics before = shard_statistics(shard);
    struct truth truth = awaited->truth;
    struct push what = *push;
    older_pushed(sim, shard->config.boot, push);
    if (is_not_pushed(sim, push, stream->worker)) {
        sim_trace(sim, "w%u does not push step %llu node %u:%u", stream->worker,
                  (unsigned long long)push->step, push->node.level, push->node.index);
        return (struct shard_ack){ERR_OK, push->entry_count, 0};
    }
    bool told = sim->options.story != NULL;
    bool had = told && ledger_has(sim, thread, push->step, push->node.index);
    struct slice spoilt = {0};
    server_here()->spoilt = is_spoilt(sim, thread, push, stream->worker);
    if (server_here()->spoilt) {
        spoilt = spoil(&payload);
        payload = (struct cursor){.slices = &spoilt, .slice_count = 1};
    }
    mutate_push(sim, thread, &what, &truth);
    stray_push(sim, shard, sender, push, payload);
    bool reported = tables_reduced(shard, what.step);
    struct shard_ack ack = __real_shard_push(shard, sender, &what, payload, effects);
    free((void *)(uintptr_t)spoilt.data);
    if (server_here()->spoilt && ack.first_refused > 0 &&
        shard_statistics(shard).wrong_bits == before.wrong_bits)
        sim_violated(sim, 13, "s%u: nobody notices a duplicate with other bits", thread->index);
    sim_trace(sim, "s%u push of step %llu node %u:%u by w%u, id %llu: %s", thread->index,
              (unsigned long long)what.step, what.node.level, what.node.index, stream->worker,
              (unsigned long long)what.id, err_name(ack.code));
    sim->options.progress->duplicates += shard_statistics(shard).duplicates - before.duplicates;
    sim->options.progress->busy += ack.code == ERR_BUSY;
    if (reported)
        tables_check_silent(sim, effects);
    thread->effects = effects;
    world.watching = true;
    /* A sum in the order of arrival is wrong though every name is right. */
    ledger_pushed(sim, thread, sim->options.mutation == MUTATE_ARRIVAL_ORDER ? push : &what, &truth,
                  &ack, &before);
    world.watching = false;
    awaited->silent = awaited->silent || !mutate_pushed(sim, thread, &before);
    look(thread, effects);
    if (told && thread->shard != NULL)
        tell_pushed(sim, thread, push, stream->worker, ack.code, had);
    story_act(sim);
    return ack;
}

/* The one effect that answers the pull. */
static struct shard_effect *answer_of(struct shard_effects *effects)
{
    struct shard_effect *answer = NULL;
    for (uint32_t i = 0; i < effects->count; i++) {
        struct shard_effect *effect = &effects->items[i];
        check(answer == NULL); /* nothing comes behind it */
        if (effect->kind == SHARD_WEIGHTS || effect->kind == SHARD_REFUSAL)
            answer = effect;
    }
    check(answer != NULL);
    return answer;
}

/* The worker has to ask again. */
static void break_parked(struct sim *sim, struct stream *stream)
{
    if (sim->calm || sim_below(sim, 16) != 0)
        return;
    sim_fault(sim, FAULT_BREAK_EXCHANGE);
    network_break(sim, stream);
}

void __wrap_shard_pull(struct shard *shard, struct pull_sender sender, const struct pull *pull,
                       struct shard_effects *effects)
{
    struct sim_thread *thread = thread_of(shard);
    struct sim *sim = world.sim;
    if (thread == NULL) {
        __real_shard_pull(shard, sender, pull, effects);
        return;
    }
    struct stream *stream = stream_of(sim, sender.stream);
    struct pull what = *pull;
    if (atomic_load(&((const struct exchange_stream *)(uintptr_t)sender.stream)->closed))
        sim_violated(sim, 5, "s%u is asked over a stream that is closed", thread->index);
    mutate_pull(sim, thread, &what);
    stray_pull(sim, shard, sender, pull);
    stray_park(sim, shard, pull);
    __real_shard_pull(shard, sender, &what, effects);
    struct shard_effect *answer = answer_of(effects);
    enum err err = answer->kind == SHARD_WEIGHTS ? ERR_OK : answer->refusal.code;
    sim_trace(sim, "s%u pull of version %llu by w%u, id %llu: %s", thread->index,
              (unsigned long long)what.version, stream->worker, (unsigned long long)what.id,
              err_name(err));
    mutate_served(sim, answer, pull->version);
    thread->parked += err == ERR_TOO_EARLY;
    stream->parked[thread->number] += err == ERR_TOO_EARLY;
    world.watching = true;
    if (err == ERR_OK || err == ERR_TOO_EARLY)
        ledger_pulled(sim, thread, &awaited_of(stream, pull->id, true)->truth);
    world.watching = false;
    look(thread, effects);
    if (err == ERR_TOO_EARLY)
        break_parked(sim, stream);
    if (err == ERR_TOO_EARLY)
        faults_spring(sim, TRAP_PARK, thread->index);
}

void __wrap_shard_cancel(struct shard *shard, uint64_t sender)
{
    struct sim_thread *thread = thread_of(shard);
    __real_shard_cancel(shard, sender);
    if (thread == NULL)
        return;
    struct stream *stream = stream_of(world.sim, sender);
    thread->parked -= stream->parked[thread->number];
    stream->parked[thread->number] = 0;
    look(thread, &(struct shard_effects){0});
}

uint64_t __wrap_shard_taken(const struct shard *shard)
{
    bool early = world.sim != NULL && world.sim->options.mutation == MUTATE_ACK_EARLY;
    return early ? UINT64_MAX : __real_shard_taken(shard);
}

/* ---- commits ---- */

REAL(enum err, shard_commit, struct shard *shard, uint64_t boot, const struct commit *commit,
     const struct shard_moves *moves, struct shard_effects *effects);
REAL(enum err, shard_work, struct shard *shard, struct shard_effects *effects, bool *ret_more);
REAL(void, shard_report, const struct shard *shard, struct shard_effects *effects);

static int compare_chunks(const void *a, const void *b)
{
    const struct shard_chunk *first = a, *second = b;
    return first->chunk < second->chunk ? -1 : first->chunk > second->chunk;
}

static bool is_leaver(const struct shard_moves *moves, uint32_t chunk)
{
    for (uint32_t i = 0; i < moves->leave_count; i++)
        if (moves->leaves[i].chunk == chunk)
            return true;
    return false;
}

/* The thread's chunks are those whose sums of the next step it counts. */
static void decided(struct sim *sim, struct sim_thread *thread, const struct commit *decision,
                    const struct shard_moves *moves)
{
    bool again = decision->step < thread->ledger.decided;
    uint32_t room = thread->chunk_count + moves->take_count, count = 0;
    ledger_decided(sim, thread, decision);
    if (again || moves->leave_count + moves->take_count == 0)
        return;
    struct shard_chunk *chunks = calloc(room + 1, sizeof *chunks);
    check(chunks != NULL);
    for (uint32_t i = 0; i < thread->chunk_count; i++)
        if (!is_leaver(moves, thread->chunks[i].chunk))
            chunks[count++] = thread->chunks[i];
    for (uint32_t i = 0; i < moves->take_count; i++)
        chunks[count++] = moves->takes[i];
    qsort(chunks, count, sizeof *chunks, compare_chunks);
    free(thread->chunks);
    thread->chunks = chunks;
    thread->chunk_count = count;
}

enum err __wrap_shard_commit(struct shard *shard, uint64_t boot, const struct commit *commit,
                             const struct shard_moves *moves, struct shard_effects *effects)
{
    struct sim_thread *thread = thread_of(shard);
    struct sim *sim = world.sim;
    if (thread == NULL)
        return __real_shard_commit(shard, boot, commit, moves, effects);
    struct commit decision = *commit;
    mutate_commit(sim, thread, &decision);
    stray_commit(sim, shard, boot, &decision);
    bool news = decision.step >= shard->decided;
    enum err err = __real_shard_commit(shard, boot, &decision, moves, effects);
    if (err == ERR_OK)
        stray_commit_again(sim, shard, boot, &decision);
    if (err == ERR_OK && news && decision.cut) {
        thread->cut_version = decision.step + 1;
        thread->before_cut = shard->async.accepted;
    }
    if (err == ERR_OK && news && shard->leaving_count != moves->leave_count)
        sim_violated(sim, 15, "s%u: %u chunks leave with commit(%llu), not %u", thread->index,
                     shard->leaving_count, (unsigned long long)decision.step, moves->leave_count);
    sim_trace(sim, "s%u commit(%llu)%s%s, %u chunks go, %u come: %s", thread->index,
              (unsigned long long)decision.step, decision.apply ? "" : " skip",
              decision.cut ? " cut" : "", moves->leave_count, moves->take_count, err_name(err));
    world.watching = true;
    if (err == ERR_OK)
        decided(sim, thread, &decision, moves);
    else if (err != ERR_OLD_GENERATION && err != ERR_BEHIND)
        sim_violated(sim, 4, "s%u refuses commit(%llu): %s", thread->index,
                     (unsigned long long)decision.step, err_name(err));
    world.watching = false;
    look(thread, effects);
    if (err == ERR_OK)
        faults_spring(sim, TRAP_COMMIT, thread->index);
    return err;
}

/* Which takes its time. */
enum err __wrap_shard_work(struct shard *shard, struct shard_effects *effects, bool *ret_more)
{
    if (thread_of(shard) != NULL)
        life_spend(1 + sim_below(world.sim, 2 * world.sim->scenario.apply_us));
    struct sim_thread *thread = thread_of(shard);
    enum err err = __real_shard_work(shard, effects, ret_more);
    if (thread == NULL)
        return err;
    check(err == ERR_OK);
    count_answered(thread, effects);
    mutate_worked(world.sim, effects);
    look(thread, effects);
    return err;
}

void __wrap_shard_report(const struct shard *shard, struct shard_effects *effects)
{
    struct sim_thread *thread = thread_of(shard);
    __real_shard_report(shard, effects);
    if (thread != NULL)
        look(thread, effects);
}

REAL(void, shard_logged, struct shard *shard, uint64_t durable);

/* P12: the journal's thread says it in order; said late, an earlier moment takes nothing back. */
void __wrap_shard_logged(struct shard *shard, uint64_t durable)
{
    struct sim_thread *thread = thread_of(shard);
    __real_shard_logged(shard, durable);
    uint64_t before = shard->async.durable;
    if (thread == NULL || durable == 0)
        return;
    __real_shard_logged(shard, durable - 1);
    if (shard->async.durable != before)
        sim_violated(world.sim, 16, "s%u: what its journal has is forgotten", thread->index);
}

/* ---- chunks on their way ---- */

REAL(void, shard_transferred, struct shard *shard, const struct transfer *header, enum err err);
REAL(enum err, shard_arrive, struct shard *shard, const struct transfer *header,
     struct cursor payload, struct shard_effects *effects);
REAL(bool, shard_missing, const struct shard *shard, uint64_t *step, uint64_t *ret_slots);

void __wrap_shard_transferred(struct shard *shard, const struct transfer *header, enum err err)
{
    struct sim_thread *thread = thread_of(shard);
    __real_shard_transferred(shard, header, err);
    if (thread == NULL)
        return;
    sim_trace(world.sim, "s%u hears of chunk %u of version %llu: %s", thread->index, header->chunk,
              (unsigned long long)header->version, err_name(err));
    world.sim->options.progress->moved += err == ERR_OK;
    look(thread, &(struct shard_effects){0});
}

/* The new owner has taken the chunk before, from this transfer or one like it. */
static bool was_taken(const struct watch *watch, uint32_t server, const struct transfer *header)
{
    for (size_t i = 0; i < watch->taken_count; i++) {
        const struct watch_taken *taken = &watch->taken[i];
        if (taken->server == server && taken->generation == header->generation &&
            taken->version == header->version && taken->chunk == header->chunk)
            return true;
    }
    return false;
}

static void note_taken(struct watch *watch, uint32_t server, const struct transfer *header)
{
    if (watch->taken_count == watch->taken_capacity) {
        watch->taken_capacity = 2 * watch->taken_capacity + 16;
        watch->taken = realloc(watch->taken, watch->taken_capacity * sizeof *watch->taken);
        check(watch->taken != NULL);
    }
    watch->taken[watch->taken_count++] =
        (struct watch_taken){server, header->chunk, header->generation, header->version};
}

/* 17: exactly those slots are said to be missing, whatever was in that memory before. */
bool __wrap_shard_missing(const struct shard *shard, uint64_t *step, uint64_t *ret_slots)
{
    const struct sim_thread *thread = thread_of(shard);
    struct sim *sim = world.sim;
    if (thread == NULL)
        return __real_shard_missing(shard, step, ret_slots);
    memset(ret_slots, 0xff, WIRE_SLOT_WORDS_MAX * sizeof *ret_slots);
    bool any = __real_shard_missing(shard, step, ret_slots);
    for (uint32_t word = 0; any && word < WIRE_SLOT_WORDS_MAX; word++)
        for (uint64_t rest = ret_slots[word]; rest != 0; rest &= rest - 1) {
            uint32_t slot = 64 * word + (uint32_t)__builtin_ctzll(rest);
            if (slot >= sim->scenario.spec.train.slots || ledger_has(sim, thread, *step, slot))
                sim_violated(sim, 17, "s%u says that it lacks slot %u of step %llu, which it has",
                             thread->index, slot, (unsigned long long)*step);
        }
    return any;
}

enum err __wrap_shard_arrive(struct shard *shard, const struct transfer *header,
                             struct cursor payload, struct shard_effects *effects)
{
    struct sim_thread *thread = thread_of(shard);
    enum err err = __real_shard_arrive(shard, header, payload, effects);
    if (thread == NULL)
        return err;
    sim_trace(world.sim, "s%u is given chunk %u of version %llu: %s", thread->index, header->chunk,
              (unsigned long long)header->version, err_name(err));
    world.watching = true;
    ledger_arrived(world.sim, thread, header, err,
                   was_taken(&world.sim->watch, thread->index, header));
    world.watching = false;
    if (err == ERR_OK)
        note_taken(&world.sim->watch, thread->index, header);
    if (err == ERR_OK)
        story_tell_once(world.sim, "s%u takes chunks of version %llu", thread->index,
                        (unsigned long long)header->version);
    look(thread, effects);
    return err;
}

/* ---- what a server is given from outside ---- */

REAL(void, holdings_prepare, struct holdings *holdings, const struct server_command *command);
REAL(void, holdings_commit, struct holdings *holdings, const struct server_command *command);
REAL(enum err, spec_parse, struct slice text, const char *file,
     const struct config_overrides *overrides, struct spec *ret_spec, struct reason *reason);
REAL(enum err, model_init, struct model *ret_model, const struct spec_model *settings,
     struct reason *reason);
REAL(bool, kernels_new, const struct kernels_options *options, const struct kernels **ret_kernels,
     char *reason, size_t reason_bytes);
REAL(void, kernels_free, const struct kernels *kernels);
REAL(enum err, checkpoint_prune_older, const char *checkpoint_dir, struct checkpoint_name recorded,
     struct checkpoint_name oldest, struct reason *reason);

/* Of a thread that is no shard's: the main one. */
void __wrap_holdings_prepare(struct holdings *holdings, const struct server_command *command)
{
    __real_holdings_prepare(holdings, command);
    if (life_acts() && world.life->place.kind == MACHINE_SERVER)
        server_here()->holdings = holdings;
}

void __wrap_holdings_commit(struct holdings *holdings, const struct server_command *command)
{
    if (life_acts())
        stray_decision(world.sim, holdings, command);
    __real_holdings_commit(holdings, command);
}

/* Not every scenario's run can be written down as a spec. */
enum err __wrap_spec_parse(struct slice text, const char *file,
                           const struct config_overrides *overrides, struct spec *ret_spec,
                           struct reason *reason)
{
    if (world.life == NULL)
        return __real_spec_parse(text, file, overrides, ret_spec, reason);
    *ret_spec = world.sim->scenario.spec;
    ret_spec->data.serve = world.life->place.kind == MACHINE_WORKER; /* nobody has any */
    return ERR_OK;
}

enum err __wrap_model_init(struct model *ret_model, const struct spec_model *settings,
                           struct reason *reason)
{
    if (world.life == NULL || world.watching)
        return __real_model_init(ret_model, settings, reason);
    world.watching = true;
    scenario_model(&world.sim->scenario, ret_model);
    world.watching = false;
    return ERR_OK;
}

/* One table for all. */
bool __wrap_kernels_new(const struct kernels_options *options, const struct kernels **ret_kernels,
                        char *reason, size_t reason_bytes)
{
    if (world.life == NULL)
        return __real_kernels_new(options, ret_kernels, reason, reason_bytes);
    *ret_kernels = world.sim->options.kernels;
    return true;
}

void __wrap_kernels_free(const struct kernels *kernels)
{
    if (world.life == NULL)
        __real_kernels_free(kernels);
}

/* How many of the cuts that the store remembers are recorded on the disk. */
static uint32_t remembered_count(const struct sim *sim)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sim->store.cut_count; i++) {
        const struct cut_name cut = sim->store.cuts[i].name;
        const struct checkpoint_name name = {cut.generation, cut.version};
        struct checkpoint_path folder;
        char path[sizeof folder.text + sizeof "/cut.json"];
        check(checkpoint_folder(SIM_CHECKPOINTS, name, &folder) == ERR_OK);
        snprintf(path, sizeof path, "%s/cut.json", folder.text);
        for (size_t f = 0; f < sim->disks.count; f++)
            count +=
                sim->disks.files[f]->path != NULL && strcmp(sim->disks.files[f]->path, path) == 0;
    }
    return count;
}

/* 10: a rewind may go to any of them. */
enum err __wrap_checkpoint_prune_older(const char *checkpoint_dir, struct checkpoint_name recorded,
                                       struct checkpoint_name oldest, struct reason *reason)
{
    struct sim *sim = world.sim;
    uint32_t before = remembered_count(sim);
    enum err err = __real_checkpoint_prune_older(checkpoint_dir, recorded, oldest, reason);
    uint32_t after = remembered_count(sim);
    if (life_acts() && after < before)
        sim_violated(sim, 10, "of %u cuts that the store remembers %u are left", before, after);
    mutate_pruned(world.sim, checkpoint_dir, recorded);
    return err;
}

bool watch_is_pruned(struct sim *sim, struct cut_name cut)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    const struct checkpoint_name name = {cut.generation, cut.version};
    (void)sim;
    return checkpoint_open(SIM_CHECKPOINTS, name, &checkpoint, NULL) == ERR_NOT_FOUND;
}
