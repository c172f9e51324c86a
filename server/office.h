/* The coordinator's office on its daemon: the pure core (coordinator/) with what it needs of the
 * world. Calls and streams come in from the main thread's inbox, go to the core, and the core's
 * effects are carried out in their order: facts to the store and to checkpoints' cut.json, commands
 * to servers, answers to parked calls, rows to the run's record, lines to the log.
 *
 * A store that fails ends the daemon (office_failed()): nothing may follow from a fact that is not
 * stored. Main thread only. */
#ifndef ROOST_SERVER_OFFICE_H
#define ROOST_SERVER_OFFICE_H

#include "common/log.h"
#include "server/link.h"
#include "server/service.h"
#include "server/shards.h"
#include "server/store.h"

struct office;

struct office_config {
    struct store *store; /* borrowed */
    struct service *service;
    struct shards *shards; /* of this daemon: commands over the local link */
    const char *name;      /* of this daemon's server */
    const char *run_dir;   /* where a run goes that names no directory */
    uint32_t heartbeat_ms, lease_ms, stop_ms;
    uint32_t speculation_percent, speculation_ms_min;
    const struct logger *logger;
};

/* Takes the office: a new term. ERR_NOMEM, or the store's errors. */
enum err office_new(const struct office_config *config, struct office **ret_office,
                    struct reason *reason) MUST_USE;
/* Calls that wait are answered with CANCELLED; streams are ended. NULL is fine. */
void office_free(struct office *office);

/* This daemon's own server is there. */
void office_local_server(struct office *office, uint64_t now_ns, const struct link *link);
/* Goes on with the run that the store says was training. */
void office_continue(struct office *office, uint64_t now_ns);

/* Events; guests and messages stay the caller's. */
void office_call(struct office *office, uint64_t now_ns, struct call *take_call);
void office_call_cancelled(struct office *office, uint64_t number);
void office_guest_message(struct office *office, uint64_t now_ns, struct guest *guest,
                          const struct rpc_message *message);
void office_guest_closed(struct office *office, uint64_t now_ns, struct guest *guest);
void office_report(struct office *office, uint64_t now_ns, const struct rpc_message *message);

uint64_t office_next_ns(const struct office *office);
void office_tick(struct office *office, uint64_t now_ns);

/* The daemon is about to end: the run pauses with a cut and goes on with the next start. */
void office_pause(struct office *office, uint64_t now_ns, const char *why);
/* Nothing is left to wait for. */
bool office_paused(const struct office *office);
/* A run has started, or goes on, whose servers are not all there with its weights. */
bool office_loading(const struct office *office);
/* Why the daemon must end; ERR_OK: it need not. */
enum err office_failed(const struct office *office);
/* Appends "2/2 servers, 3 workers, step 120 of 300, cut 100" and why the run waits. ERR_NOMEM. */
enum err office_status_line(const struct office *office, struct buf *line) MUST_USE;

#endif
