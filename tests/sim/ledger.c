#include "tests/sim/ledger.h"

#include "common/digest.h"
#include "common/files/checkpoint.h"
#include "common/files/step_log.h"
#include "common/model/pieces.h"
#include "common/scoped.h"
#include "server/member/holdings.h"
#include "server/threads/shards.h"
#include "tests/sim/sim.h"

#include <string.h>

void ledger_init(struct sim *sim)
{
    sim->ledger.owners =
        calloc((size_t)SIM_STEPS_MAX * sim->compute.model.chunks_count, sizeof *sim->ledger.owners);
    check(sim->ledger.owners != NULL);
}

void ledger_drop(struct sim_ledger *ledger)
{
    free(ledger->owners);
}

/* ---- a shard ---- */

static uint64_t all_slots(const struct sim *sim)
{
    return (UINT64_C(1) << sim->scenario.spec.train.slots) - 1;
}

static uint64_t node_mask(struct node node)
{
    return ((UINT64_C(1) << (node_end(node) - node_first(node))) - 1) << node_first(node);
}

static uint32_t delay_of(const struct sim *sim)
{
    return spec_staleness(&sim->scenario.spec);
}

uint64_t *ledger_counted(const struct sim *sim, const struct sim_thread *thread, uint64_t step,
                         uint32_t piece)
{
    return &thread->ledger.counted[step % (delay_of(sim) + 1) * sim->compute.piece_count + piece];
}

/* The place of a step that is over is free for the one that opens. */
static void begin_step(struct sim *sim, struct sim_thread *thread, uint64_t step)
{
    thread->ledger.reduced[step % (delay_of(sim) + 1)] = false;
    thread->ledger.arrived_count = 0;
    memset(ledger_counted(sim, thread, step, 0), 0,
           sim->compute.piece_count * sizeof *thread->ledger.counted);
}

void ledger_prepared(struct sim *sim, struct sim_thread *thread, bool joins)
{
    struct server_ledger *ledger = &thread->ledger;
    uint64_t generation = shard_generation(thread->shard);
    if (generation > sim->ledger.generation)
        sim_violated(sim, 4, "s%u prepares generation %llu, which is not stored", thread->index,
                     (unsigned long long)generation);
    bool again = joins || sim->run.async;
    const struct sim_server *server = &sim->servers[thread->index];
    /* A new start knows of no generation: a coordinator whose term is over may find it. */
    bool lured = server->boot != ledger->boot && server->newest.term < sim->store.term;
    if ((generation < ledger->generation && !lured) || (generation == ledger->generation && !again))
        sim_violated(sim, 4, "s%u goes from generation %llu to %llu", thread->index,
                     (unsigned long long)ledger->generation, (unsigned long long)generation);
    ledger->generation = generation;
    ledger->left_out = false;
    ledger->boot = server->boot;
    ledger->start = ledger->version = ledger->decided = shard_version(thread->shard);
    for (uint32_t i = 0; i <= delay_of(sim); i++)
        begin_step(sim, thread, ledger->start + i);
}

/* Its slots are all counted already. */
static bool is_counted(const struct sim *sim, const struct sim_thread *thread, uint64_t step,
                       struct node node, uint32_t piece)
{
    uint64_t mask = node_mask(node) & all_slots(sim);
    uint64_t decided = thread->ledger.decided;
    return step < decided || (step - decided <= delay_of(sim) &&
                              (*ledger_counted(sim, thread, step, piece) & mask) == mask);
}

bool ledger_counts(struct sim *sim, const struct sim_thread *thread, const struct push *push,
                   const struct push_entry *entry)
{
    return push->generation == thread->ledger.generation &&
           is_counted(sim, thread, push->step, push->node,
                      sim->compute.piece_first[entry->chunk] + entry->part);
}

/* The coordinator that adopted its generation did so without it, or it has received commands only
 * of the coordinator before. */
static bool is_left_out(const struct sim *sim, const struct sim_thread *thread)
{
    uint64_t term = sim->servers[thread->index].term;
    return thread->ledger.left_out || ledger_is_late(sim, thread->ledger.generation, term);
}

/* 15 */
static void check_owner(struct sim *sim, const struct sim_thread *thread, uint64_t step,
                        uint32_t chunk)
{
    const struct ledger_owner mine = {thread->ledger.generation, thread->index};
    if (is_left_out(sim, thread))
        return; /* no seal has its sums */
    check(step < SIM_STEPS_MAX);
    struct ledger_owner *owner =
        &sim->ledger.owners[step * sim->compute.model.chunks_count + chunk];
    if (owner->generation == mine.generation && owner->server != mine.server)
        sim_violated(sim, 15, "chunk %u of step %llu is summed by s%u and by s%u", chunk,
                     (unsigned long long)step, owner->server, mine.server);
    if (owner->generation < mine.generation)
        *owner = mine;
}

