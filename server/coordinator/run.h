/* The run's states: what ties members, servers, tickets, seals and cuts together. Internal to the
 * coordinator; coordinator.h is the interface.
 *
 * A run goes through phases:
 *
 *     GATHER ----> STORE ----> PREPARE ----> FIRST_CUT ----> STEPS ----> LAST ----> over
 *     servers      has the     all say       version 0       commit      the last   (ended,
 * stopped, connected    generation  ready         is recorded     by commit   cut         failed)
 *
 * A coordinator that follows another may go from GATHER to STEPS (succession.h). GATHER waits for
 * servers; STORE asks for the next generation until the store has room for it (P10): the present
 * one is over, and nobody has heard of the next; PREPARE begins it, from nothing or from the newest
 * recorded cut. A server of the run that comes back with a new boot has lost its chunks:
 * from any phase back to GATHER, and so to a new generation (P3). A server that is merely
 * disconnected pauses whatever phase it is; it goes on where it was when the same boot is back.
 * FIRST_CUT is also where an async run waits that begins on other servers than its cut's (moves.h).
 *
 * advance_run() is the one place where the run moves on: each event changes what it knows and calls
 * it. Each part of the state is written by one file, which its comment names; the others call its
 * functions (tests/unit/test_arrows checks it). Invariants (advance_check):
 *  1 in STEPS and LAST every server of the run is ready, every chunk's is one of them, and a cut
 *    is recorded;
 *  2 training tickets are open exactly in STEPS: those of step `version` and of up to `delay`
 *    steps behind it;
 *  3 the newest cut is at or below the version;
 *  4 a commit that is not acknowledged by all is the one that made the version;
 *  5 in STORE no cut is pending. */
#ifndef ROOST_SERVER_COORDINATOR_RUN_H
#define ROOST_SERVER_COORDINATOR_RUN_H

#include "common/check_account.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/cuts.h"
#include "server/coordinator/effects.h"
#include "server/coordinator/gangs.h"
#include "server/coordinator/map.h"
#include "server/coordinator/members.h"
#include "server/coordinator/servers.h"
#include "server/coordinator/tickets.h"
#include "server/coordinator/unreachable.h"
#include "server/coordinator/validation.h"
#include "server/shard/applied.h"
#include "server/shard/seal.h"

enum phase {
    PHASE_NONE,
    PHASE_GATHER,
    PHASE_STORE,
    PHASE_PREPARE,
    PHASE_FIRST_CUT,
    PHASE_STEPS,
    PHASE_LAST,
    PHASES
};

/* The servers and the map that the next generation begins with. */
enum next_map {
    NEXT_MAP_PRESENT,
    NEXT_MAP_OF_CUT, /* P10: those of the newest recorded cut, when it is known which one that is */
    NEXT_MAP_WITHOUT /* the present ones, because the cut's name a server that was given up */
};

/* The generation that is to begin (generation.c). */
struct next_generation {
    uint64_t asked; /* the store is asked for it; 0: not yet, or again */
    uint32_t fails; /* times that there was no room */
    uint64_t again_ms;
    bool pause_counts; /* in the duration of the next step */
};

/* async: whether the generation has other servers than the newest cut. */
enum change {
    CHANGE_NONE,
    CHANGE_BEGUN, /* it has, and no cut of its own yet */
    CHANGE_KEPT   /* it has, and its own cut is recorded, since the newest commit */
};

/* What moves (moves.c). */
struct moves {
    bool uneven;    /* servers have come or gone since the map was as even as can be */
    uint32_t count; /* of the newest commit; 0 again when they have arrived */
    bool arrived;   /* the chunks of an earlier commit have arrived */
    struct map_move *list;
    struct server_move *said; /* the same moves, as servers get them */
    uint32_t said_first[WIRE_SERVERS_MAX], said_count[WIRE_SERVERS_MAX]; /* by map index */
    /* counts once the commit is sent */
    struct map next;
    struct move_status status;
    uint64_t quiet_steps; /* that status.step_ms is the mean of */

    /* async, where chunks move with a new generation: */
    uint64_t step_max; /* no ticket of a later step is granted */
    enum change change;
    /* what the new generation changes, counted when the change is final */
    struct move_status changes;
    char refused[COORDINATOR_TEXT_BYTES]; /* why chunks cannot move in this run; "": they can */
};

