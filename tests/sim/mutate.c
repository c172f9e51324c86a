#include "tests/sim/mutate.h"

#include "tests/sim/sim.h"

#include <string.h>

static const struct {
    const char *name, *text;
} table[] = {
#define MUTATION_ROW(name, option, text) {option, text},
    MUTATIONS(MUTATION_ROW)
#undef MUTATION_ROW
};

const char *mutation_name(enum mutation mutation)
{
    check(mutation < MUTATION_COUNT);
    return table[mutation].name;
}

const char *mutation_text(enum mutation mutation)
{
    check(mutation < MUTATION_COUNT);
    return table[mutation].text;
}

enum mutation mutation_find(const char *name)
{
    int i = 0;
    while (i < MUTATION_COUNT && strcmp(table[i].name, name) != 0)
        i++;
    return (enum mutation)i;
}

/* ---- what a shard is told ---- */

/* The slots of the open step that are counted in the push's first piece. */
static uint64_t counted_of(const struct sim *sim, const struct sim_thread *thread,
                           const struct push *push)
{
    const struct push_entry *first = &push->entries[0];
    return *ledger_counted(sim, thread, push->step,
                           sim->compute.piece_first[first->chunk] + first->part);
}

static void rename_push(struct sim *sim, const struct sim_thread *thread, struct push *push,
                        struct truth *truth)
{
    bool leaf = push->node.level == 0 && push->step == thread->ledger.decided;
    uint64_t counted = counted_of(sim, thread, push);
    if (!leaf || (counted >> push->node.index & 1) == 0)
        return;
    uint32_t next = 0;
    while (next < sim->scenario.spec.train.slots && (counted >> next & 1) != 0)
        next++;
    if (next < sim->scenario.spec.train.slots)
        push->node.index = truth->node.index = next;
}

/* The n-th slot that arrives is called n. */
static void number_push(struct sim *sim, struct sim_thread *thread, struct push *push)
{
    struct server_ledger *ledger = &thread->ledger;
    uint32_t place = 0;
    if (sim->scenario.spec.train.node_slots != 1 || push->step != ledger->decided)
        return;
    while (place < ledger->arrived_count && ledger->arrived[place] != push->node.index)
        place++;
    if (place == ledger->arrived_count)
        ledger->arrived[ledger->arrived_count++] = push->node.index;
    push->node.index = place;
}

void mutate_push(struct sim *sim, struct sim_thread *thread, struct push *push, struct truth *truth)
{
    bool async = sim->scenario.spec.consistency.kind == SPEC_ASYNC;
    if (sim->options.mutation == MUTATE_COUNT_TWICE && !async)
        rename_push(sim, thread, push, truth);
    if (sim->options.mutation == MUTATE_ARRIVAL_ORDER && !async &&
        push->generation == thread->ledger.generation)
        number_push(sim, thread, push);
    if (sim->options.mutation == MUTATE_PUSH_UNFENCED &&
        push->generation < shard_generation(thread->shard))
        push->generation = shard_generation(thread->shard);
}

void mutate_pull(struct sim *sim, struct sim_thread *thread, struct pull *pull)
{
    if (sim->options.mutation == MUTATE_PULL_UNFENCED)
        pull->generation = shard_generation(thread->shard);
    if (sim->options.mutation == MUTATE_PUBLISH_EARLY &&
        pull->version > shard_version(thread->shard))
        pull->version = shard_version(thread->shard);
}

void mutate_commit(struct sim *sim, struct sim_thread *thread, struct commit *commit)
{
    if (sim->options.mutation == MUTATE_APPLY_SKIPPED)
        commit->apply = true;
    if (sim->options.mutation == MUTATE_OTHER_SCALE && thread->index > 0)
        commit->scale *= 1.0001F;
}

/* ---- what it answers ---- */

static void drop_effect(struct shard_effects *effects, uint32_t index)
{
    effects->count--;
    memmove(&effects->items[index], &effects->items[index + 1],
            (effects->count - index) * sizeof effects->items[0]);
}

bool mutate_pushed(struct sim *sim, struct sim_thread *thread,
                   const struct shard_statistics *before)
{
    return sim->options.mutation != MUTATE_NO_ACK ||
           (shard_statistics(thread->shard).duplicates == before->duplicates &&
            shard_statistics(thread->shard).audited == before->audited);
}

void mutate_served(struct sim *sim, struct shard_effect *answer, uint64_t asked_version)
{
    if (sim->options.mutation == MUTATE_PUBLISH_EARLY && answer->kind == SHARD_WEIGHTS)
        answer->weights.header.version = asked_version;
}

void mutate_worked(struct sim *sim, struct shard_effects *effects)
{
    for (uint32_t i = effects->count; i-- > 0;) {
        struct shard_effect *effect = &effects->items[i];
        if (sim->options.mutation != MUTATE_FORGET_PARKED || effect->kind != SHARD_WEIGHTS ||
            sim_below(sim, 4) != 0)
            continue;
        for (uint32_t c = 0; c < effect->weights.header.chunk_count; c++)
            counted_unref(effect->weights.copies[c]);
        drop_effect(effects, i);
    }
}

/* ---- its files ---- */

void mutate_snapshot(const struct sim *sim, struct sim_server *server,
                     const struct shard_effect *effect)
{
    const struct server_report manifest = {
        .kind = SERVER_MANIFEST, .boot = server->boot, .manifest = {.cut = effect->snapshot.cut}};
    if (sim->options.mutation == MUTATE_EARLY_MANIFEST && effect->snapshot.last)
        watch_report(server, &manifest);
}

void mutate_pruned(const struct sim *sim, const char *checkpoint_dir,
                   struct checkpoint_name recorded)
{
    struct checkpoint_path folder;
    if (sim->options.mutation != MUTATE_PRUNE_ALL)
        return;
    check(checkpoint_folder(checkpoint_dir, recorded, &folder) == ERR_OK);
    check(file_remove_tree(folder.text, NULL) == ERR_OK);
}

/* ---- the coordinator ---- */

void mutate_complete(struct sim *sim, struct complete_request *complete)
{
    struct ticket *ticket = &complete->ticket;
    uint64_t version = sim->ledger.versions[sim->ledger.generation];
    if (sim->options.mutation == MUTATE_COMPLETE_LATE && ticket->step < version)
        ticket->step = ticket->version = version;
}

void mutate_reply(struct sim *sim, struct acquire_reply *reply)
{
    if (sim->options.mutation != MUTATE_GRANT_EARLY || reply->result != ACQUIRE_TICKET)
        return;
    reply->ticket.step++;
    reply->ticket.version++;
}
