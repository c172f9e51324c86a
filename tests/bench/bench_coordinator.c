/* What a ticket costs the coordinator's core, by how many workers there are:
 *
 *   bench_coordinator [STEPS [SLOTS_A_MEMBER [STAGES]]]
 *
 * One server with one chunk; each step has SLOTS_A_MEMBER slots for each member, one to a ticket. With
 * STAGES, each ticket has so many places, one to a member, and a step so many times fewer slots.
 * All members ask, each completes what it is given in the order in which tickets were granted and
 * asks again, so that at the end of a step all questions but one are parked. Each sends a heartbeat
 * a second of the run's own time; a step takes a second of it. Nothing is encoded, sent or stored:
 * the time is that of the thread that decides.
 *
 * Printed are the time of a step, of a ticket (or place), and what ten times the members would cost, by the
 * row before: 10 if a ticket costs the same. */
#include "common/time.h"
#include "server/coordinator/coordinator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5, STEP_MS = 1000, WAIT_MS = 10000, BOOT = 1 };

struct crowd {
    struct coordinator *coordinator;
    uint64_t link, generation;
    uint64_t now_ms;
    uint32_t members, slots, stages;
    uint64_t *ids; /* by member, as the next two */
    uint64_t *sequences;
    struct proof *secrets;
    /* Tickets in the order in which they were granted; a ring of `members`. */
    struct granted {
        uint32_t member;
        struct ticket ticket;
        struct place place;
    } * granted;
    uint32_t first, count;
    uint64_t committed; /* steps */
};

static void carry_out(struct crowd *crowd);

static void report(struct crowd *crowd, struct server_report report)
{
    report.boot = BOOT;
    check(coordinator_server_report(crowd->coordinator, crowd->now_ms, crowd->link, &report) ==
          ERR_OK);
    carry_out(crowd);
}

static void report_manifest(struct crowd *crowd, uint64_t version)
{
    struct server_report manifest = {.kind = SERVER_MANIFEST};
    manifest.manifest.cut = (struct cut_name){crowd->generation, version};
    report(crowd, manifest);
}

static void report_ready(struct crowd *crowd, uint64_t generation)
{
    struct server_report ready = {.kind = SERVER_READY};
    crowd->generation = generation;
    ready.ready.cut.generation = generation;
    report(crowd, ready);
    report_manifest(crowd, 0);
}

static void report_reduced(struct crowd *crowd)
{
    struct chunk_seal seal = {.chunk = 0, .finite = true, .sumsq = 1};
    struct server_report reduced = {.kind = SERVER_REDUCED};
    reduced.reduced = (struct reduced){.generation = crowd->generation,
                                       .step = crowd->committed,
                                       .seal_count = 1,
                                       .seals = &seal,
                                       .has_loss = true,
                                       .loss_sum = 1,
                                       .sample_count = crowd->slots};
    report(crowd, reduced);
}

static void commit(struct crowd *crowd, struct server_command command)
{
    struct server_report committed = {.kind = SERVER_COMMITTED};
    committed.committed.generation = command.commit.generation;
    committed.committed.step = command.commit.step;
    crowd->committed = command.commit.step + 1;
    report(crowd, committed);
    if (command.commit.cut)
        report_manifest(crowd, crowd->committed);
}

/* The member of that id: ids ascend by one. */
static void take_ticket(struct crowd *crowd, uint64_t id, const struct acquire_reply *reply)
{
    check(crowd->count < crowd->members);
    struct granted *granted = &crowd->granted[(crowd->first + crowd->count++) % crowd->members];
    *granted = (struct granted){(uint32_t)(id - crowd->ids[0]), reply->ticket, reply->place};
}

/* Calls of the coordinator may add effects, and end with taking all there are: the list is looked
 * at anew each time. */
