/* The same as watch.c between the parts of the coordinator, and of a server as it sees itself: what
 * one part is to have done when it returns to another. */
#include "server/coordinator/leaving.h"
#include "server/coordinator/run.h"
#include "server/coordinator/window.h"
#include "server/member/member.h"
#include "server/threads/pull.h"
#include "tests/sim/sim.h"

#include <string.h>

enum { OUTGOING_MAX = 4 /* of server/threads/pull.c */ };

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

static bool acts(enum machine_kind kind)
{
    return life_acts() && world.life->place.kind == kind;
}

/* ---- servers come and go ---- */

REAL(enum err, coordinator_server_hello, struct coordinator *core, uint64_t now_ms,
     const struct server_report *hello, uint64_t *ret_link, struct reason *reason);
REAL(enum err, leaving_give_up, struct coordinator *core, struct server_entry *server,
     struct reason *reason);

static bool unlinks(const struct coordinator *core, uint64_t link)
{
    size_t count;
    const struct effect *effects = coordinator_effects(core, &count);
    for (size_t i = 0; i < count; i++)
        if (effects[i].kind == EFFECT_UNLINK && effects[i].link == link)
            return true;
    return false;
}

/* 11: one name has one start and one stream at a time, and a start that is connected is asked before
 * another one takes its place (P3). */
enum err __wrap_coordinator_server_hello(struct coordinator *core, uint64_t now_ms,
                                         const struct server_report *hello, uint64_t *ret_link,
                                         struct reason *reason)
{
    const struct server_entry *server = servers_named(&core->servers, hello->hello.name);
    uint64_t older = server != NULL ? server->link : 0;
    bool unasked = older != 0 && server->boot != hello->boot && server->rival_boot != hello->boot;
    enum err err = __real_coordinator_server_hello(core, now_ms, hello, ret_link, reason);
    if (!acts(MACHINE_COORDINATOR))
        return err;
    if (err == ERR_OK && unasked)
        sim_violated(world.sim, 11, "another start of %s takes its place, and was not asked",
                     hello->hello.name);
    if (err == ERR_OK && older != 0 && older != *ret_link && !unlinks(core, older))
        sim_violated(world.sim, 11, "the older stream of %s stays", hello->hello.name);
    return err;
}

/* 15: a generation without it follows. */
enum err __wrap_leaving_give_up(struct coordinator *core, struct server_entry *server,
                                struct reason *reason)
{
    const struct run *run = &core->run;
    bool has_place = run_active(run) && core->servers.chosen_count > 0 &&
                     server->map_index != SERVERS_NONE && server->link == 0;
    enum err err = __real_leaving_give_up(core, server, reason);
    if (acts(MACHINE_COORDINATOR) && err == ERR_OK && has_place &&
        run->next_map != NEXT_MAP_WITHOUT)
        sim_violated(world.sim, 15, "%s is given up, and the next map has it", server->name);
    return err;
}

REAL(bool, leaving_needs_cut, const struct coordinator *core);

static bool is_in(const struct cut_record *cut, const char *name)
{
    for (uint32_t i = 0; i < cut->server_count; i++)
        if (strcmp(cut->servers[i].name, name) == 0)
            return true;
    return false;
}

/* 15: a cut is to be ordered while the newest that is recorded or awaited has a file of who leaves
 * (P11). */
bool __wrap_leaving_needs_cut(const struct coordinator *core)
{
    const struct cuts *cuts = &core->run.cuts;
    const struct cut_record *last =
        cuts->pending_count > 0 ? &cuts->pending[cuts->pending_count - 1].record : &cuts->newest;
    bool wanted = false, wants = __real_leaving_needs_cut(core);
    for (uint32_t i = 0; i < core->servers.count; i++) {
        const struct server_entry *server = &core->servers.list[i];
        bool empty = server->state == SERVER_IS_EMPTIED ||
                     (servers_drains(server) && server->map_index == SERVERS_NONE);
        wanted = wanted || (empty && is_in(last, server->name));
    }
    if (acts(MACHINE_COORDINATOR) && wants != wanted)
        sim_violated(world.sim, 15, "servers that leave are said to have %s file in the last cut",
                     wants ? "a" : "no");
    return wants;
}