/* 12 */
static void check_busy(struct sim *sim, const struct sim_thread *thread, const struct push *push,
                       uint32_t piece)
{
    uint64_t missing = all_slots(sim) & ~*ledger_counted(sim, thread, push->step, piece);
    uint64_t lowest = missing & (~missing + 1);
    if ((node_mask(push->node) & lowest) != 0 || missing == 0)
        sim_violated(sim, 12, "s%u has no room for step %llu node %u:%u, the lowest missing",
                     thread->index, (unsigned long long)push->step, push->node.level,
                     push->node.index);
}

static void check_truth(struct sim *sim, const struct sim_thread *thread, const struct push *push,
                        const struct truth *truth)
{
    if (truth->generation != thread->ledger.generation)
        sim_violated(sim, 11, "s%u of generation %llu takes a push of generation %llu",
                     thread->index, (unsigned long long)thread->ledger.generation,
                     (unsigned long long)truth->generation);
    if (truth->step != push->step || !node_equal(truth->node, push->node))
        sim_violated(sim, 1, "s%u counts step %llu node %u:%u, computed as step %llu node %u:%u",
                     thread->index, (unsigned long long)push->step, push->node.level,
                     push->node.index, (unsigned long long)truth->step, truth->node.level,
                     truth->node.index);
    order_pushed(sim, truth);
}

/* async: each entry is taken now (history.h), or was before. */
static void check_taken(struct sim *sim, const struct sim_thread *thread, const struct push *push,
                        const struct truth *truth, const struct shard_ack *ack, uint64_t duplicates)
{
    uint64_t counted = ack->code == ERR_OK ? push->entry_count : ack->first_refused, taken = 0;
    for (uint32_t i = 0; i < thread->effects->count; i++)
        if (thread->effects->items[i].kind == SHARD_ORDER)
            taken += thread->effects->items[i].order.count;
    if (counted > 0)
        check_truth(sim, thread, push, truth);
    if (taken + duplicates != counted)
        sim_violated(sim, 1, "s%u counts %llu chunks of step %llu slot %u, takes %llu, has %llu",
                     thread->index, (unsigned long long)counted, (unsigned long long)push->step,
                     push->node.index, (unsigned long long)taken, (unsigned long long)duplicates);
}

void ledger_pushed(struct sim *sim, struct sim_thread *thread, const struct push *push,
                   const struct truth *truth, const struct shard_ack *ack,
                   const struct shard_statistics *before)
{
    const struct shard_statistics now = shard_statistics(thread->shard);
    if (sim->run.async) {
        check_taken(sim, thread, push, truth, ack, now.duplicates - before->duplicates);
        return;
    }
    uint64_t bytes = before->pushed_bytes, duplicates = before->duplicates;
    uint32_t counted = ack->code == ERR_OK ? push->entry_count : ack->first_refused;
    if (counted > 0 || ack->code == ERR_OK)
        check_truth(sim, thread, push, truth);
    for (uint32_t i = 0; i < counted; i++) {
        const struct push_entry *entry = &push->entries[i];
        uint32_t piece = sim->compute.piece_first[entry->chunk] + entry->part;
        if (is_counted(sim, thread, push->step, push->node, piece)) {
            duplicates++;
            continue;
        }
        bytes += blocks_bytes(&sim->compute.model, entry->chunk, push->codec);
        check_owner(sim, thread, push->step, entry->chunk);
        *ledger_counted(sim, thread, push->step, piece) |= node_mask(push->node) & all_slots(sim);
    }
    if (ack->code == ERR_BUSY)
        check_busy(sim, thread, push,
                   sim->compute.piece_first[push->entries[counted].chunk] +
                       push->entries[counted].part);
    uint64_t again = now.duplicates + now.audited - before->audited;
    if (now.audited != before->audited && (!push->audited || sim->run.audit == 0))
        sim_violated(sim, 1, "s%u counts an audit of step %llu node %u:%u, which nobody audits",
                     thread->index, (unsigned long long)push->step, push->node.level,
                     push->node.index);
    if (now.pushed_bytes != bytes || again != duplicates)
        sim_violated(sim, 1,
                     "s%u counts %llu bytes and %llu duplicates of step %llu node %u:%u, "
                     "not %llu and %llu",
                     thread->index, (unsigned long long)(now.pushed_bytes - before->pushed_bytes),
                     (unsigned long long)(again - before->duplicates),
                     (unsigned long long)push->step, push->node.level, push->node.index,
                     (unsigned long long)(bytes - before->pushed_bytes),
                     (unsigned long long)(duplicates - before->duplicates));
}

void ledger_pulled(struct sim *sim, const struct sim_thread *thread, const struct truth *truth)
{
    if (truth->generation != thread->ledger.generation)
        sim_violated(sim, 11, "s%u of generation %llu takes a pull of generation %llu",
                     thread->index, (unsigned long long)thread->ledger.generation,
                     (unsigned long long)truth->generation);
}

