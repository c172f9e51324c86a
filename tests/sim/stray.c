#include "tests/sim/stray.h"

#include "server/coordinator/run.h"
#include "server/member/holdings.h"
#include "server/member/proof.h"
#include "server/shard/shard_core.h"
#include "tests/sim/sim.h"

enum {
    RARELY = 4,      /* beside one real call in so many */
    FAR_AHEAD = 100, /* versions; nobody waits for so many */
    PARKED_MAX = 64,
    NOBODY_S_STREAM = 1,
};

enum err __real_coordinator_server_report(struct coordinator *core, uint64_t now_ms, uint64_t link,
                                          const struct server_report *report);
enum err __real_coordinator_complete(struct coordinator *core, uint64_t now_ms,
                                     const struct complete_request *request);
enum err __real_shard_commit(struct shard *shard, uint64_t boot, const struct commit *commit,
                             const struct shard_moves *moves, struct shard_effects *effects);
struct shard_ack __real_shard_push(struct shard *shard, uint64_t sender, const struct push *push,
                                   struct cursor payload, struct shard_effects *effects);
void __real_shard_pull(struct shard *shard, struct pull_sender sender, const struct pull *pull,
                       struct shard_effects *effects);

void __real_shard_cancel(struct shard *shard, uint64_t sender);
void __real_holdings_commit(struct holdings *holdings, const struct server_command *command);

bool stray_comes(struct sim *sim)
{
    return sim->options.story == NULL && rand_below(&sim->stray.random, RARELY) == 0;
}

static void expect(struct sim *sim, enum err answer, enum err wanted, const char *what)
{
    if (answer != wanted)
        sim_violated(sim, 11, "%s: %s, wanted %s", what, err_name(answer), err_name(wanted));
}

/* ---- the coordinator ---- */

static uint64_t join(uint64_t before, const void *bytes, size_t count)
{
    if (bytes == NULL)
        return before; /* there is no run */
    const uint64_t link[2] = {before, digest_fast64((struct slice){bytes, count})};
    return digest_fast64((struct slice){(const uint8_t *)link, sizeof link});
}

/* Of what the coordinator knows, effects that it has not carried out included. */
static uint64_t known(const struct coordinator *core)
{
    const struct run *run = &core->run;
    uint64_t digest = join(0, core, sizeof *core);
    digest = join(digest, core->servers.list, core->servers.count * sizeof *core->servers.list);
    digest = join(digest, run->cuts.pending, run->cuts.pending_count * sizeof *run->cuts.pending);
    digest = join(digest, run->steps.seals, (run->settings.delay + 1) * sizeof *run->steps.seals);
    digest = join(digest, run->tickets.leases.pool,
                  run->tickets.leases.used * sizeof *run->tickets.leases.pool);
    for (uint32_t i = 0; i < core->members.count; i++)
        digest = join(digest, core->members.list[i], sizeof *core->members.list[i]);
    return digest;
}

/* A call that is to change nothing, whatever its answer. */
struct report_call {
    struct sim *sim;
    struct coordinator *core;
    uint64_t now_ms, link;
};

static void no_report(const struct report_call *call, const struct server_report *report,
                      enum err wanted, const char *what)
{
    uint64_t before = known(call->core);
    enum err err = __real_coordinator_server_report(call->core, call->now_ms, call->link, report);
    expect(call->sim, err, wanted, what);
    if (known(call->core) != before)
        sim_violated(call->sim, 11, "%s changes what the coordinator knows", what);
}

