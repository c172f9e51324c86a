/* Servers come and go while the run goes on. */
#include "server/coordinator/moves.h"

#include "server/coordinator/owners.h"
#include "server/coordinator/send.h"
#include "server/coordinator/window.h"

#include <stdlib.h>
#include <string.h>

void moves_release(struct moves *moves)
{
    map_release(&moves->next);
    free(moves->list);
    free(moves->said);
    *moves = (struct moves){0};
}

/* ---- joining ---- */

bool moves_is_fit(const struct server_entry *server)
{
    return servers_is_available(server) && !server->unfit;
}

uint32_t moves_want_servers(struct coordinator *coordinator, const struct server_entry *lost)
{
    struct servers *servers = &coordinator->servers;
    uint32_t count = 0;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        bool can_come = moves_is_fit(server) &&
                        (server->state == SERVER_HAS_JOINED || !coordinator->run.settings.async);
        bool has = server->map_index != SERVERS_NONE;
        servers_want(server, server != lost && (has ? !servers_drains(server) : can_come));
        count += server->wanted ? 1 : 0;
    }
    return count;
}

static void invite(struct coordinator *coordinator, struct server_entry *server)
{
    const struct run *run = &coordinator->run;
    struct server_command *command = send_prepare(coordinator, server);
    servers_invite(server, (coordinator->settings.term << 32) + ++coordinator->servers.invitations);
    command->prepare.invitation = server->invitation;
    command->prepare.cut = (struct cut_name){run->generation, run->steps.version};
    command->prepare.joins = true;
    command->prepare.restore = "";
}

void moves_invite(struct coordinator *coordinator)
{
    struct servers *servers = &coordinator->servers;
    const struct run *run = &coordinator->run;
    if (run->phase != PHASE_STEPS || run_ends(run) || run->moves.refused[0] != 0)
        return;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        if (server->state == SERVER_IS_IDLE && moves_is_fit(server))
            invite(coordinator, server);
    }
}

void moves_invite_again(struct coordinator *coordinator, struct server_entry *server)
{
    invite(coordinator, server); /* with a number of its own, which the answer names */
}

/* async: with those that are ready more servers would have chunks than have now. */
static bool would_own(struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    uint32_t wanted = moves_want_servers(coordinator, NULL), before = 0, after = 0;
    struct map map;
    if (wanted == 0 || map_build(run->settings.parameters, run->settings.parameter_count, wanted,
                                 run->settings.parameter_bytes_max, &map) != ERR_OK)
        return false; /* also without memory: the next server that is ready makes it try again */
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++)
        before += map_chunks(&run->map, i) > 0 ? 1 : 0;
    for (uint32_t i = 0; i < wanted; i++)
        after += map_chunks(&map, i) > 0 ? 1 : 0;
    map_release(&map);
    return after > before;
}

void moves_ready(struct coordinator *coordinator, struct server_entry *server,
                 const struct server_report *report)
{
    struct run *run = &coordinator->run;
    /* P11: a server that held this generation before, by the commands of an earlier coordinator or
     * of this one, reports it until the invitation comes. It drops what it holds then. */
    if (report->ready.cut.generation != run->generation || !servers_was_told(server) ||
        report->ready.invitation != server->invitation)
        return;
    if (report->ready.code != ERR_OK) {
        servers_note_unfit(server);
        effects_log(&coordinator->effects, true,
                    "server cannot join  server=%s err=%s next=without it reason=\"%.120s\"",
                    server->name, err_name(report->ready.code), report->ready.text);
        return;
    }
    if (server->state != SERVER_HAS_JOINED)
        effects_log(&coordinator->effects, false, "server joins  server=%s next=chunks move to it",
                    server->name);
    servers_note_ready(server);
    run->moves.uneven = !run->settings.async || would_own(coordinator);
}

void moves_note_uneven(struct moves *moves)
{
    moves->uneven = true;
}

