/* A roost-worker that says what it does, and dies at a moment that is ordered.
 *
 * In the folder DYING_WORKER it appends a line to `events` for each place that it is granted, each act, each value
 * that it gives and each place that it completes:
 *
 *     nanoseconds process what step slot attempt stage rank try
 *
 * A file `MOMENT.STAGE.RANK` is an order: the first who comes to that moment at that seat takes the file away, says so
 * and kills itself; `MOMENT.STAGE.RANK.stop`: stops itself. Of a place with several members it also says `waited-MS`
 * when it has waited so long for another member's part of a sum. A line is one write, so that the workers of a machine
 * share the file. */
#include "common/time.h"
#include "worker/agent.h"
#include "worker/peers.h"
#include "worker/push.h"
#include "worker/worker_calls.h"
#include "worker/worker_meter.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    COMPLETE_US = 5000, /* that Complete has to come to the coordinator */
    WAITED_MS = 20,     /* what is shorter is not said */
};

/* The lease that is computed, in the one lane of a run without a delay. The main thread sets it while that is between tickets. */
static struct {
    uint64_t step, attempt;
    uint32_t slot;
    struct place place;
    uint32_t given; /* values; the compute thread's */
    bool train;
} lease;

static void (*row_ends)(void *context, const struct program_row *row);

static void say(const char *what)
{
    static int file = -1;
    char path[512];
    snprintf(path, sizeof path, "%s/events", getenv("DYING_WORKER"));
    if (file < 0)
        file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (lease.train)
        dprintf(file, "%llu %d %s %llu %u %llu %u %u %llu\n", (unsigned long long)time_now_ns(),
                (int)getpid(), what, (unsigned long long)lease.step, lease.slot,
                (unsigned long long)lease.attempt, lease.place.stage, lease.place.rank,
                (unsigned long long)lease.place.try_number);
}

static bool is_ordered(const char *moment, const char *also)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%u.%u%s", getenv("DYING_WORKER"), moment, lease.place.stage,
             lease.place.rank, also);
    return lease.train && unlink(path) == 0;
}

static void end_with(const char *how, const char *moment, int number)
{
    char what[64];
    snprintf(what, sizeof what, "%s-%s", how, moment);
    say(what);
    raise(number);
}

static void die_at(const char *moment)
{
    if (is_ordered(moment, ""))
        end_with("dies", moment, SIGKILL);
    else if (is_ordered(moment, ".stop"))
        end_with("stops", moment, SIGSTOP);
}

/* ---- what is wrapped ---- */

enum err __real_peers_lease(struct peers_lane *lane, uint64_t member, const struct ticket *ticket,
                            const struct place *place, const struct places *places);
enum err __wrap_peers_lease(struct peers_lane *lane, uint64_t member, const struct ticket *ticket,
                            const struct place *place, const struct places *places);
enum err __real_peers_give(struct peers_lane *lane, const struct executor_value *value,
                           const void *bytes);
enum err __wrap_peers_give(struct peers_lane *lane, const struct executor_value *value,
                           const void *bytes);
enum err __real_peers_give_part(struct peers_lane *lane, uint32_t sequence, uint32_t round,
                                const void *bytes, size_t count);
enum err __wrap_peers_give_part(struct peers_lane *lane, uint32_t sequence, uint32_t round,
                                const void *bytes, size_t count);
enum err __real_peers_take_part(struct peers_lane *lane, const struct executor_part *part,
                                void *ret_bytes, size_t count);
enum err __wrap_peers_take_part(struct peers_lane *lane, const struct executor_part *part,
                                void *ret_bytes, size_t count);
enum err __real_peers_lend_part(struct peers_lane *lane, const struct executor_part *part,
                                void *scratch, size_t count, const void **ret_bytes);
enum err __wrap_peers_lend_part(struct peers_lane *lane, const struct executor_part *part,
                                void *scratch, size_t count, const void **ret_bytes);
