/* The CUDA backend lives in a module of its own, libroost-cuda.so, so that one package serves
 * machines with and without a GPU: this loads it and asks it for its table. */
#ifndef ROOST_KERNELS_CUDA_H
#define ROOST_KERNELS_CUDA_H

#include "kernels/kernels.h"

/* The module's one exported function; same contract as kernels_new(). */
#define CUDA_ENTRY "roost_cuda_kernels"
typedef bool cuda_entry(const struct kernels_options *options, const struct kernels **ret_kernels,
                        char *reason, size_t reason_bytes);

/* Beside it, for tests: captures what `work` gives the table, on this thread, as a CUDA graph, and
 * computes that. Nothing in it may wait or allocate. NULL, or the sentence that says what it did.
 */
#define CUDA_CAPTURE "roost_cuda_capture"
typedef const char *cuda_capture(const struct kernels *k, void (*work)(void *context),
                                 void *context);

/* Finds the module on the library path (or beside the binary, by its run path). It stays loaded.
 * False: `reason` says whether the module, a device or something of it is missing. */
bool cuda_load(const struct kernels_options *options, const struct kernels **ret_kernels,
               char *reason, size_t reason_bytes) MUST_USE;

#endif