void moves_forget(struct coordinator *coordinator)
{
    struct servers *servers = &coordinator->servers;
    coordinator->run.moves.count = 0;
    coordinator->run.moves.arrived = false;
    for (uint32_t i = 0; i < servers->count; i++)
        if (servers->list[i].map_index == SERVERS_NONE)
            servers_forget(&servers->list[i]);
}

/* ---- what moves ---- */

bool moves_owns_chunks(const struct run *run, const struct server_entry *server)
{
    return server->map_index != SERVERS_NONE && map_chunks(&run->map, server->map_index) > 0;
}

bool moves_wanted(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    const struct servers *servers = &coordinator->servers;
    if (run_ends(run) || run->settings.async)
        return false;
    for (uint32_t i = 0; i < servers->chosen_count; i++) {
        const struct server_entry *server = servers_active(servers, i);
        if (server != NULL && servers_drains(server) && moves_owns_chunks(run, server))
            return true;
    }
    return run->moves.uneven;
}

void moves_arrived(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server == NULL || !servers_drains(server) || moves_owns_chunks(run, server) ||
            run->settings.async)
            continue;
        servers_empty(server);
    }
    run->moves.arrived = run->moves.count > 0 || run->moves.change == CHANGE_KEPT;
    run->moves.count = 0;
    if (run->moves.change == CHANGE_KEPT)
        run->moves.change = CHANGE_NONE;
}

/* Lists the servers that the plan may use. A server without a place gets one for now. */
static void cast_roles(struct coordinator *coordinator, enum map_server_role *roles)
{
    struct servers *servers = &coordinator->servers;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        if (server->state == SERVER_HAS_JOINED && moves_is_fit(server))
            ignore(servers_add(servers, server)); /* without a place it waits for one */
    }
    for (uint32_t i = 0; i < servers->chosen_count; i++) {
        const struct server_entry *server = servers_active(servers, i);
        roles[i] = server == NULL ? MAP_ABSENT : servers_drains(server) ? MAP_LEAVES : MAP_SERVES;
    }
}

/* A newcomer that gets nothing gives its place back. */
static void keep_receivers(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    struct servers *servers = &coordinator->servers;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        bool receives = false;
        if (server->state != SERVER_IS_NEW)
            continue;
        for (uint32_t k = 0; k < run->moves.count; k++)
            receives |= run->moves.list[k].to == server->map_index;
        if (receives) {
            run->moves.status.servers_added++;
            effects_log(&coordinator->effects, false, "server added  server=%s servers=%u",
                        server->name, servers->chosen_count);
        } else {
            servers_take_back(servers, server);
        }
    }
}

/* The moves as each server gets them, those of one server next to each other: what leaves it, what
 * comes to it. */
static enum err write_down(struct coordinator *coordinator, struct map_move *take_list,
                           uint32_t count)
{
    struct moves *moves = &coordinator->run.moves;
    struct map next;
    struct server_move *said = calloc((size_t)2 * count + 1, sizeof *said);
    enum err err =
        said == NULL ? ERR_NOMEM : map_moved(&coordinator->run.map, take_list, count, &next);
    if (err != ERR_OK) {
        free(said);
        free(take_list);
        return err;
    }
    uint32_t row = 0;
    for (uint32_t s = 0; s < coordinator->servers.chosen_count; s++) {
        moves->said_first[s] = row;
        for (uint32_t i = 0; i < count; i++) {
            const struct map_move *move = &take_list[i];
            if (move->from != s && move->to != s)
                continue;
            const char *to =
                move->to == s ? "" : servers_of_map(&coordinator->servers, move->to)->address;
            said[row++] = (struct server_move){move->first, move->count, to};
        }
        moves->said_count[s] = row - moves->said_first[s];
    }
    check(row == 2 * count); /* each leaves one server and comes to another */
    free(moves->list);
    free(moves->said);
    map_release(&moves->next);
    moves->next = next;
    moves->list = take_list;
    moves->said = said;
    moves->count = count;
    return ERR_OK;
}