/* ---- an async run's steps ---- */

REAL(bool, window_has, const struct run *run, uint64_t step);

/* 16: a step is complete when all tickets up to its last one are taken, and not later. */
bool __wrap_window_has(const struct run *run, uint64_t step)
{
    bool has = __real_window_has(run, step);
    bool all = true;
    for (uint64_t ticket = run->window.taken.low; ticket < (step + 1) * run->settings.slots;
         ticket++)
        all = all && applied_find(&run->window.taken, ticket) == APPLIED_TAKEN;
    if (acts(MACHINE_COORDINATOR) && has != all)
        sim_violated(world.sim, 16, "step %llu is said to be %s", (unsigned long long)step,
                     has ? "complete" : "incomplete");
    return has;
}

/* ---- a stream that is full ---- */

REAL(uint64_t, pull_published, const struct shard_effect *weights, uint32_t index,
     uint64_t generation);

/* 6: weights that are published when a connection has enough to send wait as names, and are asked
 * for again when it has sent some. Connections here are hardly ever that slow: now and then one is
 * for a moment. */
uint64_t __wrap_pull_published(const struct shard_effect *weights, uint32_t index,
                               uint64_t generation)
{
    struct exchange_stream *stream = (struct exchange_stream *)(uintptr_t)weights->sender;
    if (!acts(MACHINE_SERVER) || stream->waiting != NULL || !stray_comes(world.sim))
        return __real_pull_published(weights, index, generation);
    atomic_fetch_add(&stream->outgoing, OUTGOING_MAX);
    uint64_t unsent = __real_pull_published(weights, index, generation);
    pull_ask_again(stream);
    if (life_acts() && (stream->waiting == NULL || stream->waiting_count != 1))
        sim_violated(world.sim, 6, "s%u sends weights to a worker that takes none now",
                     world.life->place.index);
    atomic_fetch_sub(&stream->outgoing, OUTGOING_MAX);
    pull_ask_again(stream);
    return unsent;
}

/* ---- a server ---- */

REAL(void, member_drain, struct server_member *member, struct member_effects *ret_effects);

/* 15: who is to drain says so at once. */
void __wrap_member_drain(struct server_member *member, struct member_effects *ret_effects)
{
    bool says = false;
    __real_member_drain(member, ret_effects);
    for (uint32_t i = 0; i < ret_effects->count; i++)
        says = says || (ret_effects->list[i].kind == MEMBER_REPORT &&
                        ret_effects->list[i].report.kind == SERVER_DRAIN);
    if (acts(MACHINE_SERVER) && !says)
        sim_violated(world.sim, 15, "s%u drains, and does not say so", world.life->place.index);
}

REAL(void, member_command, struct server_member *member, const struct server_command *command,
     struct member_effects *ret_effects);

/* 15: who asked to end, and may, begins nothing any more (P11), when it is told so once more. */
void __wrap_member_command(struct server_member *member, const struct server_command *command,
                           struct member_effects *ret_effects)
{
    struct member_effects effects;
    struct server_command late = {
        .kind = SERVER_PREPARE, .boot = member->boot, .term = member->term.term};
    __real_member_command(member, command, ret_effects);
    if (!acts(MACHINE_SERVER) || !member->draining || !member->may_leave)
        return;
    late.prepare.generation = member->held.generation + 1;
    __real_member_command(member, &late, &effects);
    for (uint32_t i = 0; i < effects.count; i++)
        if (effects.list[i].kind == MEMBER_PREPARE)
            sim_violated(world.sim, 15, "s%u may end, and prepares for a generation",
                         world.life->place.index);
}

REAL(struct cut_name, member_held, const struct server_member *member);

/* 4: who holds a generation has at least what it began with. */
struct cut_name __wrap_member_held(const struct server_member *member)
{
    struct cut_name held = __real_member_held(member);
    if (acts(MACHINE_SERVER) && held.generation > 0 && held.version < member->held.version)
        sim_violated(world.sim, 4, "s%u says that it holds version %llu, and began with %llu",
                     world.life->place.index, (unsigned long long)held.version,
                     (unsigned long long)member->held.version);
    return held;
}
