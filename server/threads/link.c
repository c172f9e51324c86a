/* The link between this daemon's shards and the coordinator. */
#include "server/threads/link.h"

#include "common/inbox.h"
#include "common/rand.h"
#include "common/scoped.h"
#include "common/thread.h"
#include "common/time.h"

#include <string.h>

enum { BACKOFF_MS_MIN = 50, BACKOFF_MS_MAX = 500 };
/* The log says after the first of these that the coordinator does not answer, then after each of
 * the second. */
enum { WARN_FIRST_MS = 2500, WARN_AGAIN_MS = 60000 };

struct link {
    struct link_config config;
    struct shards *shards;
    struct rpc_channel *channel; /* NULL: local */
    struct rand_state jitter;
    uint64_t open_ns;    /* when the next stream is opened; TIME_NEVER: one is open */
    uint64_t backoff_ms; /* of the next failure */
    uint64_t warn_ns;    /* when the log says that it is not connected; TIME_NEVER: it is */
    bool connected;      /* the log has a line about it */
    enum err refused;    /* the coordinator refused it for good: this daemon is to end */
    atomic_bool lost;    /* a local report found no room */
    /* Events of streams, set on polling threads; each has its stream's number: */
    atomic_uint_fast64_t reached; /* its hello went out */
    atomic_uint_fast64_t ended;   /* it is closed … */
    atomic_int ended_err;         /* … with this */
    struct thread_mutex mutex;    /* guards the rest */
    struct rpc_stream *stream;    /* NULL: none */
    uint64_t number;              /* of the newest stream */
    struct reason why;            /* the last one ended, when none has been connected since */
};

enum err link_new(const struct link_config *config, struct link **ret_link, struct reason *reason)
{
    struct link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return reason_set(reason, ERR_NOMEM, "out of memory");
    link->config = *config;
    link->jitter.state = config->seed;
    link->open_ns = config->coordinator != NULL ? 0 : TIME_NEVER;
    link->backoff_ms = BACKOFF_MS_MIN;
    link->warn_ns = TIME_NEVER;
    thread_mutex_init(&link->mutex);
    if (config->coordinator != NULL) {
        enum err err = rpc_channel_new(config->loop, config->coordinator, config->identity,
                                       &link->channel, reason);
        if (err != ERR_OK) {
            link_free(link);
            return err;
        }
    }
    *ret_link = link;
    return ERR_OK;
}

void link_free(struct link *link)
{
    if (link == NULL)
        return;
    rpc_channel_free(link->channel);
    rpc_stream_unref(link->stream);
    thread_mutex_release(&link->mutex);
    free(link);
}

void link_attach(struct link *link, struct shards *shards)
{
    link->shards = shards;
}

/* ---- reports ---- */

struct server_report link_hello(const struct link *link)
{
    struct cut_name held = shards_held(link->shards);
    struct server_report hello = {.kind = SERVER_HELLO, .boot = link->config.boot};
    snprintf(hello.hello.name, sizeof hello.hello.name, "%s", link->config.name);
    snprintf(hello.hello.address, sizeof hello.hello.address, "%s", link->config.address);
    hello.hello.generation = held.generation;
    hello.hello.version = held.version;
    hello.hello.term = shards_term(link->shards);
    hello.hello.prepared = shards_prepared(link->shards);
    hello.hello.wire_version = WIRE_VERSION;
    hello.hello.wire_version_min = WIRE_VERSION_MIN;
    return hello;
}

/* The report takes the way of another server's: the same bytes, through the same inbox. */
static void report_local(struct link *link, struct buf *report)
{
    struct event event = {.kind = EVENT_REPORT, .message = rpc_message_new(buf_slice(report))};
    if (event.message != NULL && inbox_post(link->config.inbox, &event) == ERR_OK)
        return;
    event_release(&event);
    atomic_store(&link->lost, true);
}

/* False: the stream takes no more. The report is lost, and will be sent again over the next
 * stream. */
static bool send_locked(struct link *link, struct buf *take_report)
{
    if (link->stream != NULL)
        return rpc_stream_send(link->stream, RPC_NORMAL, take_report, NULL, 0) == ERR_OK;
    buf_release(take_report);
    return true;
}

