/* The coordinator: members, tickets, seals, cuts and the chunk map of the one run that a cluster
 * trains. It decides; shards hold the state; workers compute.
 *
 * Pure: events come in as calls that carry the time. Effects come out, as an ordered list of what
 * the caller has to do. No sockets, threads, clocks, files. One owner thread: the daemon's main
 * thread, or the simulator.
 *
 * THE ONE RULE OF USE. After every call: carry out coordinator_effects() in order, then
 * coordinator_effects_clear(), and only then send the answer that the call returned. Facts thereby
 * reach the store before anything that follows from them reaches anybody (P10); when a store effect
 * fails, stop there: the effects behind it must not happen. (What a full disk may have no room for
 * has an answer of its own: coordinator_cut_stored(), coordinator_rewind_stored(),
 * coordinator_fingerprint_stored(), coordinator_state_stored(). They may be called while effects
 * are carried out; their effects come behind them.)
 *
 * What it relies on, by number (docs/architecture.md has all of them):
 *  P1  complete marks a ticket done until a rewind; only seals say that a step is done.
 *  P2  everything of another generation than the run's is refused.
 *  P3  commands name the boot they are for; a new boot has lost its state: new generation.
 *  P4  nodes of one step overlap only by nesting.
 *  P6  commit(t+1) is sent only when every server has acknowledged commit(t).
 *  P8  decisions and cuts carry the counters.
 *  P9  cuts are recorded when every manifest is there, newest only; version 0 before the first
 *      grant, the last version before the end.
 *  P10 a rewind is stored before it is acted on, and restores its cut's chunk map.
 *  P11 chunks move inside a commit; who drains leaves when no cut needs its files, recorded or
 *      pending.
 *  P12 async: they move with a new generation, from a cut of all that was granted (moves.h).
 *  P7  a new coordinator goes on with the newest decision that a server holds, or it rewinds; until
 *      then an operator's call waits.
 * A server that was lost pauses the run; when it is back with a new boot, or a new coordinator
 * starts on a stored run and cannot go on where it is (succession.h), the run is rewound: the
 * newest recorded cut, under generation + 1.
 *
 * Files: members.c (who is there), servers.c (the daemons), brought.c (what each member had),
 * leases.c and doubt.c (who holds what, and holds it too long), tickets.c (who computes what),
 * gangs.c, unreachable.c, seating.c, places.c and places_show.c (who shares a ticket, each at a
 * place of its own), validation.c (what the held-out pieces brought), seal.c and schedule.c (sums
 * to decisions), window.c (which tickets of an async run), audits.c (which are computed twice),
 * audit_rewind.c (what a wrong worker brought is undone), cuts.c (which cut is durable), map.c and
 * owners.c (who owns what), phase.c and steps.c (how far the run is), effects.c (what the caller
 * has to do), send.c (commands, answers, notices), ended.c (servers hear of members that have
 * ended), moves.c (servers come, chunks move), succession.c (going on), generation.c (beginnings),
 * overdue.c (commands sent again), leaving.c (servers go), hello.c (the answer to a server's
 * hello), rivals.c (two servers of one name), start.c and ending.c (a run starts and ends),
 * commit.c (a step is decided), standstill.c (whom the run waits for), advance.c (the run moves
 * on), wrong_bits.c and missing.c (who is wrong), suspects.c (who may be), expel.c and
 * convictions.c (and is a member no more), reports.c (what servers report), join.c (who may join),
 * coordinator_check.c (what always holds), coordinator_show.c (what people see), coordinator.c (the
 * other calls below). Each calls only those before it; run.h is what they share, and most write
 * their own part of that alone. */
#ifndef ROOST_SERVER_COORDINATOR_COORDINATOR_H
#define ROOST_SERVER_COORDINATOR_COORDINATOR_H

#include "common/digest.h"
#include "common/err.h"
#include "common/files/order.h"
#include "proto/wire.h"
#include "server/coordinator/convictions.h"
#include "server/coordinator/map.h"
#include "server/shard/seal.h"

