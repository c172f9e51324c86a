/* The flags of churn on demand, and what they come to. */
#ifndef ROOST_DEPLOY_ROOST_CHURN_OPTIONS_H
#define ROOST_DEPLOY_ROOST_CHURN_OPTIONS_H

#include "deploy/roost/churn.h"

#include <argp.h>

struct churn_options {
    double rate; /* 0: none */
    bool servers;
    uint64_t seed;
    const char *trace; /* NULL: none */
    double speed;
};

/* --churn, --churn-servers, --churn-seed, --trace, --speed; `input` is a struct churn_options,
 * {.speed = 1}. */
extern const struct argp churn_argp;

/* The churn that is wanted; `options` asks for some. Errors of churn_of_trace() and file_read(). */
enum err churn_open(const struct churn_options *options, uint32_t workers, uint32_t servers,
                    struct churn *ret_churn, struct reason *reason) MUST_USE;

static inline bool churn_is_wanted(const struct churn_options *options)
{
    return options->rate > 0 || options->trace != NULL;
}

#endif