void link_report(void *owner, const struct server_report *report)
{
    struct link *link = owner;
    check(report->boot == link->config.boot); /* P3: every report names it */
    struct buf bytes = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    enum err err = wire_encode_server_report(report, &bytes);
    if (link->channel == NULL) {
        if (err == ERR_OK)
            report_local(link, &bytes);
        else
            atomic_store(&link->lost, true);
        buf_release(&bytes);
        return;
    }
    thread_lock(&link->mutex);
    bool sent = err == ERR_OK && send_locked(link, &bytes);
    if (!sent && link->stream != NULL)
        rpc_stream_cancel(link->stream);
    thread_unlock(&link->mutex);
    if (err != ERR_OK)
        buf_release(&bytes);
}

/* ---- the stream ---- */

/* The owner that a stream's events carry. It lives from the stream's opening to its `closed`. */
struct origin {
    struct link *link;
    uint64_t number;
};

/* The link has the state. The event only wakes the main thread, which looks at the link in each
 * turn. */
static void wake(const struct origin *origin)
{
    ignore(inbox_post(origin->link->config.inbox, &(struct event){.kind = EVENT_LINK}));
}

static void stream_message(void *owner, struct rpc_stream *stream, struct rpc_message *take_message)
{
    const struct origin *origin = owner;
    struct event event = {
        .kind = EVENT_LINK_MESSAGE, .number = origin->number, .message = take_message};
    if (inbox_post(origin->link->config.inbox, &event) == ERR_OK)
        return;
    event_release(&event);
    rpc_stream_cancel(stream); /* the coordinator sends it again over a new stream */
}

static void stream_closed(void *owner, struct rpc_stream *stream, enum err err,
                          const struct reason *reason)
{
    (void)stream;
    struct origin *origin = owner;
    thread_lock(&origin->link->mutex);
    ignore(reason_set(&origin->link->why, err, "%s", reason_text(err, reason)));
    thread_unlock(&origin->link->mutex);
    atomic_store(&origin->link->ended_err, (int)err);
    atomic_store(&origin->link->ended, origin->number);
    wake(origin);
    free(origin);
}

static void stream_sent(void *owner, struct rpc_stream *stream, size_t queued)
{
    (void)stream, (void)queued;
    const struct origin *origin = owner;
    if (atomic_exchange(&origin->link->reached, origin->number) != origin->number)
        wake(origin);
}

static const struct rpc_stream_events stream_events = {
    .message = stream_message, .sent = stream_sent, .closed = stream_closed};

/* The hello goes first: nobody can send before the lock is free. */
static enum err open_locked(struct link *link, const struct server_report *hello)
{
    struct buf bytes = {0};
    struct origin *origin = malloc(sizeof *origin);
    check(link->stream == NULL);
    if (origin == NULL)
        return ERR_NOMEM;
    *origin = (struct origin){link, ++link->number};
    enum err err = rpc_stream_open(link->channel, "/roost.v1.Cluster/Serve", &stream_events, origin,
                                   &link->stream);
    if (err != ERR_OK) {
        free(origin);
        link->stream = NULL;
        return err;
    }
    err = wire_encode_server_report(hello, &bytes);
    if (err == ERR_OK)
        ignore(rpc_stream_send(link->stream, RPC_NORMAL, &bytes, NULL, 0)); /* closed follows */
    else
        rpc_stream_cancel(link->stream);
    return ERR_OK;
}

static void back_off(struct link *link, uint64_t now_ns)
{
    uint64_t wait_ms = link->backoff_ms / 2 + rand_below(&link->jitter, link->backoff_ms);
    link->open_ns = time_after_ms(now_ns, wait_ms);
    link->backoff_ms *= 2;
    if (link->backoff_ms > BACKOFF_MS_MAX)
        link->backoff_ms = BACKOFF_MS_MAX;
}

static void open_stream(struct link *link, uint64_t now_ns)
{
    /* The hello is made before the lock is taken, because it locks the shards. What the shards do
     * meanwhile is reported again. */
    const struct server_report hello = link_hello(link);
    thread_lock(&link->mutex);
    enum err err = open_locked(link, &hello);
    thread_unlock(&link->mutex);
    if (err != ERR_OK) {
        back_off(link, now_ns);
        return;
    }
    link->open_ns = TIME_NEVER;
    shards_report_again(link->shards);
}

