/* A short training run in this process: spec, data and reference, on a CPU or on another backend.
 */
#ifndef ROOST_TESTS_PARITY_TRAIN_H
#define ROOST_TESTS_PARITY_TRAIN_H

#include "tests/unit/unit.h"

#include "common/data/run_data.h"
#include "reference/local.h"
#include "reference/reference.h"

struct run {
    struct spec spec;
    const struct kernels *kernels;  /* of the CPU */
    const struct kernels *computes; /* the executor's */
    struct model model;
    struct data *data;
    struct reference_local local;
    struct executor_samples samples;
    struct reference *reference;
};

static inline void must(enum err err, const struct reason *reason)
{
    if (err != ERR_OK)
        fail_msg("%s: %s", err_name(err), reason->text);
}

/* On a CPU always in fp32: it is what the others are compared with, and the shard's. */
static inline const struct kernels *open_kernels(enum kernels_backend backend,
                                                 const struct spec *spec)
{
    struct kernels_options options = {.backend = backend, .gemm_core = spec->train.gemm_core};
    if (backend == KERNELS_CUDA)
        options.compute = (enum kernels_compute)spec->train.compute;
    const struct kernels *kernels = NULL;
    char reason[256];
    if (!kernels_new(&options, &kernels, reason, sizeof reason))
        fail_msg("%s", reason);
    return kernels;
}

/* The spec at `spec_path` with `sets` of the form key=value. Files are found from the repository's
 * root. run_end() */
static inline void run_begin(struct run *run, enum kernels_backend backend, const char *spec_path,
                             const char *const *sets, size_t sets_count)
{
    struct reason reason = {.text = ""};
    const struct config_overrides overrides = {.flags = sets, .flags_count = sets_count};
    must(local_spec(spec_path, &overrides, &run->spec, &reason), &reason);
    run->kernels = open_kernels(KERNELS_CPU, &run->spec);
    run->computes = backend == KERNELS_CPU ? run->kernels : open_kernels(KERNELS_CUDA, &run->spec);
    must(model_init(&run->model, &run->spec.model, &reason), &reason);
    must(run_data_open(&run->spec, NULL, &run->data, &reason), &reason);
    run->samples = local_samples(&run->local, &run->spec, run->data);
    const struct reference_options reference = {.spec = &run->spec,
                                                .model = &run->model,
                                                .kernels = run->kernels,
                                                .executor_kernels = run->computes,
                                                .samples = &run->samples};
    must(reference_new(&reference, &run->reference, &reason), &reason);
}

static inline void run_end(struct run *run)
{
    reference_free(run->reference);
    data_free(run->data);
    model_release(&run->model);
    if (run->computes != run->kernels)
        kernels_free(run->computes);
    kernels_free(run->kernels);
}

#endif
