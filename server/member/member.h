/* A server as its coordinator sees it: what it holds, how far its shard threads are, and what it
 * reports. The coordinator's commands and the threads' events come in. Effects go out, and the
 * caller carries them out from first to last. server/threads/shards.c is the caller.
 *
 * Rules that are decided here:
 *  P3  a command for another boot of this server is dropped;
 *  P7  a command of an older term is dropped; a newer term is adopted before anything is answered;
 *  P11 whoever asked to end, and may, takes no command any more;
 *  P2  an event of a thread or of a writer that belongs to another generation than the one that is
 *      held changes nothing and reports nothing;
 *  P6  COMMITTED(t) is reported when every thread has carried out commit(t), never before; READY
 * when every thread is.
 *
 * Invariants (member_check):
 *  1 where nothing is held, there is no manifest, and nothing is committed, by no thread either;
 *  2 the version that is committed is not below the version that the generation began with, and no
 *    thread is behind it unless no step was committed yet;
 *  3 the newest manifest is of the generation that is held, and of no version beyond the committed
 *    one's next;
 *  4 the tickets that all chunks have taken are known only of an async run;
 *  5 no generation above the highest prepared one is held.
 *
 * Pure: no clock, no thread, no I/O. The caller makes sure that only one thread at a time is
 * inside. */
#ifndef ROOST_SERVER_MEMBER_MEMBER_H
#define ROOST_SERVER_MEMBER_MEMBER_H

#include "proto/wire.h"
#include "server/member/admission.h"
#include "server/member/holdings.h"
#include "server/shard/shard.h"

enum { MEMBER_THREADS_MAX = 64, MEMBER_EFFECTS_MAX = 8 };

enum member_effect_kind {
    MEMBER_REPORT,         /* send `report` to the coordinator */
    MEMBER_PREPARE,        /* build what the command names and give it to the threads; then
                             member_prepared(), or member_prepare_failed() */
    MEMBER_COMMIT,         /* give the command to every thread; member_moves_lost() when a command
                             with moves does not reach them */
    MEMBER_JOURNAL_CUT,    /* async: the journal begins a segment at `version` */
    MEMBER_PRUNE,          /* `recorded` is: cuts that nobody goes back to may go */
    MEMBER_JOURNAL_PRUNE,  /* async: so may what the journal has before `recorded` */
    MEMBER_ADMIT,          /* members are judged by `admit` from now on */
    MEMBER_ENDED,          /* so are those that the command names: they are none any more */
    MEMBER_SERVE,          /* Welcome names `generation` from now on; 0: nothing is held */
    MEMBER_END,            /* every thread forgets its shard */
    MEMBER_REPORT_REDUCED, /* every thread reports again which steps it has reduced */
    MEMBER_ASK_MISSING     /* every thread reports the slots that it lacks of the command's step */
};

struct member_effect {
    enum member_effect_kind kind;
    union {
        struct server_report report; /* what it points to is borrowed until the next command */
        uint64_t version;
        struct recorded_cut recorded;
        uint64_t generation;
        struct admission_term admit;
    };
};

/* The effects of one event, in order. */
struct member_effects {
    uint32_t count;
    struct member_effect list[MEMBER_EFFECTS_MAX];
    struct reason reason; /* that a report's text points to */
};

/* How far one thread is. */
struct member_thread {
    bool ready;
    uint64_t committed; /* versions: steps committed */
    struct shard_statistics statistics;
};

