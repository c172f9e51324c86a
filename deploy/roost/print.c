#include "deploy/roost/print.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void print_array(struct json_writer *writer, const char *key)
{
    json_put_key(writer, key);
    json_put_array(writer);
}

void print_moves(struct json_writer *writer, const struct move_status *moves)
{
    json_put_key(writer, "moves");
    json_put_object(writer);
    json_member_uint(writer, "chunks", moves->chunks);
    json_member_uint(writer, "bytes", moves->bytes);
    json_member_uint(writer, "commits", moves->commits);
    json_member_real(writer, "gap_ms_max", moves->gap_ms_max);
    json_member_real(writer, "step_ms", moves->step_ms);
    json_member_uint(writer, "servers_added", moves->servers_added);
    json_member_uint(writer, "servers_drained", moves->servers_drained);
    json_put_end(writer);
}

static void put_each(struct json_writer *writer, const char *key, const struct status_reply *status,
                     size_t offset)
{
    print_array(writer, key);
    for (uint32_t i = 0; i < status->cost_count; i++)
        json_put_uint(writer, *(const uint64_t *)((const char *)&status->costs[i] + offset));
    json_put_end(writer);
}

uint64_t print_peer_bytes(const struct status_reply *status)
{
    uint64_t peer_bytes = 0;
    for (uint32_t i = 0; i < status->cost_count; i++)
        peer_bytes += status->costs[i].peer_bytes;
    return peer_bytes;
}

void print_costs(struct json_writer *writer, const struct status_reply *status,
                 uint64_t resident_bytes)
{
    json_member_uint(writer, "peer_bytes", print_peer_bytes(status));
    json_member_uint(writer, "validation_peer_bytes", status->validation_peer_bytes);
    json_member_real(writer, "idle_share", print_idle_share(status));
    json_put_key(writer, "peak_bytes");
    json_put_object(writer);
    put_each(writer, "device", status, offsetof(struct place_cost, device_bytes));
    put_each(writer, "weights", status, offsetof(struct place_cost, weights_bytes));
    put_each(writer, "host", status, offsetof(struct place_cost, host_bytes));
    if (resident_bytes > 0)
        json_member_uint(writer, "resident", resident_bytes);
    json_put_end(writer);
}

double print_idle_share(const struct status_reply *status)
{
    double busy_ns = 0, span_ns = 0;
    for (uint32_t i = 0; i < status->cost_count; i++) {
        const struct place_cost *cost = &status->costs[i];
        busy_ns += (double)cost->busy_ns;
        span_ns = (double)cost->span_ns > span_ns ? (double)cost->span_ns : span_ns;
    }
    return span_ns > 0 ? 1 - busy_ns / (span_ns * status->cost_count) : (double)NAN;
}

struct print_number print_number(double value, int digits)
{
    struct print_number number = {"not finite"};
    if (isfinite(value))
        snprintf(number.text, sizeof number.text, "%.*f", digits, value);
    return number;
}

void print_json(struct json_writer *writer)
{
    if (json_writer_finish(writer) == ERR_OK)
        printf("%.*s\n", (int)writer->out->bytes, (const char *)writer->out->data);
}

const char *print_state(enum run_state state)
{
    static const char *const names[RUN_STATE_COUNT] = {"none",  "starting", "training",
                                                       "ended", "stopped",  "failed"};
    return names[state];
}

void print_audits(struct json_writer *writer, const struct audit_status *audits)
{
    json_put_key(writer, "audits");
    json_put_object(writer);
    json_member_real(writer, "share", audits->share);
    json_member_uint(writer, "chosen", audits->chosen);
    json_member_uint(writer, "agreed", audits->agreed);
    json_member_uint(writer, "differed", audits->differed);
    json_member_uint(writer, "not_compared", audits->not_compared);
    json_member_uint(writer, "pushes", audits->pushes);
    json_member_real(writer, "tickets_to_name", audits->tickets_to_name);
    json_member_real(writer, "steps_to_name", audits->steps_to_name);
    json_put_end(writer);
}

void print_audits_line(const char *head, const struct audit_status *audits)
{
    if (audits->share == 0)
        return;
    printf("%s%" PRIu64 " ticket%s: %" PRIu64 " agreed, %" PRIu64 " differed, %" PRIu64
           " not compared, %" PRIu64 " push%s\n",
           head, audits->chosen, plural(audits->chosen), audits->agreed, audits->differed,
           audits->not_compared, audits->pushes, audits->pushes == 1 ? "" : "es");
    if (audits->tickets_to_name == 0) {
        printf("%*saudits name nobody: it takes two opinions besides a suspect's own, and the "
               "workers have fewer\n",
               (int)strlen(head), "");
        return;
    }
    printf("%*swrong in 1 of 100: named after about %.0f of its tickets", (int)strlen(head), "",
           audits->tickets_to_name);
    if (audits->steps_to_name > 0)
        printf(", %.0f steps", audits->steps_to_name);
    printf("\n");
}

void print_quoted(FILE *out, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    if (text[0] != 0 && text[strspn(text, plain)] == 0) {
        fputs(text, out);
        return;
    }
    fputc('\'', out);
    for (; *text != 0; text++)
        fputs(*text == '\'' ? "'\\''" : (const char[]){*text, 0}, out);
    fputc('\'', out);
}