static void reduced_astray(const struct report_call *call, const struct server_entry *server,
                           struct server_report report)
{
    const struct run *run = &call->core->run;
    const struct reduced *seen = &report.reduced;
    bool open = seen->generation == run->generation && run->phase == PHASE_STEPS &&
                seen->step >= run->steps.version &&
                seen->step - run->steps.version <= run->settings.delay;
    struct chunk_seal seal;
    if (!open || seen->seal_count == 0)
        return;
    seal = seen->seals[0];
    report.reduced.seals = &seal;
    report.reduced.seal_count = 1;
    for (seal.chunk = 0; seal.chunk < run->chunk_count; seal.chunk++)
        if (map_server(&run->map, seal.chunk) != server->map_index)
            break;
    if (seal.chunk < run->chunk_count)
        no_report(call, &report, ERR_OLD_TERM, "a seal of another server's chunk");
    seal.chunk = run->chunk_count;
    no_report(call, &report, ERR_MALFORMED, "a seal of a chunk that the run has not");
    seal.chunk = seen->seals[0].chunk;
    report.reduced.step = run->steps.version + run->settings.delay + 1;
    no_report(call, &report, ERR_OLD_TERM, "a seal of a step that is not open");
    report.reduced.step = seen->step;
    report.reduced.generation--;
    no_report(call, &report, ERR_OLD_GENERATION, "a seal of an older generation");
}

static void committed_astray(const struct report_call *call, struct server_report report)
{
    const struct run *run = &call->core->run;
    if (report.committed.generation != run->generation || !run->steps.committed)
        return;
    report.committed.step = run->steps.commit.step + 1;
    no_report(call, &report, ERR_OLD_TERM, "an acknowledgement of a commit to come");
    if (run->steps.commit.step > 0) {
        report.committed.step = run->steps.commit.step - 1;
        no_report(call, &report, ERR_OK, "an acknowledgement of the commit before");
    }
    report.committed.step = run->steps.commit.step;
    report.committed.generation--;
    no_report(call, &report, ERR_OLD_GENERATION, "an acknowledgement of an older generation");
}

static void manifest_astray(const struct report_call *call, struct server_report report)
{
    const struct run *run = &call->core->run;
    if (report.manifest.cut.generation != run->generation)
        return;
    report.manifest.attempt = cuts_attempt(&run->cuts, report.manifest.cut) + 1;
    no_report(call, &report, ERR_OK, "a manifest of another attempt at the cut");
    report.manifest.code = ERR_IO;
    no_report(call, &report, ERR_OK, "a failure of another attempt at the cut");
    report.manifest.cut.generation--;
    no_report(call, &report, ERR_OLD_GENERATION, "a manifest of an older generation");
}

void stray_report(struct sim *sim, struct coordinator *core, uint64_t now_ms, uint64_t link,
                  const struct server_report *seen)
{
    const struct report_call call = {sim, core, now_ms, link};
    const struct server_entry *server = servers_find(&core->servers, link);
    struct server_report report = *seen;
    if (server == NULL || seen->boot != server->boot || !stray_comes(sim))
        return;
    report.boot++;
    no_report(&call, &report, ERR_OLD_BOOT, "a report of another boot");
    report.boot = seen->boot;
    if (!run_active(&core->run) || server->map_index == SERVERS_NONE)
        return;
    bool of_generation = seen->kind == SERVER_READY || seen->kind == SERVER_REDUCED ||
                         seen->kind == SERVER_COMMITTED || seen->kind == SERVER_MANIFEST;
    if (core->run.phase == PHASE_STORE && of_generation) {
        no_report(&call, &report, ERR_OLD_GENERATION, "a report while a rewind waits for room");
    } else if (seen->kind == SERVER_READY) {
        report.ready.cut.generation = core->run.generation - 1;
        no_report(&call, &report, ERR_OLD_GENERATION, "ready for an older generation");
    } else if (seen->kind == SERVER_REDUCED) {
        reduced_astray(&call, server, report);
    } else if (seen->kind == SERVER_COMMITTED) {
        committed_astray(&call, report);
    } else if (seen->kind == SERVER_MANIFEST) {
        manifest_astray(&call, report);
    }
}

/* Granted, as if the coordinator had. */
static void no_complete(const struct report_call *call, struct complete_request request,
                        const char *what)
{
    struct coordinator *core = call->core;
    request.ticket.grant = proof_ticket(&core->key, core->run.settings.run, &request.ticket);
    enum err err = __real_coordinator_complete(core, call->now_ms, &request);
    expect(call->sim, err, ERR_MALFORMED, what);
}

