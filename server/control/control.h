/* The coordinator on its daemon: the pure core (server/coordinator/), and the I/O that it needs.
 * Calls and streams come in from the main thread's inbox, go to the core, and the core's effects
 * are carried out in their order: facts to the store and to checkpoints' cut.json, commands to
 * servers, answers to parked calls, rows to the run's record, lines to the log.
 *
 * A store that fails ends the daemon (control_failed()): nothing may follow from a fact that is not
 * stored. Main thread only. */
#ifndef ROOST_SERVER_CONTROL_CONTROL_H
#define ROOST_SERVER_CONTROL_CONTROL_H

#include "common/log.h"
#include "server/disk/store.h"
#include "server/service.h"
#include "server/threads/link.h"
#include "server/threads/shards.h"

struct control;

struct control_config {
    struct store *store; /* borrowed */
    uint64_t term;       /* which the store gave to this start */
    struct service *service;
    struct shards *shards;     /* of this daemon: commands over the local link */
    const char *name;          /* of this daemon's server */
    const char *run_dir;       /* where the first run goes that names no directory */
    const char *continue_only; /* the directory of the run that control_continue() may begin; NULL:
                                  any */
    const char *folder;        /* that relative ones begin in */
    uint32_t heartbeat_ms, lease_ms, stop_ms;
    uint32_t speculation_percent, speculation_ms_min;
    uint32_t certificate_members_max;
    const struct logger *logger;
};

/* ERR_NOMEM, ERR_IO. */
enum err control_new(const struct control_config *config, struct control **ret_control,
                     struct reason *reason) MUST_USE;
/* Calls that wait are answered with CANCELLED; streams are ended. NULL is fine. */
void control_free(struct control *control);

/* This daemon's own server is there. */
void control_local_server(struct control *control, uint64_t now_ns, const struct link *link);
/* Goes on with the run that was training, by the store, when the daemon ended. What fails is tried
 * again after a while: a disk that is not there yet, files that another coordinator still writes
 * whose term is over. Until then the status has the reason, and no other run begins. */
void control_continue(struct control *control, uint64_t now_ns);

/* When this daemon's own certificate ends, for the status. Once a day it warns of those whose streams
 * are open. */
void control_certificate(struct control *control, int64_t ends_s, int64_t now_s);

/* Events; connections and messages stay the caller's. */
void control_call(struct control *control, uint64_t now_ns, struct call *take_call);
void control_call_cancelled(struct control *control, uint64_t number);
void control_connection_message(struct control *control, uint64_t now_ns,
                                struct connection *connection, const struct rpc_message *message);
void control_connection_closed(struct control *control, uint64_t now_ns,
                               struct connection *connection);
void control_report(struct control *control, uint64_t now_ns, const struct rpc_message *message);

/* The coordinator's state in a line, for the log (scene.h). */
void control_describe(const struct control *control, char *text, size_t bytes);

uint64_t control_next_ns(const struct control *control);
void control_tick(struct control *control, uint64_t now_ns);

/* The daemon is about to end: the run pauses with a cut and goes on with the next start. */
void control_pause(struct control *control, uint64_t now_ns, const char *why);
/* Whether nothing is left to wait for. */
bool control_paused(const struct control *control);
/* Whether a run has started or goes on, and not all of its servers have its weights; or the data that
 * it is to serve are read. */
bool control_loading(const struct control *control);
/* The error with which the daemon must end; ERR_OK: it need not end. */
enum err control_failed(const struct control *control);
/* Appends "2/2 servers, 3 workers, step 120 of 300, checkpoint 100" and why the run waits.
 * ERR_NOMEM. */
enum err control_status_line(const struct control *control, struct buf *line) MUST_USE;

#endif
