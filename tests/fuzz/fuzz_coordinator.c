/* A coordinator among servers, workers and operators who say anything, in any order. The first piece
 * of the input is the run's settings, each of the others an event: its first byte which, the others
 * its numbers, where 0 is mostly the number that is right. What is said passes the wire first; most
 * of it has the secret and the grant that it needs. */
#include "tests/fuzz/fuzz.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "server/coordinator/coordinator.h"
#include "server/member/proof.h"

#include <stdio.h>
#include <string.h>

enum {
    SERVERS = 3,
    MEMBERS = 4,
    TICKETS = 8,
    SLOTS = 5,
    STEPS = 6,
    CHUNKS = 5,
    PIECE_BYTES = 24,
    EVENTS_MAX = 256
};

struct world {
    struct fuzz_piece piece;
    struct coordinator *coordinator;
    struct coordinator_run run;
    struct coordinator_status status;
    uint64_t now_ms;
    uint64_t link[SERVERS], boot[SERVERS];
    uint64_t members[MEMBERS], sequence;
    struct ticket tickets[TICKETS]; /* that were granted */
    uint32_t ticket_count;
    uint64_t question, invitation; /* the newest that servers were sent */
    struct cut_record stored;
};

static const struct map_parameter parameters[] = {
    {0, 1, 400, 400}, {1, 1, 400, 400}, {2, 2, 400, 400}, {4, 1, 12, 12}};

/* ---- numbers ---- */

static uint8_t byte(struct world *world)
{
    return fuzz_byte(&world->piece);
}

static uint64_t any(struct world *world)
{
    static const uint64_t wild[] = {
        0, 1, 2, 63, 64, 1000, INT32_MAX, UINT32_MAX, UINT64_C(1) << 40, INT64_MAX, UINT64_MAX};
    return wild[byte(world) % (sizeof wild / sizeof wild[0])];
}

/* Mostly the number that is right. */
static uint64_t near(struct world *world, uint64_t right)
{
    uint8_t how = byte(world) % 8;
    return how < 5 ? right : how == 5 ? right + 1 : how == 6 ? right - 1 : any(world);
}

/* ---- what the coordinator does ---- */

static void carry_out_command(struct world *world, const struct server_command *command)
{
    if (command->kind == SERVER_ASK_MISSING)
        world->question = command->ask_missing.question;
    if (command->kind == SERVER_PREPARE)
        world->invitation = command->prepare.invitation;
}

static void carry_out_one(struct world *world, const struct effect *effect)
{
    const struct acquire_reply *reply = &effect->answer.reply;
    if (effect->kind == EFFECT_COMMAND)
        carry_out_command(world, &effect->command.command);
    if (effect->kind == EFFECT_ANSWER && effect->answer.err == ERR_OK &&
        reply->result == ACQUIRE_TICKET)
        world->tickets[world->ticket_count++ % TICKETS] = reply->ticket;
    if (effect->kind == EFFECT_STORE_STATE)
        coordinator_state_stored(world->coordinator);
    if (effect->kind == EFFECT_FIND_CUT)
        coordinator_cut_found(world->coordinator, world->now_ms, NULL, effect->find.unready);
    if (effect->kind != EFFECT_STORE_CUT)
        return;
    world->stored = *effect->cut;
    coordinator_cut_stored(world->coordinator, world->now_ms, world->stored.name,
                           byte(world) % 8 == 7 ? ERR_NO_SPACE : ERR_OK);
}

/* Effects are copied: what carries one out may add others. */
static void carry_out(struct world *world)
{
    size_t count;
    (void)coordinator_effects(world->coordinator, &count);
    for (size_t i = 0; i < count; i++) {
        struct effect effect = coordinator_effects(world->coordinator, &count)[i];
        carry_out_one(world, &effect);
    }
    coordinator_effects_clear(world->coordinator);
    coordinator_check(world->coordinator);
    coordinator_status(world->coordinator, &world->status);
}

/* ---- servers ---- */

/* As the wire delivers it; false: it does not. */
static bool pass(struct server_report *report, struct arena *arena)
{
    scoped(buf_release) struct buf bytes = {0};
    return wire_encode_server_report(report, &bytes) == ERR_OK &&
           wire_decode_server_report(buf_slice(&bytes), arena, report, NULL) == ERR_OK;
}