void stray_complete(struct sim *sim, struct coordinator *core, uint64_t now_ms,
                    const struct complete_request *seen)
{
    const struct report_call call = {sim, core, now_ms, 0};
    const struct run *run = &core->run;
    struct complete_request forged = *seen;
    struct node *node = &forged.ticket.node;
    bool train = seen->ticket.kind == TICKET_TRAIN;
    if (seen->ticket.generation != run->generation ||
        members_prove(&core->members, seen->member, &seen->secret) == NULL || !stray_comes(sim))
        return;
    *node = (struct node){0, train ? run->settings.slots : run->validation.piece_count};
    no_complete(&call, forged, "a complete of a slot behind the last");
    *node = (struct node){1, 0};
    if (!train || run->settings.async)
        no_complete(&call, forged, "a complete of two slots, where each is by itself");
    *node = seen->ticket.node;
    forged.ticket.step = run->steps.version + FAR_AHEAD;
    no_complete(&call, forged, "a complete of a step that is not open");
}

/* ---- shards ---- */

static void no_commit(struct sim *sim, struct shard *shard, uint64_t boot,
                      const struct commit *commit, enum err wanted, const char *what)
{
    sim->stray.effects.count = 0;
    expect(sim, __real_shard_commit(shard, boot, commit, NULL, &sim->stray.effects), wanted, what);
}

void stray_commit(struct sim *sim, struct shard *shard, uint64_t boot, const struct commit *seen)
{
    struct commit forged = *seen;
    const struct shard_config *config = &shard->config;
    if (boot != config->boot || seen->term != config->term ||
        seen->generation != config->generation || !stray_comes(sim))
        return;
    forged.term--;
    no_commit(sim, shard, boot, &forged, ERR_OLD_TERM, "a commit of an older term");
    forged.term++;
    no_commit(sim, shard, boot + 1, &forged, ERR_OLD_BOOT, "a commit for another boot");
    forged.generation--;
    no_commit(sim, shard, boot, &forged, ERR_OLD_GENERATION, "a commit of an older generation");
    forged.generation += 2;
    no_commit(sim, shard, boot, &forged, ERR_BEHIND, "a commit of a newer generation");
}

/* It was carried out, whatever is under way now. */
static void commit_before_again(struct sim *sim, struct shard *shard, uint64_t boot,
                                struct commit taken)
{
    const struct shard_effects *effects = &sim->stray.effects;
    taken.step--;
    no_commit(sim, shard, boot, &taken, ERR_OK, "the commit before the newest once more");
    if (effects->count != 1 || effects->items[0].kind != SHARD_COMMITTED)
        sim_violated(sim, 11, "the commit before the newest is not acknowledged once more");
}

void stray_commit_again(struct sim *sim, struct shard *shard, uint64_t boot,
                        const struct commit *taken)
{
    struct commit forged = *taken;
    if (!shard->has_decision || taken->step + 1 != shard->decided || !stray_comes(sim))
        return;
    forged.cut = false;
    no_commit(sim, shard, boot, &forged, ERR_OK, "the newest commit once more");
    if (taken->step > 0)
        commit_before_again(sim, shard, boot, forged);
    forged.samples++;
    no_commit(sim, shard, boot, &forged, ERR_EXISTS, "another decision of the newest step");
    forged.step++;
    if (shard->applying)
        no_commit(sim, shard, boot, &forged, ERR_TOO_EARLY, "a commit while one is under way");
}

void stray_decision(struct sim *sim, struct holdings *holdings, const struct server_command *seen)
{
    struct server_command forged = *seen;
    const struct server_held *told = &holdings->told;
    uint64_t before = join(0, told, sizeof *told);
    if (!stray_comes(sim))
        return;
    forged.commit.step = told->decision.step + FAR_AHEAD;
    forged.commit.generation = told->generation + 1;
    __real_holdings_commit(holdings, &forged);
    forged.commit.generation = told->generation - 1;
    __real_holdings_commit(holdings, &forged);
    if (join(0, told, sizeof *told) != before)
        sim_violated(sim, 11, "a decision of another generation is noted for a successor");
}

