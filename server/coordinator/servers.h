/* The daemons that the coordinator knows, by name: whether they are connected, since which boot,
 * and how far each is with what it was told. Pure; one owner. */
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
    uint64_t pushed_bytes, pulled_bytes, duplicates, open_nodes_max;
};

struct servers {
    uint32_t count;
    struct server_entry *list; /* WIRE_SERVERS_MAX; entries never move */
    uint32_t chosen_count;
    uint32_t chosen[WIRE_SERVERS_MAX]; /* the run's, by map index */
    uint64_t links;                    /* how many there have been */
};

enum err servers_init(struct servers *servers) MUST_USE; /* ERR_NOMEM */
void servers_release(struct servers *servers);

/* A hello: the entry of that name, connected under a new link; *ret_older is the link that this one
 * takes the place of, 0: none. ERR_BUSY: too many names. */
enum err servers_hello(struct servers *servers, const struct server_report *hello,
                       struct server_entry **ret_server, uint64_t *ret_older) MUST_USE;
struct server_entry *servers_find(struct servers *servers, uint64_t link); /* NULL: a dead link */
struct server_entry *servers_of_map(struct servers *servers, uint32_t map_index);
uint32_t servers_connected(const struct servers *servers);

/* All that are connected become the run's, numbered in the order of their names. Returns how many.
 */
uint32_t servers_choose(struct servers *servers);
void servers_unchoose(struct servers *servers);

#endif
