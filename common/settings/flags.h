/* argp, with a guess for a flag that is a slip of the finger away from a known one. */
#ifndef ROOST_COMMON_SETTINGS_FLAGS_H
#define ROOST_COMMON_SETTINGS_FLAGS_H

#include <argp.h>

/* Ends the process with argp_err_exit_status where the command line is wrong, with 0 after
 * --help. */
void flags_parse(const struct argp *argp, int argc, char **argv, void *input);

#endif
