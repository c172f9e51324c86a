/* Servers leave the run. */
#include "server/coordinator/leaving.h"

#include "server/coordinator/generation.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/owners.h"
#include "server/coordinator/send.h"
#include "server/coordinator/succession.h"

/* What a draining server waits for. */
enum wait { WAITS_FOR_ANSWERS, WAITS_FOR_MOVES, WAITS_FOR_CUT, WAITS_FOR_STORE, WAITS_FOR_NOTHING };

static const char *const wait_texts[] = {
    [WAITS_FOR_ANSWERS] = "when the run goes on",
    [WAITS_FOR_MOVES] = "its chunks move",
    [WAITS_FOR_CUT] = "a checkpoint without it",
    [WAITS_FOR_STORE] = "when the store has the run's end",
    [WAITS_FOR_NOTHING] = "it may leave",
};

static enum wait wait_of(const struct coordinator *coordinator, const struct server_entry *server)
{
    const struct run *run = &coordinator->run;
    if (succession_is_open(run))
        /* P7: an operator's call waits: nobody knows yet who owns which chunk */
        return WAITS_FOR_ANSWERS;
    if (run_paused(run))
        return WAITS_FOR_ANSWERS;
    /* P11: until the store has the run's end, a successor goes on from a cut that may need its
     * files. */
    if (!run_active(run))
        return run->end_late ? WAITS_FOR_STORE : WAITS_FOR_NOTHING;
    if (moves_owns_chunks(run, server) && server->state != SERVER_IS_EMPTIED)
        return WAITS_FOR_MOVES;
    /* P11: a drained server leaves only when neither the newest recorded cut nor one that is still
     * pending needs its files. */
    bool has_place = server->map_index != SERVERS_NONE && server->state != SERVER_IS_EMPTIED;
    return has_place || cuts_need(&run->cuts, server->name) ? WAITS_FOR_CUT : WAITS_FOR_NOTHING;
}

static bool could_take(const struct coordinator *coordinator, const struct server_entry *leaver)
{
    const struct servers *servers = &coordinator->servers;
    for (uint32_t i = 0; i < servers->count; i++)
        if (&servers->list[i] != leaver && moves_is_fit(&servers->list[i]))
            return true;
    return false;
}

static enum err nobody_takes(const struct server_entry *leaver, struct reason *reason)
{
    return reason_set(reason, ERR_INVALID,
                      "no other server is there that could take the chunks of %s", leaver->name);
}

enum err leaving_may_be_asked(const struct coordinator *coordinator, struct reason *reason)
{
    return coordinator->expects_run
               ? reason_set(reason, ERR_BUSY,
                            "the stored run cannot go on yet, which the coordinator's log explains "
                            "and which is tried again; ask again when it does")
               : ERR_OK;
}

enum err leaving_drain(struct coordinator *coordinator, struct server_entry *server, bool ends,
                       struct reason *reason)
{
    const struct run *run = &coordinator->run;
    if (servers_drains(server) || (server->leaving == SERVER_HAS_LEFT && server->link != 0))
        return ERR_OK; /* it drains already, or has drained */
    TRY(leaving_may_be_asked(coordinator, reason));
    if (!generation_can_begin_without(coordinator, server))
        return reason_set(reason, ERR_INVALID,
                          "the run waits for servers and cannot begin without %s", server->name);
    if (run_active(run) && server->map_index != SERVERS_NONE && run->moves.refused[0] != 0)
        return reason_set(reason, ERR_INVALID, "%s", run->moves.refused);
    enum wait wait = wait_of(coordinator, server);
    if (wait < WAITS_FOR_STORE && !could_take(coordinator, server))
        return nobody_takes(server, reason);
    servers_drain(server, ends);
    effects_log(&coordinator->effects, false, "server drains  server=%s chunks=%u next=%s",
                server->name, map_chunks(&run->map, server->map_index), wait_texts[wait]);
    return ERR_OK;
}

enum err leaving_give_up(struct coordinator *coordinator, struct server_entry *server,
                         struct reason *reason)
{
    const struct run *run = &coordinator->run;
    if (server->link != 0)
        return reason_set(reason, ERR_INVALID, "server %s is there: it can drain", server->name);
    bool undecided = run->phase == PHASE_GATHER && coordinator->servers.chosen_count == 0;
    if (!run_active(run) || (!undecided && server->map_index == SERVERS_NONE))
        return ERR_OK; /* only its files are needed */
    if (run->settings.async)
        return reason_set(reason, ERR_UNSUPPORTED,
                          "an async run goes on without %s only when it is stopped and resumed",
                          server->name);
    if (undecided) { /* P7: an operator's call waits until the coordinator adopts or rewinds */
        effects_log(&coordinator->effects, true,
                    "server given up  server=%s next=no generation waits for it", server->name);
        servers_give_up(server);
        return ERR_OK;
    }
    if (moves_want_servers(coordinator, server) == 0)
        return nobody_takes(server, reason);
    effects_log(&coordinator->effects, true, "server given up  server=%s next=rewind without it",
                server->name);
    enum err err = generation_without(coordinator);
    if (err != ERR_OK)
        return reason_set(reason, err, "no memory for another chunk map");
    servers_drain_over(server);
    moves_changed(coordinator);
    return ERR_OK;
}

bool leaving_needs_cut(const struct coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        bool leaves = server->state == SERVER_IS_EMPTIED ||
                      (servers_drains(server) && server->map_index == SERVERS_NONE);
        if (leaves && cuts_last_needs(&coordinator->run.cuts, server->name))
            return true;
    }
    return false;
}

/* P11: it may have heard, and be gone; its LEAVE may be lost as well. */
void leaving_keep(struct coordinator *coordinator)
{
    struct servers *servers = &coordinator->servers;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        if (server->leaving != SERVER_HAS_LEFT || !cuts_need(&coordinator->run.cuts, server->name))
            continue;
        servers_leave_later(server);
        effects_log(&coordinator->effects, true, "server drains again  server=%s next=%s",
                    server->name, wait_texts[WAITS_FOR_CUT]);
    }
}

static void let_go(struct coordinator *coordinator, struct server_entry *server)
{
    struct run *run = &coordinator->run;
    if (servers_drains(server)) { /* otherwise it has ended and is back already */
        servers_leave(server);
        if (server->link != 0)
            send_command(coordinator, server, SERVER_LEAVE);
    }
    if (server->map_index != SERVERS_NONE) {
        servers_unchoose_one(&coordinator->servers, server);
        owners_count_change(run);
        moves_count_drained(&run->moves);
    }
    effects_log(&coordinator->effects, false, "server drained  server=%s next=it may leave",
                server->name);
}

void leaving_let_go(struct coordinator *coordinator)
{
    struct servers *servers = &coordinator->servers;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        bool leaves = servers_drains(server) || server->state == SERVER_IS_EMPTIED;
        if (leaves && wait_of(coordinator, server) == WAITS_FOR_NOTHING)
            let_go(coordinator, server);
    }
}
