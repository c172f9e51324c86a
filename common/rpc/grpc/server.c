/* The server: listens, takes calls, looks up their method, asks the certificate for the role. */
#include "common/rpc/grpc/core.h"
#include "common/scoped.h"
#include "common/time.h"

#include <stddef.h>
#include <string.h>

#include <grpc/support/alloc.h>

enum { ACCEPTS_PER_POLLER = 16 }; /* calls that may arrive before the polling thread looks */

/* One place for the next call, on one polling thread. */
struct accept {
    struct rpc_tag tag;
    struct rpc_member member; /* so that the server waits for it */
    struct rpc_server *server;
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct rpc_server {
    struct rpc_loop *loop;
    struct rpc_group group;
    grpc_server *server;
    const struct rpc_method *methods;
    size_t method_count;
    bool tls;
    struct tls_identity identity;        /* without its texts; from listen_on() on the library's */
    const struct tls_identity *starting; /* the first one, during listen_on() */
    struct rpc_listener *listener;
    unsigned port;
    atomic_bool draining;
    struct rpc_tag shut;
    struct rpc_member shut_member;
    size_t accept_count;
    struct accept accepts[];
};

/* ---- A call arrives ---- */

/* Sends a status to a call that got no further. */
struct refusal {
    struct rpc_tag tag;
    struct rpc_member member;
    struct rpc_group *group;
    grpc_call *call;
    struct accepted_call *accepted; /* NULL: no TLS */
    struct rpc_status status;
    int client_gone;
};

static void on_refused(struct rpc_tag *tag, bool ok)
{
    (void)ok;
    struct refusal *refusal = CONTAINER_OF(tag, struct refusal, tag);
    accepted_call_end(refusal->accepted);
    rpc_group_leave(refusal->group, &refusal->member);
    grpc_call_unref(refusal->call);
    rpc_status_release(&refusal->status);
    free(refusal);
}

static void refuse(struct rpc_server *server, grpc_call *take_call,
                   struct accepted_call *take_accepted, enum err err, const struct reason *reason)
{
    struct refusal *refusal = calloc(1, sizeof *refusal);
    if (refusal == NULL || !rpc_group_join(&server->group, &refusal->member)) {
        free(refusal);
        accepted_call_end(take_accepted);
        grpc_call_cancel_with_status(take_call, GRPC_STATUS_UNAVAILABLE, "shutting down", NULL);
        grpc_call_unref(take_call);
        return;
    }
    refusal->tag.done = on_refused;
    refusal->group = &server->group;
    refusal->call = take_call;
    refusal->accepted = take_accepted;
    rpc_status_init(&refusal->status, err, reason->text);
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
    ops[1] = rpc_status_op(&refusal->status);
    ops[2].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    ops[2].data.recv_close_on_server.cancelled = &refusal->client_gone;
    rpc_batch(server->loop, take_call, ops, 3, &refusal->tag);
}

/* "ipv4:127.0.0.1:41022", "ipv6:%5B::1%5D:41022" or "ipv6:%5Bfe80::1%252%5D:41022" (the second link)
 * as people write it. */
static void peer_address(grpc_call *call, char *ret_text, size_t bytes_max)
{
    char *uri = grpc_call_get_peer(call);
    const char *from = strchr(uri, ':');
    from = from == NULL ? uri : from + 1;
    rpc_unescape(from, strlen(from), ret_text, bytes_max);
    gpr_free(uri);
}

static enum err holder_of_call(const struct rpc_server *server, grpc_call *call,
                               struct tls_holder *ret_holder, struct reason *reason)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    grpc_auth_property_iterator uris =
        grpc_auth_context_find_properties_by_name(context, GRPC_PEER_URI_PROPERTY_NAME);
    const grpc_auth_property *uri = grpc_auth_property_iterator_next(&uris);
    enum err err = uri == NULL ? reason_set(reason, ERR_UNTRUSTED, "certificate names no role")
                               : tls_holder_of_uri(uri->value, ret_holder, reason);
    if (err == ERR_OK && strlen(uri->value) != uri->value_length)
        err = reason_set(reason, ERR_UNTRUSTED, "certificate's role has a 0 in its name");
    if (err == ERR_OK && grpc_auth_property_iterator_next(&uris) != NULL)
        err = reason_set(reason, ERR_UNTRUSTED, "certificate names more than one role");
    grpc_auth_context_release(context);
    const char *cluster = server->identity.holder.cluster;
    if (err == ERR_OK && strcmp(ret_holder->cluster, cluster) != 0)
        err = reason_set(reason, ERR_UNTRUSTED, "certificate is for cluster %s; this is %s",
                         ret_holder->cluster, cluster);
    return err;
}

static const struct rpc_method *method_find(const struct rpc_server *server, grpc_slice path)
{
    for (size_t i = 0; i < server->method_count; i++)
        if (grpc_slice_str_cmp(path, server->methods[i].path) == 0)
            return &server->methods[i];
    return NULL;
}

