/* The protocol side of a worker: join, acquire, pull, push, complete; retry, drop, rejoin.
 *
 * A pure core: events in, effects out; no sockets, threads or clocks, time is an argument. The
 * worker's loop (worker.c) and the simulator drive the same code. Events only change the state;
 * agent_next() then returns one effect after another, until nothing is left to do:
 *
 *     agent_acked(agent, now_ms, server, &ack);
 *     while (agent_next(agent, now_ms, &effect))
 *         carry_out(&effect);
 *
 * It has five parts, each with its state and its invariants in a file: membership (agent_member.h),
 * the chunk map (agent_map.h), tickets (agent_tickets.h: in lanes), leases in a mesh
 * (agent_leases.h) and traffic with the servers (agent_traffic.h). agent.c and agent_next.c put
 * them together. What the parts share is below them: the words of effects (agent_effects.h) and how
 * long to wait (agent_backoff.h). No part includes this header.
 *
 * A ticket's life: ACQUIRE -> COMPUTE starts the executor, which waits unit by unit for UNIT_READY
 * while the PULLs go out in forward order (chunks that are held at the ticket's version are not
 * pulled again) -> agent_gradient() as each unit's backward ends, and its PUSHes go out -> all
 * acknowledged and computed: COMPLETE, and the next ACQUIRE beside it.
 *
 * `async`: pulls ask for the newest versions, of every chunk anew, and each chunk once an attempt,
 * so that the servers' logs have the versions that an attempt was computed on. Pushes wait for the
 * compute's end, because its scale is known then: whole chunks, with the version that each was
 * pulled at and the boot of its server (P12). A server that comes back with another boot, whose stream
 * breaks with a pull unanswered, or that refuses a pull, ends the attempt: the ticket is dropped
 * and granted again.
 *
 * Places: in a mesh of several places a ticket comes with a place of it. Then LEASE, COMPUTE, and
 * weights when agent_placed() says that the place's executor is there. Pulled are the units of the
 * place, pushed is what the ticket names; COMPLETE names the place. What was produced is kept until
 * KEEP no longer names the lease: other places may ask for it, also of a member that is done (S3).
 * With a delay there are several tickets at a time, each in its lane, and each waits for itself
 * (S9).
 *
 * A chunk may move to another server while its ticket is under way (P11): a ticket that was granted
 * under a newer map, or an answer MOVED, makes the agent ask for the map. Pieces that the old owner
 * did not take are then sent to the new owner, unchanged. Nothing is pulled or pushed for a ticket
 * before its map, or a newer one, is known.
 *
 * The agent reacts to an error in one of three ways, by err_reaction(). It asks again after a
 * jittered backoff (BUSY, BEHIND, an unreachable server, and, once a stream to a server has been up,
 * a certificate that is refused): everything that is not acknowledged is sent again, and duplicates
 * do no harm. It drops the ticket and reports that (TOO_LATE; BUSY again and again, because the
 * server may wait for a lower slot that nobody has any more, and the next ticket is the lowest free
 * slot). It ends the membership and joins again (OLD_GENERATION, UNKNOWN_MEMBER, a lost control
 * stream). In the last two cases it cancels the compute under way, and computes nothing new before
 * that has ended.
 *
 * Invariants of the whole (agent_check, beside those of the parts): no ticket without membership;
 * COMPLETE with outcome OK only when all pieces are acknowledged; a place that is computed has a
 * lease, and the loop was told of it. */
#ifndef ROOST_WORKER_AGENT_H
#define ROOST_WORKER_AGENT_H

#include "worker/agent_backoff.h"
#include "worker/agent_effects.h"

enum {
    AGENT_ACQUIRE_WAIT_MS = 10000,
    AGENT_LENT_MS_MAX = 100, /* that weights are kept while no ticket is there */
};

struct agent;

/* ERR_NOMEM. */
enum err agent_new(const struct agent_config *config, struct agent **ret_agent) MUST_USE;
void agent_free(struct agent *agent); /* NULL is fine */

/* ---- events; all of them by the one thread that owns the agent ---- */

void agent_joined(struct agent *agent, uint64_t now_ms, const struct join_reply *reply,
                  const struct agent_map *map);
void agent_join_failed(struct agent *agent, uint64_t now_ms, enum err err);
/* The present chunk map. When a server's number now belongs to another server, call
 * agent_stream_lost() first. */
