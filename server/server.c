/* One daemon.
 *
 * Threads:
 *   main     owns the control room (on the coordinator's daemon), the link to the coordinator, the
 *            store and the run's record; waits for events in its inbox. Every decision happens
 *            here, one event after another.
 *   rpc …    gRPC's polling threads, one per core: decode requests (service.c) and data messages
 *            (push, pull); post to main's inbox or to a shard's; never wait.
 *   lines …  the same for workers of this machine, whose messages come through shared memory.
 *   shard …  each owns its chunks; waits for pushes, pulls and commands in its inbox (shards.h).
 *   cuts     writes cuts' files; waits for chunk copies of the shards. `idle writes` and `idle
 *            digests` do most of that where a core is free, `digests` where none is (cut_writer.c).
 *   order    writes an async run's order log and journal; waits for the shards' gradients.
 *   data     reads a data set, for a run that is to begin or to go on (control/data_reader.h).
 *   signals  waits for SIGTERM, SIGINT and SIGHUP; posts an event.
 *
 * Main's loop: take what is in the inbox, at most until the next timer is due; after each event the
 * control has carried out what follows from it. No polling: a parked acquire is answered in the
 * turn that frees a ticket.
 *
 * A daemon is ready, as systemd means it, when its port answers and its shards have the weights
 * that they are to hold. The coordinator's daemon is ready when the run that goes on has all of its
 * servers as well.
 *
 * Order of the end: the run pauses with a cut (coordinator), or the chunks move to other servers
 * (any other that gets SIGTERM, while stop_ms lasts); the service refuses new calls; waiting calls
 * are answered; the rpc server, the link and the shards go; then the loop and the store. A second
 * signal skips the first of these. */
#include "server/server.h"

#include "common/file.h"
#include "common/inbox.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/rand.h"
#include "common/scene.h"
#include "common/scoped.h"
#include "common/settings/options.h"
#include "common/signals.h"
#include "common/time.h"
#include "server/control/control.h"
#include "server/disk/store.h"
#include "server/notify.h"
#include "server/service.h"
#include "server/threads/link.h"
#include "server/threads/shards.h"

#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    INBOX_EVENTS_MAX = 16384,
    EVENTS_AT_ONCE = 2048,
    BATCH_EVENTS = 64,
    STATUS_MS = 2000,
    CALLS_MAX = 64
};
enum { CONNECTIONS_MORE = 64 }; /* of servers, and of whoever asks */
/* Messages that began and did not end, of all peers together. */
#define UNFINISHED_BYTES_MAX (512ull << 20)
/* Starting and stopping may take long (a large cut), but not without a turn of the loop. */
enum { MORE_TIME_S = 30 };
enum { ROOM_MS = 1000 /* until a start tries again that found no room */ };
/* The coordinator of a cluster that starts up is there in a moment. */
enum { RECONNECT_MS_MIN = 50 };
enum { COPIES_SHARE = 4 }; /* a quarter of the memory may go to copies for cuts */

struct server {
    const struct server_settings *settings;
    struct logger logger;
    char name[WIRE_NAME_BYTES];
    char address[300]; /* advertised */
    char run_dir[600];
    char folder[PATH_MAX];      /* that relative paths begin in */
    char failed_check[600];     /* the file that remembers one … */
    struct scene_memory memory; /* … for scene.h */
    uint64_t boot, term;        /* of this start; term 0: it is not the coordinator's */
    struct inbox *inbox;
    struct signals signals;
    bool has_signals;
    struct tls_identity identity;
    struct rpc_loop *loop;
    struct rpc_server *rpc;
    struct service service;
    bool has_service;
    struct store *store;
    struct link *link;
    struct shards *shards;
    struct control *control; /* NULL: not the coordinator */
    unsigned signals_said;
    bool ready, stopping;
    uint64_t drained_by_ns;     /* stopping: its chunks are awaited elsewhere until then; 0: not */
    struct tls_identity shown;  /* the newest certificate's names and times */
    int64_t warned_s;           /* of its end; 0: never */
    struct tls_revoked revoked; /* the list, as connections obey it (rpc/grpc/accept.c) */
    bool revoked_unread;        /* … and that it cannot be read now has been reported */
    uint64_t status_ns, alive_ns, certificate_ns, revoked_ns; /* when each is due */
};

