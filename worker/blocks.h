/* Chunks between the wire and a parameter's array: the two loops over bytes that the worker, the
 * reference and the simulator share.
 *
 * A chunk is a block of rows × cols of a parameter, which here lies as in a worker's memory
 * (common/model/pieces.h): row-major, or piece by piece; on the wire its weights lie one after another, fp32 or bf16, little-endian. Received bytes come as a
 * list of slices that end anywhere, also inside a number. Arrays are in the backend's memory. Any
 * thread (kernels.h: one beside the one that computes), as long as nobody else touches that block.
 */
#ifndef ROOST_WORKER_BLOCKS_H
#define ROOST_WORKER_BLOCKS_H

#include "common/cursor.h"
#include "common/model/model.h"
#include "kernels/kernels.h"
#include "proto/wire.h"

/* A chunk's bytes on the wire; the loss parameter is always fp32 there. */
size_t blocks_bytes(const struct model *model, uint32_t chunk, enum codec codec);
enum codec blocks_codec(const struct model *model, uint32_t chunk, enum codec codec);

/* Reads the chunk's blocks_bytes() at the cursor into its block of `parameter` (the whole
 * parameter's storage). They are there: whoever received them has counted them. */
void blocks_decode(const struct kernels *k, const struct model *model, uint32_t chunk,
                   enum codec codec, struct cursor *cursor, element *parameter);

/* From one array of the parameter to another. */
void blocks_copy(const struct kernels *k, const struct model *model, uint32_t chunk,
                 const element *from, element *parameter);

/* Writes the chunk's block of `parameter` into blocks_bytes() bytes at `ret_bytes`: they are there
 * when the table's synchronize() has returned, and stay until then. */
void blocks_encode(const struct kernels *k, const struct model *model, uint32_t chunk,
                   enum codec codec, const float *parameter, void *ret_bytes);

/* Some weights of the host's memory that lie together, as a chunk's are written: `count` numbers. */
void blocks_encode_run(const struct kernels *k, enum codec codec, const float *run, size_t count,
                       void *ret_bytes);

#endif