void agent_mapped(struct agent *agent, uint64_t now_ms, const struct agent_map *map);
/* Whether the agent would take a map of that number. False: do not connect to that map's
 * servers. */
bool agent_takes_map(const struct agent *agent, uint64_t generation, uint64_t number);
void agent_map_failed(struct agent *agent, uint64_t now_ms, enum err err);
/* The control stream broke, or a notice says that servers, map or generation changed. */
void agent_member_lost(struct agent *agent, uint64_t now_ms);
void agent_acquired(struct agent *agent, uint64_t now_ms, uint64_t sequence, enum err err,
                    const struct acquire_reply *reply);
void agent_stream_up(struct agent *agent, uint64_t now_ms, uint32_t server, uint64_t boot);
void agent_stream_lost(struct agent *agent, uint64_t now_ms, uint32_t server, enum err err);
/* True: the agent asked for these chunks; write the payload into place, in that lane's executor,
 * before the next agent_next(). False: nobody waits for them; leave the weights alone. */
bool agent_weights(struct agent *agent, uint64_t now_ms, uint32_t server,
                   const struct weights *weights, uint32_t *ret_lane) MUST_USE;
/* The chunk that has just come lies in its server's memory, which keeps that version as long. */
void agent_lent(struct agent *agent, uint32_t lane, uint32_t chunk);
void agent_refused(struct agent *agent, uint64_t now_ms, uint32_t server,
                   const struct pull_refusal *refusal);
/* A stream to a server has been up: since then a refused certificate is asked again. */
bool agent_was_served(const struct agent *agent);
/* A notice about the places of a lease; without peers the lease is over. */
void agent_places(struct agent *agent, uint64_t now_ms, const struct places *places);
/* The loop cannot keep the lease that AGENT_LEASE named: the agent ends, with that error. */
void agent_lease_failed(struct agent *agent, enum err err);
/* S7: whether a ticket of that lease is computed, and that member computes at another place of it: else
 * the coordinator need not hear that it does not answer. */
bool agent_waits_for(struct agent *agent, uint64_t attempt, uint64_t member);
/* In a mesh of several places: the lane's executor is that of the place which AGENT_COMPUTE named.
 */
void agent_placed(struct agent *agent, uint64_t now_ms, uint32_t lane);
/* Streamed: the lane's executor has a place for the unit's weights. Of the ticket that is computed;
 * a unit is asked for again only after AGENT_UNIT_READY. */
void agent_asked(struct agent *agent, uint64_t now_ms, uint32_t lane, uint32_t unit);
/* The unit's gradients of the node, the ticket's or a half of it, are final and readable until
 * AGENT_UNIT_ACKED, or the compute's end is followed by another COMPUTE in that lane. */
void agent_gradient(struct agent *agent, uint64_t now_ms, uint32_t lane, uint32_t unit,
                    struct node node);
/* A lane's executor ended. */
void agent_computed(struct agent *agent, uint64_t now_ms, const struct agent_result *result);
void agent_acked(struct agent *agent, uint64_t now_ms, uint32_t server, const struct push_ack *ack);
/* Finish or drop the ticket at hand before `deadline_ms`, then leave. Called twice: at once. */
void agent_leave(struct agent *agent, uint64_t now_ms, uint64_t deadline_ms);
/* It has stopped: AGENT_STOP follows when what is computed has ended. */
bool agent_has_stopped(const struct agent *agent);
/* The run ended, as a notice says. */
void agent_run_over(struct agent *agent, uint64_t now_ms);

/* ---- effects ---- */

bool agent_next(struct agent *agent, uint64_t now_ms, struct agent_effect *ret_effect) MUST_USE;
/* When agent_next() may have something to do without a further event; UINT64_MAX: never. Later than
 * now once agent_next() has returned false. */
uint64_t agent_wake_ms(const struct agent *agent);

void agent_check(const struct agent *agent); /* the numbered invariants; walks over everything */
/* The same for the worker, after every event: the cheap checks and those of one server in turn each
 * time, all of them on a schedule (common/check_account.h). */
void agent_check_event(struct agent *agent);
/* The state in a line, for the log (scene.h); `object` is a struct agent. */
void agent_describe(const void *object, char *text, size_t bytes);

#endif
