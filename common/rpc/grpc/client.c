/* The client: channels, and unary calls on them. */
#include "common/rpc/grpc/core.h"
#include "common/scoped.h"
#include "common/time.h"

#include <stddef.h>
#include <string.h>

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/time.h>

enum { RENEW_MS = 10000 }; /* a channel that does not connect looks for a renewed certificate */

struct rpc_channel {
    struct rpc_loop *loop;
    struct rpc_group group;
    grpc_completion_queue *queue; /* one polling thread for the connection */
    bool tls;
    bool to_worker; /* it shows that certificate */
    struct digest shown;
    struct rpc_tag watch;     /* of the connection's state, always under way */
    struct thread_mutex lock; /* guards what follows */
    struct thread_cond unwatched;
    grpc_channel *channel;
    struct tls_identity identity; /* without its texts: why did TLS refuse? Is it renewed? */
    bool closing, watching;
    char address[];
};

/* A unary call under way: it is freed when it has been answered. */
struct rpc_call {
    struct rpc_channel *channel;
    struct rpc_loop *loop;
    struct rpc_member member;
    rpc_answered_fn *answered;
    void *owner;
    struct rpc_tag tag;
    grpc_metadata_array initial;
    grpc_byte_buffer *response;
    struct rpc_ending ending;
    grpc_call *call;
};

/* ---- Channels ---- */

/* In a handshake: is it the worker's certificate? 0: yes. */
static int judge_worker(const char *target, const char *pem, void *userdata)
{
    (void)target;
    const struct digest *expected = userdata;
    struct digest shown;
    const struct slice certificate = {(const uint8_t *)pem, strlen(pem)};
    if (tls_certificate_digest(certificate, &shown) != ERR_OK)
        return 1;
    return memcmp(&shown, expected, sizeof shown) != 0;
}

/* NULL: the library does not accept them, or no memory. */
static grpc_channel_credentials *credentials_of(const struct rpc_channel *channel,
                                                const struct tls_identity *identity)
{
    if (identity == NULL)
        return grpc_insecure_credentials_create();
    grpc_ssl_pem_key_cert_pair pair = {.private_key = (const char *)identity->key.data,
                                       .cert_chain = (const char *)identity->certificate.data};
    const char *ca = (const char *)identity->ca.data;
    if (!channel->to_worker)
        return grpc_ssl_credentials_create_ex(ca, &pair, NULL, NULL);
    struct digest *expected = malloc(sizeof *expected); /* lives as long as the credentials */
    if (expected == NULL)
        return NULL;
    *expected = channel->shown;
    const grpc_ssl_verify_peer_options options = {judge_worker, expected, free};
    return grpc_ssl_credentials_create_ex(ca, &pair, &options, NULL);
}

static grpc_channel *channel_create(const struct rpc_channel *channel,
                                    const struct tls_identity *identity)
{
    grpc_channel_credentials *credentials = credentials_of(channel, identity);
    if (credentials == NULL)
        return NULL;
    struct rpc_arguments arguments;
    char address[RPC_ADDRESS_BYTES];
    rpc_arguments_init(&arguments, &channel->loop->settings, false);
    if (channel->to_worker)
        rpc_arguments_host(&arguments, TLS_WORKER_HOST);
    rpc_address_canonical(channel->address, address);
    grpc_channel *created = grpc_channel_create(address, credentials, &arguments.all);
    grpc_channel_credentials_release(credentials);
    return created;
}

static int64_t now_s(void)
{
    return (int64_t)(time_wall_ns() / 1000000000);
}

/* The connection is made again with the certificate that lies there by now, if it is another one.
 * What waits for it fails, and is tried again as after any broken connection. */
static bool renew_locked(struct rpc_channel *channel)
{
    scoped(tls_identity_release) struct tls_identity renewed = {0};
    if (!channel->tls || !tls_identity_renewed(&channel->identity, now_s(), &renewed))
        return false;
    grpc_channel *fresh = channel_create(channel, &renewed);
    if (fresh == NULL)
        return false;
    grpc_channel *before = channel->channel;
    channel->channel = fresh;
    channel->identity = tls_identity_names(&renewed);
    grpc_channel_destroy(before);
    return true;
}