struct coordinator; /* opaque */

enum {
    COORDINATOR_MEMBERS_MAX = 4096, /* present at a time */
    COORDINATOR_LEASES_MAX = 8,     /* tickets that one member may hold at a time */
    COORDINATOR_TEXT_BYTES = 256,
};

/* Of the coordinator, whatever run it has. */
struct coordinator_settings {
    uint64_t term;                 /* taken in the store before the coordinator is made */
    uint8_t key[DIGEST_KEY_BYTES]; /* random, of this term alone: makes proofs (proof.h) */
    uint32_t heartbeat_ms;
    uint32_t lease_ms;            /* a member that is silent for longer is lost */
    uint32_t speculation_percent; /* a ticket is overdue, and given to an idle worker as well, at
                                     this share of the usual time; 0: at once */
    uint32_t speculation_ms_min;  /* … and never before this */
    uint32_t certificate_members_max; /* workers with one certificate; 0: any */
    uint32_t stop_ms; /* how long a stop waits for the step in flight before it drops it */
};

/* What a place of a mesh pushes: parts of chunks. */
struct coordinator_place {
    uint32_t range_count; /* 1 at least */
    /* chimera: those before are of a node's left half, from there on of its right one; 0: each is
     * of all of the node */
    uint32_t right_first;
    struct grant_range ranges[1 + WIRE_RANGES_MAX];
};

/* A run as the core sees it; plain data that the daemon takes from the spec, the model and the data
 * set. What the pointers point to must outlive the run. */
struct coordinator_run {
    uint64_t run;
    uint8_t secret[DIGEST_KEY_BYTES]; /* of the run: keys that outlive terms are made from it */
    uint64_t steps;
    uint32_t
        servers_min; /* the run begins when so many are connected, on all that are; at least 1 */
    bool restarts;   /* its daemon goes on with it by itself; no operator starts or resumes it, who
                      would say how many servers there are to be (generation_awaits()) */
    uint32_t slots;
    uint32_t slot_samples;
    bool async;      /* tickets are applied as they come (window.h) */
    uint32_t window; /* async: tickets that may be granted at a time */
    bool ssp;        /* a slot's version is the newest when it is first granted, and logged */
    uint32_t delay;  /* a ticket of step t is computed on version max(0, t - delay), with ssp on one
                        from there to t: so many steps behind the oldest are open as well */
    uint32_t node_slots; /* fixed length of a lease's run of slots; 0: the coordinator chooses */
    uint32_t chosen_slots_max; /* then at most so many; 0: any number */
    double audit;      /* share of tickets that a second worker computes as well (audits.h) */
    bool audit_rewind; /* what a convicted worker brought is undone (audit_rewind.h) */
    bool numerics_any; /* any fingerprint may join */
    bool data_served;  /* workers without a copy of the data may join */
    uint8_t data_digest[WIRE_DIGEST_BYTES];
    uint32_t validate_every;     /* versions; 0: never */
    uint64_t validation_samples; /* held out; 0: never */
    uint64_t cut_every;          /* versions; 0: only the first and the last */
    uint64_t cut_bytes;          /* of all files of a cut, about; 0: not known */
    /* Members that share a ticket: place_count × place_ranks; fewer than two: none do. */
    uint32_t place_count;
    const struct coordinator_place *places;
    uint32_t place_ranks;       /* members of a place; 0: 1 */
    const uint8_t *chunk_ranks; /* by chunk, which of them pushes it; NULL: each has one */
    uint32_t boundary_count;
    const bool
        *boundary_pieces;  /* by boundary, whether values pass in pieces: each rank gives others */
    bool places_ring;      /* the last place and the first are neighbours as well */
    uint32_t place_leases; /* that a member shares at a time, at most; 0: 1 */
    struct seal_settings seal;
    uint32_t parameter_count;
    const struct map_parameter *parameters;
    uint64_t parameter_bytes_max;
    const char *spec;           /* YAML, sent to the servers */
    const char *checkpoint_dir; /* sent to the servers */
    const char *restore;        /* file with the initial weights; NULL or "": from the seed */
};

