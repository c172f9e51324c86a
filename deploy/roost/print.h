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
/* Members "peer_bytes", "idle_share" (null: not known) and "peak_bytes": what places cost; with the
 * most that a worker process had in memory (0: not known). */
void print_costs(struct json_writer *writer, const struct status_reply *status,
                 uint64_t resident_bytes);
/* Payloads between places. */
uint64_t print_peer_bytes(const struct status_reply *status);
/* The share of all places' time, from a lease's first act to its last, in which they compute
 * nothing. A lease's time is taken to be that of the place which computes the longest: with each of
 * our schedules a place has both acts, so no two clocks are compared. NAN: not known. */
double print_idle_share(const struct status_reply *status);
/* A number of a run with so many digits behind the point; it may have grown beyond all of them. */
struct print_number {
    char text[48];
};
struct print_number print_number(double value, int digits);
/* The finished object as one line on stdout. */
void print_json(struct json_writer *writer);

/* As a shell reads it back: plain where it can be, else in quotes. */
void print_quoted(FILE *out, const char *text);

const char *print_state(enum run_state state); /* "training" */

#endif
