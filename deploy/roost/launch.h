/* What a run is started with: the spec, judged here with file and line, and the data set's facts.
 */
#ifndef ROOST_DEPLOY_ROOST_LAUNCH_H
#define ROOST_DEPLOY_ROOST_LAUNCH_H

#include "common/settings/flags.h"
#include "proto/wire.h"

struct launch_options {
    const char *spec_path;
    struct flags_sets sets;
    bool resume;
    const char *restore; /* safetensors file; NULL: none */
    bool json;
    /* Set by the command: the run is on other machines, which read their own copy of the data where
     * here is none, and the weights. */
    bool elsewhere;
};

/* SPEC, --set, --resume, --from, --json; `input` is a struct launch_options. */
extern const struct argp launch_argp;

struct launch {
    struct spec spec;
    struct buf spec_text; /* effective YAML */
    uint8_t data_digest[WIRE_DIGEST_BYTES];
    uint64_t samples, validation_samples; /* 0: the data set is elsewhere */
    double unigram_entropy;               /* text only; else 0 */
    char *restore;                        /* absolute; NULL: none */
};

/* Reads and judges the spec, opens the data set once for its digest and counts. ERR_INVALID: the
 * spec, or it is not there, or a file of data or weights is broken; ERR_DATA_SET: the data set is
 * not there. */
enum err launch_read(const struct launch_options *options, struct launch *ret_launch,
                     struct reason *reason) MUST_USE;
void launch_release(struct launch *launch);

/* The request; `directory` is the run's, as the coordinator's daemon sees it. Borrows both. */
struct start_run_request launch_request(const struct launch *launch,
                                        const struct launch_options *options, const char *directory,
                                        uint32_t servers);

#endif
