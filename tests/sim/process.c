#include "tests/sim/process.h"

#include "tests/sim/sim.h"

#include <string.h>

enum { CLOCK_DAYS_MAX = 30 };

void process_init(struct sim *sim, struct process *process)
{
    *process = (struct process){.clock_us =
                                    sim_below(sim, (uint64_t)CLOCK_DAYS_MAX * 24 * 3600 * 1000000)};
}

void process_kill(struct process *process)
{
    for (size_t i = 0; i < process->backlog_count; i++)
        message_unref(process->backlog[i].message);
    process->backlog_count = 0;
    process->stopped = false;
    process->stops++;
}

void process_release(struct process *process)
{
    process_kill(process);
    free(process->backlog);
    process->backlog = NULL;
}

uint64_t process_now_ms(const struct sim *sim, const struct process *process)
{
    return (sim->now_us + process->clock_us) / 1000;
}

struct process *process_of(struct sim *sim, struct machine place)
{
    switch (place.kind) {
    case MACHINE_WORKER:
        return &sim->workers[place.index].process;
    case MACHINE_SERVER:
        return &sim->servers[place.index].process;
    case MACHINE_COORDINATOR:
        return &sim->coordinators[place.index].process;
    }
    check_unreachable("a place");
}

struct life *process_life(struct sim *sim, struct machine place)
{
    return place.kind == MACHINE_SERVER        ? sim->servers[place.index].life
           : place.kind == MACHINE_COORDINATOR ? sim->coordinators[place.index].life
                                               : sim->workers[place.index].life;
}

void process_print(struct machine place, char *ret_name, size_t bytes)
{
    static const char letters[] = {'w', 's', 'c'};
    snprintf(ret_name, bytes, "%c%u", letters[place.kind], place.index);
}

/* ---- stop and resume ---- */

bool process_stop(struct sim *sim, struct machine place, uint64_t until_us)
{
    struct process *process = process_of(sim, place);
    char name[16];
    if (process->stopped)
        return false;
    process_print(place, name, sizeof name);
    sim_trace(sim, "%s is stopped until %.3f s", name, (double)until_us / 1e6);
    process->stopped = true;
    process->stops++;
    queue_put(&sim->queue, (struct event){.at_us = until_us,
                                          .kind = EVENT_PROCESS_RESUME,
                                          .index = place.index,
                                          .number = process->stops,
                                          .detail = place.kind});
    return true;
}

void process_resume(struct sim *sim, const struct event *event)
{
    struct machine place = {(enum machine_kind)event->detail, event->index};
    struct process *process = process_of(sim, place);
    char name[16];
    if (!process->stopped || event->number != process->stops)
        return;
    process_print(place, name, sizeof name);
    sim_trace(sim, "%s goes on", name);
    size_t count = process->backlog_count;
    struct event *backlog = process->backlog;
    process->backlog = NULL;
    process->backlog_count = process->backlog_capacity = 0;
    process->stopped = false;
    for (size_t i = 0; i < count; i++) {
        bool arrived = backlog[i].kind == EVENT_STREAM_DATA || backlog[i].kind == EVENT_STREAM_END;
        backlog[i].at_us = arrived ? 0 : sim->now_us; /* it had arrived before anything broke */
        sim_dispatch(sim, &backlog[i]);
        message_unref(backlog[i].message);
    }
    free(backlog);
}

/* The end of a stream that the event arrives at. */
static bool stream_place(struct sim *sim, const struct event *event, struct machine *ret_place)
{
    const struct stream *stream = network_stream(sim, event->number);
    *ret_place = network_end(stream, (enum end)event->index);
    return !stream->closed[event->index];
}

/* False: it happens to no process. */
static bool event_place(struct sim *sim, const struct event *event, struct machine *ret_place)
{
    switch (event->kind) {
    case EVENT_STREAM_DATA:
    case EVENT_STREAM_END:
        return stream_place(sim, event, ret_place);
    case EVENT_STREAM_SENT:
    case EVENT_STREAM_CANCELLED:
        *ret_place = network_end(network_stream(sim, event->number), (enum end)event->index);
        return true;
    case EVENT_THREAD:
    case EVENT_PROCESS_EXIT:
        *ret_place = life_event_place(event);
        return true;
    case EVENT_RPC_REQUEST:
    case EVENT_RPC_ANSWER:
        *ret_place = rpc_event_place(sim, event);
        return true;
    default:
        return false;
    }
}

static void keep(struct process *process, struct event *event)
{
    if (process->backlog_count == process->backlog_capacity) {
        process->backlog_capacity =
            process->backlog_capacity == 0 ? 32 : 2 * process->backlog_capacity;
        process->backlog =
            realloc(process->backlog, process->backlog_capacity * sizeof *process->backlog);
        check(process->backlog != NULL);
    }
    process->backlog[process->backlog_count++] = *event;
    event->message = NULL;
}

bool process_keeps(struct sim *sim, struct event *event)
{
    struct machine place;
    if (!event_place(sim, event, &place))
        return false;
    struct process *process = process_of(sim, place);
    if (!process->stopped)
        return false;
    keep(process, event);
    return true;
}
