#include "tests/sim/tables.h"

#include "server/coordinator/run.h"
#include "server/shard/shard_core.h"
#include "server/threads/exchange_stream.h"
#include "tests/sim/sim.h"

#include <string.h>

enum { AGAIN_MAX = 4 /* OUTGOING_MAX of server/threads/pull.c */ };

#define FAILED "checkpoint failed  "

/* ---- effects ---- */

static const struct server_command *find_command(const struct coordinator *core, uint64_t link,
                                                 enum server_command_kind kind)
{
    size_t count;
    const struct effect *effects = coordinator_effects(core, &count);
    for (size_t i = count; i-- > 0;)
        if (effects[i].kind == EFFECT_COMMAND && effects[i].command.link == link &&
            effects[i].command.command.kind == kind)
            return &effects[i].command.command;
    return NULL;
}

/* 17: servers are told of members that have ended, as soon as they have. */
static void check_ended(struct sim *sim, struct tables *tables, const struct coordinator *core)
{
    const struct ended *ended = &core->ended;
    uint32_t before = tables->ended_generation == ended->generation ? tables->ended_told : 0;
    uint32_t now = ended->told + ended->expelled;
    tables->ended_generation = ended->generation;
    tables->ended_told = now;
    if (now <= before || ended->generation != core->run.generation)
        return;
    for (uint32_t i = 0; i < core->servers.chosen_count; i++) {
        const struct server_entry *server = servers_active(&core->servers, i);
        if (server == NULL || server->link == 0)
            continue;
        const struct server_command *told = find_command(core, server->link, SERVER_ENDED);
        if (told == NULL || told->ended.generation != ended->generation ||
            told->ended.member_count < now - before)
            sim_violated(sim, 17, "%s is not told that %u members have ended", server->name,
                         now - before);
    }
}

/* 15: commits with moves are counted. */
static void check_counted(struct sim *sim, const struct coordinator *core)
{
    size_t count;
    const struct effect *effects = coordinator_effects(core, &count);
    for (size_t i = 0; i < count; i++)
        if (effects[i].kind == EFFECT_COMMAND && effects[i].command.command.kind == SERVER_COMMIT &&
            effects[i].command.command.move_count > 0 && core->run.moves.count > 0 &&
            core->run.moves.status.commits == 0)
            sim_violated(sim, 15, "chunks move, and no commit is said to have moved any");
}

/* 10: a cut that is awaited no more, because it failed, is not forgotten in silence. */
void tables_check_failed(struct sim *sim, const struct coordinator *core, const char *who)
{
    size_t count;
    const struct effect *effects = coordinator_effects(core, &count);
    for (size_t i = 0; i < count; i++)
        if (effects[i].kind == EFFECT_LOG &&
            strncmp(effects[i].log.text, FAILED, strlen(FAILED)) == 0)
            return;
    sim_violated(sim, 10, "a cut fails at %s, and nobody is told", who);
}

void tables_check_effects(struct sim *sim, struct tables *tables, struct coordinator *core)
{
    check_ended(sim, tables, core);
    check_counted(sim, core);
}

/* ---- who has how much ---- */

/* Chunks that move together (map.h): a parameter, or a run of a large one's chunks. */
static uint64_t piece_bytes(const struct coordinator_run *settings, uint32_t parameter,
                            uint32_t number, uint32_t *ret_chunk)
{
    const struct map_parameter *of = &settings->parameters[parameter];
    uint64_t length = of->chunk_count;
    if (of->bytes > settings->parameter_bytes_max && of->chunk_bytes > 0) {
        length = settings->parameter_bytes_max / of->chunk_bytes;
        length = length > 0 ? length : 1;
    }
    if (number * length >= of->chunk_count)
        return UINT64_MAX; /* there is none */
    *ret_chunk = of->chunk_first + (uint32_t)(number * length);
    uint64_t before = number * length * of->chunk_bytes;
    uint64_t left = of->bytes > before ? of->bytes - before : 0;
    bool last = (number + 1) * length >= of->chunk_count;
    return last || left < length * of->chunk_bytes ? left : length * of->chunk_bytes;
}