static bool stands_locked(const struct rpc_channel *channel)
{
    return grpc_channel_check_connectivity_state(channel->channel, 0) == GRPC_CHANNEL_READY;
}

/* With the `poll` strategy a connection is only looked at while some operation of its channel is
 * under way. Between two calls that fail at once there is none, and the attempt to connect would
 * stand still until it times out; so the channel always watches its own state. */
static void watch_locked(struct rpc_channel *channel)
{
    grpc_connectivity_state state = grpc_channel_check_connectivity_state(channel->channel, 0);
    gpr_timespec look_again =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(RENEW_MS, GPR_TIMESPAN));
    rpc_tag_given(channel->loop);
    grpc_channel_watch_connectivity_state(
        channel->channel, state, channel->tls ? look_again : gpr_inf_future(GPR_CLOCK_MONOTONIC),
        channel->queue, &channel->watch);
}

static void state_changed(struct rpc_tag *tag, bool ok)
{
    (void)ok;
    struct rpc_channel *channel = CONTAINER_OF(tag, struct rpc_channel, watch);
    thread_lock(&channel->lock);
    channel->watching = !channel->closing;
    if (channel->watching) {
        if (!stands_locked(channel))
            (void)renew_locked(channel);
        watch_locked(channel);
    } else {
        thread_wake_all(&channel->unwatched); /* under the lock: the waiter frees the channel */
    }
    thread_unlock(&channel->lock);
}

static void watch_begin(struct rpc_channel *channel)
{
    thread_mutex_init(&channel->lock);
    thread_cond_init(&channel->unwatched);
    channel->watch.done = state_changed;
    thread_lock(&channel->lock);
    channel->watching = true;
    watch_locked(channel);
    thread_unlock(&channel->lock);
}

/* Destroys the library's channel, which ends the watch, and waits for that. */
static void watch_end(struct rpc_channel *channel)
{
    thread_lock(&channel->lock);
    channel->closing = true;
    thread_unlock(&channel->lock);
    grpc_channel_destroy(channel->channel);
    thread_lock(&channel->lock);
    while (channel->watching)
        ignore(thread_wait_locked(&channel->unwatched, &channel->lock, UINT64_MAX)); /* no limit */
    thread_unlock(&channel->lock);
    thread_cond_release(&channel->unwatched);
    thread_mutex_release(&channel->lock);
}

/* `shown` is NULL where the certificate's names tell who is called. */
static enum err channel_new(struct rpc_loop *loop, const char *address,
                            const struct tls_identity *identity, const struct digest *shown,
                            struct rpc_channel **ret_channel, struct reason *reason)
{
    TRY(rpc_address_check(address, identity == NULL, reason));
    scoped(tls_identity_release) struct tls_identity renewed = {0};
    if (identity != NULL && tls_identity_renewed(identity, now_s(), &renewed))
        identity = &renewed;
    if (identity != NULL)
        TRY(tls_identity_valid(identity, now_s(), reason));
    size_t bytes = strlen(address) + 1;
    struct rpc_channel *channel = calloc(1, sizeof *channel + bytes);
    if (channel == NULL)
        return ERR_NOMEM;
    memcpy(channel->address, address, bytes);
    channel->loop = loop;
    channel->tls = identity != NULL;
    channel->to_worker = identity != NULL && shown != NULL;
    if (shown != NULL)
        channel->shown = *shown;
    if (identity != NULL)
        channel->identity = tls_identity_names(identity);
    channel->channel = channel_create(channel, identity);
    if (channel->channel == NULL) {
        free(channel);
        return reason_set(reason, ERR_UNTRUSTED, "%s: not accepted by the TLS library",
                          identity->path);
    }
    unsigned poller = atomic_fetch_add(&loop->next_poller, 1) % loop->poller_count;
    channel->queue = loop->pollers[poller].queue;
    rpc_group_init(&channel->group);
    watch_begin(channel);
    *ret_channel = channel;
    return ERR_OK;
}

enum err rpc_channel_new(struct rpc_loop *loop, const char *address,
                         const struct tls_identity *identity, struct rpc_channel **ret_channel,
                         struct reason *reason)
{
    return channel_new(loop, address, identity, NULL, ret_channel, reason);
}