/* What is known before a generation is begun (succession.c). */
struct succession {
    uint64_t recorded;    /* the run's log has the steps below */
    uint64_t until_ms;    /* it waits for servers until then */
    uint64_t spec;        /* holdings_spec() of the run */
    const char *obstacle; /* why it cannot go on, by the newest look */
    /* by chunk: the place in servers.list, from 1, of the server that reports to own it; 0:
     * none. NULL: no server is asked */
    uint32_t *owners;
};

/* How far the run is (steps.c). */
struct steps {
    uint64_t version;
    struct seal *seals; /* of the open steps: step t's at t % (settings.delay + 1) */
    struct seal_counters counters;
    uint64_t granted_step; /* the newest step with a granted ticket, in this generation */
    bool committed;        /* `commit` is a decision of this generation */
    uint64_t undone;       /* until then: the version that a rewind left; async: not known */
    struct commit commit;
    uint8_t *behind; /* by slot, of the newest commit's step: versions that weights were behind */
    uint32_t behind_most;
    uint64_t committed_ms;
    /* at the newest commit */
    uint64_t redone_before, speculative_before, audited_before;
    uint64_t useful_before; /* async: the same */
    uint64_t skipped;
    struct step_row last_step;
};

/* async: which tickets all chunks have taken (window.c). */
struct window {
    struct applied taken;
    bool known;   /* a server has reported its own since the generation began */
    bool refused; /* a ticket was beyond a server's, and servers were not asked since */
};

/* Tickets that two workers compute on purpose (audits.c). */
struct audit {
    bool begun;
    bool waits; /* for a second worker */
    bool differs;
    bool renamed;   /* servers may not have its sums under its name, and compare nothing */
    uint32_t apart; /* how far the second is from the first, at least */
    uint64_t step, version;
    struct node node;
    struct audit_side {
        uint64_t member, attempt;
        bool done;
    } first, second;  /* second.member 0: it has none */
    struct ring link; /* waits: among those that do, the oldest first */
};

struct audits {
    uint32_t steps;        /* that have a place */
    struct audit *list;    /* by step % steps and slot; NULL: no ticket is audited */
    struct ring *waiting;  /* by itself: a struct run may move */
    struct digest_mac mac; /* chooses */
    uint64_t adopted_end;  /* tickets of steps before it may be an earlier coordinator's, too */
    uint64_t chosen, agreed, differed, not_compared;
    bool announced, names; /* that was said; whether it was that workers can be named */
};

/* What places said of the values that passed there (said.c). */
enum { SAID_PUSHES_MAX = 64 };

struct said {
    uint32_t steps;           /* that have a place */
    struct statement **heads; /* by step % steps and first slot; NULL: a lease has one place */
    uint32_t count;           /* of all */
    uint32_t push_count;
    struct said_push { /* brought by members that have not said yet what they had */
        uint64_t step;
        struct node node;
        uint64_t first, second; /* members */
        uint32_t chunk;
    } pushes[SAID_PUSHES_MAX];
};

/* That the run is to go back to before what a wrong worker brought (audit_rewind.c). */
struct audit_rewind {
    bool wanted;
    bool searching;       /* of the store */
    uint64_t version_max; /* of the cut */
};

/* That nothing is committed for long (standstill.c). */
struct standstill {
    uint64_t since_ms; /* the newest commit */
    uint64_t logged_ms;
    char reason[COORDINATOR_TEXT_BYTES];
};

/* That and how the run is to end (ending.c). */
enum ending_kind { ENDING_NONE, ENDING_STOP, ENDING_PAUSE /* for a successor to go on */ };

struct ending {
    enum ending_kind kind;
    bool stop_stored; /* an operator's, for a successor */
    char reason[COORDINATOR_TEXT_BYTES];
    uint64_t by_ms;  /* at this moment the step in flight is dropped */
    bool cuts_again; /* it was, and the newest version's cut has its own time */
};

/* What a server reported that cannot prepare the newest cut (reports.c). */
struct unready {
    uint64_t generation; /* in which; 0: none did */
    enum err code;
    char text[COORDINATOR_TEXT_BYTES];
    bool searching;    /* a whole cut is looked for */
    uint64_t again_ms; /* then the next generation tries it; 0: not by time */
};