static void no_push(struct sim *sim, struct shard *shard, uint64_t sender, const struct push *push,
                    struct cursor payload, enum err wanted, const char *what)
{
    sim->stray.effects.count = 0;
    struct shard_ack ack = __real_shard_push(shard, sender, push, payload, &sim->stray.effects);
    expect(sim, ack.code, wanted, what);
    if (ack.first_refused > 0)
        sim_violated(sim, 11, "%s: counted in part", what);
}

void stray_push(struct sim *sim, struct shard *shard, uint64_t sender, const struct push *seen,
                struct cursor payload)
{
    struct push forged = *seen;
    if (seen->generation != shard->config.generation || !stray_comes(sim))
        return;
    forged.generation++;
    no_push(sim, shard, sender, &forged, payload, ERR_BEHIND, "a push of a newer generation");
    forged.generation -= 2;
    no_push(sim, shard, sender, &forged, payload, ERR_OLD_GENERATION,
            "a push of an older generation");
    forged.generation++;
    forged.node = (struct node){0, shard->config.slots};
    no_push(sim, shard, sender, &forged, payload, ERR_MALFORMED,
            "a push of a slot behind the last");
    forged.node = seen->node;
    forged.step = shard->decided + shard->config.delay + 1;
    if (!shard->config.async.on)
        no_push(sim, shard, sender, &forged, payload, ERR_TOO_EARLY,
                "a push to a step that is not open");
}

static void no_pull(struct sim *sim, struct shard *shard, struct pull_sender sender,
                    const struct pull *pull, enum err wanted, const char *what)
{
    struct shard_effects *effects = &sim->stray.effects;
    effects->count = 0;
    __real_shard_pull(shard, sender, pull, effects);
    if (effects->count != 1 || effects->items[0].kind != SHARD_REFUSAL)
        sim_violated(sim, 11, "%s is not refused", what);
    expect(sim, effects->items[0].refusal.code, wanted, what);
}

void stray_pull(struct sim *sim, struct shard *shard, struct pull_sender sender,
                const struct pull *seen)
{
    struct pull forged = *seen;
    if (seen->generation != shard->config.generation || !stray_comes(sim))
        return;
    forged.generation++;
    no_pull(sim, shard, sender, &forged, ERR_BEHIND, "a pull of a newer generation");
    forged.generation -= 2;
    no_pull(sim, shard, sender, &forged, ERR_OLD_GENERATION, "a pull of an older generation");
    forged.generation++;
    forged.newest = !seen->newest;
    no_pull(sim, shard, sender, &forged, ERR_MALFORMED, "a pull as in another consistency");
    forged.newest = seen->newest;
    forged.version = shard->decided + FAR_AHEAD;
    if (!seen->newest)
        no_pull(sim, shard, sender, &forged, ERR_MALFORMED, "a pull of a version far ahead");
}

static bool parks(struct sim *sim, struct shard *shard, const struct pull *pull)
{
    const struct pull_sender nobody = {NOBODY_S_STREAM, UINT64_MAX};
    struct shard_effects *effects = &sim->stray.effects;
    effects->count = 0;
    __real_shard_pull(shard, nobody, pull, effects);
    check(effects->count == 1 && effects->items[0].kind == SHARD_REFUSAL);
    return effects->items[0].refusal.code == ERR_TOO_EARLY;
}

/* What waits of one member takes no more memory than it may. */
void stray_park(struct sim *sim, struct shard *shard, const struct pull *seen)
{
    struct pull forged = *seen;
    size_t bytes = sizeof(struct parked_pull) + seen->chunk_count * sizeof *seen->chunks;
    size_t room = shard->parked.member_bytes_max / bytes, parked = 0;
    if (seen->generation != shard->config.generation || seen->newest || room > PARKED_MAX ||
        !stray_comes(sim))
        return;
    forged.version = shard->decided + 1; /* nobody can read it yet */
    while (parked <= room && parks(sim, shard, &forged))
        parked++;
    __real_shard_cancel(shard, NOBODY_S_STREAM);
    if (parked > room)
        sim_violated(sim, 6, "%zu pulls of one member wait, and %zu may", parked, room);
}