static bool is_coordinator(const struct server *server)
{
    return server->settings->coordinator[0] == 0;
}

/* ---- settings ---- */

static enum err choose_name(const struct server_settings *settings,
                            char ret_name[static WIRE_NAME_BYTES], struct reason *reason)
{
    if (settings->name[0] != 0)
        snprintf(ret_name, WIRE_NAME_BYTES, "%s", settings->name);
    else if (gethostname(ret_name, WIRE_NAME_BYTES) != 0)
        return reason_set(reason, ERR_INVALID, "this host has no name; set --name");
    return options_check_name(ret_name, reason);
}

/* A heartbeat that is lost or late must not cost the lease. */
static uint32_t heartbeat_ms(const struct server_settings *settings)
{
    return settings->heartbeat_ms != 0 ? settings->heartbeat_ms : settings->lease_ms / 5;
}

static enum err check_role(const struct server_settings *settings, struct reason *reason)
{
    if (settings->coordinator[0] != 0 && settings->no_chunks)
        return reason_set(reason, ERR_INVALID,
                          "no_chunks is for the coordinator's daemon, but coordinator is %s",
                          settings->coordinator);
    if (settings->coordinator[0] == 0 && heartbeat_ms(settings) > settings->lease_ms / 2)
        return reason_set(
            reason, ERR_INVALID,
            "heartbeat_ms %u is more than half of lease_ms %u: a member would be lost "
            "for one late word",
            settings->heartbeat_ms, settings->lease_ms);
    return ERR_OK;
}

enum err server_check(const struct server_settings *settings, struct reason *reason)
{
    char name[WIRE_NAME_BYTES] = {0};
    if (settings->advertise[0] != 0)
        TRY(rpc_address_check(settings->advertise, settings->insecure, reason));
    if (settings->coordinator[0] != 0)
        TRY(rpc_address_check(settings->coordinator, settings->insecure, reason));
    TRY(rpc_address_check(settings->address, settings->insecure, reason));
    TRY(check_role(settings, reason));
    return choose_name(settings, name, reason);
}

/* ---- start ---- */

static void signal_said(void *owner, int number)
{
    struct server *server = owner;
    ignore(
        inbox_post(server->inbox, &(struct event){.kind = EVENT_SIGNAL,
                                                  .number = (uint64_t)number})); /* post it again */
}

/* What had no room may be called again. */
static enum err open_store(struct server *server, struct reason *reason)
{
    scoped(buf_release) struct buf path = {0};
    TRY(config_path_error(file_make_dirs(server->settings->dir, 0750, reason)));
    snprintf(server->failed_check, sizeof server->failed_check, "%s/failed-check",
             server->settings->dir);
    server->memory.path = server->failed_check;
    scene_remember(&server->memory);
    TRY(buf_printf(&path, "%s/roost.db", server->settings->dir));
    if (server->store == NULL)
        TRY(store_open_sqlite((const char *)path.data, &server->store, reason));
    if (server->boot == 0)
        TRY(store_next_boot(server->store, &server->boot, reason));
    return is_coordinator(server) ? store_take_term(server->store, &server->term, reason) : ERR_OK;
}

static void begin_stop(struct server *server)
{
    server->stopping = true;
    notify_stopping();
    log_info(&server->logger, "daemon stops", log_text("name", server->name));
}

/* Whether a signal to stop comes before the store is asked again. */
static bool is_told_to_stop(struct server *server)
{
    struct event event;
    size_t count;
    uint64_t again_ns = time_after_ms(time_now_ns(), ROOM_MS);
    while (inbox_take(server->inbox, again_ns, 1, &event, &count) == ERR_OK) {
        check(event.kind == EVENT_SIGNAL); /* the daemon does not listen yet */
        if (event.number != SIGHUP)
            return true;
    }
    return false;
}

/* A full disk has no room for the numbers of this start: it waits until there is, or it is told to
 * stop. */
