/* The CUDA backend lives in a module of its own, libroost-cuda.so, so that one package serves
 * machines with and without a GPU: this loads it and asks it for its table. */
#ifndef ROOST_KERNELS_CUDA_H
#define ROOST_KERNELS_CUDA_H

#include "kernels/kernels.h"

/* The module's one exported function; same contract as kernels_new(). */
#define CUDA_ENTRY "roost_cuda_kernels"
typedef bool cuda_entry(const struct kernels_options *options, const struct kernels **ret_kernels,
                        char *reason, size_t reason_bytes);

/* Finds the module on the library path (or beside the binary, by its run path), and the libraries
 * that it needs there, in CUDA's toolkit or among Python's NVIDIA packages. All of it stays loaded.
 * False: `reason` names what is missing: the module, a device, or a feature of the device. */
bool cuda_load(const struct kernels_options *options, const struct kernels **ret_kernels,
               char *reason, size_t reason_bytes) MUST_USE;

#endif