/* A recorded cut, with what a successor needs to go on from it. */
struct cut_record {
    struct cut_name name;
    struct seal_counters counters;
    uint32_t server_count; /* each with its manifest's digest */
    struct cut_server {
        char name[64];
        uint8_t digest[WIRE_DIGEST_BYTES];
    } servers[WIRE_SERVERS_MAX];
    bool by_seed; /* P9: version 0 of a fresh run, without files; until it is recorded */
};

/* The store's facts: of the cluster, and of a run that is continued. */
struct coordinator_past {
    uint64_t generation; /* the highest ever used, by any run of the cluster */
    bool has_fingerprint;
    uint8_t fingerprint[WIRE_DIGEST_BYTES];
    struct cut_record cut; /* the newest recorded; generation 0: none yet, start from nothing */
    /* The run's log has the steps below this: a successor may go on up to there. */
    uint64_t recorded;
    struct convictions convictions; /* in that run */
    /* An operator has asked for a stop, and the run is not over yet. */
    bool stops;
    char stop[COORDINATOR_TEXT_BYTES]; /* why */
};

enum effect_kind {
    /* Facts for the store, each conditional on the term. */
    /* generation: highest used, and the run has gone back for every conviction; then call
     * coordinator_rewind_stored(), before any other call */
    EFFECT_STORE_REWIND = 1,
    /* fingerprint: the first worker's is the run's; coordinator_fingerprint_stored() when the store
     * has it */
    EFFECT_STORE_FINGERPRINT,
    /* Cut: every manifest is there; write the cut down, then call coordinator_cut_stored(), at
     * once or later */
    EFFECT_STORE_CUT,
    /* find: a server cannot read the newest cut, or that cut has what a wrong worker brought. Look
     * for the newest that is whole and of that version at most, forget those that are newer, then
     * call coordinator_cut_found(). */
    EFFECT_FIND_CUT,
    EFFECT_STORE_ORDER,      /* order: ssp, the versions a step was computed on; durable before a
                                 later cut is */
    EFFECT_STORE_CONVICTION, /* conviction: before anybody hears of it */
    EFFECT_STORE_STOP,       /* stop: an operator's, before the call is answered */
    EFFECT_STORE_STATE,      /* state; coordinator_state_stored() when the store has it */
    /* Messages. */
    EFFECT_COMMAND, /* command, to the server's link */
    /* Answer, to the member's acquire; to be dropped when the call is not there any more. */
    EFFECT_ANSWER,
    EFFECT_EXPEL,  /* member: it is not a member any more; close its stream */
    EFFECT_UNLINK, /* link: it is dead, although its server may use it; close its stream */
    EFFECT_NOTICE, /* notice, to the member notice_to; 0: to all */
    EFFECT_PLACES, /* places: that member hears what coordinator_places() has of its lease */
    /* Adopted: the run goes on there, where another coordinator left it (P7); rows of steps from
     * that version on come again */
    EFFECT_ADOPT,
    /* For people. */
    EFFECT_STEP,       /* step: a row */
    EFFECT_VALIDATION, /* validation: a row */
    EFFECT_LOG,        /* log: one line of key=value */
};

struct step_row {
    uint64_t step;
    uint64_t generation;
    uint64_t samples;      /* in all, this step included */
    uint64_t step_samples; /* of this step's tickets */
    uint32_t slots;        /* tickets step * slots … */
    struct seal_metrics metrics;
    uint32_t behind; /* the most versions that weights were behind the step */
    bool skipped;
    uint32_t workers;     /* members at commit */
    uint32_t redone;      /* slots granted again after a loss */
    uint32_t speculative; /* slots given to a second worker */
    uint32_t audited;     /* slots given to a second worker on purpose */
    uint64_t duration_ms; /* since the commit before */
    uint64_t slot_ms;     /* of the first counted attempts, from lease to completion, summed */
};

struct validation_row {
    uint64_t version;
    uint64_t generation;
    uint64_t samples;
    double loss;
    double accuracy;
    uint64_t slot_ms; /* as a step's */
};

