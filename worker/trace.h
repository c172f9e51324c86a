/* What one worker did when, as the trace events that Perfetto and chrome://tracing read: a file
 * that grows by a line of JSON for each act that computes, each wait for weights or for a value of
 * another place, and each value that is given or came. Lines end with a comma, which a reader of a
 * file without an end allows; `roost up --trace-out` puts the files of all workers together.
 *
 * A value has the same id where it is given and where it came: Perfetto draws an arrow. Times are
 * this machine's monotonic clock: workers of one machine are comparable. One thread. */
#ifndef ROOST_WORKER_TRACE_H
#define ROOST_WORKER_TRACE_H

#include "common/program/program.h"
#include "proto/wire.h"

struct trace;

/* `name`: what the worker is called. ERR_IO, ERR_NOMEM. */
enum err trace_open(const char *path, const char *name, struct trace **ret_trace,
                    struct reason *reason) MUST_USE;
void trace_free(struct trace *trace); /* NULL is fine */

struct trace_span {
    uint64_t begin_ns, end_ns;
};
/* A row of the ticket's program; most rows say nothing. */
void trace_row(struct trace *trace, const struct ticket *ticket, const struct program_row *row,
               struct trace_span span);
/* Writes what is not written: at a ticket's end. After an error, which is told once, nothing is
 * traced any more. */
enum err trace_flush(struct trace *trace, struct reason *reason) MUST_USE;

#endif
