#include "worker/trace.h"

#include "common/file.h"
#include "common/files/json.h"
#include "common/scoped.h"
#include "worker/program/simulate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct trace {
    struct file_log file;
    struct buf lines; /* that are not written yet */
    uint64_t process;
    bool failed; /* to remember an event, since the last flush */
    bool over;   /* an error was told */
};

enum { LINES_BYTES_MAX = 1 << 26 };

/* ---- events ---- */

static bool is_send(enum act act)
{
    return act == ACT_SEND_F || act == ACT_SEND_E || act == ACT_SEND_B;
}

static bool is_wait(enum act act)
{
    return act == ACT_PULL || act == ACT_FREE || act == ACT_RECV_F || act == ACT_RECV_B;
}

/* NULL: the row says nothing. */
static const char *category_of(enum act act)
{
    static const struct simulate_cost any = {1, 1, 1};
    if (simulate_act(&any, act) > 0 || act == ACT_STEP)
        return "act";
    return is_send(act) ? "message" : is_wait(act) ? "wait" : NULL;
}

/* The beginning of an event; the caller puts the rest, and ends it. */
static struct json_writer begin(struct trace *trace, const char *name, const char *phase)
{
    struct json_writer writer = json_writer(&trace->lines);
    json_put_object(&writer);
    json_member_text(&writer, "name", name);
    json_member_text(&writer, "ph", phase);
    json_member_uint(&writer, "pid", trace->process);
    json_member_uint(&writer, "tid", 1);
    return writer;
}

static void end(struct trace *trace, struct json_writer *writer)
{
    json_put_end(writer);
    if (json_writer_finish(writer) != ERR_OK || buf_append(&trace->lines, ",\n", 2) != ERR_OK)
        trace->failed = true;
}

static double in_us(uint64_t ns)
{
    return (double)ns / 1000;
}

static void put_span(struct trace *trace, const struct ticket *ticket,
                     const struct program_row *row, const char *category, struct trace_span span)
{
    const struct act_facts *facts = act_facts(row->act);
    char name[64];
    if (facts->scope == ACT_OF_MICROBATCH)
        snprintf(name, sizeof name, "%s %u.%u", facts->name, row->unit, row->microbatch);
    else
        snprintf(name, sizeof name, "%s %u", facts->name, row->unit);
    struct json_writer writer = begin(trace, name, "X");
    json_member_text(&writer, "cat", category);
    json_member_real(&writer, "ts", in_us(span.begin_ns));
    json_member_real(&writer, "dur", in_us(span.end_ns - span.begin_ns));
    json_put_key(&writer, "args");
    json_put_object(&writer);
    json_member_uint(&writer, "step", ticket->step);
    json_member_uint(&writer, "slot", node_first(ticket->node));
    json_member_uint(&writer, "unit", row->unit);
    json_member_uint(&writer, "microbatch", row->microbatch);
    json_put_end(&writer);
    end(trace, &writer);
}

static bool is_backward(enum act act)
{
    return act == ACT_SEND_B || act == ACT_RECV_B;
}

/* The boundary below the unit, or above it: where its result goes, and that result's gradient comes
 * from. */
static uint32_t boundary_of(const struct program_row *row)
{
    bool above = row->act == ACT_SEND_F || row->act == ACT_SEND_E || row->act == ACT_RECV_B;
    return row->unit + (above ? 1 : 0);
}

/* An end of a value's arrow, inside the span of its row. */
static void put_arrow(struct trace *trace, const struct ticket *ticket,
                      const struct program_row *row, bool given, uint64_t ns)
{
    char id[128];
    snprintf(id, sizeof id, "%" PRIu64 ".%d.%" PRIu64 ".%u.%u.%u.%c", ticket->generation,
             (int)ticket->kind, ticket->step, node_first(ticket->node), row->microbatch,
             boundary_of(row), is_backward(row->act) ? 'B' : 'F');
    struct json_writer writer = begin(trace, "value", given ? "s" : "f");
    json_member_text(&writer, "cat", "message");
    json_member_text(&writer, "id", id);
    if (!given)
        json_member_text(&writer, "bp", "e");
    json_member_real(&writer, "ts", in_us(ns));
    end(trace, &writer);
}

void trace_row(struct trace *trace, const struct ticket *ticket, const struct program_row *row,
               struct trace_span span)
{
    const char *category = category_of(row->act);
    if (category == NULL || trace->failed || trace->over)
        return;
    put_span(trace, ticket, row, category, span);
    if (is_send(row->act))
        put_arrow(trace, ticket, row, true, span.begin_ns);
    else if (row->act == ACT_RECV_F || row->act == ACT_RECV_B)
        put_arrow(trace, ticket, row, false, span.end_ns);
}

/* ---- life ---- */

static void put_name(struct trace *trace, const char *name)
{
    struct json_writer writer = begin(trace, "process_name", "M");
    json_put_key(&writer, "args");
    json_put_object(&writer);
    json_member_text(&writer, "name", name);
    json_put_end(&writer);
    end(trace, &writer);
}

/* A worker that was killed while it wrote left a part of a line: the next one must not stand in
 * it. */
static enum err cut_torn_line(struct file_log *file, struct reason *reason)
{
    scoped(file_map_release) struct file_map map = {0};
    if (file->bytes == 0)
        return ERR_OK;
    TRY(file_map_open(file->path, &map, reason));
    size_t whole = map.bytes.bytes;
    while (whole > 0 && map.bytes.data[whole - 1] != '\n')
        whole--;
    return whole == file->bytes ? ERR_OK : file_log_truncate(file, whole, reason);
}

enum err trace_open(const char *path, const char *name, struct trace **ret_trace,
                    struct reason *reason)
{
    struct trace *trace = calloc(1, sizeof *trace);
    if (trace == NULL)
        return ERR_NOMEM;
    trace->lines.bytes_max = LINES_BYTES_MAX;
    trace->process = (uint64_t)getpid();
    enum err err = file_log_open(&file_ops_real, path, &trace->file, reason);
    if (err == ERR_OK)
        err = cut_torn_line(&trace->file, reason);
    if (err == ERR_OK && trace->file.bytes == 0)
        err = buf_append(&trace->lines, "[\n", 2);
    put_name(trace, name);
    if (err == ERR_OK)
        err = trace_flush(trace, reason);
    if (err != ERR_OK) {
        trace_free(trace);
        return err;
    }
    *ret_trace = trace;
    return ERR_OK;
}

void trace_free(struct trace *trace)
{
    if (trace == NULL)
        return;
    file_log_release(&trace->file);
    buf_release(&trace->lines);
    free(trace);
}

enum err trace_flush(struct trace *trace, struct reason *reason)
{
    enum err err = trace->failed ? ERR_NOMEM : ERR_OK;
    if (trace->over)
        return ERR_OK;
    if (err == ERR_OK && trace->lines.bytes > 0)
        err = file_log_append(&trace->file, buf_slice(&trace->lines), reason);
    trace->over = err != ERR_OK;
    trace->lines.bytes = 0;
    return err;
}