struct server_member {
    uint64_t boot; /* of this start of the server (P3) */
    uint32_t thread_count;
    struct admission_term term; /* the highest seen (P7) */
    struct holdings holdings;   /* for a new coordinator */
    bool told;                  /* a command has named what to hold */
    bool may_leave, draining;
    struct cut_name held; /* the generation and the version that it began with; 0, 0: nothing */
    uint64_t prepared;    /* the highest generation of any PREPARE, of any run; 0: none */
    uint64_t invitation;  /* of the newest PREPARE; 0: it was none to join */
    enum err prepare_err;
    struct reason prepare_reason;
    uint64_t committed; /* by all threads: versions */
    bool has_manifest;
    struct server_report manifest; /* the newest */
    bool journal_full;             /* it waits for room on the disk */
    struct member_thread threads[MEMBER_THREADS_MAX];
    /* async: the tickets that the chunks of all threads begin with. */
    bool async, taken_known;
    struct applied taken;
    uint64_t taken_words[APPLIED_WINDOW_MAX / 64];
    uint64_t taken_sent[APPLIED_WINDOW_MAX / 64]; /* the same, as it is reported */
};

void member_init(struct server_member *member, uint64_t boot, uint32_t thread_count);
void member_release(struct server_member *member);

/* A command of the coordinator. */
void member_command(struct server_member *member, const struct server_command *command,
                    struct member_effects *ret_effects);
/* The command of MEMBER_PREPARE was opened, and is given to the threads next. */
void member_prepared(struct server_member *member, const struct shard_async *async);
/* The command could not be opened: READY reports the error. */
void member_prepare_failed(struct server_member *member, enum err err, const struct reason *reason,
                           struct member_effects *ret_effects);
/* The chunks of a command will not move: it is not known any more what the server holds. */
void member_moves_lost(struct server_member *member);
/* The daemon is to end: asks the coordinator to move the chunks elsewhere. */
void member_drain(struct server_member *member, struct member_effects *ret_effects);
/* The connection to the coordinator is new: sends every report again that may have been lost. The
 * coordinator ignores those that it has had already. */
void member_report_again(const struct server_member *member, struct member_effects *ret_effects);

/* Events of the threads and of the writer of cuts. `shard` is NULL when `err` is not OK. */
struct member_ready {
    uint32_t thread;
    uint64_t generation;
    enum err err;
    const struct reason *reason;
    const struct shard *shard;
};
void member_thread_ready(struct server_member *member, const struct member_ready *ready,
                         struct member_effects *ret_effects);
void member_thread_reduced(const struct server_member *member, const struct reduced *reduced,
                           struct member_effects *ret_effects);
struct member_committed {
    uint32_t thread;
    uint64_t generation, step;
    const struct shard_statistics *statistics;
};
void member_thread_committed(struct server_member *member, const struct member_committed *committed,
                             struct member_effects *ret_effects);
/* Slots that a thread lacks, by the coordinator's question; borrowed as long as the effects. */
struct member_missing {
    uint64_t generation, step, question;
    const uint64_t *slots; /* WIRE_SLOT_WORDS_MAX words */
    uint32_t lack_count;
    const struct lack *lacks;
};
void member_thread_missing(const struct server_member *member, const struct member_missing *missing,
                           struct member_effects *ret_effects);
void member_wrong_bits(const struct server_member *member, const struct shard_effect *effect,
                       struct member_effects *ret_effects);
struct member_cut {
    struct cut_name name;
    uint32_t attempt;
    enum err err;
    const uint8_t *manifest; /* WIRE_DIGEST_BYTES */
};
void member_cut_written(struct server_member *member, const struct member_cut *cut,
                        struct member_effects *ret_effects);

/* The journal of what async shards take (order_writer.h) waits for room, or goes on. */
void member_journal_full(struct server_member *member, bool full,
                         struct member_effects *ret_effects);

/* The server holds what the coordinator's newest command wants, which may be nothing. */
bool member_loaded(const struct server_member *member);
/* What a hello reports: the generation and the version; 0, 0: nothing. */
struct cut_name member_held(const struct server_member *member);
/* The highest generation that this start of the server was told to prepare, of any run; 0: none. A
 * coordinator whose store has forgotten it numbers its generations above. */
uint64_t member_prepared_generation(const struct server_member *member);
void member_check(const struct server_member *member);
/* The state in a line, for the log (scene.h); `object` is a struct server_member. */
void member_describe(const void *object, char *text, size_t bytes);

#endif