struct effect {
    enum effect_kind kind;
    union {
        uint64_t generation;
        uint8_t fingerprint[WIRE_DIGEST_BYTES];
        const struct cut_record *cut; /* until coordinator_cut_stored() */
        struct {
            uint64_t version_max;
            char unready[COORDINATOR_TEXT_BYTES]; /* why: what the server reported */
        } find;
        struct cut_name adopted;
        struct order_step order; /* borrowed until the next step's */
        struct conviction conviction;
        char stop[COORDINATOR_TEXT_BYTES]; /* why */
        struct {
            enum run_state state;
            char reason[COORDINATOR_TEXT_BYTES];
        } state;
        struct {
            uint64_t link;
            struct server_command command;
        } command;
        struct {
            uint64_t member;
            uint64_t sequence;
            enum err err; /* OK: reply; else the call fails with it */
            struct acquire_reply reply;
        } answer;
        uint64_t member;
        uint64_t link;
        struct {
            uint64_t notice_to; /* 0: to all members */
            struct member_notice notice;
        };
        struct {
            uint64_t member, attempt;
        } places;
        struct step_row step;
        struct validation_row validation;
        struct {
            bool warning;
            char text[COORDINATOR_TEXT_BYTES];
        } log;
    };
};

struct coordinator *
coordinator_new(const struct coordinator_settings *settings) MUST_USE; /* NULL */
void coordinator_free(struct coordinator *coordinator);

const struct effect *coordinator_effects(const struct coordinator *coordinator, size_t *ret_count);
void coordinator_effects_clear(struct coordinator *coordinator);

/* When coordinator_tick is due next; UINT64_MAX: not before another event. */
uint64_t coordinator_next_ms(const struct coordinator *coordinator);
/* Called later than a heartbeat after it was due, it finds nobody silent for two heartbeats: the caller
 * stood still and may not have looked at what came. Once in a lease. */
void coordinator_tick(struct coordinator *coordinator, uint64_t now_ms);

/* ---- the run ---- */

/* Whether coordinator_start() may take any run: ERR_BUSY. To be asked before its data are read. */
enum err coordinator_may_start_any(const struct coordinator *coordinator,
                                   struct reason *reason) MUST_USE;
/* Whether coordinator_start() would take the run; to be asked before facts about it are stored. The
 * same errors. */
enum err coordinator_may_start(const struct coordinator *coordinator,
                               const struct coordinator_run *run,
                               const struct coordinator_past *past, struct reason *reason) MUST_USE;
/* Starts `run`, from nothing or from the newest cut of `past` (NULL: of nothing), as soon as
 * run->servers_min servers are connected, on all servers that are connected then. The same run
 * started again before its first commit is started anew with these settings. ERR_BUSY: one is
 * active; ERR_NOMEM; ERR_INVALID: the parameters are no grid, or the cut is beyond the last
 * step. */
enum err coordinator_start(struct coordinator *coordinator, uint64_t now_ms,
                           const struct coordinator_run *run, const struct coordinator_past *past,
                           struct reason *reason) MUST_USE;
/* Whether the store has a run that is to go on, but cannot be started yet: nobody may drain or be
 * given up before coordinator_start(), because the run's newest cut may need anybody's files
 * (P11). */
void coordinator_expect_run(struct coordinator *coordinator, bool expected);
/* Finish the step in flight or drop it (settings.stop_ms), cut, then RUN_STOPPED; a successor does
 * so as well. Where the cut has no room, the run waits for it, unless it is told to stop again.
 * ERR_NO_RUN. */
enum err coordinator_stop(struct coordinator *coordinator, uint64_t now_ms,
                          const char *why) MUST_USE;
/* The daemon ends and the run does not. It is like a stop up to the cut, but then nothing is stored
 * or sent. A successor goes on from the cut, and workers look for it. ERR_NO_RUN. */
enum err coordinator_pause(struct coordinator *coordinator, uint64_t now_ms,
                           const char *why) MUST_USE;