/* The bytes of a server's pieces, and of its smallest one that has any. */
static uint64_t load_of(const struct run *run, uint32_t server, uint64_t *ret_smallest)
{
    uint64_t sum = 0;
    *ret_smallest = UINT64_MAX;
    for (uint32_t p = 0; p < run->settings.parameter_count; p++) {
        uint64_t bytes;
        uint32_t chunk;
        for (uint32_t n = 0; (bytes = piece_bytes(&run->settings, p, n, &chunk)) != UINT64_MAX;
             n++) {
            if (map_server(&run->map, chunk) != server)
                continue;
            sum += bytes;
            if (bytes > 0 && bytes < *ret_smallest)
                *ret_smallest = bytes;
        }
    }
    return sum;
}

/* Servers that have no chunks and could have some. */
static bool is_empty_handed(const struct server_entry *server)
{
    return server->state == SERVER_HAS_JOINED && server->link != 0 && !server->unfit &&
           server->leaving == SERVER_STAYS;
}

/* 15: when it is found that nothing is to move, no chunk's move would bring two servers closer
 * together. */
static void check_even(struct sim *sim, struct tables *tables, const struct coordinator *core)
{
    const struct run *run = &core->run;
    const struct servers *servers = &core->servers;
    uint64_t most = 0, least = UINT64_MAX, smallest = 0;
    bool before = tables->uneven;
    tables->uneven = run->moves.uneven;
    if (!before || run->phase != PHASE_STEPS || run->settings.async || run_ends(run) ||
        run->moves.uneven || run->moves.count > 0 || run->moves.refused[0] != 0)
        return;
    for (uint32_t i = 0; i < servers->count; i++)
        if (servers_drains(&servers->list[i]))
            return;
        else if (is_empty_handed(&servers->list[i]))
            least = 0;
    for (uint32_t i = 0; i < servers->chosen_count; i++) {
        uint64_t smallest_here, load;
        if (servers_active(servers, i) == NULL)
            continue;
        load = load_of(run, i, &smallest_here);
        least = load < least ? load : least;
        if (load > most) {
            most = load;
            smallest = smallest_here;
        }
    }
    if (most > least && smallest < most - least)
        sim_violated(sim, 15,
                     "nothing is to move, but a server has %llu bytes, another %llu, and a piece "
                     "has %llu",
                     (unsigned long long)most, (unsigned long long)least,
                     (unsigned long long)smallest);
}

/* ---- who computes what ---- */

static void check_lease(struct sim *sim, const struct coordinator *core, const struct lease *lease)
{
    const struct run *run = &core->run;
    const struct leases *leases = &run->tickets.leases;
    uint32_t able = core->members.devices / (run->gangs.seats > 0 ? run->gangs.seats : 1);
    uint32_t share = run->settings.slots / (able > 0 ? able : 1);
    if (lease->kind == TICKET_TRAIN && run->settings.node_slots == 0 && !lease->audit &&
        !lease->speculative && lease->slots > (share > 0 ? share : 1))
        sim_violated(sim, 3, "one of %u members is given %u of %u slots", core->members.count,
                     lease->slots, run->settings.slots);
    for (const struct lease *other = leases_youngest(leases); other != NULL;
         other = leases_before(leases, other))
        if (other != lease && other->member == lease->member && other->kind == lease->kind &&
            other->step == lease->step &&
            (node_contains(other->node, lease->node) || node_contains(lease->node, other->node)))
            sim_violated(sim, 3, "a member is given slots of step %llu that it has",
                         (unsigned long long)lease->step);
}

/* When the rules let another worker have what these others have: after a multiple of the usual time
 * from the youngest of them. 0: at any time. */
static uint64_t overdue_ms(const struct tickets *tickets, const struct lease *lease)
{
    const struct tickets_settings *settings = &tickets->settings;
    double usual =
        lease->kind == TICKET_TRAIN ? tickets->train_usual_ms : tickets->validate_usual_ms;
    uint64_t youngest_ms = 0, after_ms = settings->lease_ms;
    for (const struct lease *other = leases_before(&tickets->leases, lease); other != NULL;
         other = leases_before(&tickets->leases, other))
        if (other->kind == lease->kind && other->step == lease->step &&
            other->node.level == lease->node.level && other->node.index == lease->node.index) {
            bool renewed = spec_mesh_is_shared(&world.sim->scenario.spec.mesh) &&
                           other->granted_ms >= lease->granted_ms; /* a place was filled since */
            if (other->doubted || renewed)
                return 0;
            youngest_ms = other->granted_ms > youngest_ms ? other->granted_ms : youngest_ms;
        }
    if (usual > 0)
        after_ms = (uint64_t)(usual * lease->slots) * settings->overdue_percent / 100;
    if (usual > 0 && after_ms < settings->overdue_ms_min)
        after_ms = settings->overdue_ms_min;
    return youngest_ms > 0 ? youngest_ms + after_ms : 0;
}

