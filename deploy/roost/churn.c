#include "deploy/roost/churn.h"

#include "common/elementary.h"
#include "common/scoped.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_BYTES = 64, TIME_MS_MAX_DAYS = 3660 };

static const uint64_t time_ms_max = (uint64_t)TIME_MS_MAX_DAYS * 86400 * 1000;

/* ---- both ---- */

static void note_change(struct churn *churn, uint32_t worker, bool comes)
{
    churn->up[worker] = comes;
    churn->up_count = comes ? churn->up_count + 1 : churn->up_count - 1;
    churn->up_most = churn->up_count > churn->up_most ? churn->up_count : churn->up_most;
}

/* ---- at a rate ---- */

/* Sets the moment of the next event: gaps of a Poisson process are exponential. */
static void draw_time(struct churn *churn)
{
    churn->drawn_ms -= elementary_log(1 - rand_unit(&churn->rand)) * 1000 / churn->settings.rate;
}

struct churn churn_at_rate(const struct churn_rate *settings)
{
    struct churn churn = {.settings = *settings, .rand = {settings->seed}};
    check(settings->rate > 0 && settings->workers > 0 && settings->workers <= CHURN_PROCESSES_MAX);
    for (uint32_t i = 0; i < settings->workers; i++)
        churn.up[i] = true;
    churn.up_count = churn.up_most = settings->workers;
    draw_time(&churn);
    return churn;
}

/* False: it would have been the loss of the last worker. */
static bool draw_event(struct churn *churn, struct churn_event *ret_event)
{
    const struct churn_rate *settings = &churn->settings;
    uint32_t one =
        (uint32_t)rand_below(&churn->rand, (uint64_t)settings->workers + settings->servers);
    *ret_event =
        (struct churn_event){(uint64_t)churn->drawn_ms, CHURN_SERVER_GOES, one - settings->workers};
    if (one >= settings->workers)
        return true;
    if (churn->up[one] && churn->up_count == 1)
        return false;
    note_change(churn, one, !churn->up[one]);
    ret_event->kind = churn->up[one] ? CHURN_WORKER_COMES : CHURN_WORKER_GOES;
    ret_event->number = one;
    return true;
}

/* ---- a trace ---- */

/* One line, taken apart in place. */
struct trace_row {
    uint64_t at_ms;
    bool comes;
    const char *node;
};

static enum err read_row(char *line, struct trace_row *ret_row)
{
    char *end, *what = strchr(line, ','), *node = what == NULL ? NULL : strchr(what + 1, ',');
    if (node == NULL || line[0] < '0' || line[0] > '9')
        return ERR_INVALID;
    *what++ = 0;
    *node++ = 0;
    unsigned long long at_ms = strtoull(line, &end, 10);
    bool comes = strcmp(what, "add") == 0;
    if (*end != 0 || at_ms > time_ms_max || (!comes && strcmp(what, "remove") != 0) ||
        node[0] == 0 || strchr(node, ',') != NULL || strlen(node) >= NODE_BYTES)
        return ERR_INVALID;
    *ret_row = (struct trace_row){at_ms, comes, node};
    return ERR_OK;
}

/* A trace being read. */
struct trace_reader {
    const char *name;
    double speed;
    struct churn *churn;
    size_t capacity;
    uint64_t at_ms; /* of the newest row */
    char nodes[CHURN_PROCESSES_MAX][NODE_BYTES];
};

/* The node's number; the next one when it is new. CHURN_PROCESSES_MAX: there are too many. */
static uint32_t node_number(struct trace_reader *reader, const char *node)
{
    struct churn *churn = reader->churn;
    for (uint32_t i = 0; i < churn->node_count; i++)
        if (strcmp(reader->nodes[i], node) == 0)
            return i;
    if (churn->node_count == CHURN_PROCESSES_MAX)
        return CHURN_PROCESSES_MAX;
    snprintf(reader->nodes[churn->node_count], NODE_BYTES, "%s", node);
    return churn->node_count++;
}