/* The next commit is a cut. ERR_NO_RUN. */
enum err coordinator_checkpoint(struct coordinator *coordinator) MUST_USE;

/* ---- places of a mesh ---- */

/* Who computes the lease of that attempt: WIRE_PLACES_MAX peers at most. None: it is over, or over
 * for that member, who has no seat of it. */
void coordinator_places(const struct coordinator *coordinator, uint64_t attempt, uint64_t to,
                        struct peer *ret_peers, struct places *ret_places);
/* The leases that are not over of which the member has a place; returns their number. */
uint32_t coordinator_leases(const struct coordinator *coordinator, uint64_t member,
                            uint64_t ret_attempts[static WIRE_LEASES_MAX]);

/* ---- servers ---- */

/* P7: a server drops commands of an older term than it has obeyed. When it obeyed a coordinator of
 * another store, because this one's directory was lost or is new, the coordinator needs a newer
 * term: the store has it before coordinator_take_term(), and that comes before the hello. No newer
 * one: its own. */
uint64_t coordinator_term_for(const struct coordinator *coordinator,
                              const struct server_report *hello);
void coordinator_take_term(struct coordinator *coordinator, const struct server_report *hello);
/* A server's stream has sent a hello: *ret_link names the stream from now on. An older link of the
 * same server is dead, and is closed. When this hello is the older one and came late, the server
 * sends its hello again. ERR_MALFORMED: another kind of report; ERR_WIRE_VERSION; ERR_BUSY:
 * WIRE_SERVERS_MAX are known, or another start of the name is being asked whether it lives;
 * ERR_NAME_TAKEN: it does (P3, rivals.h). */
enum err coordinator_server_hello(struct coordinator *coordinator, uint64_t now_ms,
                                  const struct server_report *hello, uint64_t *ret_link,
                                  struct reason *reason) MUST_USE;
/* Any other report. ERR_NOT_FOUND: the link is dead; ERR_MALFORMED: it breaks the run's limits;
 * ERR_OLD_TERM: it is beyond the decisions made here, or about a chunk that another server owns
 * here, so another coordinator goes on in this generation (P7); OLD_GENERATION and OLD_BOOT:
 * fenced, harmless. */
enum err coordinator_server_report(struct coordinator *coordinator, uint64_t now_ms, uint64_t link,
                                   const struct server_report *report) MUST_USE;
void coordinator_server_lost(struct coordinator *coordinator, uint64_t now_ms, uint64_t link);

/* The server is to give its chunks away (P11) and then to end. When asked again, returns how far
 * that is. ERR_NOT_FOUND: no such server; ERR_INVALID: nobody could take its chunks, or the run
 * waits for servers and cannot begin without it; ERR_BUSY: a stored run is expected. */
struct coordinator_drained {
    bool drained;
    uint32_t chunks_left;
};
enum err coordinator_drain(struct coordinator *coordinator, uint64_t now_ms, const char *name,
                           struct coordinator_drained *ret_drained, struct reason *reason) MUST_USE;

/* A server that is lost will not come back: the run goes on without it, from the newest recorded
 * cut. ERR_NOT_FOUND: no such server; ERR_INVALID: it is connected, or nobody could take its
 * chunks; ERR_UNSUPPORTED: the run is async; ERR_BUSY: a stored run is expected. */
enum err coordinator_give_up(struct coordinator *coordinator, uint64_t now_ms, const char *name,
                             struct reason *reason) MUST_USE;

/* The result of an EFFECT_STORE_CUT. OK: the cut is recorded, which may have further effects.
 * Anything else: this cut is given up, and training goes on where it can. */
void coordinator_cut_stored(struct coordinator *coordinator, uint64_t now_ms, struct cut_name name,
                            enum err err);

/* The result of an EFFECT_STORE_REWIND. OK: the generation begins, and coordinator_status() has its
 * version. NO_SPACE: the store is asked again a while later. */
void coordinator_rewind_stored(struct coordinator *coordinator, uint64_t now_ms,
                               uint64_t generation, enum err err);
