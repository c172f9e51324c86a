/* Streams: callbacks on polling threads, and opening on main. */
#include "worker/worker_link.h"

#include "common/scoped.h"

enum {
    RENEW_MS = 1000,     /* neighbours wait for seconds until one they do not know has joined */
    UNTRUSTED_MS = 60000 /* between two lines about it, as in a server's log */
};

/* The owner that a stream's events carry. It lives from the stream's opening to its `closed`. */
struct stream_origin {
    struct worker *worker;
    uint64_t number;
    uint32_t server;
};

/* ---- callbacks on polling threads ---- */

static void post_message(const struct stream_origin *origin, enum worker_event_kind kind,
                         struct rpc_stream *stream, struct rpc_message *take_message)
{
    const struct worker_event event = {
        .kind = kind, .origin = origin->number, .server = origin->server, .message = take_message};
    if (!worker_post_message(origin->worker, &event))
        rpc_stream_cancel(stream);
}

static void post_closed(struct stream_origin *take_origin, enum worker_event_kind kind,
                        enum err err, const struct reason *reason)
{
    worker_post(take_origin->worker,
                &(struct worker_event){.kind = kind,
                                       .err = err == ERR_OK ? ERR_UNREACHABLE : err,
                                       .origin = take_origin->number,
                                       .server = take_origin->server,
                                       .why = strdup(reason->text)});
    free(take_origin);
}

static void exchange_message(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    post_message(owner, EVENT_MESSAGE, stream, message);
}

static void exchange_closed(void *owner, struct rpc_stream *stream, enum err err,
                            const struct reason *reason)
{
    (void)stream;
    post_closed(owner, EVENT_STREAM_CLOSED, err, reason);
}

static void member_message(void *owner, struct rpc_stream *stream, struct rpc_message *message)
{
    post_message(owner, EVENT_NOTICE, stream, message);
}

static void member_closed(void *owner, struct rpc_stream *stream, enum err err,
                          const struct reason *reason)
{
    (void)stream;
    post_closed(owner, EVENT_MEMBER_CLOSED, err, reason);
}

static const struct rpc_stream_events exchange_events = {
    .message = exchange_message,
    .closed = exchange_closed,
};

static const struct rpc_stream_events member_events = {
    .message = member_message,
    .closed = member_closed,
};

/* ---- one stream ---- */

void worker_link_close(struct worker_link *link)
{
    if (link->stream == NULL)
        return;
    rpc_stream_cancel(link->stream);
    rpc_stream_unref(link->stream);
    link->stream = NULL;
}

/* Opens the link's next stream and gives it `take_first`, the message that names the member. */
static enum err link_open(struct worker *worker, struct worker_link *link, uint32_t server,
                          const char *path, const struct rpc_stream_events *events,
                          struct buf *take_first)
{
    scoped(buf_release) struct buf first = *take_first;
    *take_first = (struct buf){0};
    worker_link_close(link);
    struct stream_origin *origin = malloc(sizeof *origin);
    if (origin == NULL)
        return ERR_NOMEM;
    link->number = ++worker->stream_count;
    *origin = (struct stream_origin){worker, link->number, server};
    enum err err = rpc_stream_open(link->channel, path, events, origin, &link->stream);
    if (err != ERR_OK) {
        free(origin);
        return err;
    }
    return rpc_stream_send(link->stream, RPC_URGENT, &first, NULL, 0);
}

enum err worker_link_exchange(struct worker *worker, uint32_t server)
{
    struct buf header = {0};
    struct to_shard hello = {.kind = TO_SHARD_HELLO, .hello = {worker->member, worker->secret}};
    TRY(wire_encode_to_shard(&hello, &header));
    return link_open(worker, &worker->links[server], server, "/roost.v1.Shard/Exchange",
                     &exchange_events, &header);
}

/* `unreachable`: a peer that does not answer in the lease `attempt`; 0: none. */
static enum err encode_heartbeat(const struct worker *worker, uint64_t attempt,
                                 uint64_t unreachable, struct buf *ret_report)
{
    uint64_t waits[WIRE_LEASES_MAX];
    struct member_report message = {.member = worker->member,
                                    .secret = worker->secret,
                                    .unreachable = unreachable,
                                    .attempt = attempt,
                                    .waits = waits};
    if (worker->peers != NULL) {
        message.kept_bytes = peers_kept_bytes(worker->peers);
        message.wait_count = peers_waits(worker->peers, waits);
    }
    return wire_encode_member_report(&message, ret_report);
}