/* async: all its chunks have the tickets [first, end). */
static bool has_taken(const struct sim *sim, const struct sim_thread *thread, uint64_t first,
                      uint64_t end)
{
    uint64_t words[SIM_WINDOW_WORDS];
    struct applied met = {0, applied_window(scenario_shard(&sim->scenario).async.window), words};
    if (!shard_meet(thread->shard, &met, true))
        return true;
    while (first < end && applied_find(&met, first) == APPLIED_TAKEN)
        first++;
    return first == end;
}

bool ledger_has(const struct sim *sim, const struct sim_thread *thread, uint64_t step,
                uint32_t slot)
{
    const struct node node = {0, slot};
    uint64_t ticket = step * sim->scenario.spec.train.slots + slot;
    if (sim->run.async)
        return has_taken(sim, thread, ticket, ticket + 1);
    for (uint32_t i = 0; i < thread->chunk_count; i++)
        for (uint32_t p = 0; p < thread->chunks[i].parts; p++)
            if (!is_counted(sim, thread, step, node,
                            sim->compute.piece_first[thread->chunks[i].chunk] + p))
                return false;
    return true;
}

/* Every slot of every piece of this server's chunks. */
static bool is_complete(struct sim *sim, const struct sim_thread *thread, uint64_t step)
{
    uint32_t slots = sim->scenario.spec.train.slots;
    if (sim->run.async)
        return has_taken(sim, thread, 0, (step + 1) * slots);
    for (uint32_t i = 0; i < thread->chunk_count; i++)
        for (uint32_t p = 0; p < thread->chunks[i].parts; p++) {
            uint32_t piece = sim->compute.piece_first[thread->chunks[i].chunk] + p;
            if (*ledger_counted(sim, thread, step, piece) != all_slots(sim))
                return false;
        }
    return true;
}

void ledger_reduced(struct sim *sim, struct sim_thread *thread, const struct reduced *reduced)
{
    struct server_ledger *ledger = &thread->ledger;
    if (reduced->step < ledger->decided || reduced->step - ledger->decided > delay_of(sim) ||
        reduced->generation != ledger->generation || !is_complete(sim, thread, reduced->step))
        sim_violated(sim, 1, "s%u says that step %llu is reduced, but slots are missing",
                     thread->index, (unsigned long long)reduced->step);
    for (uint32_t i = 0; i < reduced->seal_count; i++)
        check_owner(sim, thread, reduced->step, reduced->seals[i].chunk);
    ledger->reduced[reduced->step % (delay_of(sim) + 1)] = true;
}

void ledger_decided(struct sim *sim, struct sim_thread *thread, const struct commit *commit)
{
    struct server_ledger *ledger = &thread->ledger;
    if (commit->step < ledger->decided)
        return; /* sent again */
    if (thread->chunk_count == 0 && commit->step > ledger->decided) {
        ledger->decided = commit->step; /* a server without chunks is behind with none */
        for (uint32_t i = 0; i <= delay_of(sim); i++)
            begin_step(sim, thread, ledger->decided + i);
    }
    /* async: a server that began again from an older cut gets the commit of the newest step. */
    if (sim->run.async)
        ledger->decided = commit->step;
    if (commit->step != ledger->decided ||
        (!sim->run.async && !ledger->reduced[commit->step % (delay_of(sim) + 1)] &&
         thread->chunk_count > 0) ||
        commit->generation != ledger->generation)
        sim_violated(sim, 4, "s%u takes commit(%llu) at version %llu", thread->index,
                     (unsigned long long)commit->step, (unsigned long long)ledger->version);
    ledger->decided++;
    begin_step(sim, thread, commit->step);
}

void ledger_committed(struct sim *sim, struct sim_thread *thread, uint64_t step)
{
    struct server_ledger *ledger = &thread->ledger;
    if (step >= ledger->decided || shard_version(thread->shard) != ledger->decided)
        sim_violated(sim, 4, "s%u says committed(%llu) at version %llu", thread->index,
                     (unsigned long long)step, (unsigned long long)shard_version(thread->shard));
    ledger->version = shard_version(thread->shard);
}

void ledger_arrived(struct sim *sim, struct sim_thread *thread, const struct transfer *transfer,
                    enum err err, bool again)
{
    bool ours = again;
    for (uint32_t i = 0; i < thread->chunk_count; i++)
        ours = ours || thread->chunks[i].chunk == transfer->chunk;
    if (err == ERR_OK && (!ours || transfer->generation != thread->ledger.generation ||
                          transfer->version > thread->ledger.decided))
        sim_violated(sim, 15, "s%u takes chunk %u of version %llu, which is not given to it",
                     thread->index, transfer->chunk, (unsigned long long)transfer->version);
    if (err == ERR_MALFORMED)
        sim_violated(sim, 7, "s%u calls a chunk malformed", thread->index);
    if (err == ERR_OK)
        thread->ledger.left_out = false; /* the run that went on without it gives it chunks */
}