static enum err put_event(struct trace_reader *reader, const struct trace_row *row, uint32_t number)
{
    struct churn *churn = reader->churn;
    if (churn->event_count == reader->capacity) {
        reader->capacity = reader->capacity == 0 ? 64 : 2 * reader->capacity;
        struct churn_event *events =
            realloc(churn->events, reader->capacity * sizeof *churn->events);
        if (events == NULL)
            return ERR_NOMEM;
        churn->events = events;
    }
    churn->events[churn->event_count++] = (struct churn_event){
        .at_ms = (uint64_t)((double)row->at_ms / reader->speed),
        .kind = row->comes ? CHURN_WORKER_COMES : CHURN_WORKER_GOES,
        .number = number,
    };
    return ERR_OK;
}

static enum err take_line(struct trace_reader *reader, char *line, size_t number,
                          struct reason *reason)
{
    struct trace_row row;
    line[strcspn(line, "\r")] = 0;
    if (line[0] == 0 || line[0] == '#')
        return ERR_OK;
    if (read_row(line, &row) != ERR_OK)
        return reason_set(reason, ERR_INVALID,
                          "%s:%zu: a line must be `milliseconds,add|remove,node`", reader->name,
                          number);
    if (row.at_ms < reader->at_ms)
        return reason_set(reason, ERR_INVALID, "%s:%zu: %" PRIu64 " ms is before the line above it",
                          reader->name, number, row.at_ms);
    if (reader->churn->event_count == CHURN_EVENTS_MAX)
        return reason_set(reason, ERR_INVALID, "%s:%zu: more than %d events", reader->name, number,
                          CHURN_EVENTS_MAX);
    uint32_t node = node_number(reader, row.node);
    if (node == CHURN_PROCESSES_MAX)
        return reason_set(reason, ERR_INVALID, "%s:%zu: more than %d nodes", reader->name, number,
                          CHURN_PROCESSES_MAX);
    if (reader->churn->up[node] == row.comes)
        return reason_set(reason, ERR_INVALID, "%s:%zu: node %s is %s", reader->name, number,
                          row.node, row.comes ? "there already" : "not there");
    note_change(reader->churn, node, row.comes);
    reader->at_ms = row.at_ms;
    return put_event(reader, &row, node);
}

static enum err take_lines(struct trace_reader *reader, char *text, struct reason *reason)
{
    for (size_t number = 1; *text != 0; number++) {
        size_t bytes = strcspn(text, "\n");
        char *next = text + bytes + (text[bytes] == '\n');
        text[bytes] = 0;
        TRY(take_line(reader, text, number, reason));
        text = next;
    }
    if (reader->churn->event_count == 0)
        return reason_set(reason, ERR_INVALID, "%s: no node ever comes", reader->name);
    return ERR_OK;
}

enum err churn_of_trace(const char *name, struct slice text, double speed, struct churn *ret_churn,
                        struct reason *reason)
{
    struct churn churn = {0};
    struct trace_reader reader = {.name = name, .speed = speed, .churn = &churn};
    scoped(buf_release) struct buf copy = {0};
    check(speed > 0);
    if (memchr(text.data, 0, text.bytes) != NULL)
        return reason_set(reason, ERR_INVALID, "%s: not a text", name);
    TRY(buf_append(&copy, text.data, text.bytes));
    TRY(buf_append(&copy, "", 1));
    enum err err = take_lines(&reader, (char *)copy.data, reason);
    if (err != ERR_OK) {
        churn_release(&churn);
        return err;
    }
    *ret_churn = churn;
    return ERR_OK;
}

void churn_release(struct churn *churn)
{
    free(churn->events);
    *churn = (struct churn){0};
}

/* ---- what is due ---- */

bool churn_next(struct churn *churn, uint64_t now_ms, struct churn_event *ret_event)
{
    if (churn->events != NULL) {
        if (churn->event_next == churn->event_count ||
            churn->events[churn->event_next].at_ms > now_ms)
            return false;
        *ret_event = churn->events[churn->event_next++];
        return true;
    }
    bool drawn = false;
    while (!drawn && churn->drawn_ms <= (double)now_ms) {
        drawn = draw_event(churn, ret_event);
        draw_time(churn);
    }
    return drawn;
}
