/* What several commands print alike: members of a JSON object, the names of a run's states. */
#ifndef ROOST_DEPLOY_ROOST_PRINT_H
#define ROOST_DEPLOY_ROOST_PRINT_H

#include "common/files/json.h"
#include "proto/wire.h"

#include <stdio.h>

/* Begins an array; json_put_end() ends it. */
void print_array(struct json_writer *writer, const char *key);
/* Member "moves": chunks that changed their server, and the longest step meanwhile. */
void print_moves(struct json_writer *writer, const struct move_status *moves);
void print_audits(struct json_writer *writer, const struct audit_status *audits);
/* The same as a line for people, which begins with `head`; nothing where no ticket is audited. */
void print_audits_line(const char *head, const struct audit_status *audits);
/* The finished object as one line on stdout. */
void print_json(struct json_writer *writer);

/* As a shell reads it back: plain where it can be, else in quotes. */
void print_quoted(FILE *out, const char *text);

const char *print_state(enum run_state state); /* "training" */

#endif