/* Who calls what, and may they? NULL: no, for `err` and `reason`. */
static const struct rpc_method *admit(const struct rpc_server *server, const struct accept *accept,
                                      struct rpc_peer *peer, enum err *ret_err,
                                      struct reason *reason)
{
    *ret_err = ERR_OK;
    if (server->tls && peer->certificate == 0)
        *ret_err = reason_set(reason, ERR_UNTRUSTED, "no connection from %s proved a certificate",
                              peer->address);
    else if (server->tls)
        *ret_err = holder_of_call(server, accept->call, &peer->holder, reason);
    if (*ret_err != ERR_OK)
        return NULL;
    grpc_slice path = accept->details.method;
    const struct rpc_method *method = method_find(server, path);
    if (method == NULL) {
        size_t bytes = GRPC_SLICE_LENGTH(path);
        *ret_err =
            reason_set(reason, ERR_UNSUPPORTED, "no method %.*s here",
                       bytes < 100 ? (int)bytes : 100, (const char *)GRPC_SLICE_START_PTR(path));
    } else if (server->tls && (method->roles & TLS_ROLE_BIT(peer->holder.role)) == 0) {
        *ret_err = reason_set(reason, ERR_DENIED, "a certificate of role %s may not call %s",
                              tls_role_name(peer->holder.role), method->path);
        method = NULL;
    }
    return method;
}

/* Who calls, by its connection. */
static enum err find_peer(const struct rpc_server *server, grpc_call *call, struct rpc_peer *peer,
                          struct accepted_call **ret_accepted, struct reason *reason)
{
    peer_address(call, peer->address, sizeof peer->address);
    struct accepted_table *table = rpc_listener_table(server->listener);
    if (accepted_call_begin(table, peer->address, ret_accepted) != ERR_OK)
        return reason_set(reason, ERR_BUSY, "no memory for the call");
    struct tls_peer proved = accepted_call_peer(*ret_accepted);
    peer->certificate = proved.certificate;
    peer->ends_s = proved.ends_s;
    peer->shown = proved.shown;
    return ERR_OK;
}

static void begin_call(struct rpc_server *server, struct accept *accept)
{
    struct rpc_peer peer = {0};
    struct reason reason = {0};
    struct accepted_call *accepted = NULL;
    const struct rpc_method *method = NULL;
    enum err err = find_peer(server, accept->call, &peer, &accepted, &reason);
    if (err == ERR_OK)
        method = admit(server, accept, &peer, &err, &reason);
    if (method == NULL) {
        refuse(server, accept->call, accepted, err, &reason);
        return;
    }
    size_t bytes_max = method->request_bytes_max != 0 ? method->request_bytes_max
                                                      : server->loop->settings.message_bytes_max;
    if (method->kind == RPC_UNARY) {
        struct rpc_request_config config = {.loop = server->loop,
                                            .group = &server->group,
                                            .take_call = accept->call,
                                            .method = method,
                                            .peer = &peer,
                                            .take_accepted = accepted,
                                            .bytes_max = bytes_max};
        rpc_request_start(&config);
        return;
    }
    struct rpc_stream_config config = {.loop = server->loop,
                                       .group = &server->group,
                                       .take_call = accept->call,
                                       .message_bytes_max = bytes_max,
                                       .events = method->events,
                                       .owner = method->owner,
                                       .peer = &peer,
                                       .near = method->shared &&
                                               rpc_is_near(server->loop, &accept->metadata),
                                       .take_accepted = accepted};
    ignore(rpc_stream_start(&config, NULL)); /* the client learns it from the cancelled call */
}

static void accept_clear(struct accept *accept)
{
    grpc_metadata_array_destroy(&accept->metadata);
    grpc_call_details_destroy(&accept->details);
    grpc_metadata_array_init(&accept->metadata);
    grpc_call_details_init(&accept->details);
    accept->call = NULL;
}

static bool accept_next(struct accept *accept)
{
    rpc_tag_given(accept->server->loop);
    return grpc_server_request_call(accept->server->server, &accept->call, &accept->details,
                                    &accept->metadata, accept->queue, accept->queue,
                                    &accept->tag) == GRPC_CALL_OK;
}

static void on_accepted(struct rpc_tag *tag, bool ok)
{
    struct accept *accept = CONTAINER_OF(tag, struct accept, tag);
    struct rpc_server *server = accept->server;
    if (ok)
        begin_call(server, accept);
    accept_clear(accept);
    if (!ok || !accept_next(accept))
        rpc_group_leave(&server->group, &accept->member); /* shutting down */
}

/* ---- Starting ---- */

/* Before each handshake, one after another: which certificate is it now? */
static grpc_ssl_certificate_config_reload_status
certificate_now(void *argument, grpc_ssl_server_certificate_config **ret_config)
{
    struct rpc_server *server = argument;
    scoped(tls_identity_release) struct tls_identity renewed = {0};
    const struct tls_identity *identity = server->starting;
    if (identity == NULL) {
        int64_t now_s = (int64_t)(time_wall_ns() / 1000000000);
        if (!tls_identity_renewed(&server->identity, now_s, &renewed))
            return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
        identity = &renewed;
        server->identity.modified_ns = renewed.modified_ns;
    }
    grpc_ssl_pem_key_cert_pair pair = {.private_key = (const char *)identity->key.data,
                                       .cert_chain = (const char *)identity->certificate.data};
    *ret_config =
        grpc_ssl_server_certificate_config_create((const char *)identity->ca.data, &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

static grpc_server_credentials *credentials_of(struct rpc_server *server)
{
    if (!server->tls)
        return grpc_insecure_server_credentials_create();
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, certificate_now, server));
}