static void carry_out(struct crowd *crowd)
{
    size_t count;
    const struct effect *effects = coordinator_effects(crowd->coordinator, &count);
    struct effect todo[4];
    size_t todo_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (effects[i].kind == EFFECT_ANSWER && effects[i].answer.reply.result == ACQUIRE_TICKET)
            take_ticket(crowd, effects[i].answer.member, &effects[i].answer.reply);
        if (effects[i].kind != EFFECT_COMMAND && effects[i].kind != EFFECT_STORE_CUT &&
            effects[i].kind != EFFECT_STORE_REWIND)
            continue;
        check(todo_count < 4);
        todo[todo_count++] = effects[i];
    }
    coordinator_effects_clear(crowd->coordinator);
    for (size_t i = 0; i < todo_count; i++) {
        const struct server_command *command = &todo[i].command.command;
        if (todo[i].kind == EFFECT_STORE_CUT) {
            coordinator_cut_stored(crowd->coordinator, crowd->now_ms, todo[i].cut->name, ERR_OK);
            carry_out(crowd);
        } else if (todo[i].kind == EFFECT_STORE_REWIND) {
            coordinator_rewind_stored(crowd->coordinator, crowd->now_ms, todo[i].generation,
                                      ERR_OK);
            carry_out(crowd);
        } else if (command->kind == SERVER_PREPARE) {
            report_ready(crowd, command->prepare.generation);
        } else if (command->kind == SERVER_COMMIT) {
            commit(crowd, *command);
        }
    }
}

static void acquire(struct crowd *crowd, uint32_t member)
{
    const struct acquire_request request = {.member = crowd->ids[member],
                                            .secret = crowd->secrets[member],
                                            .generation = crowd->generation,
                                            .sequence = ++crowd->sequences[member],
                                            .wait_ms = WAIT_MS};
    check(coordinator_acquire(crowd->coordinator, crowd->now_ms, &request) == ERR_OK);
    carry_out(crowd);
}

static void complete(struct crowd *crowd)
{
    check(crowd->count > 0);
    struct granted granted = crowd->granted[crowd->first];
    crowd->first = (crowd->first + 1) % crowd->members;
    crowd->count--;
    const struct complete_request request = {.member = crowd->ids[granted.member],
                                             .secret = crowd->secrets[granted.member],
                                             .ticket = granted.ticket,
                                             .place = granted.place,
                                             .outcome = ERR_OK,
                                             .sample_count = 1};
    check(coordinator_complete(crowd->coordinator, crowd->now_ms, &request) == ERR_OK);
    carry_out(crowd);
    acquire(crowd, granted.member);
}

static void pass_time(struct crowd *crowd, uint64_t now_ms)
{
    crowd->now_ms = now_ms;
    if (coordinator_next_ms(crowd->coordinator) > now_ms)
        return;
    coordinator_tick(crowd->coordinator, now_ms);
    carry_out(crowd);
}

/* From the first completed ticket to the commit, in which all parked questions are answered. */
static void step(struct crowd *crowd)
{
    uint64_t begin_ms = crowd->now_ms, step_number = crowd->committed;
    uint32_t tickets = crowd->slots * crowd->stages;
    for (uint32_t i = 0; i < tickets; i++) {
        pass_time(crowd, begin_ms + (uint64_t)STEP_MS * i / tickets);
        if (i < crowd->members)
            check(coordinator_heartbeat(crowd->coordinator, crowd->now_ms, crowd->ids[i]) ==
                  ERR_OK);
        complete(crowd);
    }
    pass_time(crowd, begin_ms + STEP_MS);
    report_reduced(crowd);
    check(crowd->committed == step_number + 1);
}

static void join(struct crowd *crowd, uint32_t member)
{
    struct join_request request = {
        .wire_version = WIRE_VERSION, .name = "w", .device = "cpu", .address = "w:1"};
    struct join_reply reply;
    check(coordinator_join(crowd->coordinator, crowd->now_ms, &request, &reply, NULL) == ERR_OK);
    if (member == 0) /* whose fingerprint is the run's */
        coordinator_fingerprint_stored(crowd->coordinator, crowd->now_ms);
    carry_out(crowd);
    crowd->ids[member] = reply.member;
    crowd->secrets[member] = reply.secret;
}

static const struct map_parameter parameters[] = {{0, 1, 400, 400}};

