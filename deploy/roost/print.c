#include "deploy/roost/print.h"

void print_uint(struct json_writer *writer, const char *key, uint64_t value)
{
    json_put_key(writer, key);
    json_put_uint(writer, value);
}

void print_real(struct json_writer *writer, const char *key, double value)
{
    json_put_key(writer, key);
    json_put_real(writer, value);
}

void print_text(struct json_writer *writer, const char *key, const char *value)
{
    json_put_key(writer, key);
    json_put_text(writer, value);
}

void print_bool(struct json_writer *writer, const char *key, bool value)
{
    json_put_key(writer, key);
    json_put_bool(writer, value);
}

void print_array(struct json_writer *writer, const char *key)
{
    json_put_key(writer, key);
    json_put_array(writer);
}

void print_moves(struct json_writer *writer, const struct move_status *moves)
{
    json_put_key(writer, "moves");
    json_put_object(writer);
    print_uint(writer, "chunks", moves->chunks);
    print_uint(writer, "bytes", moves->bytes);
    print_uint(writer, "commits", moves->commits);
    print_real(writer, "gap_ms_max", moves->gap_ms_max);
    print_real(writer, "step_ms", moves->step_ms);
    print_uint(writer, "servers_added", moves->servers_added);
    print_uint(writer, "servers_drained", moves->servers_drained);
    json_put_end(writer);
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