void ledger_published(struct sim *sim, struct sim_thread *thread, const struct weights *header,
                      struct counted *const *copies)
{
    uint64_t generation = thread->ledger.generation;
    check(generation < LEDGER_GENERATIONS_MAX);
    if (header->version > sim->ledger.versions[generation])
        sim_violated(sim, 2, "s%u serves version %llu of generation %llu before its commit",
                     thread->index, (unsigned long long)header->version,
                     (unsigned long long)generation);
    for (uint32_t i = 0; i < header->chunk_count; i++) {
        uint64_t digest = digest_fast64((struct slice){copies[i]->data, copies[i]->bytes});
        if (digest != expected_published(order_expected(sim, generation), &sim->compute,
                                         header->version, header->chunks[i]))
            sim_violated(sim, 2, "s%u serves chunk %u as version %llu, which it is not",
                         thread->index, header->chunks[i], (unsigned long long)header->version);
    }
}

/* ---- the coordinator ---- */

void ledger_generation(struct sim *sim, uint64_t generation, struct cut_name cut)
{
    if (generation <= sim->ledger.generation || generation >= LEDGER_GENERATIONS_MAX)
        sim_violated(sim, 4, "generation %llu comes after %llu", (unsigned long long)generation,
                     (unsigned long long)sim->ledger.generation);
    sim->options.progress->rewinds += sim->ledger.generation > 0;
    sim->ledger.generation = generation;
    sim->ledger.versions[generation] = cut.version;
    order_generation(sim, generation, cut);
}

/* Whether its answer names chunks: not while it waits for some that come with a decision, which it
 * cannot carry out before. */
static bool says_it_owns(const struct sim_server *server)
{
    return server->holdings != NULL && server->shards != NULL &&
           holdings_answer(server->holdings, shards_held(server->shards).version).generation > 0;
}

/* P7: a new coordinator adopts any decision that a shard holds. So no owner of a chunk may have
 * received a later one, nor one of another coordinator. */
void ledger_adopted(struct sim *sim, struct cut_name adopted, uint64_t term)
{
    if (adopted.generation != sim->ledger.generation ||
        ledger_is_late(sim, adopted.generation, term))
        return;
    if (adopted.version > sim->ledger.versions[adopted.generation])
        sim_violated(sim, 4, "version %llu is adopted at version %llu",
                     (unsigned long long)adopted.version,
                     (unsigned long long)sim->ledger.versions[adopted.generation]);
    for (uint32_t s = 0; s < SIM_SERVERS_MAX; s++)
        for (uint32_t t = 0; t < sim->servers[s].thread_count; t++) {
            const struct sim_thread *thread = &sim->servers[s].threads[t];
            if (thread->shard != NULL && thread->chunk_count > 0 &&
                says_it_owns(&sim->servers[s]) && thread->ledger.generation == adopted.generation &&
                thread->ledger.decided > adopted.version)
                sim_violated(sim, 4, "version %llu is adopted, but s%u has heard of commit(%llu)",
                             (unsigned long long)adopted.version, s,
                             (unsigned long long)thread->ledger.decided - 1);
        }
    sim->ledger.versions[adopted.generation] = adopted.version;
    sim->ledger.adopted_terms[adopted.generation] = term;
    if (adopted.version > sim->ledger.recorded.version && adopted.version > sim->ledger.stopped)
        sim->ledger.stopped = adopted.version;
    sim->options.progress->adopted++;
}

void ledger_left_out(struct sim *sim, uint32_t server)
{
    struct sim_server *who = &sim->servers[server];
    size_t count = (size_t)SIM_STEPS_MAX * sim->compute.model.chunks_count;
    for (uint32_t t = 0; t < who->thread_count; t++)
        who->threads[t].ledger.left_out = true;
    for (size_t i = 0; i < count; i++)
        if (sim->ledger.owners[i].generation == sim->ledger.generation &&
            sim->ledger.owners[i].server == server)
            sim->ledger.owners[i] = (struct ledger_owner){0};
}

bool ledger_is_late(const struct sim *sim, uint64_t generation, uint64_t term)
{
    return generation < LEDGER_GENERATIONS_MAX && term < sim->ledger.adopted_terms[generation];
}

/* async: steps from one behind the newest commit on; the bitmaps' window limits the others
 * (P12). */
static void check_window(struct sim *sim, const struct ticket *ticket, uint64_t generation,
                         uint64_t version)
{
    uint32_t window = scenario_shard(&sim->scenario).async.window;
    uint32_t steps = window / sim->scenario.spec.train.slots;
    if (ticket->generation != generation || ticket->node.level != 0 ||
        ticket->step >= sim->scenario.spec.train.steps || ticket->step > version + steps)
        sim_violated(sim, 3, "step %llu is granted at version %llu of generation %llu",
                     (unsigned long long)ticket->step, (unsigned long long)version,
                     (unsigned long long)generation);
}