static void check_second(struct sim *sim, const struct tickets *tickets, const struct lease *lease)
{
    if (lease->speculative && tickets->settings.overdue_percent > 0 &&
        lease->granted_ms < overdue_ms(tickets, lease))
        sim_violated(sim, 3, "slots of step %llu are given to a second worker too early",
                     (unsigned long long)lease->step);
}

/* In a mesh a gang has the lease: its seats are empty, or those of members who know of it. */
static void check_gang(struct sim *sim, struct coordinator *core, const struct gang *gang)
{
    for (uint32_t seat = 0; seat < core->run.gangs.seats; seat++) {
        uint64_t id = gang->seats[seat].member;
        const struct member *member = id != 0 ? members_find(&core->members, id) : NULL;
        bool knows = false;
        for (uint32_t i = 0; member != NULL && i < WIRE_LEASES_MAX; i++)
            knows = knows || member->leases[i] == gang->ticket.attempt;
        if (id != 0 && (!knows || member->seat != seat))
            sim_violated(sim, 17, "seat %u of step %llu is whose who has not got it", seat,
                         (unsigned long long)gang->ticket.step);
    }
}

/* 17: leases are those of members. */
static void check_holders(struct sim *sim, struct coordinator *core)
{
    const struct leases *leases = &core->run.tickets.leases;
    for (const struct lease *lease = leases_youngest(leases); lease != NULL;
         lease = leases_before(leases, lease)) {
        const struct gang *gang = gangs_find(&core->run.gangs, lease->attempt);
        if (gang != NULL && gang->id == lease->member)
            check_gang(sim, core, gang);
        else if (members_name(&core->members, lease->member) == NULL)
            sim_violated(sim, 17, "who is no member holds slots of step %llu",
                         (unsigned long long)lease->step);
    }
}

/* 3: of the leases that are new. */
static void check_leases(struct sim *sim, struct tables *tables, const struct coordinator *core)
{
    const struct leases *leases = &core->run.tickets.leases;
    const struct lease *lease = leases_youngest(leases);
    for (; lease != NULL && lease->attempt > tables->attempts;
         lease = leases_before(leases, lease)) {
        check_lease(sim, core, lease);
        check_second(sim, &core->run.tickets, lease);
    }
    tables->attempts = leases->attempts;
}

/* ---- what is awaited ---- */

/* 8: the core wants to be called before anybody whose acquire waits has waited long enough. */
static void check_due(struct sim *sim, const struct coordinator *core)
{
    uint64_t due_ms = coordinator_next_ms(core);
    for (uint32_t i = 0; i < core->members.count; i++) {
        const struct member *member = core->members.list[i];
        if (member->parked && member->parked_until_ms < due_ms)
            sim_violated(sim, 8, "%s waits until %llu ms, the coordinator until %llu ms",
                         member->own.name, (unsigned long long)member->parked_until_ms,
                         (unsigned long long)due_ms);
    }
}

/* 10: cuts that are awaited are of this generation, and newer than the newest. */
static void check_cuts(struct sim *sim, const struct run *run)
{
    const struct cuts *cuts = &run->cuts;
    for (uint32_t i = 0; i < cuts->pending_count; i++) {
        const struct pending_cut *pending = &cuts->pending[i];
        if (!pending->complete && pending->record.name.generation != run->generation)
            sim_violated(sim, 10, "cut %llu.%llu is awaited in generation %llu",
                         (unsigned long long)pending->record.name.generation,
                         (unsigned long long)pending->record.name.version,
                         (unsigned long long)run->generation);
    }
    if (cuts_waits(cuts) && (cuts->waiting.generation != run->generation ||
                             !cuts_is_newer(cuts->waiting, cuts->newest.name)))
        sim_violated(sim, 10, "cut %llu.%llu waits for room, and %llu.%llu is recorded",
                     (unsigned long long)cuts->waiting.generation,
                     (unsigned long long)cuts->waiting.version,
                     (unsigned long long)cuts->newest.name.generation,
                     (unsigned long long)cuts->newest.name.version);
}