static void start(struct crowd *crowd, uint64_t steps)
{
    static const struct coordinator_place places[WIRE_PLACES_MAX] = {
        [0 ... WIRE_PLACES_MAX - 1] = {.range_count = 1, .ranges = {{{0, 1}, {0, 1}}}}};
    const struct coordinator_run run = {
        .run = 1,
        .steps = steps,
        .servers_min = 1,
        .slots = crowd->slots,
        .slot_samples = 1,
        .node_slots = 1,
        .place_count = crowd->stages,
        .places = places,
        .seal = {.schedule = {.kind = SPEC_CONSTANT, .lr = 1, .step_samples = crowd->slots},
                 .sample_predictions = 1,
                 .skip_max = 2},
        .parameter_count = 1,
        .parameters = parameters,
        .parameter_bytes_max = 1 << 20,
        .spec = "",
        .checkpoint_dir = "",
    };
    struct server_report hello = {.kind = SERVER_HELLO, .boot = BOOT};
    snprintf(hello.hello.name, sizeof hello.hello.name, "s");
    check(coordinator_server_hello(crowd->coordinator, crowd->now_ms, &hello, &crowd->link, NULL) ==
          ERR_OK);
    check(coordinator_start(crowd->coordinator, crowd->now_ms, &run, NULL, NULL) == ERR_OK);
    carry_out(crowd);
    for (uint32_t i = 0; i < crowd->members; i++)
        join(crowd, i);
    for (uint32_t i = 0; i < crowd->members; i++)
        acquire(crowd, i);
}

/* Seconds of a step. */
static double measure(uint32_t members, uint32_t slots, uint32_t stages, uint32_t steps)
{
    struct crowd crowd = {.now_ms = 1, .members = members, .slots = slots, .stages = stages};
    const struct coordinator_settings settings = {.term = 1,
                                                  .heartbeat_ms = STEP_MS,
                                                  .lease_ms = 10 * STEP_MS,
                                                  .speculation_percent = 300,
                                                  .speculation_ms_min = STEP_MS,
                                                  .stop_ms = STEP_MS};
    crowd.coordinator = coordinator_new(&settings);
    crowd.ids = calloc(members, sizeof *crowd.ids);
    crowd.sequences = calloc(members, sizeof *crowd.sequences);
    crowd.secrets = calloc(members, sizeof *crowd.secrets);
    crowd.granted = calloc(members, sizeof *crowd.granted);
    check(crowd.coordinator && crowd.ids && crowd.sequences && crowd.secrets && crowd.granted);
    start(&crowd, steps + 2);
    step(&crowd); /* the first teaches the usual time */
    uint64_t begin_ns = time_now_ns();
    for (uint32_t i = 0; i < steps; i++)
        step(&crowd);
    double seconds = (double)(time_now_ns() - begin_ns) / 1e9 / steps;
    coordinator_free(crowd.coordinator);
    free(crowd.ids);
    free(crowd.sequences);
    free(crowd.secrets);
    free(crowd.granted);
    return seconds;
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {32, 128, 400, 1024, 4096};
    uint32_t steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : STEPS;
    uint32_t slots_each = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    uint32_t stages = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1;
    double before = 0;
    if (steps == 0 || slots_each == 0 || stages == 0 || sizes[0] % stages != 0 || argc > 4) {
        fprintf(stderr,
                "usage: bench_coordinator [STEPS [SLOTS_A_MEMBER [STAGES]]]  (STAGES "
                "divide %u)\n",
                sizes[0]);
        return 2;
    }
    printf("%8s %8s %12s %12s %14s\n", "members", "slots", "ms a step", "us a ticket",
           "10 x members");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t tickets = sizes[i] * slots_each, slots = tickets / stages;
        double seconds = measure(sizes[i], slots, stages, steps);
        printf("%8u %8u %12.3f %12.2f", sizes[i], slots, seconds * 1e3, seconds * 1e6 / tickets);
        if (i > 0)
            printf(" %12.1f x",
                   pow(seconds / before, log(10) / log((double)sizes[i] / sizes[i - 1])));
        printf("\n");
        fflush(stdout);
        before = seconds;
    }
    return 0;
}