void ledger_granted(struct sim *sim, const struct ticket *ticket, bool in_office)
{
    uint64_t generation = in_office ? sim->ledger.generation : ticket->generation;
    check(generation < LEDGER_GENERATIONS_MAX);
    uint64_t version = sim->ledger.versions[generation], used = version, delay = delay_of(sim);
    bool open = ticket->step == version;
    if (!sim->store.past.has_fingerprint)
        sim_violated(sim, 3, "step %llu is granted, and the store has no fingerprint",
                     (unsigned long long)ticket->step);
    if (ticket->kind == TICKET_TRAIN && sim->run.async) {
        check_window(sim, ticket, generation, version);
        return;
    }
    if (ticket->kind == TICKET_TRAIN) {
        used = ticket->step > delay ? ticket->step - delay : 0;
        open = ticket->step >= version && ticket->step - version <= delay &&
               ticket->step < sim->scenario.spec.train.steps;
    }
    bool ssp = ticket->kind == TICKET_TRAIN && sim->scenario.spec.consistency.kind == SPEC_SSP;
    if (ticket->generation != generation || (!ssp && ticket->version != used) || !open)
        sim_violated(sim, 3,
                     "step %llu is granted on version %llu at version %llu of generation %llu",
                     (unsigned long long)ticket->step, (unsigned long long)ticket->version,
                     (unsigned long long)version, (unsigned long long)generation);
    order_granted(sim, ticket);
}

/* A chunk of a ticket that a worker has completed. */
struct completed {
    bool owned;   /* a server owns it that is up and has the newest decision */
    bool counted; /* a server has counted all of it */
};

/* `newest`: the generation's newest decision. A server that has not received it may have lost
 * chunks by it. */
static void look_completed(const struct sim *sim, const struct sim_thread *thread,
                           const struct ticket *ticket, uint64_t newest, struct completed *chunks)
{
    for (uint32_t i = 0; i < thread->chunk_count; i++) {
        struct completed *chunk = &chunks[thread->chunks[i].chunk];
        bool counted = true;
        for (uint32_t p = 0; p < thread->chunks[i].parts; p++)
            counted =
                counted && (!ticket_names(ticket, thread->chunks[i].chunk, p) ||
                            is_counted(sim, thread, ticket->step, ticket->node,
                                       sim->compute.piece_first[thread->chunks[i].chunk] + p));
        chunk->owned = chunk->owned || thread->ledger.decided == newest;
        chunk->counted = chunk->counted || counted;
    }
}

/* P12: those boots have all of it. */
static void check_acknowledged(struct sim *sim, const struct complete_request *complete)
{
    const struct ticket *ticket = &complete->ticket;
    uint64_t number = ticket->step * sim->scenario.spec.train.slots + ticket->node.index;
    for (uint32_t s = 0; s < SIM_SERVERS_MAX; s++) {
        struct sim_server *server = &sim->servers[s];
        bool named = server->map_index < complete->boot_count &&
                     complete->boots[server->map_index] == server->boot;
        for (uint32_t t = 0; named && server->up && t < server->thread_count; t++)
            if (server->threads[t].shard != NULL &&
                shard_generation(server->threads[t].shard) == ticket->generation &&
                !has_taken(sim, &server->threads[t], number, number + 1))
                sim_violated(sim, 9, "ticket %llu is complete, but s%u misses it",
                             (unsigned long long)number, s);
    }
}

/* The newest decision that any thread has received, also a thread that has crashed since. */
static uint64_t newest_decision(const struct sim *sim, uint64_t generation)
{
    uint64_t newest = 0;
    for (uint32_t s = 0; s < SIM_SERVERS_MAX; s++)
        for (uint32_t t = 0; t < sim->servers[s].thread_count; t++) {
            const struct sim_thread *thread = &sim->servers[s].threads[t];
            if (thread->ledger.generation == generation && !is_left_out(sim, thread) &&
                thread->ledger.decided > newest)
                newest = thread->ledger.decided;
        }
    return newest;
}

/* The coordinator in office has not heard yet of this start of one of the run's servers, which an
 * older coordinator may have prepared meanwhile. */
static bool has_restarted(struct sim *sim, uint32_t server)
{
    const struct coordinator *core = sim_coordinator_in_office(sim)->core;
    const struct server_entry *entry = core != NULL ? sim_coordinator_entry(core, server) : NULL;
    return entry != NULL && entry->map_index != SERVERS_NONE &&
           entry->boot != sim->servers[server].boot;
}

/* Whether who completes that pushed the chunk. */
static bool names(const struct sim *sim, const struct complete_request *complete, uint32_t chunk)
{
    const struct model *model = &sim->compute.model;
    const struct ticket *ticket = &complete->ticket;
    if (pieces_chunk_rank(model, chunk, complete->place.ranks) != complete->place.rank)
        return false;
    for (uint32_t p = 0; p < model->parameters[model->chunks[chunk].parameter].parts; p++)
        if (ticket_names(ticket, chunk, p))
            return true;
    return false;
}