static void say_hello(struct world *world)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    uint32_t i = byte(world) % SERVERS;
    world->boot[i] = near(world, world->boot[i]);
    struct server_report hello = {.kind = SERVER_HELLO, .boot = world->boot[i]};
    snprintf(hello.hello.name, sizeof hello.hello.name, "s%u", i);
    hello.hello.wire_version = hello.hello.wire_version_min = WIRE_VERSION;
    hello.hello.generation = byte(world) % 2 == 0 ? 0 : near(world, world->status.generation);
    hello.hello.version = near(world, world->status.version);
    hello.hello.term = near(world, 1);
    if (!pass(&hello, &arena))
        return;
    if (coordinator_term_for(world->coordinator, &hello) != world->status.term)
        coordinator_take_term(world->coordinator, &hello);
    ignore(coordinator_server_hello(world->coordinator, world->now_ms, &hello, &world->link[i],
                                    NULL)); /* it may refuse */
}

static void fill_ready(struct world *world, struct server_report *report, uint64_t *words)
{
    words[0] = any(world);
    report->ready.cut.generation = near(world, world->status.generation);
    report->ready.cut.version = near(world, world->status.version);
    report->ready.code = byte(world) % 8 == 7 ? ERR_CORRUPT : ERR_OK;
    report->ready.text = "";
    report->ready.applied_low = byte(world) % 32;
    report->ready.applied_words = byte(world) % 2;
    report->ready.applied = words;
    report->ready.invitation = near(world, world->invitation);
}

/* Of the chunks that the server owns, or of one more. */
static void fill_reduced(struct world *world, struct server_report *report, uint64_t link,
                         struct chunk_seal *seals)
{
    struct reduced *reduced = &report->reduced;
    const struct map *map = coordinator_map(world->coordinator);
    reduced->generation = near(world, world->status.generation);
    reduced->step = near(world, world->status.version);
    reduced->sample_count = (double)near(world, 10);
    reduced->loss_sum = 1;
    reduced->seals = seals;
    for (uint32_t chunk = 0; map != NULL && chunk < CHUNKS; chunk++) {
        struct coordinator_server owner = {0};
        bool owns = coordinator_map_server(world->coordinator, map_server(map, chunk), &owner) &&
                    owner.link == link;
        if (owns != (byte(world) == 255))
            seals[reduced->seal_count++] = (struct chunk_seal){chunk, byte(world) != 255, 1};
        reduced->has_loss = reduced->has_loss || (owns && chunk == CHUNKS - 1);
    }
}

static void fill_held(struct world *world, struct server_report *report, struct chunk_range *ranges)
{
    struct server_held *held = &report->held;
    held->run = near(world, 1);
    held->generation = near(world, world->status.generation);
    held->version = near(world, world->status.version);
    held->range_count = byte(world) % 3;
    for (uint32_t i = 0; i < held->range_count; i++)
        ranges[i] = (struct chunk_range){(uint32_t)near(world, 2 * i), 1 + byte(world) % 5,
                                         byte(world) % SERVERS};
    held->ranges = ranges;
    held->has_decision = byte(world) % 2 == 0;
    held->decision.generation = near(world, held->generation);
    held->decision.term = near(world, 1);
    held->decision.step = near(world, held->version);
    held->file = WIRE_FILE_NONE;
}

/* The rest of a report, whose kind is chosen. */
static void fill_small(struct world *world, struct server_report *report, const uint64_t *words)
{
    uint64_t generation = near(world, world->status.generation);
    uint64_t version = near(world, world->status.version);
    if (report->kind == SERVER_COMMITTED) {
        report->committed.generation = generation;
        report->committed.step = version - 1;
    } else if (report->kind == SERVER_MANIFEST) {
        report->manifest.cut = (struct cut_name){generation, version};
        report->manifest.attempt = byte(world) % 3;
        report->manifest.code = byte(world) % 4 == 3 ? ERR_NO_SPACE : ERR_OK;
    } else if (report->kind == SERVER_WRONG_BITS) {
        report->wrong_bits.member = near(world, world->members[byte(world) % MEMBERS]);
        report->wrong_bits.first_member = near(world, world->members[byte(world) % MEMBERS]);
        report->wrong_bits.step = version;
        report->wrong_bits.node = (struct node){byte(world) % 4, byte(world) % (2 * SLOTS)};
        report->wrong_bits.chunk = byte(world) % 8;
    } else if (report->kind == SERVER_MISSING) {
        report->missing.generation = generation;
        report->missing.step = version;
        report->missing.question = near(world, world->question);
        report->missing.word_count = byte(world) % 3;
        report->missing.slots = words;
    }
}