enum err rpc_channel_new_worker(struct rpc_loop *loop, const char *address,
                                const struct tls_identity *identity, const struct digest *shown,
                                struct rpc_channel **ret_channel, struct reason *reason)
{
    return channel_new(loop, address, identity, shown, ret_channel, reason);
}

void rpc_channel_free(struct rpc_channel *channel)
{
    if (channel == NULL)
        return;
    rpc_group_end(&channel->group);
    watch_end(channel);
    rpc_group_release(&channel->group);
    free(channel);
}

const char *rpc_channel_address(const struct rpc_channel *channel)
{
    return channel->address;
}

bool rpc_channel_renew(struct rpc_channel *channel)
{
    thread_lock(&channel->lock);
    bool renewed = renew_locked(channel);
    thread_unlock(&channel->lock);
    return renewed;
}

enum err rpc_channel_ending(struct rpc_channel *channel, const struct rpc_ending *ending,
                            bool cancelled, struct reason *reason)
{
    cancelled = cancelled || rpc_group_closing(&channel->group);
    if (!channel->tls || ending->code == GRPC_STATUS_OK)
        return rpc_ending_read(ending, cancelled, NULL, reason);
    thread_lock(&channel->lock);
    struct tls_identity identity = channel->identity; /* it may be renewed meanwhile */
    thread_unlock(&channel->lock);
    return rpc_ending_read(ending, cancelled, &identity, reason);
}

static grpc_call *call_new(struct rpc_channel *channel, const char *path, gpr_timespec deadline)
{
    grpc_slice method = grpc_slice_from_copied_string(path); /* the call takes its own reference */
    thread_lock(&channel->lock);
    grpc_call *call = grpc_channel_create_call(channel->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                               channel->queue, method, NULL, deadline, NULL);
    thread_unlock(&channel->lock);
    grpc_slice_unref(method);
    return call;
}

enum err rpc_stream_open(struct rpc_channel *channel, const char *path,
                         const struct rpc_stream_events *events, void *owner,
                         struct rpc_stream **ret_stream)
{
    grpc_call *call = call_new(channel, path, gpr_inf_future(GPR_CLOCK_MONOTONIC));
    if (call == NULL)
        return ERR_NOMEM;
    struct rpc_stream_config config = {.loop = channel->loop,
                                       .group = &channel->group,
                                       .take_call = call,
                                       .message_bytes_max =
                                           channel->loop->settings.message_bytes_max,
                                       .events = events,
                                       .owner = owner,
                                       .channel = channel};
    return rpc_stream_start(&config, ret_stream);
}

/* ---- Unary calls ---- */

/* Once it has no grpc_call any more. */
static void call_free(struct rpc_call *call)
{
    grpc_metadata_array_destroy(&call->initial);
    rpc_ending_release(&call->ending);
    atomic_fetch_sub(&call->loop->objects, 1);
    free(call);
}

/* How the call ended; its response in one piece, when it has one. */
static enum err call_result(struct rpc_call *call, grpc_slice *ret_response, struct reason *reason)
{
    struct rpc_channel *channel = call->channel;
    TRY(rpc_channel_ending(channel, &call->ending, false, reason));
    grpc_byte_buffer_reader reader;
    if (call->response == NULL || call->response->data.raw.compression != GRPC_COMPRESS_NONE ||
        !grpc_byte_buffer_reader_init(&reader, call->response))
        return reason_set(reason, ERR_MALFORMED, "%s answered without a message", channel->address);
    *ret_response = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    return ERR_OK;
}

static void on_answered(struct rpc_tag *tag, bool ok)
{
    (void)ok; /* the call's ending has the error */
    struct rpc_call *call = CONTAINER_OF(tag, struct rpc_call, tag);
    struct reason reason = {0};
    grpc_slice response = grpc_empty_slice();
    enum err err = call_result(call, &response, &reason);
    call->answered(call->owner, err,
                   (struct slice){GRPC_SLICE_START_PTR(response), GRPC_SLICE_LENGTH(response)},
                   &reason);
    grpc_slice_unref(response);
    if (call->response != NULL)
        grpc_byte_buffer_destroy(call->response);
    rpc_group_leave(&call->channel->group, &call->member);
    grpc_call_unref(call->call);
    call_free(call);
}

