/* The daemons that the coordinator knows, by name: whether each is connected, since which boot,
 * what its part in the run is, and whether it leaves. Pure; one owner.
 *
 * Each of the run's servers has an index in its chunk map, its place: one that has drained leaves
 * its place free, one that is added takes the lowest free place.
 *
 *     without a place:  IS_IDLE --> IS_INVITED --> HAS_JOINED
 *                          |                           | a commit brings its first chunks
 *                          v                           v
 *     with a place:     IS_CHOSEN --> PREPARES ---> SERVES --> IS_EMPTIED
 *                                     ^      |      |   a new boot (P3)
 *                                     |      v      v
 *                                     +----- HAS_LOST
 *
 * From everywhere back to IS_IDLE: another run or generation has other servers. Only servers.c
 * writes what is here, but the answers to a successor (succession.c) and the statistics
 * (reports.c). */
#ifndef ROOST_SERVER_COORDINATOR_SERVERS_H
#define ROOST_SERVER_COORDINATOR_SERVERS_H

#include "common/err.h"
#include "proto/wire.h"

enum { SERVERS_NONE = UINT32_MAX };

enum server_state {
    /* Without a place in the run's map: */
    SERVER_IS_IDLE,    /* it got no command of this generation */
    SERVER_IS_INVITED, /* it got PREPARE without chunks (moves.h) */
    SERVER_HAS_JOINED, /* it has, and waits for its first chunks */
    /* With a place: */
    SERVER_IS_CHOSEN,  /* it got no command of this generation */
    SERVER_PREPARES,   /* it got PREPARE with its chunks */
    SERVER_SERVES,     /* it has its chunks */
    SERVER_IS_NEW,     /* its first chunks come with the commit that is being decided */
    SERVER_IS_EMPTIED, /* it drains, and no chunk is left: no more commits, no more cuts */
    SERVER_HAS_LOST,   /* P3: a new boot, which got no command */
    SERVER_STATES
};

enum server_leaving {
    SERVER_STAYS,
    SERVER_DRAINS,   /* an operator asked for it: it has to give its chunks away */
    SERVER_ENDS,     /* this start of it asked for that, because its daemon is to end */
    SERVER_HAS_LEFT, /* LEAVE was sent to this start of it */
    SERVER_LEAVINGS
};

/* The answer that a server owes (overdue.h). */
enum server_awaited {
    SERVER_AWAITED_NOTHING,
    SERVER_AWAITED_JOINS, /* to an invitation */
    SERVER_AWAITED_READY, /* to PREPARE */
    SERVER_AWAITED_COMMITTED
};

struct server_entry {
    char name[64];
    char address[256];
    uint64_t boot;                /* of the newest hello */
    uint64_t link;                /* 0: not connected */
    uint64_t held_generation;     /* the generation that its hello reported; 0: nothing */
    uint64_t prepared_generation; /* the highest of any run, by its hello; 0: none, or not known */
    uint32_t map_index; /* its place in the run's map; SERVERS_NONE: not one of the run's */
    enum server_state state;
    uint64_t invitation; /* P11: its READY repeats it; 0: it was not invited */
    enum server_leaving leaving;
    enum server_awaited awaited;
    uint64_t awaited_until_ms; /* then the command is sent again */
    bool given_up;     /* an operator's word: no generation waits for it before it is back */
    bool unfit;        /* this start of it cannot hold chunks of the run */
    bool wanted;       /* servers_choose_wanted(): to be one of the run's */
    bool acknowledged; /* the newest commit (P6) */
    /* it lost its memory since that commit: it writes no file of that commit's cut */
    bool past_cut;
    uint32_t file; /* its file in the newest cut that was ordered */
    /* Answers to a coordinator that follows another (succession.h): */
    /* the links of question and answer; an answer of an earlier start does not count */
    uint64_t asked_link, answered_link;
    struct server_held held; /* without ranges; generation 0: nothing of use */
    /* rivals.h: another start of this name said hello; 0: none has. */
    uint64_t rival_boot, rival_until_ms;
    bool lives; /* this one has answered since */
    uint64_t pushed_bytes, spared_bytes, pulled_bytes, duplicates, open_nodes_max, audited;
    bool journal_full; /* since its newest hello it said that it waits for room on its disk */
};

struct servers {
    uint32_t count;
    struct server_entry *list;         /* WIRE_SERVERS_MAX; entries never move */
    uint32_t chosen_count;             /* places in the map, free ones included */
    uint32_t chosen[WIRE_SERVERS_MAX]; /* the run's, by map index; SERVERS_NONE: free */
    uint64_t links, invitations;       /* how many there have been */
};

enum err servers_init(struct servers *servers) MUST_USE; /* ERR_NOMEM */
void servers_release(struct servers *servers);

/* A hello: the entry of that name, connected under a new link; *ret_older is the link that this one
 * takes the place of, 0: none. ERR_BUSY: too many names. */