static enum err await_store(struct server *server, struct reason *reason)
{
    enum err err = open_store(server, reason);
    if (err == ERR_NO_SPACE)
        log_warning(&server->logger, "start waits for room", log_text("err", err_name(err)),
                    log_text("reason", reason->text), log_text("next", "again"));
    while (err == ERR_NO_SPACE) {
        notify_more_time(MORE_TIME_S * 1000000000ull);
        notify_status("it waits for room");
        if (is_told_to_stop(server)) {
            begin_stop(server);
            return err;
        }
        err = open_store(server, reason);
    }
    return err;
}

static enum err open_loop(struct server *server, struct reason *reason)
{
    rpc_process_init(server->settings->log_level >= LOG_LEVEL_DEBUG);
    struct rpc_settings rpc = rpc_settings_default();
    rpc.message_bytes_max = WIRE_TRANSFER_BYTES_MAX; /* the largest; methods have limits below */
    rpc.calls_max = CALLS_MAX;
    /* A worker that comes again may still have its connection before. */
    rpc.connections_max = 2 * server->settings->certificate_members_max + CONNECTIONS_MORE;
    rpc.unfinished_bytes_max = UNFINISHED_BYTES_MAX;
    rpc.role_bytes_max[TLS_ROLE_SERVER] = WIRE_TRANSFER_BYTES_MAX + WIRE_CONTROL_BYTES_MAX;
    rpc.reconnect_ms_min = RECONNECT_MS_MIN;
    rpc.logger = &server->logger;
    if (!server->settings->insecure)
        TRY(tls_identity_read(server->settings->certs, TLS_ROLE_SERVER, (int64_t)time_wall_s(),
                              &server->identity, reason));
    if (!server->settings->insecure)
        server->shown = tls_identity_names(&server->identity);
    if (!server->settings->insecure && server->settings->revoked[0] != 0)
        memcpy(server->identity.revoked, server->settings->revoked,
               sizeof server->identity.revoked);
    return rpc_loop_new(&rpc, &server->loop);
}

static const struct tls_identity *identity_of(const struct server *server)
{
    return server->settings->insecure ? NULL : &server->identity;
}

/* The process ends on the spot: nothing more may be acknowledged that only its memory has. */
static void shards_failed(const struct logger *logger, const struct reason *reason)
{
    log_error(logger, "shards failed", log_text("reason", reason->text),
              log_text("next", "the daemon ends"));
    thread_end_process(EXIT_FAILURE);
}

static enum err open_shards(struct server *server, struct reason *reason)
{
    uint64_t seed = 0;
    ignore(rand_system(&seed, sizeof seed)); /* jitter only */
    const struct link_config link = {
        .loop = server->loop,
        .coordinator = is_coordinator(server) ? NULL : server->settings->coordinator,
        .identity = identity_of(server),
        .name = server->name,
        .address = server->address,
        .boot = server->boot,
        .seed = seed,
        .inbox = server->inbox,
        .logger = &server->logger,
    };
    TRY(link_new(&link, &server->link, reason));
    const struct shards_config shards = {
        .threads = server->settings->shards,
        .boot = server->boot,
        .loop = server->loop,
        .identity = identity_of(server),
        .logger = &server->logger,
        .copies_bytes_max = memory_limit() / COPIES_SHARE,
        .report = link_report,
        .owner = server->link,
        .failed = shards_failed,
    };
    TRY(shards_new(&shards, &server->shards, reason));
    link_attach(server->link, server->shards);
    return ERR_OK;
}

static enum err open_office(struct server *server, struct reason *reason)
{
    const struct server_settings *settings = server->settings;
    if (!is_coordinator(server))
        return ERR_OK;
    const struct control_config config = {
        .store = server->store,
        .term = server->term,
        .service = &server->service,
        .shards = server->shards,
        .name = server->name,
        .run_dir = server->run_dir,
        .continue_only = settings->continue_only[0] != 0 ? settings->continue_only : NULL,
        .folder = server->folder,
        .heartbeat_ms = heartbeat_ms(settings),
        .lease_ms = settings->lease_ms,
        .stop_ms = settings->stop_ms,
        .speculation_percent = settings->speculation_percent,
        .speculation_ms_min = settings->speculation_ms_min,
        .certificate_members_max = settings->certificate_members_max,
        .logger = &server->logger,
    };
    return control_new(&config, &server->control, reason);
}

