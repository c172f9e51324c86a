/* The connections that a server has accepted: how many it keeps, whose, and which one has to go.
 *
 * A connection is half open until its peer has proved its certificate. Anybody may open one, so
 * there are few places for them, most of them open to one host, and who comes last takes the place
 * of who came first: an honest peer shakes hands in milliseconds, before a flood has pushed it out.
 * From then on a connection counts against its certificate, of which none may have more than half of
 * all places, and against its role: some places are left for servers and operators.
 *
 * The transport reports how many bytes came, and its calls which of them were delivered. What is
 * left is what a peer makes the process keep without finishing it: messages, headers. Each role has
 * a most of that, and all connections together; the connection that has most of it goes first.
 *
 * A connection goes by a reset through a duplicate of its file; its owner, the transport, sees the
 * end and closes its own. Any thread. */
#ifndef ROOST_COMMON_RPC_ACCEPTED_H
#define ROOST_COMMON_RPC_ACCEPTED_H

#include "common/rpc/tls.h"

#include <stddef.h>
#include <sys/socket.h>

struct accepted;
struct accepted_table;

struct accepted_limits {
    uint32_t connections_max;
    uint32_t half_open_max, half_open_host_max;
    uint32_t workers_max;                    /* connections of others than servers and operators */
    uint32_t certificate_max;                /* connections with one certificate */
    uint64_t unfinished_bytes_max;           /* of all connections */
    uint64_t role_bytes_max[TLS_ROLE_COUNT]; /* unfinished, of one connection */
    uint32_t resets_max;                     /* calls that one connection gives up within 10 s */
};

/* So many connections as a process may have that may open `file_max` files for them, two for each,
 * and wants `certificate_max` with one certificate at most. */
void accepted_limits_files(struct accepted_limits *limits, uint32_t file_max,
                           uint32_t certificate_max);

enum err accepted_table_new(const struct accepted_limits *limits,
                            struct accepted_table **ret_table) MUST_USE;
/* When its last connection is gone. NULL is fine. */
void accepted_table_unref(struct accepted_table *table);

/* A half-open connection from `address`; others go where there is no room. `take_file` is a
 * duplicate of its file. A reference for the transport, until accepted_gone(). NULL: no room, no
 * memory, or an address that another one has. */
struct accepted *accepted_add(struct accepted_table *table, const struct sockaddr *address,
                              int take_file);
/* The connection that came first of those half open goes. False: there is none. */
bool accepted_shed(struct accepted_table *table);

/* Connections with these certificates (copied) go, now and when they come. ERR_NOMEM. */
enum err accepted_revoke(struct accepted_table *table, const struct tls_revoked *revoked) MUST_USE;

/* Connections whose certificate ended before `now_s` go. */
void accepted_expire(struct accepted_table *table, int64_t now_s);

/* The peer proved this certificate. */
void accepted_proved(struct accepted *accepted, const struct tls_peer *peer);
void accepted_received(struct accepted *accepted, size_t bytes, uint64_t now_ns);
void accepted_gone(struct accepted *take_accepted);

/* A call begins on the connection of a peer as rpc_peer has its address. NULL: there is none, as
 * without TLS. */
struct accepted *accepted_call_begin(struct accepted_table *table, const char *address) MUST_USE;
/* It has ended (NULL is fine, as in all that follow): no more than `message_bytes_max` of the bytes
 * since `begun_bytes` were its own. */
void accepted_call_end(struct accepted *take_accepted, uint64_t begun_bytes,
                       size_t message_bytes_max);
uint64_t accepted_certificate(const struct accepted *accepted); /* 0: none */
int64_t accepted_ends_s(struct accepted *accepted);             /* that certificate; 0: none */
struct digest accepted_shown(struct accepted *accepted);        /* all of it; zeros: none */
uint64_t accepted_bytes(const struct accepted *accepted);       /* received so far */
/* A message of so many bytes is with its receiver, or was sent to the peer, which confirms it. */
void accepted_delivered(struct accepted *accepted, size_t bytes);
void accepted_sent(struct accepted *accepted, size_t bytes);
/* The peer gave up a call. */
void accepted_reset(struct accepted *accepted, uint64_t now_ns);

struct accepted_counts {
    uint32_t connections, half_open;
    uint64_t unfinished_bytes;
    uint64_t ended;  /* connections, since the start */
    uint64_t closed; /* those of them that a limit closed */
};
struct accepted_counts accepted_count(struct accepted_table *table);

#endif
