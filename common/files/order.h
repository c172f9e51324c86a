/* The order log: the choices of a run that do not follow from its spec, so that `roost replay` can
 * repeat the run bit for bit. For `ssp` these are the versions that each slot was computed on;
 * other kinds have records of their own.
 *
 *     RUN/order/coordinator.log    written by the coordinator's server
 *     RUN/order/server-K-gG-bB.log async: by server K, a file for each of its starts (boot B) and
 *                                  generations G; not synced: a machine that goes down may lose its
 *                                  end, and then the run cannot be repeated. A server that lost its
 *                                  own folder begins its boots anew: a name takes the next number
 *                                  above those that are there, so the numbers rise as files begin
 *
 * A log is records one after another, little-endian: payload bytes (4), kind (4), payload, xxHash
 * of all before (8). A record that the end of the file cuts short was being written when its writer
 * died: the log ends before it. The records that led to a recorded cut were synced before the cut
 * was recorded. So a reader that misses one of them returns ERR_CORRUPT. A record that is damaged
 * in the middle is ERR_CORRUPT at once. A rewind cuts the log back to the records that led to its
 * cut.
 *
 * This file knows only the bytes; the keeper of a log reads and appends its file. Pure. */
#ifndef ROOST_COMMON_FILES_ORDER_H
#define ROOST_COMMON_FILES_ORDER_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define ORDER_FOLDER "order" /* in the run's directory */
#define ORDER_COORDINATOR "coordinator.log"

enum { ORDER_PAYLOAD_BYTES_MAX = 1 << 20, ORDER_NAME_BYTES = 96 };

/* Of a server's log. */
struct order_name {
    uint64_t generation, boot;
    uint32_t server;
};

void order_name_file(struct order_name name, char ret_file[static ORDER_NAME_BYTES]);
/* False: it is no server's log. */
bool order_parse_name(const char *file, struct order_name *ret_name);

enum order_kind { ORDER_STEP = 1, ORDER_BEGIN, ORDER_PULL, ORDER_TAKE };

struct order_record {
    enum order_kind kind;
    struct slice payload; /* borrowed from the log's bytes */
};

/* The record at *offset, which moves behind it. ERR_NOT_FOUND: the log ends at *offset;
 * ERR_CORRUPT: `reason` names `path` and the offset. */
enum err order_next(struct slice log, const char *path, size_t *offset,
                    struct order_record *ret_record, struct reason *reason) MUST_USE;

/* ORDER_STEP: the versions that step `step` of `slots` slots was computed on: slot i on version
 * step - behind[i]. */
struct order_step {
    uint64_t generation;
    uint64_t step;
    uint32_t slots;
    const uint8_t *behind; /* borrowed */
};

enum err order_append_step(struct buf *buf, const struct order_step *step) MUST_USE;
/* ERR_CORRUPT: it does not decode, or a version is below 0. */
enum err order_step(const struct order_record *record, struct order_step *ret_step) MUST_USE;
/* Of an async run's servers: BEGIN, the versions that chunks have when the file begins; PULL, the
 * versions that an attempt was given; TAKE, the chunks that took an attempt's ticket. */
struct order_chunk {
    uint32_t chunk;
    uint64_t version; /* it had */
    uint64_t used;    /* TAKE: the one that the gradient was computed on */
};

struct order_chunks {
    enum order_kind kind;
    uint64_t attempt;
    uint64_t ticket;           /* TAKE */
    float scale;               /* TAKE */
    uint64_t generation, boot; /* BEGIN */
    uint32_t count;
    const struct order_chunk *chunks;
};

enum { ORDER_CHUNKS_MAX = 1024 };

enum err order_append_chunks(struct buf *buf, const struct order_chunks *chunks) MUST_USE;
/* The entries go to `chunks`, which has room for ORDER_CHUNKS_MAX. ERR_CORRUPT: it does not decode.
 */
enum err order_chunks(const struct order_record *record, struct order_chunk *chunks,
                      struct order_chunks *ret_chunks) MUST_USE;

/* Bytes of a coordinator's log that led to `version`: whole records of the steps below it. */
size_t order_keep_steps(struct slice log, uint64_t version);

#endif