static enum err command(struct link *link, const struct rpc_message *message, struct reason *reason)
{
    scoped(buf_release) struct buf bytes = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct server_command decoded;
    TRY(buf_reserve(&bytes, message->bytes));
    rpc_message_copy(message, 0, message->bytes, bytes.data);
    bytes.bytes = message->bytes;
    TRY(wire_decode_server_command(buf_slice(&bytes), &arena, &decoded, reason));
    shards_command(link->shards, &decoded);
    return ERR_OK;
}

void link_message(struct link *link, uint64_t number, const struct rpc_message *message)
{
    struct reason reason = {0};
    if (number != link->number)
        return;
    link->backoff_ms = BACKOFF_MS_MIN;
    enum err err = command(link, message, &reason);
    if (err != ERR_OK)
        log_error(link->config.logger, "command refused", log_text("err", err_name(err)),
                  log_text("reason", reason.text), log_text("next", "none"));
}

static void closed(struct link *link, uint64_t now_ns, enum err err)
{
    thread_lock(&link->mutex);
    struct rpc_stream *stream = link->stream;
    check(stream != NULL);
    link->stream = NULL;
    thread_unlock(&link->mutex);
    rpc_stream_unref(stream);
    bool for_good = err == ERR_NAME_TAKEN || err == ERR_WIRE_VERSION;
    if (link->connected || for_good) /* warn_of_coordinator() has the reason of the others */
        log_warning(link->config.logger, "coordinator lost",
                    log_text("coordinator", link->config.coordinator),
                    log_text("err", err_name(err)),
                    log_text("next", for_good ? "the daemon ends" : "connect again"));
    link->connected = false;
    link->refused = for_good ? err : ERR_OK;
    back_off(link, now_ns);
}

static void check_link(const struct link *link)
{
    check(link->backoff_ms >= BACKOFF_MS_MIN && link->backoff_ms <= BACKOFF_MS_MAX);
    check((link->open_ns == TIME_NEVER) == (link->channel == NULL || link->stream != NULL)); /* 1 */
    check(!link->connected || link->stream != NULL);                                         /* 2 */
    check(atomic_load(&link->reached) <= link->number);                                      /* 3 */
    check(atomic_load(&link->ended) <= link->number);
    check(link->channel != NULL || link->number == 0);
}

bool link_connected(const struct link *link)
{
    return link->channel == NULL || link->connected;
}

bool link_is_refused(const struct link *link)
{
    return link->refused != ERR_OK;
}

enum err link_refused(struct link *link, struct reason *reason)
{
    if (link->refused == ERR_OK)
        return ERR_OK;
    thread_lock(&link->mutex);
    enum err err = reason_set(reason, link->refused, "the coordinator %s refuses this daemon: %s",
                              link->config.coordinator, link->why.text);
    thread_unlock(&link->mutex);
    return err;
}

uint64_t link_next_ns(const struct link *link)
{
    return link->open_ns < link->warn_ns ? link->open_ns : link->warn_ns;
}

/* A daemon that waits for its coordinator would look like one that serves. */
static void warn_of_coordinator(struct link *link, uint64_t now_ns)
{
    if (link->connected || link->channel == NULL)
        link->warn_ns = TIME_NEVER;
    else if (link->warn_ns == TIME_NEVER)
        link->warn_ns = time_after_ms(now_ns, WARN_FIRST_MS);
    if (now_ns < link->warn_ns)
        return;
    thread_lock(&link->mutex);
    struct reason why = link->why;
    thread_unlock(&link->mutex);
    log_warning(link->config.logger, "coordinator not reached",
                log_text("coordinator", link->config.coordinator),
                log_text("why", why.text[0] != 0 ? why.text : "no answer yet"),
                log_text("next", "try again"));
    link->warn_ns = time_after_ms(now_ns, WARN_AGAIN_MS);
}

void link_tick(struct link *link, uint64_t now_ns)
{
    if (atomic_exchange(&link->lost, false))
        shards_report_again(link->shards);
    if (link->stream != NULL && atomic_load(&link->ended) == link->number)
        closed(link, now_ns, (enum err)atomic_load(&link->ended_err));
    if (link->stream != NULL && !link->connected && atomic_load(&link->reached) == link->number) {
        link->connected = true;
        log_info(link->config.logger, "coordinator reached",
                 log_text("coordinator", link->config.coordinator));
    }
    if (link->open_ns <= now_ns)
        open_stream(link, now_ns);
    warn_of_coordinator(link, now_ns);
    check_link(link);
}
