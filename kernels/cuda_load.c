#include "kernels/cuda.h"

#include <dlfcn.h>
#include <string.h>

bool cuda_load(const struct kernels_options *options, const struct kernels **ret_kernels,
               char *reason, size_t reason_bytes)
{
    void *module = dlopen("libroost-cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        snprintf(reason, reason_bytes, "no CUDA module: %s", dlerror());
        return false;
    }
    void *symbol = dlsym(module, CUDA_ENTRY);
    if (!symbol) {
        snprintf(reason, reason_bytes, "libroost-cuda.so has no %s", CUDA_ENTRY);
        return false;
    }
    cuda_entry *entry;
    memcpy(&entry, &symbol, sizeof entry);
    return entry(options, ret_kernels, reason, reason_bytes);
}
