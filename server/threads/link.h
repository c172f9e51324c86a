/* The link between this daemon's shards and the coordinator: reports one way, commands the other.
 *
 * On the coordinator's own daemon the link is local: reports go through the main thread's inbox, as
 * the same bytes that another server sends. On any other daemon the link is one Cluster.Serve
 * stream. When the stream breaks, the link opens a new one, with backoff. Each new stream begins
 * with a hello, and then the server sends every report again that may have been lost.
 *
 * Invariants (checked after every tick), on another daemon than the coordinator's:
 *  1 a stream is open, or the moment is known at which the next one is opened;
 *  2 only an open stream is connected;
 *  3 streams are numbered as they are opened: none beyond the newest has reached the coordinator,
 * or has ended. On the coordinator's daemon there is no stream.
 *
 * Main thread, but for link_report(). */
#ifndef ROOST_SERVER_THREADS_LINK_H
#define ROOST_SERVER_THREADS_LINK_H

#include "common/log.h"
#include "server/events.h"
#include "server/threads/shards.h"

struct link;

struct link_config {
    struct rpc_loop *loop;
    const char *coordinator;             /* "host:port"; NULL: this daemon is it */
    const struct tls_identity *identity; /* NULL: insecure */
    const char *name;                    /* of this server */
    const char *address;                 /* where workers reach it */
    uint64_t boot;
    uint64_t seed; /* of the backoff's jitter */
    struct inbox *inbox;
    const struct logger *logger;
};

/* The config's texts must outlive it. */
enum err link_new(const struct link_config *config, struct link **ret_link,
                  struct reason *reason) MUST_USE;
/* Before the loop is freed. NULL is fine. */
void link_free(struct link *link);
/* The shards that report and are commanded over this link; to be set before the first tick.
 * Borrowed. */
void link_attach(struct link *link, struct shards *shards);

/* For shards_config.report; `owner` is the link. Any thread, never blocks. */
void link_report(void *owner, const struct server_report *report);
/* The server's first report over a new connection: its name, address, boot and what it holds. */
struct server_report link_hello(const struct link *link);

/* EVENT_LINK_MESSAGE: a command. */
void link_message(struct link *link, uint64_t number, const struct rpc_message *message);
bool link_connected(const struct link *link);
/* The coordinator refused this daemon for good, which is to end: another server of its name
 * answers, or it speaks other versions of the wire. */
bool link_is_refused(const struct link *link);
/* ERR_OK: it did not; else why. */
enum err link_refused(struct link *link, struct reason *reason) MUST_USE;
/* Opens the stream, notices its end, opens the next one. To be called after every event, and when
 * link_next_ns() is due. */
void link_tick(struct link *link, uint64_t now_ns);
uint64_t link_next_ns(const struct link *link);

#endif