void __real_worker_meter_hooks(struct executor_hooks *hooks);
void __wrap_worker_meter_hooks(struct executor_hooks *hooks);
enum err __real_push_send(const struct push_source *source, const struct push_stream *to,
                          const struct push *push, size_t *ret_bytes);
enum err __wrap_push_send(const struct push_source *source, const struct push_stream *to,
                          const struct push *push, size_t *ret_bytes);
void __real_agent_acked(struct agent *agent, uint64_t now_ms, uint32_t server,
                        const struct push_ack *ack);
void __wrap_agent_acked(struct agent *agent, uint64_t now_ms, uint32_t server,
                        const struct push_ack *ack);
void __real_worker_call_complete(struct worker *worker, const struct complete_request *complete);
void __wrap_worker_call_complete(struct worker *worker, const struct complete_request *complete);

enum err __wrap_peers_lease(struct peers_lane *lane, uint64_t member, const struct ticket *ticket,
                            const struct place *place, const struct places *places)
{
    lease.step = ticket->step;
    lease.slot = node_first(ticket->node);
    lease.attempt = ticket->attempt;
    lease.place = *place;
    lease.given = 0;
    lease.train = ticket->kind == TICKET_TRAIN;
    say("leased");
    return __real_peers_lease(lane, member, ticket, place, places);
}

enum err __wrap_peers_give(struct peers_lane *lane, const struct executor_value *value,
                           const void *bytes)
{
    die_at(lease.given == 0 ? "before" : "between");
    enum err err = __real_peers_give(lane, value, bytes);
    lease.given++;
    say("gave");
    return err;
}

enum err __wrap_peers_give_part(struct peers_lane *lane, uint32_t sequence, uint32_t round,
                                const void *bytes, size_t count)
{
    if (round > 0)
        die_at("round");
    return __real_peers_give_part(lane, sequence, round, bytes, count);
}

static void say_waited(uint64_t begun_ns)
{
    uint64_t waited_ms = (time_now_ns() - begun_ns) / 1000000;
    char what[64];
    snprintf(what, sizeof what, "waited-%llu", (unsigned long long)waited_ms);
    if (waited_ms >= WAITED_MS)
        say(what);
}

enum err __wrap_peers_take_part(struct peers_lane *lane, const struct executor_part *part,
                                void *ret_bytes, size_t count)
{
    die_at("handed");
    uint64_t begun_ns = time_now_ns();
    enum err err = __real_peers_take_part(lane, part, ret_bytes, count);
    say_waited(begun_ns);
    return err;
}

enum err __wrap_peers_lend_part(struct peers_lane *lane, const struct executor_part *part,
                                void *scratch, size_t count, const void **ret_bytes)
{
    die_at("handed");
    uint64_t begun_ns = time_now_ns();
    enum err err = __real_peers_lend_part(lane, part, scratch, count, ret_bytes);
    say_waited(begun_ns);
    return err;
}

static void say_row(void *context, const struct program_row *row)
{
    row_ends(context, row);
    say(act_facts(row->act)->name);
}

void __wrap_worker_meter_hooks(struct executor_hooks *hooks)
{
    __real_worker_meter_hooks(hooks);
    row_ends = hooks->row_ends;
    hooks->row_ends = say_row;
}

enum err __wrap_push_send(const struct push_source *source, const struct push_stream *to,
                          const struct push *push, size_t *ret_bytes)
{
    enum err err = __real_push_send(source, to, push, ret_bytes);
    if (err == ERR_OK)
        die_at("pushed");
    return err;
}

void __wrap_agent_acked(struct agent *agent, uint64_t now_ms, uint32_t server,
                        const struct push_ack *ack)
{
    die_at("acknowledged");
    __real_agent_acked(agent, now_ms, server, ack);
}

void __wrap_worker_call_complete(struct worker *worker, const struct complete_request *complete)
{
    __real_worker_call_complete(worker, complete);
    if (complete->outcome != ERR_OK)
        return;
    say("completed");
    if (is_ordered("done", "")) {
        usleep(COMPLETE_US);
        end_with("dies", "done", SIGKILL);
    }
}