enum err worker_link_member(struct worker *worker)
{
    struct buf report = {0};
    TRY(encode_heartbeat(worker, 0, 0, &report));
    worker->member_link.channel = worker->channel;
    worker->heartbeat_at_ms = worker_now_ms() + worker->heartbeat_ms;
    return link_open(worker, &worker->member_link, 0, "/roost.v1.Cluster/Member", &member_events,
                     &report);
}

/* One that cannot be sent is left out; the stream's end is an event of its own. */
static void send_heartbeat(struct worker *worker, uint64_t attempt, uint64_t unreachable)
{
    struct buf report = {0};
    worker->heartbeat_at_ms = worker_now_ms() + worker->heartbeat_ms;
    if (encode_heartbeat(worker, attempt, unreachable, &report) == ERR_OK)
        ignore(rpc_stream_send(worker->member_link.stream, RPC_URGENT, &report, NULL, 0));
}

void worker_link_heartbeat(struct worker *worker)
{
    send_heartbeat(worker, 0, 0);
}

void worker_link_unreachable(struct worker *worker, uint64_t attempt, uint64_t member)
{
    if (worker->member_link.stream != NULL)
        send_heartbeat(worker, attempt, member);
}

uint32_t worker_links_shared(const struct worker *worker)
{
    uint32_t shared = 0;
    for (uint32_t i = 0; i < worker->link_count; i++) {
        struct rpc_stream *stream = worker->links[i].stream;
        shared += stream != NULL && rpc_stream_is_shared(stream) ? 1 : 0;
    }
    return shared;
}

void worker_link_warn(struct worker *worker)
{
    struct reason soon;
    if (worker->config->identity != NULL &&
        tls_identity_watch(&worker->shown, (int64_t)time_wall_s(), &worker->warned_s, &soon))
        log_warning(worker->config->logger, "certificate ends soon", log_text("reason", soon.text));
}

void worker_link_renew(struct worker *worker)
{
    worker->renew_at_ms = worker_now_ms() + RENEW_MS;
    worker_link_warn(worker);
    if (!rpc_channel_renew(worker->channel))
        return;
    log_info(worker->config->logger, "certificate renewed", log_text("next", "join anew"));
    agent_member_lost(worker->agent, worker_now_ms());
}

bool worker_link_warning_is_due(struct worker_link *link, enum err err)
{
    uint64_t now_ms = worker_now_ms();
    if (err != ERR_UNTRUSTED)
        return true;
    if (now_ms < link->untrusted_ms)
        return false;
    link->untrusted_ms = now_ms + UNTRUSTED_MS;
    return true;
}

/* ---- all servers ---- */

void worker_links_free(struct worker *worker)
{
    worker_link_close(&worker->member_link);
    for (uint32_t i = 0; i < worker->link_count; i++) {
        worker_link_close(&worker->links[i]);
        rpc_channel_free(worker->links[i].channel);
    }
    free(worker->links);
    worker->links = NULL;
    worker->link_count = 0;
}

/* The link's server, if the place has one. */
static enum err link_connect(struct worker *worker, struct worker_link *link, const char *address)
{
    if (address[0] == 0)
        return ERR_OK;
    return rpc_channel_new(worker->loop, address, worker->config->identity, &link->channel,
                           &worker->failure);
}

enum err worker_links_open(struct worker *worker, const struct describe_reply *description)
{
    worker->links = calloc(description->server_count, sizeof *worker->links);
    if (worker->links == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < description->server_count; i++) {
        TRY(link_connect(worker, &worker->links[i], description->servers[i].address));
        worker->link_count = i + 1;
    }
    return ERR_OK;
}

enum err worker_links_change(struct worker *worker, const struct describe_reply *description)
{
    uint32_t count = description->server_count;
    if (count > worker->link_count) {
        struct worker_link *links = realloc(worker->links, count * sizeof *links);
        if (links == NULL)
            return ERR_NOMEM;
        memset(links + worker->link_count, 0, (count - worker->link_count) * sizeof *links);
        worker->links = links;
        worker->link_count = count;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct worker_link *link = &worker->links[i];
        const char *address = description->servers[i].address;
        if (link->channel != NULL && strcmp(rpc_channel_address(link->channel), address) == 0)
            continue;
        if (link->channel != NULL) {
            worker_link_close(link);
            rpc_channel_free(link->channel);
            *link = (struct worker_link){0};
            agent_stream_lost(worker->agent, worker_now_ms(), i, ERR_UNREACHABLE);
        }
        TRY(link_connect(worker, link, address));
    }
    return ERR_OK;
}