static void count_moves(struct coordinator *coordinator)
{
    struct moves *moves = &coordinator->run.moves;
    uint64_t chunks = 0, bytes = 0;
    for (uint32_t i = 0; i < moves->count; i++) {
        chunks += moves->list[i].count;
        bytes += moves->list[i].bytes;
    }
    moves->status.chunks += chunks;
    moves->status.bytes += bytes;
    moves->status.commits++;
    effects_log(&coordinator->effects, false, "chunks move  version=%llu chunks=%llu bytes=%llu",
                (unsigned long long)coordinator->run.steps.version + 1, (unsigned long long)chunks,
                (unsigned long long)bytes);
}

void moves_plan(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    enum map_server_role roles[WIRE_SERVERS_MAX];
    run->moves.count = 0;
    if (!moves_wanted(coordinator) || run->steps.granted_step > run->steps.version ||
        run->steps.version + 1 >= run->settings.steps)
        return; /* there is nothing to move, or not now */
    cast_roles(coordinator, roles);
    const struct map_limits limits = {
        .parameter_bytes_max = run->settings.parameter_bytes_max,
        .bytes_max = MOVES_BYTES_MAX,
        .server_count = coordinator->servers.chosen_count,
    };
    struct map_move *list = NULL;
    uint32_t count = 0;
    enum err err = map_plan(&run->map, run->settings.parameters, run->settings.parameter_count,
                            roles, &limits, &list, &count);
    if (err == ERR_OK)
        err = write_down(coordinator, list, count);
    keep_receivers(coordinator);
    /* Without memory, or without a server that can take chunks, the next commit tries again. */
    if (err == ERR_OK)
        run->moves.uneven = count > 0;
    if (run->moves.count > 0)
        count_moves(coordinator);
}

void moves_apply(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    for (uint32_t i = 0; i < coordinator->servers.count; i++)
        if (coordinator->servers.list[i].state == SERVER_IS_NEW)
            servers_serve(&coordinator->servers.list[i]);
    if (run->moves.count == 0)
        return;
    check(run->steps.granted_step <= run->steps.version); /* P11: with no open sums behind it */
    owners_take(run, &run->moves.next);
    owners_count_change(run);
}

void moves_count_drained(struct moves *moves)
{
    moves->status.servers_drained++;
}

void moves_count_step(struct run *run, uint64_t duration_ms)
{
    struct moves *moves = &run->moves;
    double ms = (double)duration_ms;
    if (moves->arrived) {
        if (ms > moves->status.gap_ms_max)
            moves->status.gap_ms_max = ms;
        return;
    }
    moves->quiet_steps++;
    moves->status.step_ms += (ms - moves->status.step_ms) / (double)moves->quiet_steps;
}

/* ---- async: with a new generation ---- */

/* Whether the run is to go on with other servers, and can. */
static bool change_wanted(struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    bool comes = false, goes = false;
    if (!run->settings.async || run_ends(run) || run->moves.refused[0] != 0 ||
        moves_want_servers(coordinator, NULL) == 0)
        return false;
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        bool has = server->map_index != SERVERS_NONE;
        comes = comes || (server->wanted && !has);
        goes = goes || (!server->wanted && has);
    }
    return goes || (comes && run->moves.uneven);
}

/* P12: servers change from a cut of all that was granted. Whether all tickets granted in this
 * generation are committed, and a cut of exactly these is recorded, or (not `recorded`) ordered:
 * then no shard can take a ticket that the cut misses. */
static bool is_quiet(const struct run *run, bool recorded)
{
    struct cut_name here = {run->generation, run->steps.version};
    return run->steps.granted_step < run->steps.version &&
           (cuts_same(run->cuts.newest.name, here) ||
            (!recorded && cuts_ordered(&run->cuts, here)));
}

static uint64_t find_step_max(struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    if (!change_wanted(coordinator))
        return UINT64_MAX;
    if (is_quiet(run, false))
        return run->steps.version - 1;
    return run->steps.granted_step > run->steps.version ? run->steps.granted_step
                                                        : run->steps.version;
}

