/* A run's spec and samples from this machine's files, without a daemon that serves them. */
#ifndef ROOST_REFERENCE_LOCAL_H
#define ROOST_REFERENCE_LOCAL_H

#include "common/data/data.h"
#include "common/data/sampler.h"
#include "common/settings/spec.h"
#include "worker/executor.h"

/* The spec in a file; errors of file_read() and spec_parse(). */
enum err local_spec(const char *path, const struct config_overrides *overrides,
                    struct spec *ret_spec, struct reason *reason) MUST_USE;

/* Plain data behind executor_samples. */
struct reference_local {
    const struct data *data;
    struct sampler sampler;
    uint32_t sample_tokens; /* 0: points */
    struct reason failure;  /* of the last read that failed */
};

/* `local` and `data` are borrowed as long as the result is used. */
struct executor_samples local_samples(struct reference_local *local, const struct spec *spec,
                                      const struct data *data);

#endif
