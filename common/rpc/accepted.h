/* The connections that a server has accepted: how many it keeps, whose, and which one has to go.
 *
 * A connection is half open until its peer has proved its certificate. Anybody may open one, so
 * there are few places for them, most of them open to one host, and who comes last takes the place
 * of who came first: an honest peer shakes hands in milliseconds, before a flood has pushed it out.
 * From then on a connection counts against its certificate, of which none may have more than half of
 * all places, and against its role: some places are left for servers and operators.
 *
 * Bytes. Until a peer has proved its certificate, all that it sends counts against it. From then on
 * what counts is what the library has to keep for it, which this knows from the peer's frames
 * (RFC 9113 4.1), decrypted, before the library gets them:
 * - a frame or headers that are not whole, until they are;
 * - what its calls brought, until the message that has it is delivered. A call that ends before that
 *   leaves bytes that nobody will deliver. Whose bytes they are is not known here, since the library
 *   does not say which call has which number in the frames. So they count until they can be no open
 *   call's: until all calls that are open began after them. (1) No end of a call takes off what
 *   another may still keep. Peers that open their calls one after another owe nothing when the next
 *   one is under way; where one call stays open, what others left stays, too;
 * - nothing while no call is open: the library drops what comes then.
 * Each role has a most of that, and all connections together; the connection that has most of it
 * goes first.
 *
 * Calls. A connection has so many open at most: those that its frames began and that have not ended.
 * The library says nothing of a call that it refuses by itself (another method than POST, no path).
 * So one that it has not shown for ACCEPTED_SHOW_S is such a one, and has ended. (2) It shows a call in
 * much less, and a peer that does not take its answers is given up before that (keepalive). Which call
 * is shown is not known here, either: each that was begun since, and is shown, hides a refused one.
 *
 * Headers that are whole do not count there: calls are counted. One call's have so many bytes at
 * most, since the library reads a long one again with each frame that brings more of it, and its own
 * limit on what they mean holds only once the peer has acknowledged the settings (RFC 9113 6.5.3).
 * Until then all headers of a connection together have as many bytes, and count as what they may
 * mean: each may name an entry of the peer's table (RFC 7541 6.1).
 *
 * A connection goes by a reset through a duplicate of its file; its owner, the transport, sees the
 * end and closes its own. Which limit closed it is kept for the log (closings.h). Any thread. */
#ifndef ROOST_COMMON_RPC_ACCEPTED_H
#define ROOST_COMMON_RPC_ACCEPTED_H

#include "common/rpc/closings.h"
#include "common/rpc/tls.h"

#include <stddef.h>
#include <sys/socket.h>

struct accepted;
struct accepted_call;
struct accepted_table;
struct slice;

struct accepted_limits {
    uint32_t connections_max;
    uint32_t half_open_max, half_open_host_max;
    uint32_t workers_max;                    /* connections of others than servers and operators */
    uint32_t certificate_max;                /* connections with one certificate */
    uint64_t unfinished_bytes_max;           /* of all connections */
    uint64_t role_bytes_max[TLS_ROLE_COUNT]; /* unfinished, of one connection */
    uint32_t
        calls_max; /* of one connection, open or about to be; a peer may be late to know less */
    uint32_t resets_max;        /* calls that one connection gives up within 10 s */
    uint32_t rekeys_max;        /* how often it renews its keys meanwhile */
    uint32_t headers_bytes_max; /* of one call; of all, until the settings are acknowledged */
    uint32_t header_byte_means; /* so many unfinished bytes each of those, at most */
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

/* To be called every ACCEPTED_SHOW_S seconds: calls that the library has not shown in this time count
 * no more (2). */
enum { ACCEPTED_SHOW_S = 10 };
void accepted_write_off(struct accepted_table *table);

/* The peer proved this certificate. */
void accepted_proved(struct accepted *accepted, const struct tls_peer *peer);
/* A record of so many bytes is about to come. */
void accepted_received(struct accepted *accepted, size_t bytes);
/* One thread at a time calls these three. The peer renews its keys (RFC 8446 4.6.3). False: it has
 * done so too often, and nothing more is to be read of it. */
bool accepted_rekeyed(struct accepted *accepted, uint64_t now_ns);
/* The library has sent something: what comes now may acknowledge its settings. */
void accepted_answered(struct accepted *accepted);
/* What the peer sent since it proved its certificate, decrypted and in order, before the library has
 * it. */
void accepted_brought(struct accepted *accepted, struct slice plain);
void accepted_gone(struct accepted *take_accepted);

/* A call of the peer whose address the library prints like this: "10.0.0.1:1000",
 * "[fe80::1%2]:1000". *ret_call: NULL where there is no such connection. ERR_NOMEM: the call counts
 * as one that has ended. */
enum err accepted_call_begin(struct accepted_table *table, const char *address,
                             struct accepted_call **ret_call) MUST_USE;
/* The library has nothing of it any more. NULL is fine, as in all that follow: a call without TLS. */
void accepted_call_end(struct accepted_call *take_call);
struct tls_peer accepted_call_peer(const struct accepted_call *call); /* zeros: none */
/* The library has handed out a message of so many bytes. */
void accepted_delivered(struct accepted_call *call, size_t bytes);
/* The peer gave up the call. */
void accepted_reset(struct accepted_call *call, uint64_t now_ns);

struct accepted_counts {
    uint32_t connections, half_open;
    uint64_t unfinished_bytes;
    /* Since the start: what was never delivered, nor is kept, and headers of what has ended. */
    uint64_t dropped_bytes;
    uint64_t ended;  /* connections, since the start */
    uint64_t closed; /* those of them that a limit closed */
};
struct accepted_counts accepted_count(struct accepted_table *table);

/* What that limit has closed, as closings_take(). */
bool accepted_closed_take(struct accepted_table *table, enum closing closing, uint64_t now_ns,
                          struct closed *ret_closed);

#endif