bool moves_limit(struct coordinator *coordinator)
{
    struct moves *moves = &coordinator->run.moves;
    uint64_t before = moves->step_max;
    moves->step_max = find_step_max(coordinator);
    return moves->step_max != before;
}

bool moves_need_cut(struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    return run->steps.granted_step <= run->steps.version && change_wanted(coordinator);
}

/* The run's servers are connected, and none is about to get a command that points into the map. */
static bool all_serve(struct coordinator *coordinator)
{
    return servers_ready(&coordinator->servers) && servers_connected(&coordinator->servers);
}

bool moves_change_is_due(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    if (!run->settings.async || run->phase != PHASE_STEPS)
        return false;
    if (moves_limit(coordinator))
        window_open(run);
    return is_quiet(run, true) && all_serve(coordinator) && change_wanted(coordinator);
}

static void stop_draining(struct coordinator *coordinator, struct server_entry *server)
{
    if (server->leaving == SERVER_ENDS && server->link != 0)
        /* it ends, and the run waits until it is back */
        send_command(coordinator, server, SERVER_LEAVE);
    servers_drain_over(server);
}

void moves_not_taken(struct coordinator *coordinator, struct server_entry *server,
                     const struct server_report *report)
{
    struct run *run = &coordinator->run;
    bool new = cuts_file(&run->cuts.newest, server->name) == WIRE_SERVERS_MAX;
    char *refused = run->moves.refused;
    effects_log(&coordinator->effects, true,
                "server cannot take chunks  server=%s err=%s next=as before reason=\"%.120s\"",
                server->name, err_name(report->ready.code), report->ready.text);
    if (new) {
        servers_note_unfit(server);
        return;
    }
    snprintf(refused, sizeof run->moves.refused, "server %.64s cannot take over chunks: %.150s",
             server->name, report->ready.text);
    for (uint32_t i = 0; i < coordinator->servers.count; i++)
        stop_draining(coordinator, &coordinator->servers.list[i]);
}

void moves_plan_change(struct moves *moves, const struct move_status *changes)
{
    moves->uneven = false;
    moves->changes = *changes;
}

void moves_begin(struct moves *moves, bool changes)
{
    if (changes)
        moves->change = CHANGE_BEGUN;
    else if (moves->change == CHANGE_BEGUN)
        moves->change = CHANGE_NONE;
}

void moves_undo_change(struct moves *moves)
{
    if (moves->change == CHANGE_BEGUN)
        moves->change = CHANGE_NONE;
    moves->changes = (struct move_status){0};
}

void moves_changed(struct coordinator *coordinator)
{
    struct moves *moves = &coordinator->run.moves;
    moves->change = moves->changes.commits > 0 ? CHANGE_KEPT : CHANGE_NONE;
    moves->status.chunks += moves->changes.chunks;
    moves->status.bytes += moves->changes.bytes;
    moves->status.commits += moves->changes.commits;
    moves->status.servers_added += moves->changes.servers_added;
    moves->status.servers_drained += moves->changes.servers_drained;
    if (moves->changes.servers_added > 0)
        effects_log(&coordinator->effects, false, "server added  count=%llu servers=%u",
                    (unsigned long long)moves->changes.servers_added,
                    coordinator->servers.chosen_count);
    moves->changes = (struct move_status){0};
}

/* ---- for people ---- */

const char *moves_state(const struct coordinator *coordinator, const struct server_entry *server)
{
    bool joins = server->state == SERVER_IS_INVITED || server->state == SERVER_HAS_JOINED;
    if (server->leaving == SERVER_HAS_LEFT)
        return "drained";
    if (servers_drains(server))
        return "draining";
    if (server->map_index != SERVERS_NONE)
        return "serving";
    if (server->unfit)
        return "unfit";
    return run_active(&coordinator->run) && joins ? "joining" : "idle";
}
