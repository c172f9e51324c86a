#include "tests/sim/network.h"

#include "tests/sim/sim.h"

enum { KEEPALIVE_US = 20 * 1000 * 1000 };

void network_release(struct network *network)
{
    for (size_t i = 0; i < network->stream_count; i++) {
        watch_release_stream(network->streams[i]);
        free(network->streams[i]);
    }
    free(network->streams);
}

static uint64_t usual_us(struct sim *sim)
{
    const struct scenario *scenario = &sim->scenario;
    uint64_t delay_us = 1 + scenario->delay_us / 2 + sim_below(sim, scenario->delay_us + 1);
    if (!sim->calm && sim_below(sim, 1000) < scenario->late_permille) {
        sim_fault(sim, FAULT_LATE_MESSAGE);
        delay_us += sim_below(sim, scenario->late_us_max + 1);
    }
    return delay_us;
}

uint64_t network_delay_us(struct sim *sim, struct machine from, struct machine to)
{
    uint64_t held_us = faults_held_us(sim, from, to);
    return usual_us(sim) + (held_us > sim->now_us ? held_us - sim->now_us : 0);
}

struct machine network_end(const struct stream *stream, enum end end)
{
    if (end == OPENER)
        return stream->kind == STREAM_LINK ? (struct machine){MACHINE_SERVER, stream->server}
                                           : (struct machine){MACHINE_WORKER, stream->worker};
    return stream->kind == STREAM_EXCHANGE ? (struct machine){MACHINE_SERVER, stream->server}
           : stream->kind == STREAM_PEER   ? (struct machine){MACHINE_WORKER, stream->peer}
                                           : (struct machine){MACHINE_COORDINATOR, stream->office};
}

void *network_add(void ***items, size_t *count, size_t *capacity, size_t bytes)
{
    if (*count == *capacity) {
        *capacity = *capacity == 0 ? 64 : 2 * *capacity;
        *items = realloc(*items, *capacity * sizeof **items);
        check(*items != NULL);
    }
    void *item = calloc(1, bytes);
    check(item != NULL);
    (*items)[(*count)++] = item;
    return item;
}

/* ---- streams ---- */

struct stream *network_open(struct sim *sim, struct stream what)
{
    struct network *network = &sim->network;
    struct stream *stream = network_add((void ***)&network->streams, &network->stream_count,
                                        &network->stream_capacity, sizeof *stream);
    *stream = what;
    stream->number = network->stream_count;
    stream->cut_us[OPENER] = stream->cut_us[ACCEPTOR] = UINT64_MAX;
    return stream;
}

struct stream *network_stream(struct sim *sim, uint64_t number)
{
    check(number > 0 && number <= sim->network.stream_count);
    return sim->network.streams[number - 1];
}

/* A stream's first message may meet everything on its way; but the transport closes a stream whose
 * messages are not acknowledged for longer than a keepalive. */
static uint64_t greeting_us(struct sim *sim)
{
    uint64_t late_us = usual_us(sim);
    late_us *= sim_below(sim, 64);
    return late_us < KEEPALIVE_US ? late_us : KEEPALIVE_US;
}

void network_send(struct sim *sim, struct stream *stream, enum end to, struct message *take_message)
{
    enum end from = to == OPENER ? ACCEPTOR : OPENER;
    uint64_t at_us =
        sim->now_us + network_delay_us(sim, network_end(stream, from), network_end(stream, to));
    if (stream->last_us[to] == 0 && sim_below(sim, 8) == 0)
        at_us += greeting_us(sim);
    if (at_us < stream->last_us[to])
        at_us = stream->last_us[to];
    stream->last_us[to] = at_us;
    if (at_us > stream->cut_us[to]) {
        message_unref(take_message);
        return;
    }
    queue_put(&sim->queue, (struct event){.at_us = at_us,
                                          .kind = EVENT_STREAM_DATA,
                                          .index = to,
                                          .number = stream->number,
                                          .message = take_message});
}

static void cut(struct sim *sim, struct stream *stream, enum end to, uint64_t cut_us)
{
    (void)sim;
    if (cut_us < stream->cut_us[to])
        stream->cut_us[to] = cut_us;
}

/* The end learns of it `after_us` from the moment on when nothing arrives there any more. */
static void tell(struct sim *sim, const struct stream *stream, enum end to, uint64_t after_us)
{
    if (stream->closed[to])
        return;
    uint64_t at_us = stream->cut_us[to] > sim->now_us ? stream->cut_us[to] : sim->now_us;
    queue_put(&sim->queue, (struct event){.at_us = at_us + after_us,
                                          .kind = EVENT_STREAM_END,
                                          .index = to,
                                          .number = stream->number});
}

void network_break(struct sim *sim, struct stream *stream)
{
    for (enum end to = OPENER; to <= ACCEPTOR; to++) {
        cut(sim, stream, to, sim->now_us + sim_below(sim, 4 * sim->scenario.delay_us));
        tell(sim, stream, to, usual_us(sim));
    }
}

void network_close(struct sim *sim, struct stream *stream, enum end by, bool silent)
{
    enum end other = by == OPENER ? ACCEPTOR : OPENER;
    if (stream->closed[by])
        return;
    stream->closed[by] = true;
    cut(sim, stream, by, sim->now_us);
    /* Messages under way arrive, then the end of the stream. A silent death may lose any of
     * them. */
    uint64_t last_us = stream->last_us[other] > sim->now_us ? stream->last_us[other] : sim->now_us;
    if (silent)
        last_us = sim->now_us + sim_below(sim, last_us - sim->now_us + 1);
    cut(sim, stream, other, last_us);
    tell(sim, stream, other, silent ? sim_below(sim, KEEPALIVE_US) : usual_us(sim));
}

void network_clog(struct stream *stream, enum end to, uint64_t until_us)
{
    if (stream->last_us[to] < until_us)
        stream->last_us[to] = until_us;
}

void network_deliver(struct sim *sim, struct event *event)
{
    struct stream *stream = network_stream(sim, event->number);
    enum end to = (enum end)event->index;
    if (event->at_us > stream->cut_us[to] || stream->closed[to])
        return;
    rpc_stream_arrived(sim, stream, to, event->message);
}

void network_ended(struct sim *sim, const struct event *event)
{
    struct stream *stream = network_stream(sim, event->number);
    enum end at = (enum end)event->index;
    if (stream->closed[at])
        return;
    stream->closed[at] = true;
    rpc_stream_lost(sim, stream, at);
}

void network_close_all(struct sim *sim, struct machine place, bool silent)
{
    for (size_t i = 0; i < sim->network.stream_count; i++)
        for (enum end end = OPENER; end <= ACCEPTOR; end++) {
            struct machine at = network_end(sim->network.streams[i], end);
            if (at.kind == place.kind && at.index == place.index)
                network_close(sim, sim->network.streams[i], end, silent);
        }
}

/* ---- calls ---- */

bool network_lost(struct sim *sim, struct machine from, struct machine to)
{
    if (faults_held_us(sim, from, to) > 0)
        return true;
    if (sim->calm || sim_below(sim, 1000) >= sim->scenario.lost_permille)
        return false;
    sim_fault(sim, FAULT_LOSE_CALL);
    return true;
}
