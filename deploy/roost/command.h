/* The operator's commands: one row each in roost.c's table. */
#ifndef ROOST_DEPLOY_ROOST_COMMAND_H
#define ROOST_DEPLOY_ROOST_COMMAND_H

#include "common/err.h"

/* A command gets its own arguments (argv[0] is "roost NAME") and prints its results on stdout;
 * everything else goes to stderr. Returns the process's exit code. */
typedef int command_fn(int argc, char **argv);

command_fn command_up;
command_fn command_run;
command_fn command_watch;
command_fn command_status;
command_fn command_stop;
command_fn command_checkpoint;
command_fn command_replay;
command_fn command_program;
command_fn command_drain;
command_fn command_sample;
command_fn command_digest;
command_fn command_ledger;
command_fn command_export;
command_fn command_restore;
command_fn command_cert;

/* Prints "roost: text: reason" and returns the exit code that belongs to the error. */
int command_fail(enum err err, const struct reason *reason);

#endif