static void report(struct world *world)
{
    static const enum server_report_kind kinds[] = {
        SERVER_READY,    SERVER_REDUCED,    SERVER_REDUCED, SERVER_COMMITTED, SERVER_COMMITTED,
        SERVER_MANIFEST, SERVER_WRONG_BITS, SERVER_DRAIN,   SERVER_HELD,      SERVER_MISSING};
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    uint32_t i = byte(world) % SERVERS;
    uint64_t link = near(world, world->link[i]);
    uint64_t words[2] = {byte(world), 0};
    struct chunk_seal seals[6];
    struct chunk_range ranges[3];
    struct server_report report = {.kind = kinds[byte(world) % (sizeof kinds / sizeof kinds[0])],
                                   .boot = near(world, world->boot[i])};
    if (report.kind == SERVER_READY)
        fill_ready(world, &report, words);
    else if (report.kind == SERVER_REDUCED)
        fill_reduced(world, &report, link, seals);
    else if (report.kind == SERVER_HELD)
        fill_held(world, &report, ranges);
    else
        fill_small(world, &report, words);
    if (pass(&report, &arena))
        ignore(coordinator_server_report(world->coordinator, world->now_ms, link,
                                         &report)); /* it may refuse */
}

static void lose_server(struct world *world)
{
    coordinator_server_lost(world->coordinator, world->now_ms, world->link[byte(world) % SERVERS]);
}

/* ---- workers ---- */

static struct proof secret(struct world *world, uint64_t member)
{
    scoped(digest_mac_release) struct digest_mac key = {0};
    struct proof none = {{0}};
    return byte(world) % 16 == 15 || digest_mac_init(&key) != ERR_OK
               ? none
               : proof_member(&key, world->run.run, member);
}

static void join(struct world *world)
{
    uint32_t i = byte(world) % MEMBERS;
    struct join_request request = {.wire_version = WIRE_VERSION, .device = "cpu"};
    struct join_reply reply;
    snprintf(request.name, sizeof request.name, "w%u", byte(world) % MEMBERS);
    request.certificate = byte(world) % 3;
    if (byte(world) % 2 == 0) {
        request.previous_member = near(world, world->members[i]);
        request.previous_secret = secret(world, world->members[i]);
    }
    if (coordinator_join(world->coordinator, world->now_ms, &request, &reply, NULL) == ERR_OK)
        world->members[i] = reply.member;
}

static void acquire(struct world *world)
{
    uint64_t member = world->members[byte(world) % MEMBERS];
    const struct acquire_request request = {.member = near(world, member),
                                            .secret = secret(world, member),
                                            .generation = near(world, world->status.generation),
                                            .sequence = near(world, ++world->sequence),
                                            .wait_ms = byte(world) * 20};
    ignore(coordinator_acquire(world->coordinator, world->now_ms, &request)); /* it may refuse */
}

/* A ticket as it was granted, or another one, with a grant or without. */
static struct ticket ticket_of(struct world *world)
{
    scoped(digest_mac_release) struct digest_mac key = {0};
    struct ticket ticket =
        world->tickets[(world->ticket_count - 1 - byte(world)) % TICKETS]; /* 0: the newest */
    if (byte(world) % 4 != 3 || digest_mac_init(&key) != ERR_OK)
        return ticket;
    ticket.kind = byte(world) % 2 == 0 ? TICKET_TRAIN : TICKET_VALIDATE;
    ticket.generation = near(world, ticket.generation);
    ticket.step = near(world, ticket.step);
    ticket.version = near(world, ticket.version);
    ticket.node = (struct node){byte(world) % 3, (uint32_t)near(world, ticket.node.index)};
    ticket.attempt = near(world, ticket.attempt);
    ticket.member = near(world, ticket.member);
    ticket.grant = proof_ticket(&key, world->run.run, &ticket);
    return ticket;
}

static void complete(struct world *world)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    scoped(buf_release) struct buf bytes = {0};
    struct complete_request request = {.ticket = ticket_of(world)};
    request.member = near(world, request.ticket.member);
    request.secret = secret(world, request.member);
    request.outcome = byte(world) % 4 == 3 ? ERR_STALE : ERR_OK;
    request.loss_sum = byte(world) % 16 == 15 ? -1 : 1;
    request.sample_count = near(world, 2);
    request.boot_count = (uint32_t)near(world, SERVERS) % (SERVERS + 1);
    request.boots = world->boot;
    if (wire_encode_complete_request(&request, &bytes) == ERR_OK &&
        wire_decode_complete_request(buf_slice(&bytes), &arena, &request, NULL) == ERR_OK)
        ignore(coordinator_complete(world->coordinator, world->now_ms, &request)); /* or refuses */
}