static struct rpc_call *call_alloc(struct rpc_channel *channel,
                                   const struct rpc_call_config *config)
{
    struct rpc_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_millis((int64_t)config->timeout_ms, GPR_TIMESPAN));
    call->channel = channel;
    call->loop = channel->loop;
    call->answered = config->answered;
    call->owner = config->owner;
    call->tag.done = on_answered;
    grpc_metadata_array_init(&call->initial);
    rpc_ending_init(&call->ending);
    call->member.call = call->call = call_new(channel, config->path, deadline);
    atomic_fetch_add(&channel->loop->objects, 1);
    return call;
}

static void call_begin(struct rpc_call *call, grpc_byte_buffer *take_request)
{
    grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_MESSAGE}};
    ops[1].data.send_message.send_message = take_request;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &call->initial;
    ops[4].data.recv_message.recv_message = &call->response;
    ops[5] = rpc_ending_op(&call->ending);
    rpc_batch(call->loop, call->call, ops, 6, &call->tag);
    grpc_byte_buffer_destroy(take_request);
}

/* Takes back a call that was never begun. */
static enum err call_abandon(struct rpc_call *call, grpc_byte_buffer *bytes, enum err err)
{
    grpc_byte_buffer_destroy(bytes);
    if (call != NULL) {
        grpc_call_unref(call->call);
        call_free(call);
    }
    return err;
}

enum err rpc_call_start(struct rpc_channel *channel, const struct rpc_call_config *config,
                        struct buf *take_request)
{
    check(config->timeout_ms != 0);
    grpc_byte_buffer *bytes = NULL;
    TRY(rpc_bytes_of(take_request, NULL, 0, channel->loop->settings.message_bytes_max, &bytes));
    struct rpc_call *call = call_alloc(channel, config);
    if (call == NULL)
        return call_abandon(NULL, bytes, ERR_NOMEM);
    if (!rpc_group_join(&channel->group, &call->member))
        return call_abandon(call, bytes, ERR_CANCELLED);
    call_begin(call, bytes);
    return ERR_OK;
}

/* ---- A call that waits ---- */

struct client_wait {
    struct thread_mutex lock; /* guards the rest */
    struct thread_cond answered;
    bool done;
    enum err err;
    struct buf *response;
    struct reason *reason;
};

static void on_waited(void *owner, enum err err, struct slice response, const struct reason *reason)
{
    struct client_wait *waiting = owner;
    thread_lock(&waiting->lock);
    if (err == ERR_OK)
        err = buf_append(waiting->response, response.data, response.bytes);
    if (err != ERR_OK && waiting->reason != NULL)
        *waiting->reason = *reason;
    waiting->err = err;
    waiting->done = true;
    thread_wake_all(&waiting->answered);
    thread_unlock(&waiting->lock);
}

enum err rpc_call(struct rpc_channel *channel, const char *path, struct slice request,
                  uint32_t timeout_ms, struct buf *ret_response, struct reason *reason)
{
    struct buf copy = {0};
    TRY(buf_append(&copy, request.data, request.bytes));
    struct buf response = {0};
    struct client_wait waiting = {.response = &response, .reason = reason};
    thread_mutex_init(&waiting.lock);
    thread_cond_init(&waiting.answered);
    struct rpc_call_config config = {
        .path = path, .timeout_ms = timeout_ms, .answered = on_waited, .owner = &waiting};
    enum err err = rpc_call_start(channel, &config, &copy);
    if (err == ERR_OK) {
        thread_lock(&waiting.lock);
        while (!waiting.done)
            ignore(thread_wait_locked(&waiting.answered, &waiting.lock, TIME_NEVER)); /* never */
        thread_unlock(&waiting.lock);
        err = waiting.err;
    } else {
        reason_set(reason, err, "%s: %s", channel->address, err_text(err));
    }
    thread_cond_release(&waiting.answered);
    thread_mutex_release(&waiting.lock);
    if (err == ERR_OK)
        *ret_response = response;
    else
        buf_release(&response);
    return err;
}