/* An EFFECT_STORE_FINGERPRINT is in the store, at once or later: tickets are granted from now
 * on. */
void coordinator_fingerprint_stored(struct coordinator *coordinator, uint64_t now_ms);
/* An EFFECT_STORE_STATE is in the store, at once or later: the run's newest state. */
void coordinator_state_stored(struct coordinator *coordinator);

/* Whether an EFFECT_FIND_CUT is waited for still: else nothing may be forgotten for its sake. */
bool coordinator_wants_cut(const struct coordinator *coordinator);
/* What became of it: the newest cut that is whole; NULL: none is. The run goes back to that cut.
 * When it is the very cut that the server was told to read, or none, the run fails with `unready`, or
 * tries again where the files may come. For a wrong worker's sake it never fails: without such a cut
 * it goes on from the newest. */
void coordinator_cut_found(struct coordinator *coordinator, uint64_t now_ms,
                           const struct cut_record *whole, const char *unready);

/* ---- members ---- */

/* ERR_NO_RUN, ERR_WIRE_VERSION, ERR_FINGERPRINT, ERR_DATA_SET, ERR_BUSY; `reason` names both sides.
 */
enum err coordinator_join(struct coordinator *coordinator, uint64_t now_ms,
                          const struct join_request *request, struct join_reply *ret_reply,
                          struct reason *reason) MUST_USE;
enum err coordinator_heartbeat(struct coordinator *coordinator, uint64_t now_ms,
                               uint64_t member) MUST_USE; /* ERR_UNKNOWN_MEMBER */
/* A heartbeat, with what it says of the member's leases (S7). ERR_UNKNOWN_MEMBER. */
enum err coordinator_member_report(struct coordinator *coordinator, uint64_t now_ms,
                                   uint64_t member, const struct member_report *report) MUST_USE;
/* The first report of a member's control stream. ERR_UNKNOWN_MEMBER: also when the secret is not
 * that member's. */
enum err coordinator_member_hello(struct coordinator *coordinator, uint64_t now_ms,
                                  const struct member_report *report) MUST_USE;
/* The member's control stream broke: its tickets are free at once. Unknown ones are ignored. */
void coordinator_member_lost(struct coordinator *coordinator, uint64_t now_ms, uint64_t member,
                             const char *why);
enum err coordinator_leave(struct coordinator *coordinator, uint64_t now_ms,
                           const struct leave_request *request) MUST_USE; /* ERR_UNKNOWN_MEMBER */
/* The answer is an EFFECT_ANSWER, of this call or of a later one (at wait_ms at the latest). A
 * newer acquire of the same member takes the place of its parked one, for which nobody waits any
 * more. ERR_UNKNOWN_MEMBER, ERR_OLD_GENERATION, ERR_BUSY: the member holds too many tickets. */
enum err coordinator_acquire(struct coordinator *coordinator, uint64_t now_ms,
                             const struct acquire_request *request) MUST_USE;
/* ERR_UNKNOWN_MEMBER, ERR_OLD_GENERATION, ERR_MALFORMED: no such ticket in this run; ERR_NO_GRANT:
 * it was not granted to this member. */
enum err coordinator_complete(struct coordinator *coordinator, uint64_t now_ms,
                              const struct complete_request *request) MUST_USE;

/* ---- what is going on ---- */

/* A present or former member. The former ones come behind the present ones, newest first, a bounded
 * number of them; at last who was convicted before. */
struct coordinator_member {
    uint64_t member; /* 0: its join was refused */
    char name[64];
    char device[64];
    const char *state; /* "joined", "left", "preempted", "timed out", "refused", … */
    char reason[128];  /* why it is gone */
    uint64_t slots_done;
    uint64_t wrong_bits; /* pushes of its own that differed from somebody else's */
    uint64_t seen_ms;    /* its newest message; 0: not known */
    uint64_t kept_bytes; /* of values that it keeps for others of its leases */
};