void ledger_completed(struct sim *sim, const struct complete_request *complete)
{
    const struct ticket *ticket = &complete->ticket;
    uint64_t version = sim->ledger.versions[sim->ledger.generation];
    if (complete->outcome != ERR_OK || ticket->kind != TICKET_TRAIN)
        return;
    if (sim_lied(sim, ticket->generation, ticket->step, ticket->node))
        return;
    if (sim->run.async)
        check_acknowledged(sim, complete);
    if (sim->run.async || ticket->step < version)
        return;
    scoped(free_scoped) struct completed *chunks =
        calloc(sim->compute.model.chunks_count, sizeof *chunks);
    uint64_t newest = newest_decision(sim, ticket->generation);
    bool lost = false; /* a server has lost what it had counted: a rewind will follow */
    check(chunks != NULL);
    for (uint32_t s = 0; s < SIM_SERVERS_MAX; s++) {
        lost = lost || has_restarted(sim, s);
        for (uint32_t t = 0; t < sim->servers[s].thread_count; t++) {
            const struct sim_thread *thread = &sim->servers[s].threads[t];
            bool ours =
                thread->ledger.generation == ticket->generation && !is_left_out(sim, thread);
            lost = lost || (ours && thread->shard == NULL);
            if (ours && thread->shard != NULL)
                look_completed(sim, thread, ticket, newest, chunks);
        }
    }
    for (uint32_t c = 0; c < sim->compute.model.chunks_count; c++)
        if (names(sim, complete, c) && !chunks[c].counted && (chunks[c].owned || !lost))
            sim_violated(sim, 9, "step %llu node %u:%u is complete, but nobody counted chunk %u",
                         (unsigned long long)ticket->step, ticket->node.level, ticket->node.index,
                         c);
}

static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

/* A version's validation comes before the step that follows, and before the end. */
static void check_validated(struct sim *sim, uint64_t version)
{
    const struct scenario *scenario = &sim->scenario;
    uint32_t every = scenario->spec.train.validate_every;
    bool due =
        version == scenario->spec.train.steps || (version > 0 && every > 0 && version % every == 0);
    if (due && scenario->validation_samples > 0 && !sim->ledger.stopping &&
        sim->ledger.validated[version] != sim->ledger.generation)
        sim_violated(sim, 13, "version %llu is left without its validation",
                     (unsigned long long)version);
}

/* The versions that tickets were computed on are any. What is made up is below 1 for a sample; after
 * a rewind to a cut not all of a step's losses are known, or none is, but its samples are. */
static void check_async_metrics(struct sim *sim, const struct step_row *row)
{
    const struct seal_metrics *metrics = &row->metrics;
    bool unknown = row->step < sim->history.unknown && __builtin_isnan(metrics->loss) &&
                   __builtin_isnan(metrics->accuracy);
    bool likely = (sim->scenario.executor || (metrics->loss >= 0 && metrics->loss <= 1)) &&
                  metrics->accuracy >= 0 && metrics->accuracy <= 1;
    if (metrics->samples != spec_step_samples(&sim->scenario.spec) || !(likely || unknown))
        sim_violated(sim, 13, "async step %llu: loss %.17g, accuracy %.17g of %llu samples",
                     (unsigned long long)row->step, metrics->loss, metrics->accuracy,
                     (unsigned long long)metrics->samples);
}

/* The step in flight may be finished, and one more of which a server has the decision. Whoever goes on
 * at a version without a recorded cut makes a step more, which brings one (ledger_adopted()). */
void ledger_stop(struct sim *sim)
{
    struct sim_ledger *ledger = &sim->ledger;
    if (ledger->stop_told || ledger->stop_late)
        return;
    ledger->stop_told = true;
    ledger->stopped = ledger->versions[ledger->generation] + 1;
}

void ledger_step(struct sim *sim, const struct step_row *row, bool in_office)
{
    if (in_office && sim->ledger.stop_told && row->step > sim->ledger.stopped)
        sim_violated(sim, 20, "step %llu is made, but an operator was told that the run stops",
                     (unsigned long long)row->step);
    const struct expected_step *expected = &order_expected(sim, row->generation)->steps[row->step];
    if ((in_office && row->generation != sim->ledger.generation) ||
        row->step != sim->ledger.versions[row->generation])
        sim_violated(sim, 4, "step %llu is decided at version %llu", (unsigned long long)row->step,
                     (unsigned long long)sim->ledger.versions[row->generation]);
    if (row->generation == sim->ledger.generation)
        check_validated(sim, row->step);
    sim->ledger.versions[row->generation] = row->step + 1;
    sim->ledger.loss = row->metrics.loss;
    bool right = row->samples == (row->step + 1) * spec_step_samples(&sim->scenario.spec);
    if (sim->run.async && right) {
        check_async_metrics(sim, row);
        return;
    }
    if (!right || row->skipped != expected->skipped ||
        !same_double(row->metrics.loss, expected->metrics.loss) ||
        !same_double(row->metrics.accuracy, expected->metrics.accuracy) ||
        !same_double(row->metrics.norm, expected->metrics.norm) ||
        !same_double(row->metrics.lr, expected->metrics.lr))
        sim_violated(sim, 13,
                     "step %llu: loss %.17g norm %.17g lr %.17g%s, in the reference "
                     "%.17g %.17g %.17g%s",
                     (unsigned long long)row->step, row->metrics.loss, row->metrics.norm,
                     row->metrics.lr, row->skipped ? " skipped" : "", expected->metrics.loss,
                     expected->metrics.norm, expected->metrics.lr,
                     expected->skipped ? " skipped" : "");
    sim->options.progress->skipped += row->skipped;
}