static enum err listen_on(struct rpc_server *server, const struct rpc_server_config *config,
                          struct reason *reason)
{
    server->starting = config->identity;
    grpc_server_credentials *credentials = credentials_of(server);
    if (credentials == NULL)
        return reason_set(reason, ERR_UNTRUSTED, "%s: not accepted by the TLS library",
                          config->identity->path);
    /* Its handler, which rpc_listener_start() looks at, is the answer. */
    (void)grpc_server_add_http2_port(server->server, RPC_LISTENER_PORT, credentials);
    grpc_server_credentials_release(credentials);
    server->starting = NULL;
    return ERR_OK;
}

static void on_shut(struct rpc_tag *tag, bool ok)
{
    (void)ok;
    struct rpc_server *server = CONTAINER_OF(tag, struct rpc_server, shut);
    rpc_group_leave(&server->group, &server->shut_member);
}

static void accept_calls(struct rpc_server *server)
{
    for (size_t i = 0; i < server->accept_count; i++) {
        struct accept *accept = &server->accepts[i];
        accept->tag.done = on_accepted;
        accept->server = server;
        accept->queue = server->loop->pollers[i % server->loop->poller_count].queue;
        check(rpc_group_join(&server->group, &accept->member));
        check(accept_next(accept));
    }
}

static struct rpc_server *server_new(const struct rpc_server_config *config,
                                     struct rpc_listener *take_listener, unsigned port)
{
    struct rpc_loop *loop = config->loop;
    size_t accepts = (size_t)ACCEPTS_PER_POLLER * loop->poller_count;
    struct rpc_server *server = calloc(1, sizeof *server + accepts * sizeof server->accepts[0]);
    if (server == NULL) {
        rpc_listener_free(take_listener);
        return NULL;
    }
    server->listener = take_listener;
    server->port = port;
    server->loop = loop;
    server->methods = config->methods;
    server->method_count = config->method_count;
    server->tls = config->identity != NULL;
    if (server->tls)
        server->identity = tls_identity_names(config->identity);
    server->accept_count = accepts;
    for (size_t i = 0; i < accepts; i++) {
        grpc_call_details_init(&server->accepts[i].details);
        grpc_metadata_array_init(&server->accepts[i].metadata);
    }
    server->shut.done = on_shut;
    rpc_group_init(&server->group);
    struct rpc_arguments arguments;
    rpc_arguments_init(&arguments, &loop->settings, true);
    rpc_listener_argument(take_listener, &arguments);
    server->server = grpc_server_create(&arguments.all, NULL);
    for (unsigned i = 0; i < loop->poller_count; i++)
        grpc_server_register_completion_queue(server->server, loop->pollers[i].queue, NULL);
    check(rpc_group_join(&server->group, &server->shut_member));
    return server;
}

enum err rpc_server_new(const struct rpc_server_config *config, struct rpc_server **ret_server,
                        struct reason *reason)
{
    TRY(rpc_address_check(config->address, config->identity == NULL, reason));
    struct rpc_listener *listener = NULL;
    unsigned port = 0;
    const struct rpc_listener_config where = {&config->loop->settings, config->address,
                                              config->identity};
    TRY(rpc_listener_new(&where, &listener, &port, reason));
    struct rpc_server *server = server_new(config, listener, port);
    if (server == NULL)
        return ERR_NOMEM;
    enum err err = listen_on(server, config, reason);
    grpc_server_start(server->server);
    if (err == ERR_OK) {
        accept_calls(server);
        err = rpc_listener_start(listener, reason);
    }
    if (err != ERR_OK) {
        rpc_server_free(server);
        return err;
    }
    *ret_server = server;
    return ERR_OK;
}

unsigned rpc_server_port(const struct rpc_server *server)
{
    return server->port;
}

void rpc_server_drain(struct rpc_server *server)
{
    if (atomic_exchange(&server->draining, true))
        return;
    rpc_listener_stop(server->listener);
    rpc_tag_given(server->loop);
    grpc_server_shutdown_and_notify(server->server, server->loop->pollers[0].queue, &server->shut);
}

void rpc_server_free(struct rpc_server *server)
{
    if (server == NULL)
        return;
    rpc_server_drain(server);
    grpc_server_cancel_all_calls(server->server);
    rpc_group_end(&server->group);
    grpc_server_destroy(server->server);
    rpc_listener_free(server->listener);
    for (size_t i = 0; i < server->accept_count; i++) {
        grpc_metadata_array_destroy(&server->accepts[i].metadata);
        grpc_call_details_destroy(&server->accepts[i].details);
    }
    rpc_group_release(&server->group);
    free(server);
}