/* A seat of an open lease. */
struct coordinator_seat {
    enum ticket_kind kind;
    uint64_t step; /* validation: the version */
    uint32_t slot, slots;
    uint64_t attempt;
    bool copy; /* of a node that an older lease has */
    uint32_t stage, rank;
    uint64_t member; /* 0: the seat is empty */
    char name[64];
    bool done;
    uint32_t tries; /* of the place: 1, and one more with each loss */
    uint64_t since_ms;
};

/* Two members that failed to reach each other (unreachable.h). */
struct coordinator_pair {
    char worker[64], other[64];
    uint32_t times;
    bool apart;
};

struct coordinator_server {
    char name[64];
    char address[256];
    uint64_t boot;
    uint64_t link; /* 0: not connected */
    bool connected;
    bool has_left;        /* drained; nothing is expected of it */
    const char *state;    /* "serving", or "idle", "joining", "draining", … */
    uint32_t chunk_count; /* 0: not one of the run's */
    uint64_t pushed_bytes, spared_bytes, pulled_bytes, duplicates, open_nodes_max, audited;
};

struct coordinator_status {
    enum run_state state;
    /* The coordinator does nothing any more (coordinator_pause). */
    bool end_late; /* the store does not have the end yet, so that by the store the run goes on */
    bool paused;
    bool stops;                          /* it will be over after a checkpoint */
    char reason[COORDINATOR_TEXT_BYTES]; /* why it waits, stopped or failed; "" otherwise */
    uint64_t run, term, generation;
    uint64_t version, steps;
    struct seal_counters counters;
    uint64_t read_again; /* async: samples that servers took before, of steps that are to come */
    struct cut_name cut; /* newest recorded; generation 0: none */
    char cut_error[COORDINATOR_TEXT_BYTES]; /* why the newest cut was not recorded; "" */
    struct step_row last_step;              /* generation 0: none yet */
    struct validation_row last_validation;  /* generation 0: none yet */
    uint32_t member_count;
    uint64_t members_joined, members_lost;
    uint64_t member_ms; /* how long workers were members, summed */
    uint64_t useful_ms; /* of attempts that were counted first, from lease to completion */
    uint64_t wasted_ms; /* the same of all others that are over */
    uint64_t redone, speculative, skipped; /* slots, slots, steps */
    struct audit_status audits;
    uint64_t map_number;
    struct move_status moves;
};

void coordinator_status(const struct coordinator *coordinator,
                        struct coordinator_status *ret_status);
/* The i-th conviction of the run; NULL beyond the last. */
const struct conviction *coordinator_conviction(const struct coordinator *coordinator, uint32_t i);
/* The i-th member (the present ones first) or known server; false beyond the last. */
bool coordinator_member(const struct coordinator *coordinator, uint32_t i,
                        struct coordinator_member *ret_member);
bool coordinator_server(const struct coordinator *coordinator, uint32_t i,
                        struct coordinator_server *ret_server);
/* The i-th place of all open leases, the oldest lease's first, or pair of members; false beyond the
 * last. */
bool coordinator_seat(const struct coordinator *coordinator, uint32_t i,
                      struct coordinator_seat *ret_seat);
bool coordinator_pair(const struct coordinator *coordinator, uint32_t i,
                      struct coordinator_pair *ret_pair);
/* The map, and the run's servers in its order; a free place has a server without a name. NULL while
 * there is none, or it may be the next generation's already. */
const struct map *coordinator_map(const struct coordinator *coordinator);
bool coordinator_map_server(const struct coordinator *coordinator, uint32_t server,
                            struct coordinator_server *ret_server);
/* The invariants, the numbered ones of run.h and tickets.h among them; a walk over everything. */
void coordinator_check(struct coordinator *coordinator);
/* The same for the daemon, after every call and before its effects are carried out: the cheap
 * checks each time, all of them on a schedule (common/check_account.h). */
void coordinator_check_event(struct coordinator *coordinator);
/* The state in a line, for the log (scene.h); `object` is a struct coordinator. */
void coordinator_describe(const void *object, char *text, size_t bytes);

#endif
