/* The arguments that several commands take, parsed alike. Wrong usage is said on stderr and ends
 * the process with EXIT_USAGE; --help ends it with 0. */
#ifndef ROOST_DEPLOY_ROOST_ARGUMENTS_H
#define ROOST_DEPLOY_ROOST_ARGUMENTS_H

#include "deploy/roost/client.h"

#include <argp.h>

/* What a command takes. */
struct arguments_about {
    const char *summary;    /* for --help */
    const char *subject;    /* the one argument, like "DIR", which must be there; NULL: none */
    const char *second;     /* another behind it; NULL: none */
    const char *hint;       /* where a SUBJECT that is missing is found; NULL: nothing to say */
    bool cluster;           /* --cluster, --certs, --insecure */
    bool json;              /* --json */
    const struct argp *own; /* options of its own; NULL: none */
    void *own_input;
};

struct arguments {
    struct client_options client;
    const char *subject;
    const char *second;
    bool json;
};

void arguments_parse(const struct arguments_about *about, int argc, char **argv,
                     struct arguments *ret_arguments);

/* An option's value from 1 to `max`; `what` names the option in the sentence that says it is not.
 */
uint32_t arguments_count(const char *value, const char *what, uint32_t max,
                         const struct argp_state *state);
/* The same of a number above 0, and of any integer from 0 on. */
double arguments_positive(const char *value, const char *what, uint32_t max,
                          const struct argp_state *state);
uint64_t arguments_integer(const char *value, const char *what, const struct argp_state *state);

#endif
