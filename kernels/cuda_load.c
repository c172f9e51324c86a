#include "kernels/cuda.h"

#include <dlfcn.h>
#include <glob.h>
#include <string.h>

/* The module needs cuBLASLt and what that needs. */
enum { LIBRARIES_MAX = 4, PATH_BYTES = 4096 };

#define MODULE "libroost-cuda.so"

/* -- libraries that the linker does not find --------------------------------------------------- */

/* The first file of the pattern that can be loaded. It stays: what needs it by its name gets it. */
static bool load_first(const char *pattern)
{
    glob_t found = {0};
    bool loaded = false;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !loaded; i++)
            loaded = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL) != NULL;
    globfree(&found);
    return loaded;
}

/* CUDA's toolkit, wherever its version is. */
static bool load_from_toolkit(const char *name)
{
    static const char *const folders[] = {"lib64", "lib", "targets/*/lib"};
    char pattern[PATH_BYTES];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(pattern, sizeof pattern, "/usr/local/cuda*/%s/%s", folders[i], name);
        if (load_first(pattern))
            return true;
    }
    return false;
}

/* Python's NVIDIA packages, of any python3 that has its programs in a folder of `path`:
 * /usr/bin, /usr/local/bin, ~/.local/bin, and a virtual environment's bin. */
static bool load_from_python(const char *name, const char *path)
{
    char pattern[PATH_BYTES];
    while (path != NULL && *path != 0) {
        int bytes = (int)strcspn(path, ":");
        snprintf(pattern, sizeof pattern, "%.*s/../lib/python3*/*-packages/nvidia/*/lib/%s", bytes,
                 path, name);
        if (bytes > 0 && load_first(pattern))
            return true;
        path += bytes + (path[bytes] == ':');
    }
    return false;
}

/* What the linker says of a library that another one needs begins with its name. */
static bool load_missing(const char *said, const char *python_path)
{
    char name[64];
    size_t bytes = strcspn(said, ":");
    if (bytes >= sizeof name || memchr(said, '/', bytes) != NULL)
        return false;
    memcpy(name, said, bytes);
    name[bytes] = 0;
    return strcmp(name, MODULE) != 0 &&
           (load_from_toolkit(name) || load_from_python(name, python_path));
}

static void *open_module(const char *python_path, char *reason, size_t reason_bytes)
{
    void *module = dlopen(MODULE, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; module == NULL; i++) {
        snprintf(reason, reason_bytes, "no CUDA module: %s", dlerror());
        if (i == LIBRARIES_MAX || !load_missing(strchr(reason, ':') + 2, python_path))
            return NULL;
        module = dlopen(MODULE, RTLD_NOW | RTLD_LOCAL);
    }
    return module;
}

/* -- the module -------------------------------------------------------------------------------- */

bool cuda_load(const struct kernels_options *options, const struct kernels **ret_kernels,
               char *reason, size_t reason_bytes)
{
    void *module = open_module(options->python_path, reason, reason_bytes);
    if (!module)
        return false;
    void *symbol = dlsym(module, CUDA_ENTRY);
    if (!symbol) {
        snprintf(reason, reason_bytes, MODULE " has no %s", CUDA_ENTRY);
        return false;
    }
    cuda_entry *entry;
    memcpy(&entry, &symbol, sizeof entry);
    return entry(options, ret_kernels, reason, reason_bytes);
}
