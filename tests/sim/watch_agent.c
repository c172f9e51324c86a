/* The same as watch.c between the parts of a worker's agent: how long it waits before it asks
 * again, which answers hold a credit, and what a server that lies could make of it. */
#include "tests/sim/sim.h"
#include "worker/agent_map.h"
#include "worker/agent_member.h"
#include "worker/agent_traffic.h"

enum {
    BACKOFF_MS_MIN = AGENT_BACKOFF_MS_MIN / 2, /* ±50 % */
    BACKOFF_MS_MAX = AGENT_BACKOFF_MS_MAX / 2 * 3,
    WAIT_MS_MAX = (AGENT_BACKOFF_MS_MIN << AGENT_WAIT_FAILURES_MAX) / 2 * 3,
    MANY_FAILURES = 20
};

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

static struct sim_worker *worker_here(void)
{
    return life_acts() ? &world.sim->workers[world.life->place.index] : NULL;
}

/* 8: neither at once nor never. */
static void check_backoff(const struct sim_worker *worker, uint64_t wait_ms, uint64_t wait_ms_max,
                          const char *what, enum err err)
{
    if (wait_ms < BACKOFF_MS_MIN || wait_ms > wait_ms_max)
        sim_violated(world.sim, 8, "w%u waits for %llu ms before it %s again after %s",
                     worker->index, (unsigned long long)wait_ms, what, err_name(err));
}

/* ---- joining ---- */

REAL(bool, agent_member_join_failed, struct agent_member *member, uint64_t now_ms, enum err err,
     struct rand_state *jitter);

/* What it would do after other answers, and many of them. */
static void check_join(const struct sim_worker *worker, struct agent_member member, uint64_t now_ms,
                       struct rand_state jitter, enum err err)
{
    member.join_failures = MANY_FAILURES;
    if (!__real_agent_member_join_failed(&member, now_ms, err, &jitter))
        sim_violated(world.sim, 8, "w%u gives up when Join answers %s", worker->index,
                     err_name(err));
    uint64_t max_ms = err_reaction(err) == REACT_WAIT ? WAIT_MS_MAX : BACKOFF_MS_MAX;
    check_backoff(worker, member.join_at - now_ms, max_ms, "joins", err);
}

bool __wrap_agent_member_join_failed(struct agent_member *member, uint64_t now_ms, enum err err,
                                     struct rand_state *jitter)
{
    const struct sim_worker *worker = worker_here();
    if (worker != NULL) {
        check_join(worker, *member, now_ms, *jitter, ERR_NO_RUN);
        check_join(worker, *member, now_ms, *jitter, ERR_UNKNOWN_MEMBER);
        check_join(worker, *member, now_ms, *jitter, ERR_UNREACHABLE);
    }
    return __real_agent_member_join_failed(member, now_ms, err, jitter);
}

/* ---- maps ---- */

REAL(void, agent_map_want, struct agent_map_state *state, uint64_t now_ms);

void __wrap_agent_map_want(struct agent_map_state *state, uint64_t now_ms)
{
    if (worker_here() != NULL)
        worker_here()->map_is_doubted = false;
    __real_agent_map_want(state, now_ms);
}

/* 15: who is told that a chunk has moved (P11), or by a server that it has no run or an older
 * generation (P2), asks for the map; looked at when the loop waits. */
static void note_doubt(struct sim_worker *worker, const struct agent_answer *answer, enum err code)
{
    bool wanted = code == ERR_MOVED || code == ERR_NO_RUN || code == ERR_BEHIND;
    worker->map_is_doubted = worker->map_is_doubted || answer->map_is_doubted;
    if (answer->ticket != NULL && answer->map_is_doubted != wanted)
        sim_violated(world.sim, 15, "w%u takes %s for another answer", worker->index,
                     err_name(code));
}

/* ---- pulls ---- */

REAL(struct agent_answer, agent_pull_refused, struct agent_traffic *traffic, uint64_t now_ms,
     uint32_t server, const struct pull_refusal *refusal);
