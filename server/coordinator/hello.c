/* The answer to a server's hello. */
#include "server/coordinator/hello.h"

#include "server/coordinator/generation.h"
#include "server/coordinator/send.h"
#include "server/coordinator/steps.h"

/* The server's state. */
enum standing {
    /* Without a place in the map: */
    HAS_LEFT,    /* it was sent LEAVE */
    HOLDS_NONE,  /* it has no memory of any run */
    HOLDS_STALE, /* it holds this generation, but has not joined, or not as it is now */
    HOLDS_OTHER, /* it holds another generation; async: or this one */
    HAS_JOINED,  /* it waits for its first chunks */
    /* With a place: */
    IS_EMPTIED, /* no chunk of it is left */
    HAS_LOST,   /* P3: a new boot, or a hello without what it was ready with: its chunks are gone */
    PREPARES,   /* it has not reported that it is ready */
    IS_BEHIND,  /* it has not acknowledged the newest commit */
    IS_CURRENT,
    STANDINGS
};

/* The run's state. */
enum situation {
    NO_RUN,       /* none, or it is over */
    UNCHOSEN,     /* its servers are not chosen yet */
    GATHERS,      /* it waits for its servers, or for the store, to begin a generation */
    ALL_OR_NONE,  /* a generation is begun or trained: one that loses its memory rewinds all */
    OTHERS_GO_ON, /* P12: async: the others go on when one loses its memory */
    SITUATIONS
};

enum answer { NOTHING, LEAVE, END, PREPARE, COMMIT, REWIND, RESTORE };

static const enum answer answers[STANDINGS][SITUATIONS] = {
    /* NO_RUN, UNCHOSEN, GATHERS, ALL_OR_NONE, OTHERS_GO_ON */
    [HAS_LEFT] = {LEAVE, LEAVE, LEAVE, LEAVE, LEAVE}, /* the first LEAVE may be lost */
    [HOLDS_NONE] = {END, NOTHING, END, END, END},     /* it has to load nothing so far */
    [HOLDS_STALE] = {END, NOTHING, END, END, END},    /* it may wait for chunks of others */
    [HOLDS_OTHER] = {END, NOTHING, NOTHING, NOTHING, NOTHING},
    [HAS_JOINED] = {END, NOTHING, NOTHING, NOTHING, NOTHING},
    [IS_EMPTIED] = {END, NOTHING, NOTHING, NOTHING, NOTHING},
    [HAS_LOST] = {END, NOTHING, NOTHING, REWIND, RESTORE},
    [PREPARES] = {END, NOTHING, NOTHING, PREPARE, PREPARE},
    [IS_BEHIND] = {END, NOTHING, NOTHING, COMMIT, COMMIT},
    [IS_CURRENT] = {END, NOTHING, NOTHING, NOTHING, NOTHING},
};

static enum standing standing_without_place(const struct run *run,
                                            const struct server_entry *server)
{
    bool holds = server->held_generation == run->generation;
    if (server->leaving == SERVER_HAS_LEFT)
        return HAS_LEFT;
    if (server->state == SERVER_HAS_JOINED && holds)
        return HAS_JOINED;
    if (server->held_generation == 0)
        return HOLDS_NONE;
    return holds && !run->settings.async ? HOLDS_STALE : HOLDS_OTHER;
}

static enum standing standing_of(const struct run *run, const struct server_entry *server)
{
    if (server->map_index == SERVERS_NONE)
        return standing_without_place(run, server);
    if (server->state == SERVER_IS_EMPTIED)
        return IS_EMPTIED;
    if (server->state == SERVER_HAS_LOST ||
        (server->state == SERVER_SERVES && server->held_generation != run->generation))
        return HAS_LOST;
    if (server->state != SERVER_SERVES)
        return PREPARES;
    return run->steps.committed && !server->acknowledged ? IS_BEHIND : IS_CURRENT;
}

static enum situation situation_of(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    /* The first cut of an async run's generation may be recorded already. */
    bool goes_on = run->phase == PHASE_STEPS ||
                   (run->moves.change == CHANGE_BEGUN && !generation_lacks_first_cut(run));
    if (!run_active(run)) /* P7: it may go on with what servers hold, when it can */
        return coordinator->expects_run || run_paused(run) ? UNCHOSEN : NO_RUN;
    if (run->phase == PHASE_STORE)
        return GATHERS;
    if (run->phase == PHASE_GATHER)
        return coordinator->servers.chosen_count == 0 ? UNCHOSEN : GATHERS;
    return run->settings.async && goes_on ? OTHERS_GO_ON : ALL_OR_NONE;
}

static void note_lost(struct coordinator *coordinator, const struct server_entry *server,
                      const char *next)
{
    effects_log(&coordinator->effects, true, "server lost its memory  server=%s boot=%llu next=%s",
                server->name, (unsigned long long)server->boot, next);
}

/* P3: a new boot means lost state, hence a new generation. Nothing of this one is granted or
 * counted any more. */
static void rewind_run(struct coordinator *coordinator, const struct server_entry *server)
{
    note_lost(coordinator, server, "rewind");
    generation_go_back(coordinator);
}

/* P12: the other servers go on. This one begins with its cut and journal, and reports the tickets
 * that these have. */
static void restore_part(struct coordinator *coordinator, struct server_entry *server)
{
    struct run *run = &coordinator->run;
    note_lost(coordinator, server, "its checkpoint");
    steps_unseal(run, server->map_index);
    servers_miss_cut(server);
    if (cuts_server_lost(&run->cuts, server->name))
        cuts_ask(&run->cuts); /* the next commit brings another */
    generation_prepare_part(coordinator, server);
}

static void give_answer(struct coordinator *coordinator, struct server_entry *server,
                        enum answer answer)
{
    switch (answer) {
    case NOTHING:
        return;
    case LEAVE:
        send_command(coordinator, server, SERVER_LEAVE);
        return;
    case END:
        send_command(coordinator, server, SERVER_END);
        return;
    case PREPARE:
        generation_prepare_again(coordinator, server);
        return;
    case COMMIT:
        send_commit(coordinator, server);
        return;
    case REWIND:
        rewind_run(coordinator, server);
        return;
    case RESTORE:
        restore_part(coordinator, server);
        return;
    }
}

void hello_answer(struct coordinator *coordinator, struct server_entry *server)
{
    enum situation situation = situation_of(coordinator);
    enum standing standing = standing_of(&coordinator->run, server);
    give_answer(coordinator, server, answers[standing][situation]);
    /* The earlier invitation to join is void: the server is invited again (moves.h). */
    if (standing == HOLDS_NONE || standing == HOLDS_STALE || standing == HOLDS_OTHER)
        servers_forget(server);
}