struct run {
    enum run_state state;                /* phase.c */
    enum phase phase;                    /* phase.c */
    char reason[COORDINATOR_TEXT_BYTES]; /* why the run is over: ending.c */
    bool end_late;                       /* the store does not have it yet: ending.c */
    struct coordinator_run settings;
    uint64_t generation; /* generation.c */
    struct next_generation next;
    bool has_fingerprint; /* coordinator.c */
    uint8_t fingerprint[WIRE_DIGEST_BYTES];
    bool fingerprint_late; /* the store does not have it yet: coordinator.c */

    struct map map;         /* owners.c */
    uint64_t map_number;    /* owners.c; rises whenever map or servers change */
    enum next_map next_map; /* generation.c */
    uint32_t chunk_count;
    struct moves moves;
    struct succession succession;

    struct steps steps;
    struct tickets tickets;
    struct gangs gangs;             /* places.c; of a mesh of several places */
    struct unreachable unreachable; /* places.c */
    uint64_t unreachable_ms;        /* when two failed to reach each other, the last time */
    struct window window;
    struct audits audits;
    struct said said;
    struct audit_rewind rewind;
    struct validation validation;

    struct cuts cuts;

    struct unready unready;

    struct ending ending;

    struct standstill standstill;

    struct validation_row last_validation; /* commit.c */
};

/* Members that have ended (ended.h). */
struct ended {
    uint64_t generation; /* in which they did */
    uint64_t step;       /* the newest that any of them may have a ticket of */
    uint32_t count;
    uint32_t expelled; /* of these the last ones; the others left, or were lost */
    uint32_t told;     /* of those others, to servers */
    bool news;
    uint64_t *members; /* WIRE_ENDED_MAX */
};

struct coordinator {
    struct coordinator_settings settings;
    struct digest_mac key; /* of the term */
    struct effects effects;
    struct members members;
    struct ended ended;
    struct convictions convictions; /* of the run */
    struct servers servers;
    struct run run;
    bool expects_run; /* coordinator_expect_run() */
    uint64_t due_ms;  /* no later than the moment when the first timer is due */
    struct check_account check_account;
    uint64_t check_turn; /* events whose turn it was (coordinator_check_event()) */
};

/* What was reported of an open step; only steps.c adds to it. */
static inline const struct seal *run_seal(const struct run *run, uint64_t step)
{
    return &run->steps.seals[step % (run->settings.delay + 1)];
}

/* Chimera: what is pushed of a node is its halves. */
static inline bool run_pushes_halves(const struct run *run)
{
    return run->settings.place_count > 1 && run->settings.places[0].right_first > 0;
}

/* The node of the lease that the pushed one is of: itself, or in chimera the one it is a half of. */
static inline struct node run_leased(const struct run *run, struct node pushed)
{
    struct node leased = pushed;
    uint32_t level = tree_level(run->settings.node_slots);
    if (run_pushes_halves(run) && pushed.level < level)
        leased = (struct node){level, node_first(pushed) >> level};
    return leased;
}

/* The timer must not sleep beyond this. */
static inline void run_due(struct coordinator *coordinator, uint64_t due_ms)
{
    if (due_ms < coordinator->due_ms)
        coordinator->due_ms = due_ms;
}

static inline bool run_active(const struct run *run)
{
    return run->phase != PHASE_NONE;
}

/* Whether a generation is to begin, and nobody has heard of it yet: nothing of the present one
 * counts. */
static inline bool run_gathers(const struct run *run)
{
    return run->phase == PHASE_GATHER || run->phase == PHASE_STORE;
}

/* Whether the run is to end, for good or for a successor. */
static inline bool run_ends(const struct run *run)
{
    return run->ending.kind != ENDING_NONE;
}

/* Whether the run is paused: it is not active, a successor goes on with it, and members get no
 * notice. */
static inline bool run_paused(const struct run *run)
{
    return run->ending.kind == ENDING_PAUSE && !run_active(run) && run->state <= RUN_TRAINING;
}

static inline bool run_is_over(const struct run *run)
{
    return !run_active(run) && !run_paused(run);
}

/* The store has the end too, and workers may hear of it: by the store a run whose end is late goes
 * on, and needs them. */
static inline bool run_end_is_told(const struct run *run)
{
    return run_is_over(run) && !run->end_late;
}

#endif