REAL(bool, agent_pull_weights, struct agent_traffic *traffic, uint32_t server,
     const struct weights *weights, uint32_t *ret_lane);

static struct agent_pull_slot *find_pull(const struct agent_traffic *traffic, uint32_t server,
                                         uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < AGENT_PULLS_MAX; i++)
        if (traffic->servers[server].pulls[i].id == id)
            return &traffic->servers[server].pulls[i];
    return NULL;
}

struct agent_answer __wrap_agent_pull_refused(struct agent_traffic *traffic, uint64_t now_ms,
                                              uint32_t server, const struct pull_refusal *refusal)
{
    const struct agent_pull_slot *slot = find_pull(traffic, server, refusal->id);
    bool wanted = slot != NULL && slot->flow != NULL;
    struct agent_answer answer = __real_agent_pull_refused(traffic, now_ms, server, refusal);
    struct sim_worker *worker = worker_here();
    if (worker == NULL || slot == NULL)
        return answer;
    if (refusal->code == ERR_TOO_EARLY && !slot->parked)
        sim_violated(world.sim, 6, "w%u's parked pull holds a credit", worker->index);
    if (refusal->code != ERR_TOO_EARLY && wanted && agent_backoff_helps(refusal->code)) {
        uint64_t retry_ms = traffic->servers[server].retry_at;
        check_backoff(worker, retry_ms > now_ms ? retry_ms - now_ms : 0, BACKOFF_MS_MAX, "pulls",
                      refusal->code);
        note_doubt(worker, &answer, refusal->code);
    }
    return answer;
}

bool __wrap_agent_pull_weights(struct agent_traffic *traffic, uint32_t server,
                               const struct weights *weights, uint32_t *ret_lane)
{
    bool wanted = __real_agent_pull_weights(traffic, server, weights, ret_lane);
    if (worker_here() != NULL && wanted && traffic->servers[server].failures > 0)
        sim_violated(world.sim, 8, "w%u has weights of a server, and counts it as failing",
                     worker_here()->index);
    return wanted;
}

/* ---- pushes ---- */

REAL(struct agent_answer, agent_push_acked, struct agent_traffic *traffic, uint64_t now_ms,
     uint32_t server, const struct push_ack *ack);

/* A server that counts more entries than a push has: they were all of them, and what the agent
 * knows beside that stays as it was. */
static struct agent_answer count_too_many(struct agent_traffic *traffic, uint64_t now_ms,
                                          uint32_t server, uint64_t id)
{
    const struct push_ack forged = {.id = id, .code = ERR_BUSY, .first_refused = WIRE_ENTRIES_MAX};
    struct agent_server *from = &traffic->servers[server];
    struct rand_state jitter = *traffic->jitter;
    uint64_t retry_at = from->retry_at;
    struct agent_answer answer = __real_agent_push_acked(traffic, now_ms, server, &forged);
    from->retry_at = retry_at;
    from->failures = 0;
    *traffic->jitter = jitter;
    return answer;
}

static bool is_wanted_push(const struct agent_server *server, uint64_t id)
{
    for (uint32_t i = 0; i < WIRE_CREDITS; i++)
        if (server->pushes[i].id == id && id != 0)
            return server->pushes[i].flow != NULL;
    return false;
}

struct agent_answer __wrap_agent_push_acked(struct agent_traffic *traffic, uint64_t now_ms,
                                            uint32_t server, const struct push_ack *ack)
{
    struct sim_worker *worker = worker_here();
    bool wanted = is_wanted_push(&traffic->servers[server], ack->id);
    if (worker != NULL && ack->code == ERR_OK && wanted && stray_comes(world.sim))
        return count_too_many(traffic, now_ms, server, ack->id);
    struct agent_answer answer = __real_agent_push_acked(traffic, now_ms, server, ack);
    if (worker != NULL && wanted && agent_backoff_helps(ack->code))
        note_doubt(worker, &answer, ack->code);
    return answer;
}