/* The address where others reach the daemon: the one that was set, or the listening address with
 * its port. */
static enum err name_address(struct server *server, struct reason *reason)
{
    const char *advertised = server->settings->advertise;
    return rpc_address_of(advertised[0] != 0 ? advertised : server->settings->address,
                          rpc_server_port(server->rpc), server->address, sizeof server->address,
                          reason);
}

/* The daemon listens on all addresses and would give others this one, which they would look for on
 * their own machine. */
static void warn_of_address(const struct server *server)
{
    if (rpc_is_everywhere(server->address))
        log_warning(&server->logger, "other machines cannot reach this address",
                    log_text("address", server->address), log_text("next", "set --advertise"));
}

static enum err open_rpc(struct server *server, struct reason *reason)
{
    enum err err = service_init(&server->service, server->inbox, is_coordinator(server),
                                shards_exchange_method(server->shards),
                                shards_transfer_method(server->shards));
    server->has_service = true;
    TRY(err);
    const struct rpc_server_config config = {
        .loop = server->loop,
        .address = server->settings->address,
        .identity = identity_of(server),
        .methods = server->service.methods,
        .method_count = server->service.method_count,
    };
    TRY(rpc_server_new(&config, &server->rpc, reason));
    TRY(name_address(server, reason));
    warn_of_address(server);
    return ERR_OK;
}

static enum err open_all(struct server *server, struct reason *reason)
{
    const struct inbox_limits limits = {sizeof(struct event), INBOX_EVENTS_MAX};
    TRY(inbox_new(limits, &server->inbox));
    TRY(signals_start(&server->signals, signal_said, server));
    server->has_signals = true;
    TRY(await_store(server, reason));
    TRY(open_loop(server, reason));
    TRY(open_shards(server, reason));
    TRY(open_rpc(server, reason));
    return open_office(server, reason);
}

/* In the order of the essay. */
static void close_all(struct server *server)
{
    struct event event;
    size_t count;
    health_set(&server->service.health, false);
    if (server->rpc != NULL)
        rpc_server_drain(server->rpc);
    control_free(server->control);
    rpc_server_free(server->rpc);
    shards_free(server->shards);
    link_free(server->link);
    if (server->inbox != NULL) {
        inbox_close(server->inbox);
        while (inbox_take(server->inbox, 0, 1, &event, &count) == ERR_OK)
            event_release(&event);
    }
    rpc_loop_free(server->loop);
    if (server->has_service)
        service_release(&server->service);
    if (server->has_signals)
        signals_stop(&server->signals);
    store_free(server->store);
    inbox_free(server->inbox);
    tls_identity_release(&server->identity);
}

/* ---- the loop ---- */

/* Other servers take its chunks, if there is a run and a coordinator that moves them. */
static void ask_to_drain(struct server *server, uint64_t now_ns)
{
    if (shards_held(server->shards).generation == 0 || !link_connected(server->link))
        return;
    server->drained_by_ns = time_after_ms(now_ns, server->settings->stop_ms);
    log_info(&server->logger, "daemon drains", log_text("name", server->name),
             log_uint("stop_ms", server->settings->stop_ms));
    shards_drain(server->shards);
}

static bool is_draining(const struct server *server)
{
    return time_now_ns() < server->drained_by_ns && link_connected(server->link) &&
           shards_held(server->shards).generation != 0;
}

static void stop(struct server *server, uint64_t now_ns, uint64_t number)
{
    server->signals_said++;
    if (server->stopping)
        return;
    begin_stop(server);
    if (server->control != NULL)
        control_pause(server->control, now_ns, "the coordinator's daemon was told to stop");
    else if (number == SIGTERM)
        ask_to_drain(server, now_ns);
}

static void handle_control(struct server *server, uint64_t now_ns, struct event *event)
{
    struct control *control = server->control;
    switch (event->kind) {
    case EVENT_CALL:
        control_call(control, now_ns, event->call);
        event->call = NULL;
        break;
    case EVENT_CALL_CANCELLED:
        control_call_cancelled(control, event->number);
        break;
    case EVENT_CONNECTION_MESSAGE:
        control_connection_message(control, now_ns, event->connection, event->message);
        break;
    case EVENT_CONNECTION_CLOSED:
        control_connection_closed(control, now_ns, event->connection);
        break;
    case EVENT_REPORT:
        control_report(control, now_ns, event->message);
        break;
    default:
        break;
    }
}

