/* Gradients on their way out: sent from where a CPU has computed them (executor_lend()), or encoded
 * chunk by chunk into one block, and never copied again.
 *
 * Of a chunk of which fewer than one row in eight has a bit that is not 0, those rows travel, where
 * the server takes that: most of an embedding's gradient is zeros. It is looked for in what would
 * travel, so it is the same for every backend, and what arrives has the same bits (-0 travels). */
#ifndef ROOST_WORKER_PUSH_H
#define ROOST_WORKER_PUSH_H

#include "common/rpc/rpc.h"
#include "worker/crew.h"
#include "worker/whole.h"

/* Where gradients come from. */
struct push_source {
    const struct executor *executor;
    const struct crew *crew;   /* whose first one the executor is; NULL: it computed alone */
    const struct whole *whole; /* async; else NULL */
    const struct model *model;
};

/* The stream to a server. */
struct push_stream {
    struct rpc_stream *stream;
    bool sparse; /* the server takes sparse entries */
};

/* Encodes the push's entries and sends the message on the server's Exchange stream; *ret_bytes: of
 * its payload. The gradients may be read: their unit's push hook was called and no other run has
 * begun. The encoder's thread. ERR_NOMEM, ERR_BUSY, ERR_CANCELLED, ERR_IO (the device has failed):
 * nothing was sent. */
enum err push_send(const struct push_source *source, const struct push_stream *to,
                   const struct push *push, size_t *ret_bytes) MUST_USE;
/* What the device reported after ERR_IO. The encoder's thread. */
const char *push_failure(const struct push_source *source);

/* Rows of so many bytes each, `stride` bytes one behind another. */
struct push_rows {
    const uint8_t *first;
    uint32_t count;
    size_t bytes, stride;
};

/* Which of the rows have a bit that is not 0, in ret_rows (count / 8): how many. UINT32_MAX: not
 * fewer than one row in eight. */
uint32_t push_rows(const struct push_rows *rows, uint32_t *ret_rows);

#endif