void ledger_validation(struct sim *sim, const struct validation_row *row)
{
    const struct expected_validation *expected =
        &order_expected(sim, row->generation)->validations[row->version];
    if (row->generation == sim->ledger.generation)
        sim->ledger.validated[row->version] = row->generation;
    if (sim->run.async && row->samples == sim->scenario.validation_samples)
        return; /* of whatever versions there were */
    if (!same_double(row->loss, expected->loss) ||
        !same_double(row->accuracy, expected->accuracy) || row->samples != expected->samples)
        sim_violated(sim, 13,
                     "validation of version %llu: %.17g over %llu samples, in the "
                     "reference %.17g over %llu",
                     (unsigned long long)row->version, row->loss, (unsigned long long)row->samples,
                     expected->loss, (unsigned long long)expected->samples);
}

/* 10: on the disk of the i-th server that the cut names. */
static void check_durable(struct sim *sim, const struct cut_record *cut, uint32_t i)
{
    const struct checkpoint_name name = {cut->name.generation, cut->name.version};
    struct checkpoint_path path;
    unsigned server;
    check(sscanf(cut->servers[i].name, "s%u", &server) == 1);
    check(checkpoint_file(SIM_CHECKPOINTS, name, i, &path) == ERR_OK);
    if (!disk_has(sim, server, path.text))
        sim_violated(sim, 10, "cut %llu.%llu is recorded, but not on the disk of %s",
                     (unsigned long long)cut->name.generation,
                     (unsigned long long)cut->name.version, cut->servers[i].name);
}

/* 15: each chunk is in one of its files. */
static void check_whole(struct sim *sim, struct cut_name cut)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    const struct checkpoint_name name = {cut.generation, cut.version};
    uint32_t states = optimizer_states(spec_server_optimizer(&sim->scenario.spec).kind);
    struct reason reason = {.text = ""};
    enum err err = checkpoint_open(SIM_CHECKPOINTS, name, &checkpoint, &reason);
    if (err == ERR_OK)
        err = checkpoint_fits(checkpoint, &sim->compute.model, states, &reason);
    if (err != ERR_OK)
        sim_violated(sim, 15, "cut %llu.%llu is recorded: %s", (unsigned long long)cut.generation,
                     (unsigned long long)cut.version, reason.text);
}

/* 10: the rows that led to it. */
static void check_rows(struct sim *sim, struct cut_name cut)
{
    static const char path[] = SIM_RUN "/steps.jsonl";
    scoped(buf_release) struct buf rows = {0};
    check(file_read(path, SIZE_MAX, &rows, NULL) == ERR_OK);
    if (!disk_has(sim, DISK_COORDINATORS, path) ||
        step_log_reach(buf_slice(&rows), (struct step_log_place){0}) < cut.version)
        sim_violated(sim, 10, "cut %llu.%llu is recorded, but not the steps that led to it",
                     (unsigned long long)cut.generation, (unsigned long long)cut.version);
}

void ledger_recorded(struct sim *sim, const struct cut_record *cut)
{
    struct cut_name before = sim->ledger.recorded;
    if (cut->name.generation < before.generation ||
        (cut->name.generation == before.generation && cut->name.version <= before.version &&
         before.generation > 0))
        sim_violated(sim, 10, "cut %llu.%llu is recorded after %llu.%llu",
                     (unsigned long long)cut->name.generation,
                     (unsigned long long)cut->name.version, (unsigned long long)before.generation,
                     (unsigned long long)before.version);
    /* P9: version 0 by its seed has no files. */
    for (uint32_t i = 0; i < cut->server_count && !cut->by_seed; i++)
        check_durable(sim, cut, i);
    check_whole(sim, cut->name);
    check_rows(sim, cut->name);
    sim->ledger.recorded = cut->name;
    sim->ledger.record = *cut;
}

void ledger_back(struct sim *sim, const struct cut_record *cut)
{
    sim->ledger.recorded = cut->name;
    sim->ledger.record = *cut;
    sim_servers_suffice_soon(sim);
}

/* ---- who owns what ---- */

