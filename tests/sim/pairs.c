/* The states that hold, the events that follow when one begins, and the pairs that were met. */
#include "tests/sim/pairs.h"

#include "server/coordinator/run.h"
#include "tests/sim/sim.h"

const char *state_text(enum state state)
{
#define SIM_STATE_TEXT(name, cause, text) text,
    static const char *const texts[] = {SIM_STATES(SIM_STATE_TEXT)};
#undef SIM_STATE_TEXT
    check(state < STATE_COUNT);
    return texts[state];
}

const char *meeting_text(enum meeting_event event)
{
#define SIM_MEETING_TEXT(name, fault, text) text,
    static const char *const texts[] = {SIM_MEETING_EVENTS(SIM_MEETING_TEXT)};
#undef SIM_MEETING_TEXT
    check(event < MEETING_COUNT);
    return texts[event];
}

static enum fault_kind fault_of(enum meeting_event event)
{
#define SIM_MEETING_FAULT(name, fault, text) fault,
    static const enum fault_kind faults[] = {SIM_MEETING_EVENTS(SIM_MEETING_FAULT)};
#undef SIM_MEETING_FAULT
    return faults[event];
}

static enum fault_kind cause_of(enum state state)
{
#define SIM_STATE_CAUSE(name, cause, text) cause,
    static const enum fault_kind causes[] = {SIM_STATES(SIM_STATE_CAUSE)};
#undef SIM_STATE_CAUSE
    return causes[state];
}

/* ---- states ---- */

static uint32_t bit(enum state state, bool holds)
{
    return holds ? UINT32_C(1) << state : 0;
}

static uint32_t states_of_server(const struct server_entry *server, const struct run *run)
{
    bool serves = server->map_index != SERVERS_NONE && server->state != SERVER_IS_EMPTIED;
    return bit(STATE_LOST, serves && server->link == 0) | bit(STATE_DRAIN, servers_drains(server)) |
           bit(STATE_COMMIT, serves && run->steps.committed && !server->acknowledged);
}

static uint32_t states_of_run(struct sim *sim, const struct sim_coordinator *coordinator)
{
    const struct run *run = &coordinator->core->run;
    const struct servers *servers = &coordinator->core->servers;
    if (run->phase == PHASE_NONE)
        return 0;
    if (run->phase != PHASE_GATHER)
        sim->pairs.begun_term = coordinator->term;
    bool gathers = run->phase == PHASE_GATHER && sim->store.past.generation > 0;
    bool begins = run->phase == PHASE_STORE || run->phase == PHASE_PREPARE;
    bool begun = sim->pairs.begun_term == coordinator->term;
    bool open = run->phase == PHASE_STEPS && run->steps.seals != NULL;
    const struct seal *seal = open ? run_seal(run, run->steps.version) : NULL;
    uint32_t states = bit(STATE_UNADOPTED, gathers && !begun && servers->count > 0) |
                      bit(STATE_GATHER, gathers && begun) |
                      bit(STATE_REWIND, begins && run->cuts.newest.name.generation > 0) |
                      bit(STATE_SEAL, open && (seal->sealed_count > 0 || seal->has_loss)) |
                      bit(STATE_MOVE, run->moves.count > 0 || run->moves.change == CHANGE_BEGUN) |
                      bit(STATE_CUT, run->cuts.pending_count > 0) |
                      bit(STATE_LAST, run->phase == PHASE_LAST) | bit(STATE_STOP, run_ends(run));
    for (uint32_t i = 0; i < servers->count; i++)
        states |= states_of_server(&servers->list[i], run);
    return states;
}

static uint32_t states_now(struct sim *sim)
{
    const struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    uint32_t states =
        bit(STATE_ABSENT, coordinator->core == NULL) |
        bit(STATE_TWO, sim->coordinators[0].core != NULL && sim->coordinators[1].core != NULL) |
        bit(STATE_FULL, faults_full(sim, DISK_COORDINATORS));
    for (uint32_t i = 0; i < SIM_SERVERS_MAX; i++)
        states |= bit(STATE_FULL, faults_full(sim, i)) |
                  bit(STATE_LEAVE, sim->servers[i].up && sim_coordinator_let_go(sim, i));
    return coordinator->core == NULL ? states : states | states_of_run(sim, coordinator);
}

/* ---- meetings ---- */

/* In the same moment, while messages are under way, while servers connect again, or while chunks
 * are applied and written. */
static uint64_t soon_us(struct sim *sim)
{
    const struct scenario *scenario = &sim->scenario;
    uint64_t which = sim_below(sim, 8);
    if (which < 3)
        return 0;
    if (which < 5)
        return sim_below(sim, 2 * scenario->delay_us);
    if (which < 6)
        return sim_restart_us(sim);
    return sim_below(sim, 8 * (scenario->delay_us + scenario->apply_us + scenario->write_us));
}

static void inject_soon(struct sim *sim, enum fault_kind kind)
{
    queue_put(
        &sim->queue,
        (struct event){.at_us = sim->now_us + soon_us(sim), .kind = EVENT_FAULT, .index = kind});
}

/* The office's coordinator commits steps, and has come to that version. */
static bool has_come_to(struct sim *sim, uint64_t version)
{
    const struct sim_coordinator *coordinator = sim_coordinator_in_office(sim);
    return coordinator->core != NULL && coordinator->core->run.phase == PHASE_STEPS &&
           coordinator->core->run.steps.version >= version;
}

void pairs_look(struct sim *sim)
{
    uint32_t now = states_now(sim), begun = now & ~sim->pairs.states;
    sim->pairs.states = now;
    for (uint32_t i = 0; i < sim->scenario.meeting_count && !sim->calm; i++) {
        const struct meeting *meeting = &sim->scenario.meetings[i];
        if (sim->pairs.meetings[i].over)
            continue;
        if (!sim->pairs.meetings[i].caused && has_come_to(sim, meeting->version)) {
            sim->pairs.meetings[i].caused = true;
            inject_soon(sim, cause_of(meeting->state));
        } else if (sim->pairs.meetings[i].caused && (begun & bit(meeting->state, true)) != 0 &&
                   sim_below(sim, 3) != 0) {
            sim->pairs.meetings[i].over = true;
            inject_soon(sim, fault_of(meeting->event));
        }
    }
}

bool pairs_awaited(const struct sim *sim)
{
    bool awaited = false;
    for (uint32_t i = 0; i < sim->scenario.meeting_count; i++)
        awaited |= !sim->pairs.meetings[i].over;
    return awaited && !sim->over;
}

void pairs_event(struct sim *sim, enum meeting_event event)
{
    uint32_t now = states_now(sim);
    for (int state = 0; state < STATE_COUNT; state++) {
        if ((now & bit((enum state)state, true)) == 0 || sim->pairs.met[state][event])
            continue;
        sim->pairs.met[state][event] = true;
        sim->options.progress->met[state][event]++;
    }
}