/* What a failed check of the main thread prints. */
static void describe_main_thread(const void *object, char *text, size_t bytes)
{
    const struct server *server = object;
    if (server->control != NULL)
        control_describe(server->control, text, bytes);
}

static void handle_event(struct server *server, uint64_t now_ns, struct event *event)
{
    scoped(scene_leave) struct scene scene = {"event", event->kind, describe_main_thread, server};
    scene_enter(&scene);
    if (event->kind == EVENT_SIGNAL && event->number != SIGHUP)
        stop(server, now_ns, event->number);
    else if (event->kind == EVENT_LINK_MESSAGE)
        link_message(server->link, event->number, event->message);
    else if (server->control != NULL)
        handle_control(server, now_ns, event);
    event_release(event);
}

/* The port answers since start_server(). Only the weights may be missing that this server is to
 * hold. */
static void watch_ready(struct server *server)
{
    if (server->ready || server->stopping ||
        (!server->settings->no_chunks && !shards_loaded(server->shards)))
        return;
    if (server->control != NULL && control_loading(server->control))
        return;
    server->ready = true;
    log_info(&server->logger, "daemon ready", log_text("name", server->name));
    notify_ready();
}

static void tell_systemd(struct server *server, uint64_t now_ns)
{
    scoped(buf_release) struct buf line = {0};
    watch_ready(server);
    if (server->alive_ns <= now_ns) {
        uint64_t every_ns = notify_alive_every_ns();
        server->alive_ns = every_ns < TIME_NEVER - now_ns ? now_ns + every_ns : TIME_NEVER;
        notify_alive();
    }
    if (server->status_ns > now_ns)
        return;
    server->status_ns = time_after_ms(now_ns, STATUS_MS);
    if (!server->ready || server->stopping)
        notify_more_time(MORE_TIME_S * 1000000000ull);
    if (server->control != NULL && control_status_line(server->control, &line) == ERR_OK)
        notify_status((const char *)line.data);
    else if (server->control == NULL)
        notify_status(link_connected(server->link) ? "connected to the coordinator"
                                                   : "connecting to the coordinator");
}

static void watch_certificate(struct server *server, uint64_t now_ns)
{
    enum { HOUR_MS = 3600000 };
    int64_t now_s = (int64_t)time_wall_s();
    struct reason soon;
    if (server->settings->insecure || now_ns < server->certificate_ns)
        return;
    if (tls_identity_watch(&server->shown, now_s, &server->warned_s, &soon))
        log_warning(&server->logger, "certificate ends soon", log_text("reason", soon.text));
    if (server->control != NULL)
        control_certificate(server->control, server->shown.not_after_s, now_s);
    server->certificate_ns = time_after_ms(now_ns, HOUR_MS);
}

/* Each new list of revoked certificates, and one that cannot be read, once. */
static void watch_revoked(struct server *server, uint64_t now_ns)
{
    enum { LOOK_MS = 1000 };
    const char *path = server->identity.revoked;
    struct reason reason = {0};
    bool news = false;
    if (path[0] == 0 || now_ns < server->revoked_ns)
        return;
    enum err err = tls_revoked_read(path, &server->revoked, &news, &reason);
    if (news)
        log_info(&server->logger, "revoked certificates", log_text("path", path),
                 log_uint("count", server->revoked.count));
    if (err != ERR_OK && !server->revoked_unread)
        log_warning(&server->logger, "revoked certificates not read",
                    log_text("err", err_name(err)), log_text("reason", reason.text),
                    log_text("next", "the list before counts"));
    server->revoked_unread = err != ERR_OK;
    server->revoked_ns = time_after_ms(now_ns, LOOK_MS);
}

static void tick(struct server *server, uint64_t now_ns)
{
    watch_certificate(server, now_ns);
    watch_revoked(server, now_ns);
    link_tick(server->link, now_ns);
    if (server->control != NULL)
        control_tick(server->control, now_ns);
    tell_systemd(server, now_ns);
}