static void go(struct world *world)
{
    uint64_t member = near(world, world->members[byte(world) % MEMBERS]);
    const struct leave_request leave = {member, secret(world, member), "done"};
    if (byte(world) % 2 == 0)
        coordinator_member_lost(world->coordinator, world->now_ms, member, "broke");
    else
        ignore(coordinator_leave(world->coordinator, world->now_ms, &leave)); /* it may refuse */
}

static void live(struct world *world)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        ignore(coordinator_heartbeat(world->coordinator, world->now_ms,
                                     world->members[i])); /* who is no member does not live */
}

/* ---- time and operators ---- */

static void pass_time(struct world *world)
{
    uint64_t due_ms = coordinator_next_ms(world->coordinator);
    world->now_ms += byte(world) * 10;
    if (byte(world) % 2 == 0 && due_ms != UINT64_MAX && due_ms > world->now_ms)
        world->now_ms = due_ms;
    coordinator_tick(world->coordinator, world->now_ms);
}

static void operate(struct world *world)
{
    struct coordinator_drained drained;
    char name[4];
    snprintf(name, sizeof name, "s%u", byte(world) % SERVERS);
    switch (byte(world) % 8) {
    case 0:
        ignore(coordinator_stop(world->coordinator, world->now_ms, "enough")); /* or refused */
        break;
    case 1:
        ignore(coordinator_give_up(world->coordinator, world->now_ms, name, NULL)); /* the same */
        break;
    case 2:
    case 3:
        ignore(coordinator_drain(world->coordinator, world->now_ms, name, &drained, NULL));
        break;
    default:
        ignore(coordinator_checkpoint(world->coordinator));
    }
}

/* ---- a run ---- */

static bool begin(struct world *world)
{
    const struct coordinator_settings settings = {.term = 1,
                                                  .heartbeat_ms = 100,
                                                  .lease_ms = 1000,
                                                  .speculation_percent = 200,
                                                  .speculation_ms_min = 10,
                                                  .stop_ms = 500};
    uint8_t kind = byte(world) % 4, more = byte(world);
    world->run = (struct coordinator_run){
        .run = 1,
        .steps = STEPS,
        .servers_min = 1 + byte(world) % SERVERS,
        .slots = SLOTS,
        .slot_samples = 2,
        .async = kind == 1,
        .window = kind == 1 ? 2 * SLOTS : 0,
        .ssp = kind == 2,
        .delay = kind == 2 || kind == 3 ? 1 : 0,
        .node_slots = kind != 1 && (more & 1) != 0 ? 0 : 1,
        .audit = kind == 0 && (more & 2) != 0 ? 0.5 : 0,
        .validate_every = (more & 4) != 0 ? 2 : 0,
        .validation_samples = (more & 4) != 0 ? 5 : 0,
        .cut_every = (more & 8) != 0 ? 2 : 0,
        .seal = {.schedule = {.kind = SPEC_CONSTANT, .lr = 1, .step_samples = 2 * SLOTS},
                 .sample_predictions = 1,
                 .skip_max = 3},
        .parameter_count = sizeof parameters / sizeof parameters[0],
        .parameters = parameters,
        .parameter_bytes_max = 1 << 20,
        .spec = "train: {}",
        .checkpoint_dir = "checkpoints",
    };
    world->now_ms = 1000;
    world->coordinator = coordinator_new(&settings);
    for (uint32_t i = 0; i < SERVERS; i++)
        world->boot[i] = 11 + i;
    if (world->coordinator == NULL)
        return false;
    for (uint32_t i = 0; i < TICKETS; i++)
        world->tickets[i].kind = TICKET_TRAIN;
    return coordinator_start(world->coordinator, world->now_ms, &world->run, NULL, NULL) == ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const events[])(struct world *) = {
        pass_time, say_hello, report,   report,   report, report, lose_server, join,
        acquire,   acquire,   complete, complete, live,   go,     operate};
    struct world world = {.piece = {data, bytes}};
    bool begun = begin(&world);
    if (begun)
        carry_out(&world);
    for (size_t at = PIECE_BYTES; begun && at < bytes && at < EVENTS_MAX * PIECE_BYTES;
         at += PIECE_BYTES) {
        world.piece = fuzz_piece(data + at, bytes - at, PIECE_BYTES);
        events[byte(&world) % (sizeof events / sizeof events[0])](&world);
        carry_out(&world);
    }
    coordinator_free(world.coordinator);
    return 0;
}
