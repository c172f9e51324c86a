/* What workers that were killed leave of their traces, put together. */
#include "deploy/roost/traces.h"

#include "common/file.h"
#include "common/files/json.h"
#include "tests/unit/folder.h"
#include "worker/trace.h"

enum { FILE_BYTES_MAX = 1 << 16 };

/* Its start is an event. */
static void start_worker(void **state, const char *name)
{
    struct trace *trace;
    assert_int_equal(trace_open(folder_path(state, name), name, &trace, NULL), ERR_OK);
    assert_int_equal(trace_flush(trace, NULL), ERR_OK);
    trace_free(trace);
}

static void leave(void **state, const char *name, const char *text)
{
    FILE *file = fopen(folder_path(state, name), "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_events(void **state, size_t wanted)
{
    scoped(buf_release) struct buf text = {0};
    scoped(json_free_scoped) struct json *json = NULL;
    const struct json *events;
    const char *whole = folder_path(state, "whole.json");
    struct reason reason = {0};
    assert_int_equal(traces_join(folder_path(state, "traces"), whole, &reason), ERR_OK);
    assert_int_equal(file_read(whole, FILE_BYTES_MAX, &text, NULL), ERR_OK);
    if (json_parse("whole", buf_slice(&text), &json, &reason) != ERR_OK)
        fail_msg("%s\n%.*s", reason.text, (int)text.bytes, (const char *)text.data);
    assert_int_equal(json_get_array(json, "traceEvents", &events, NULL), ERR_OK);
    assert_int_equal(json_count(events), wanted);
}

TEST_IN_FOLDER(a_line_that_a_killed_worker_left_unfinished_is_left_out)
{
    assert_int_equal(file_make_dirs(folder_path(state, "traces"), 0755, NULL), ERR_OK);
    start_worker(state, "traces/worker-a.trace.json");
    leave(state, "traces/worker-a.trace.json", "{\"name\":\"F 0.1\",\"ph\":\"X");
    start_worker(state, "traces/worker-b.trace.json");
    leave(state, "traces/worker-b.trace.json", "{");
    leave(state, "traces/worker-c.trace.json", "[");
    leave(state, "traces/worker-d.trace.json", "");
    leave(state, "traces/worker.json", "[\nnot a worker's,\n");
    assert_events(state, 2);
    for (int i = 0; i < 2; i++)
        start_worker(state, "traces/worker-a.trace.json"); /* again */
    start_worker(state, "traces/worker-c.trace.json");
    assert_events(state, 5);
}
