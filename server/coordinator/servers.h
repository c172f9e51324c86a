/* The daemons that the coordinator knows, by name: whether they are connected, since which boot,
 * and how far each is with what it was told. Pure; one owner.
 *
 * A run's servers have an index in its chunk map each, for as long as they are: one that has
 * drained leaves its place free, one that is added takes the lowest free place. */
#ifndef ROOST_SERVER_COORDINATOR_SERVERS_H
#define ROOST_SERVER_COORDINATOR_SERVERS_H

#include "common/err.h"
#include "proto/wire.h"

enum { SERVERS_NONE = UINT32_MAX };

struct server_entry {
    char name[64];
    char address[256];
    uint64_t boot;            /* of the newest hello */
    uint64_t link;            /* 0: not connected */
    uint64_t held_generation; /* what its hello said it holds; 0: nothing */
    uint32_t map_index;       /* its place in the run's map; SERVERS_NONE: not one of the run's */
    /* About the run's generation: */
    uint64_t prepared_boot; /* the boot that was told to prepare (P3) */
    bool ready;             /* it has its chunks */
    bool acknowledged;      /* the newest commit (P6) */
    bool past_cut;          /* it lost its memory since that commit: it writes no file of its cut */
    uint32_t file;          /* its file in the newest cut that was ordered */
    /* Coming and going: */
    bool draining;       /* it is to give its chunks away */
    uint64_t drain_boot; /* … which this start of it asked for; 0: an operator did */
    /* Answers to a coordinator that follows another (succession.h): */
    uint64_t asked_link, answered_link; /* over which link; that of another start count no more */
    struct server_held held;            /* without ranges; generation 0: nothing of use */
    bool newcomer;       /* its first chunks come with the commit that is being decided */
    bool wanted;         /* servers_choose_wanted(): to be one of the run's */
    bool emptied;        /* draining, and none is left: no more commits, no more cuts */
    uint64_t left_boot;  /* this start of it was told that it may end; 0: none */
    uint64_t unfit_boot; /* this start of it cannot hold chunks of the run; 0: none */
    uint64_t pushed_bytes, pulled_bytes, duplicates, open_nodes_max;
};

struct servers {
    uint32_t count;
    struct server_entry *list;         /* WIRE_SERVERS_MAX; entries never move */
    uint32_t chosen_count;             /* places in the map, free ones included */
    uint32_t chosen[WIRE_SERVERS_MAX]; /* the run's, by map index; SERVERS_NONE: free */
    uint64_t links;                    /* how many there have been */
};

enum err servers_init(struct servers *servers) MUST_USE; /* ERR_NOMEM */
void servers_release(struct servers *servers);

/* A hello: the entry of that name, connected under a new link; *ret_older is the link that this one
 * takes the place of, 0: none. ERR_BUSY: too many names; ERR_OLD_BOOT: a later start of it is
 * connected. */
enum err servers_hello(struct servers *servers, const struct server_report *hello,
                       struct server_entry **ret_server, uint64_t *ret_older) MUST_USE;
struct server_entry *servers_find(struct servers *servers, uint64_t link); /* NULL: a dead link */
/* NULL: the place is free. */
struct server_entry *servers_of_map(const struct servers *servers, uint32_t map_index);
/* The same, but NULL also for one that is emptied: only its files may be needed yet. */
struct server_entry *servers_active(const struct servers *servers, uint32_t map_index);
struct server_entry *servers_named(const struct servers *servers, const char *name); /* NULL */
/* Every server of the run is connected (and some are chosen). */
bool servers_connected(const struct servers *servers);
/* Each of them has its chunks. */
bool servers_ready(const struct servers *servers);
/* Connected, and neither leaving nor about to. */
bool servers_is_available(const struct server_entry *server);
/* How many could be the run's, beside `without` (NULL: nobody). */
uint32_t servers_available(const struct servers *servers, const struct server_entry *without);

/* All that are available, connected and not leaving, become the run's, in the order of their names.
 * Returns how many. */
uint32_t servers_choose(struct servers *servers);
/* The same of those that are marked as wanted, whoever that is. */
uint32_t servers_choose_wanted(struct servers *servers);
/* One more; false: there is no place. */
bool servers_choose_one(struct servers *servers, struct server_entry *server);
void servers_unchoose_one(struct servers *servers, struct server_entry *server);
void servers_unchoose(struct servers *servers);

/* It drains no more: it has, or stays. */
void servers_drain_over(struct server_entry *server);

#endif
