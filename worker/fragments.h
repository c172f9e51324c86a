/* A value of Peer.Exchange in several messages: its first one is Have, the others are Fragments.
 *
 * A long message is encrypted whole before its first byte is sent, and is there only when its last
 * byte is. Of short ones the receiver decrypts one while the sender encrypts the next. */
#ifndef ROOST_WORKER_FRAGMENTS_H
#define ROOST_WORKER_FRAGMENTS_H

#include "common/rpc/rpc.h"
#include "proto/wire.h"

/* How much of a value of so many bytes each message has, but for the last; not 0. */
size_t fragments_bytes(size_t value_bytes);

/* ---- who receives: of one stream ---- */

struct fragments; /* what has come of a value; NULL: no value has begun */
struct fragment {
    struct rpc_message *message;
    size_t offset; /* of its bytes of the value: to the message's end */
};

/* A message of the stream, in its order. *ret_message is NULL if it belongs to a value that is not
 * whole yet. Else it is a reference to a message that is to be acted on, and *ret_answer says what it
 * is: the one that came, or a value's, whole, as if it had come in one. ERR_MALFORMED: no value may
 * come so; ERR_NOMEM. */
enum err fragments_gather(struct fragments **fragments, const struct from_peer *came,
                          struct rpc_message *message, struct from_peer *ret_answer,
                          struct rpc_message **ret_message, struct reason *reason) MUST_USE;

/* What somebody has of a value: its first messages. The same want may be answered more than once, also
 * over one stream; each answer has a number of its own in this process. */
struct fragments_had {
    uint64_t number; /* of the answer; 0: nothing of any */
    uint32_t count;
    size_t bytes; /* which those messages have */
};
/* Of the value of that want, if it has so many bytes: what has come behind what was had of this answer,
 * each with a reference. *had is nothing of it, if it was of another one. Returns how many there are. */
uint32_t fragments_behind(const struct fragments *fragments, uint64_t id, size_t bytes,
                          struct fragments_had *had,
                          struct fragment ret_list[static WIRE_FRAGMENTS_MAX]);
/* Of a value as fragments_gather() gave it; 0: it came in one message. */
uint64_t fragments_number(const struct rpc_message *value);
void fragments_free(struct fragments *fragments); /* NULL is fine */

#endif