void ledger_map(struct sim *sim, const struct run *run, const struct servers *servers)
{
    struct sim_ledger *ledger = &sim->ledger;
    if (run->phase < PHASE_STEPS)
        return; /* the map is not sent to anybody yet */
    uint64_t digest =
        digest_fast64((struct slice){(const uint8_t *)run->map.ranges,
                                     run->map.range_count * sizeof *run->map.ranges}) ^
        digest_fast64((struct slice){(const uint8_t *)servers->chosen,
                                     servers->chosen_count * sizeof *servers->chosen});
    bool same = run->generation == ledger->map_generation && run->map_number == ledger->map_number;
    if (run->generation < ledger->map_generation ||
        (run->generation == ledger->map_generation && run->map_number < ledger->map_number))
        sim_violated(sim, 15, "map %llu comes after %llu", (unsigned long long)run->map_number,
                     (unsigned long long)ledger->map_number);
    if (same && digest != ledger->map_digest)
        sim_violated(sim, 15, "there are two maps %llu", (unsigned long long)run->map_number);
    ledger->map_generation = run->generation;
    ledger->map_number = run->map_number;
    ledger->map_digest = digest;
}

bool ledger_names(const struct sim *sim, uint32_t server)
{
    char name[16];
    snprintf(name, sizeof name, "s%u", server);
    for (uint32_t i = 0; i < sim->ledger.record.server_count; i++)
        if (strcmp(sim->ledger.record.servers[i].name, name) == 0)
            return true;
    return false;
}

void ledger_let_go(struct sim *sim, uint32_t server)
{
    if (!sim->over && ledger_names(sim, server))
        sim_violated(sim, 15, "s%u may leave, but the newest cut needs its file", server);
}

/* ---- the end ---- */

static enum err final_digest(struct sim *sim, struct digest *ret_digest)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    const struct cut_name cut = sim->ledger.recorded;
    const struct checkpoint_name name = {cut.generation, cut.version};
    TRY(checkpoint_open(SIM_CHECKPOINTS, name, &checkpoint, NULL));
    TRY(checkpoint_verify(checkpoint, NULL));
    return checkpoint_digest(checkpoint, &sim->compute.model, ret_digest, NULL);
}

struct digest_hex ledger_digest(struct sim *sim)
{
    struct digest digest;
    check(final_digest(sim, &digest) == ERR_OK);
    return digest_to_hex(&digest);
}

/* Whether the run may be over in that state. */
static bool is_right_end(const struct sim *sim, enum run_state state)
{
    uint64_t version = sim->ledger.versions[sim->ledger.generation];
    switch (state) {
    case RUN_ENDED:
        return version == sim->scenario.spec.train.steps && sim->ledger.recorded.version == version;
    case RUN_STOPPED:
        return sim->ledger.stopping;
    case RUN_FAILED:
        return (sim->expected.failed && version == sim->expected.failed_step) ||
               damage_leaves_none(sim);
    default:
        return false;
    }
}

void ledger_over(struct sim *sim, enum run_state state, const char *reason)
{
    uint64_t version = sim->ledger.recorded.version, from;
    struct digest digest;
    if (state != RUN_FAILED && convictions_undo(&sim->store.past.convictions, &from) &&
        version > from && damage_leaves(sim, from))
        sim_violated(sim, 19, "the last cut is of version %llu, and step %llu was to be undone",
                     (unsigned long long)version, (unsigned long long)from);
    if (!is_right_end(sim, state))
        sim_violated(sim, 8, "the run is over in state %d with the cut of version %llu: %s",
                     (int)state, (unsigned long long)version, reason);
    sim->over = true;
    damage_mend(sim);
    if (state == RUN_ENDED)
        check_validated(sim, version);
    if (sim->ledger.recorded.generation == 0)
        return; /* before there was anything */
    if (sim->run.async) {
        history_over(sim, state == RUN_ENDED);
        return;
    }
    const struct digest *expected =
        &order_expected(sim, sim->ledger.recorded.generation)->digests[version];
    enum err err = final_digest(sim, &digest);
    if (err != ERR_OK || memcmp(&digest, expected, sizeof digest) != 0)
        sim_violated(sim, 13, "the run ends in %.16s, the reference in %.16s",
                     err == ERR_OK ? digest_to_hex(&digest).text : err_name(err),
                     digest_to_hex(expected).text);
}

/* ---- a worker ---- */

static bool is_computed_on(const struct model *model, uint32_t chunk, uint32_t unit)
{
    const struct model_parameter *parameter = &model->parameters[model->chunks[chunk].parameter];
    bool has = unit == COMPUTING_ALL;
    for (uint32_t part = 0; part < parameter->parts; part++)
        has = has || parameter->part_units[part] == unit;
    return has && model->chunks[chunk].parameter != model->loss_parameter;
}

void ledger_computing(struct sim *sim, const struct computing *what)
{
    const struct model *model = &sim->compute.model;
    uint64_t version = what->ticket.version;
    const struct expected *expected = order_expected(sim, what->ticket.generation);
    if (sim->run.async) {
        history_computing(sim, what);
        return;
    }
    for (uint32_t c = 0; c < model->chunks_count; c++)
        if (is_computed_on(model, c, what->unit) && pieces_holds(what->model, c) &&
            what->held[c] != expected_published(expected, &sim->compute, version, c))
            sim_violated(sim, 3, "w%u computes step %llu, but its chunk %u is not version %llu",
                         what->worker, (unsigned long long)what->ticket.step, c,
                         (unsigned long long)version);
}