static uint64_t next_ns(const struct server *server)
{
    uint64_t due_ns = link_next_ns(server->link);
    if (server->control != NULL && control_next_ns(server->control) < due_ns)
        due_ns = control_next_ns(server->control);
    due_ns = server->status_ns < due_ns ? server->status_ns : due_ns;
    if (server->drained_by_ns != 0 && server->drained_by_ns < due_ns)
        due_ns = server->drained_by_ns;
    if (server->identity.revoked[0] != 0 && server->revoked_ns < due_ns)
        due_ns = server->revoked_ns;
    return server->alive_ns < due_ns ? server->alive_ns : due_ns;
}

static bool is_over(const struct server *server)
{
    if (server->control != NULL && control_failed(server->control) != ERR_OK)
        return true;
    if (server->control == NULL &&
        (shards_may_leave(server->shards) || link_is_refused(server->link)))
        return true;
    if (!server->stopping)
        return false;
    if (server->signals_said > 1)
        return true;
    return server->control != NULL ? control_paused(server->control) : !is_draining(server);
}

/* What has come, or comes until `due_ns`, before anything is found to be late. If this thread stood
 * still, also within an event, heartbeats of that time lie there. */
static void take_events(struct server *server, uint64_t due_ns)
{
    struct event events[BATCH_EVENTS];
    size_t taken = 0, count;
    while (taken < EVENTS_AT_ONCE && inbox_take(server->inbox, taken == 0 ? due_ns : 0,
                                                BATCH_EVENTS, events, &count) == ERR_OK) {
        for (size_t i = 0; i < count; i++)
            handle_event(server, time_now_ns(), &events[i]);
        taken += count;
    }
}

static void serve_events(struct server *server)
{
    tick(server, time_now_ns());
    while (!is_over(server)) {
        uint64_t due_ns = next_ns(server);
        take_events(server, due_ns > 0 ? due_ns : 1);
        scoped(scene_leave) struct scene scene = {"tick", 0, describe_main_thread, server};
        scene_enter(&scene);
        tick(server, time_now_ns());
    }
}

/* ---- from settings to the end ---- */

static enum err start_server(struct server *server, struct reason *reason)
{
    const struct server_settings *settings = server->settings;
    TRY(choose_name(settings, server->name, reason));
    if (settings->run_dir[0] != 0)
        snprintf(server->run_dir, sizeof server->run_dir, "%s", settings->run_dir);
    else
        snprintf(server->run_dir, sizeof server->run_dir, "%s/run", settings->dir);
    if (getcwd(server->folder, sizeof server->folder) == NULL)
        snprintf(server->folder, sizeof server->folder, "."); /* it was removed */
    TRY(open_all(server, reason));
    health_set(&server->service.health, true);
    log_info(&server->logger, "daemon serves", log_text("name", server->name),
             log_text("address", server->address), log_uint("boot", server->boot),
             log_text("coordinator", is_coordinator(server) ? "this one" : settings->coordinator));
    return ERR_OK;
}

static enum err serve(struct server *server, struct reason *reason)
{
    struct control *control = server->control;
    uint64_t now_ns = time_now_ns();
    if (control != NULL && !server->settings->no_chunks)
        control_local_server(control, now_ns, server->link);
    if (control != NULL)
        control_continue(control, now_ns);
    serve_events(server);
    if (shards_may_leave(server->shards))
        log_info(&server->logger, "daemon drained", log_text("name", server->name));
    if (control != NULL && control_failed(control) != ERR_OK)
        return reason_set(reason, control_failed(control), "the store failed; see the log");
    return link_refused(server->link, reason);
}

enum err server_run(const struct server_settings *settings, struct reason *reason)
{
    struct server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return reason_set(reason, ERR_NOMEM, "out of memory");
    server->settings = settings;
    server->logger =
        log_stderr((enum log_level)settings->log_level, options_environment("JOURNAL_STREAM", ""));
    enum err err = start_server(server, reason);
    if (err == ERR_OK)
        err = serve(server, reason);
    else if (server->stopping)
        err = ERR_OK; /* it waited for room */
    close_all(server);
    free(server);
    return err;
}