/* 15: who may leave has its file in no cut that is recorded or awaited (P11). */
static void check_leavers(struct sim *sim, const struct coordinator *core)
{
    const struct cuts *cuts = &core->run.cuts;
    for (uint32_t i = 0; i < core->servers.count; i++) {
        const struct server_entry *server = &core->servers.list[i];
        if (server->leaving != SERVER_HAS_LEFT || server->map_index != SERVERS_NONE)
            continue;
        for (uint32_t p = 0; p < cuts->pending_count; p++)
            for (uint32_t s = 0; s < cuts->pending[p].record.server_count; s++)
                if (strcmp(cuts->pending[p].record.servers[s].name, server->name) == 0)
                    sim_violated(sim, 15, "%s may leave, but cut %llu.%llu awaits its file",
                                 server->name,
                                 (unsigned long long)cuts->pending[p].record.name.generation,
                                 (unsigned long long)cuts->pending[p].record.name.version);
    }
}

void tables_check(struct sim *sim, struct tables *tables, struct coordinator *core)
{
    const struct run *run = &core->run;
    if (run->state == RUN_NONE)
        return;
    if (run_is_over(run) && run->state > RUN_TRAINING && core->servers.chosen_count > 0)
        sim_violated(sim, 8, "the run is over, and %u servers are still its own",
                     core->servers.chosen_count);
    check_cuts(sim, run);
    if (!run_active(run))
        return;
    if (run->moves.count > 0 && !run->steps.committed)
        sim_violated(sim, 15, "chunks move, and no commit of generation %llu has said so",
                     (unsigned long long)run->generation);
    check_due(sim, core);
    check_leases(sim, tables, core);
    check_holders(sim, core);
    places_check(sim, core);
    check_leavers(sim, core);
    check_even(sim, tables, core);
}

/* ---- servers ---- */

/* All pulls that wait in the rings: calls `take` with each. */
static void each_parked(const struct shard *shard,
                        void (*take)(void *context, const struct parked_pull *pull), void *context)
{
    for (uint32_t r = 0; r < shard->store.count + 2; r++) {
        const struct parked_pull *ring = r < shard->store.count    ? shard->store.chunks[r].waiting
                                         : r == shard->store.count ? shard->later
                                                                   : shard->again;
        for (const struct parked_pull *pull = ring->behind; pull != ring; pull = pull->behind)
            take(context, pull);
    }
}

struct parked_sum {
    struct sim *sim;
    const struct shard *shard;
    const struct parked_member *member;
    size_t bytes;
};

static void add_parked(void *context, const struct parked_pull *pull)
{
    struct parked_sum *sum = context;
    if (pull->member == sum->member)
        sum->bytes += sizeof *pull + pull->chunk_count * sizeof *pull->chunks;
}

static void check_parked(void *context, const struct parked_pull *pull)
{
    const struct parked_sum *all = context;
    struct parked_sum sum = {.member = pull->member};
    each_parked(all->shard, add_parked, &sum);
    if (sum.bytes > all->shard->parked.member_bytes_max)
        sim_violated(all->sim, 6, "a member's parked pulls take %zu bytes of %zu", sum.bytes,
                     all->shard->parked.member_bytes_max);
}

void tables_check_shard(struct sim *sim, const struct shard *shard)
{
    struct parked_sum all = {.sim = sim, .shard = shard};
    if (shard->parked.count > 0)
        each_parked(shard, check_parked, &all);
}

bool tables_reduced(const struct shard *shard, uint64_t step)
{
    return shard->config.async.on ? async_reduced(&shard->async) : shard_core_reduced(shard, step);
}

void tables_check_silent(struct sim *sim, const struct shard_effects *effects)
{
    for (uint32_t i = 0; i < effects->count; i++)
        if (effects->items[i].kind == SHARD_REDUCED)
            sim_violated(sim, 8, "step %llu is reported as reduced with each push",
                         (unsigned long long)effects->items[i].reduced.step);
}

void tables_check_stream(struct sim *sim, const struct exchange_stream *stream)
{
    if (stream->again > AGAIN_MAX)
        sim_violated(sim, 6, "%u pulls of one stream are asked again at a time", stream->again);
}
