/* How the places of a mesh hand each other values: the carrier of Peer.Exchange, with a server for
 * those who ask and streams to those who are asked. What decides is in outbox.h (what is kept and
 * given) and wants.h (what is asked for, of whom).
 *
 * Values are named by what they are, so a value may be asked for before it was given, and as often
 * as needed. Bytes are the host's: who calls copies them from and to the device.
 *
 * Threads. The main thread makes and frees it, and names leases, places and generations. Each lane
 * has a compute thread, which gives and takes for the lane's newest lease; it also opens the lane's
 * streams, and looks at the clock while it waits. Polling threads answer who asks, and keep what
 * comes. One mutex guards all cores. */
#ifndef ROOST_WORKER_PEERS_H
#define ROOST_WORKER_PEERS_H

#include "worker/boundaries.h"
#include "worker/boundary_sums.h"
#include "worker/peers_options.h"

struct peers;
struct peers_lane;

/* What a loop's settings must be for values to pass: longer messages. */
void peers_settings(struct rpc_settings *settings);

/* Listens. All that the options point to is borrowed until peers_free(). ERR_NOMEM; ERR_INVALID,
 * ERR_EXISTS: the address; ERR_UNTRUSTED: the identity. */
enum err peers_new(const struct peers_options *options, struct peers **ret_peers,
                   struct reason *reason) MUST_USE;
/* Waits for the streams' ends; the compute thread has ended. NULL is fine. */
void peers_free(struct peers *peers);
/* "host:port", which Join advertises. */
const char *peers_address(const struct peers *peers);
/* Lives as long as the peers; below options.lanes. */
struct peers_lane *peers_lane(struct peers *peers, uint32_t number);

/* ---- the main thread ---- */

/* Who is silent for lease_ms is lost to the coordinator, and no lease lapses before. A peer has
 * half of that to answer, if that is less than options.answer_ms: two that do not reach each other
 * are found out before their lease lapses. */
void peers_joined(struct peers *peers, uint32_t lease_ms);
/* A lease was granted to `member`, this process: the lane's thread gives and takes for it from now
 * on. Copies all. That thread is between tickets. ERR_NOMEM; ERR_BUSY: more leases are kept than
 * WIRE_LEASES_MAX. */
enum err peers_lease(struct peers_lane *lane, uint64_t member, const struct ticket *ticket,
                     const struct place *place, const struct places *places) MUST_USE;
/* A notice: places of a lease, a newest or one that is kept. Older ones (S7), and those of other
 * leases, change nothing. */
void peers_places(struct peers *peers, const struct places *places);
/* S3: leases other than these are over, and their values go. */
void peers_keep(struct peers *peers, const uint64_t *attempts, uint32_t count);
/* S8: leases of older generations are over, and who asks for their values is told. */
void peers_generation(struct peers *peers, uint64_t generation);

/* ---- the lane's thread ---- */

/* Opens the streams that the lease's values will come over: before the first act, for a stream
 * takes milliseconds. Waits for nothing. */
void peers_reach(struct peers_lane *lane);
/* Others may have the value from now on; `bytes` are copied. The same value may be given again.
 * ERR_NOMEM; ERR_INVALID: longer than WIRE_VALUE_BYTES_MAX; ERR_WRONG_BITS: it was given before,
 * and had other bytes. */
enum err peers_give(struct peers_lane *lane, const struct executor_value *value,
                    const void *bytes) MUST_USE;
/* Waits for the value. Those that follow it on the same way are asked for ahead, and are here as
 * they came, at most WIRE_VALUE_BYTES_MAX together. ERR_CANCELLED: after peers_cancel().
 * ERR_OLD_GENERATION: the peer is in a newer one. ERR_NOT_FOUND: the peer says that it has no such
 * value to give, or the place takes none. ERR_MALFORMED, ERR_WRONG_BITS: it sent twice what has
 * another size, or not its digest. ERR_BUSY: peers that do not answer hold all credits. */
enum err peers_take(struct peers_lane *lane, const struct executor_value *value,
                    void *ret_bytes) MUST_USE;
/* S6: the same of partial sums, between the members of one place, which make the same sums in the
 * same order: what this one gives in that round, and what part->rank gave. A sum's bytes may be
 * reused on return. */
enum err peers_give_part(struct peers_lane *lane, uint32_t sequence, uint32_t round,
                         const void *bytes, size_t count) MUST_USE;
enum err peers_take_part(struct peers_lane *lane, const struct executor_part *part, void *ret_bytes,
                         size_t count) MUST_USE;
/* The same, where the bytes may stay as they came: *ret_bytes is where they are, or `scratch`, which
 * has room for them. Lent until the lane's next call. */
enum err peers_lend_part(struct peers_lane *lane, const struct executor_part *part, void *scratch,
                         size_t count, const void **ret_bytes) MUST_USE;
/* It will be taken: it is asked for with the next one that is waited for. */
void peers_expect_part(struct peers_lane *lane, const struct executor_part *part, size_t count);
/* Digests, added, of what passed between places since the last call, which begins the next ones. */
void peers_sums(struct peers_lane *lane, struct boundary_sums *ret_sums);
/* The member that the newest error of peers_take() is about; 0: none. */
uint64_t peers_blamed(const struct peers_lane *lane);

/* ---- any thread ---- */

/* peers_take() returns ERR_CANCELLED, until the next peers_lease(). */
void peers_cancel(struct peers_lane *lane);
/* Payload bytes of values taken so far, and of those that are kept for others now. */
uint64_t peers_bytes(const struct peers_lane *lane);
uint64_t peers_kept_bytes(const struct peers *peers);
/* Those that were kept when the lane gave the last value of its lease, which may be over since. */
uint64_t peers_lane_kept_bytes(const struct peers_lane *lane);
/* S7: attempts of the leases in which a lane waits for others' values, and how many these are. */
uint32_t peers_waits(struct peers *peers, uint64_t ret_attempts[static WIRE_LEASES_MAX]);

#endif