enum err servers_hello(struct servers *servers, const struct server_report *hello,
                       struct server_entry **ret_server, uint64_t *ret_older) MUST_USE;
/* Its link is dead. */
void servers_lost(struct server_entry *server);
struct server_entry *servers_find(struct servers *servers, uint64_t link); /* NULL: a dead link */
/* NULL: the place is free. */
struct server_entry *servers_of_map(const struct servers *servers, uint32_t map_index);
/* The same, but NULL also for an emptied server, of which at most files are needed. */
struct server_entry *servers_active(const struct servers *servers, uint32_t map_index);
struct server_entry *servers_named(const struct servers *servers, const char *name); /* NULL */
/* The same, made when it is not known. ERR_BUSY: too many names. */
enum err servers_make(struct servers *servers, const char *name,
                      struct server_entry **ret_server) MUST_USE;
/* Forgets a server that is not connected, has no place, and of which no operator has said anything:
 * the next new name gets its entry. False: it is none. */
bool servers_forget_gone(struct server_entry *server);
/* Whether every server of the run is connected (and some are chosen). */
bool servers_connected(const struct servers *servers);
/* Whether each of them has its chunks. */
bool servers_ready(const struct servers *servers);
/* Whether it is connected, and neither leaves nor drains. */
bool servers_is_available(const struct server_entry *server);
/* The first of the run's whose journal waits for room; NULL: none does. */
const struct server_entry *servers_journal_full(const struct servers *servers);
/* The number of servers that can be the run's, without `without` (NULL: nobody). */
uint32_t servers_available(const struct servers *servers, const struct server_entry *without);

/* ---- which are the run's ---- */

/* It is to be one of the run's, or is not to be. */
void servers_want(struct server_entry *server, bool wanted);
/* All available servers become the run's, in the order of their names. Returns their number. */
uint32_t servers_choose(struct servers *servers);
/* The same with the servers that are marked as wanted. */
uint32_t servers_choose_wanted(struct servers *servers);
/* Adds a server to the run's; false: there is no place. */
bool servers_choose_one(struct servers *servers, struct server_entry *server);
/* The same for one that has joined: its first chunks come with the commit that is being decided. */
bool servers_add(struct servers *servers, struct server_entry *server);
/* None come after all: it has joined, as before. */
void servers_take_back(struct servers *servers, struct server_entry *server);
void servers_unchoose_one(struct servers *servers, struct server_entry *server);
void servers_unchoose(struct servers *servers);

/* ---- how far each is ---- */

/* PREPARE is sent to it: without chunks, or with those of its place. */
void servers_invite(struct server_entry *server, uint64_t invitation);
void servers_prepare(struct server_entry *server);
void servers_prepare_again(struct server_entry *server);
/* Whether PREPARE was sent to it, so that a READY of it is the answer. */
bool servers_was_told(const struct server_entry *server);
/* It has the chunks that it got PREPARE for. */
void servers_note_ready(struct server_entry *server);
/* P7: it holds its chunks, by the commands of another coordinator. */
void servers_adopt(struct server_entry *server, bool acknowledged);
/* Commands that it got without a place count no more. */
void servers_forget(struct server_entry *server);
/* The commit is sent that brings its first chunks. */
void servers_serve(struct server_entry *server);
/* Its last chunk has left. */
void servers_empty(struct server_entry *server);

/* P6: commit(t + 1) waits for every acknowledgement. A new commit is sent to it, or the newest once
 * more; and it has acknowledged the newest. */
void servers_tell_new_commit(struct server_entry *server);
void servers_tell_commit(struct server_entry *server);
void servers_acknowledge(struct server_entry *server);
/* It has lost its memory while the others go on: it writes no file of the newest commit's cut. */
void servers_miss_cut(struct server_entry *server);
/* Its number in the cut that is being ordered; WIRE_FILE_NONE: it writes no file. */
void servers_number_file(struct server_entry *server, uint32_t file);

/* It owes that answer, until that moment where it did not before; true: it did not. */
bool servers_await(struct server_entry *server, enum server_awaited awaited, uint64_t until_ms);
/* Its command is sent once more. */
void servers_await_anew(struct server_entry *server);

/* ---- leaving ---- */

/* It will not come back. */
void servers_give_up(struct server_entry *server);
/* Another run starts, about which nobody has given a word yet. */
void servers_expect_all(struct servers *servers);
/* How many are given up. */
uint32_t servers_given_up(const struct servers *servers);

bool servers_drains(const struct server_entry *server);
/* It is to give its chunks away; `ends`: it asked for that itself. */
void servers_drain(struct server_entry *server, bool ends);
/* It does not drain any more, and stays. */
void servers_drain_over(struct server_entry *server);
/* LEAVE was sent to it. */
void servers_leave(struct server_entry *server);
/* This start of it is not to leave yet: it drains once more. */
void servers_leave_later(struct server_entry *server);
/* This start of it cannot hold chunks of the run. */
void servers_note_unfit(struct server_entry *server);

#endif
