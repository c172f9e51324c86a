#include "tests/sim/damage.h"

#include "common/scoped.h"
#include "server/coordinator/cuts.h"
#include "tests/sim/sim.h"

static bool is_whole(struct cut_name cut)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    const struct checkpoint_name name = {cut.generation, cut.version};
    return checkpoint_open(SIM_CHECKPOINTS, name, &checkpoint, NULL) == ERR_OK &&
           checkpoint_verify(checkpoint, NULL) == ERR_OK;
}

/* At the run's end nothing would read it again; async goes back no further (reports.c). */
static bool may_be(const struct sim *sim)
{
    const struct sim_store *store = &sim->store;
    return store->cut_count > 1 && !sim->run.async && !sim->ledger.stopping &&
           store->state <= RUN_TRAINING && store->cuts[0].name.version < sim->run.steps &&
           !damage_is_of(sim, store->cuts[0].name) && is_whole(store->cuts[0].name) &&
           is_whole(store->cuts[1].name);
}

bool damage_newest(struct sim *sim)
{
    const struct cut_record *cut = &sim->store.cuts[0];
    const struct checkpoint_name name = {cut->name.generation, cut->name.version};
    struct damage *damage = &sim->damage;
    damage->wanted = !may_be(sim);
    if (damage->wanted)
        return false;
    damage->before = damage->cut;
    damage->cut = cut->name;
    damage->bit = sim_below(sim, UINT64_MAX);
    uint32_t file = (uint32_t)sim_below(sim, cut->server_count);
    check(checkpoint_file(SIM_CHECKPOINTS, name, file, &damage->path) == ERR_OK);
    sim_trace(sim, "a bit of %s changes", damage->path.text);
    return disk_flip(sim, damage->path.text, damage->bit);
}

void damage_recorded(struct sim *sim)
{
    if (sim->damage.wanted)
        queue_put(&sim->queue,
                  (struct event){.at_us = sim->now_us + sim_below(sim, 8 * sim->scenario.delay_us),
                                 .kind = EVENT_FAULT,
                                 .index = FAULT_DAMAGE_CUT});
}

bool damage_is_of(const struct sim *sim, struct cut_name cut)
{
    const struct damage *damage = &sim->damage;
    return (damage->cut.generation > 0 && cuts_same(cut, damage->cut)) ||
           (damage->before.generation > 0 && cuts_same(cut, damage->before));
}

bool damage_leaves(const struct sim *sim, uint64_t version_max)
{
    for (uint32_t i = 0; i < sim->store.cut_count; i++)
        if (sim->store.cuts[i].name.version <= version_max && is_whole(sim->store.cuts[i].name))
            return true;
    return false;
}

bool damage_leaves_none(const struct sim *sim)
{
    return sim->damage.cut.generation > 0 && !damage_leaves(sim, UINT64_MAX);
}

void damage_mend(struct sim *sim)
{
    if (sim->damage.cut.generation > 0)
        disk_flip(sim, sim->damage.path.text, sim->damage.bit);
    sim->damage.cut.generation = 0;
}
