/* Values between workers: a member's outbox, and the wants of a member that has the place behind it,
 * among peers and a coordinator who say anything, in any order. The first byte of the input is the
 * mesh, then each piece an event: its first byte which, the second how often, the others its numbers,
 * where 0 is mostly the number that is right.
 *
 * The stream between these two members keeps the order of what is sent, as streams do, and nothing
 * else: it is as late as the input wants. On it, whatever else happens, the outbox never finds that
 * its asker breaches its credits, and no value comes that another name has. */
#include "tests/fuzz/fuzz.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "tests/models.h"
#include "worker/outbox.h"
#include "worker/wants.h"

#include <stdio.h>
#include <string.h>

enum { STAGES = 4, RANKS = 2, PEERS = STAGES * RANKS, STRANGER = 99 };
enum { GIVER_STAGE = 1, TAKER_STAGE = 2, GIVER = 1 + GIVER_STAGE * RANKS };
enum {
    PIECE_BYTES = 16,
    EVENTS_MAX = 256,
    TIMES_MAX = 16,
    MICROBATCHES = 16,
    ANSWER_MS = 100,
    VALUE_BYTES = 8
};
/* What lies between the two: answers are not sent before the connection has taken so many. */
enum { ANSWERS_MAX = WIRE_CREDITS, QUESTIONS_MAX = 2 * OUTBOX_WANTS_MAX };

/* What the coordinator says of the newest lease. */
struct lease {
    struct ticket ticket;
    uint64_t number, tries;
    struct peer peers[PEERS];
};

struct world {
    struct fuzz_piece piece;
    uint64_t now_ms;
    struct spec spec;
    struct model model;
    struct boundaries boundaries;
    struct lease lease;
    struct outbox *outbox;
    struct outbox_asker *stranger; /* who asks for anything */

    struct wants *wants;
    struct value_name awaited;
    uint64_t stream; /* of the two, as the one who asks numbers it; 0: none */
    struct outbox_asker *asker;
    uint32_t question_count, answer_count;
    struct want questions[QUESTIONS_MAX];
    struct outbox_answer answers[ANSWERS_MAX];
    uint64_t other_stream; /* to a peer that answers anything */
    struct want other_want;
};

/* ---- numbers ---- */

static uint8_t byte(struct world *world)
{
    return fuzz_byte(&world->piece);
}

static uint64_t near(struct world *world, uint64_t right)
{
    return fuzz_near(&world->piece, right);
}

static uint64_t digest_of(const struct value_name *name)
{
    const uint64_t parts[] = {name->generation, name->kind,     name->step,       name->version,
                              name->slot,       name->boundary, name->microbatch, name->way,
                              name->try_number, name->sequence, name->round,      name->rank};
    return digest_fast64((struct slice){(const uint8_t *)parts, sizeof parts});
}

static void drop_value(void *value)
{
    counted_unref(value);
}

/* ---- the coordinator ---- */

static struct places places_of(const struct world *world)
{
    return (struct places){world->lease.ticket.attempt, world->lease.number, PEERS,
                           world->lease.peers};
}

static struct place place_of(const struct world *world, uint32_t stage)
{
    const struct peer *peer = &world->lease.peers[stage * RANKS];
    return (struct place){stage, STAGES, 0, RANKS, peer->try_number};
}

static void peer_set(struct peer *peer, uint64_t member)
{
    peer->member = member;
    memset(peer->certificate, (int)member, sizeof peer->certificate);
    snprintf(peer->address, sizeof peer->address, "127.0.0.1:%u", (unsigned)(9000 + member % 100));
}

static void new_lease(struct world *world)
{
    struct ticket *ticket = &world->lease.ticket;
    ticket->attempt++;
    ticket->generation += byte(world) % 4 == 3;
    ticket->kind = byte(world) % 4 == 3 ? TICKET_VALIDATE : TICKET_TRAIN;
    ticket->step = ticket->version = ticket->step + byte(world) % 2;
    ticket->node = (struct node){1, byte(world) % 3};
    ticket->member = 1 + TAKER_STAGE * RANKS; /* the lease as who asks has it */
    world->lease.number++;
    world->lease.tries++;
    for (uint32_t i = 0; i < PEERS; i++) {
        world->lease.peers[i].stage = i / RANKS;
        world->lease.peers[i].rank = i % RANKS;
        world->lease.peers[i].try_number = world->lease.tries;
        peer_set(&world->lease.peers[i], 1 + i);
    }
}

/* A place gets another member, or its first one back, or two members change places. */
static void refill(struct world *world)
{
    uint32_t at = byte(world) % PEERS, other = byte(world) % (2 * PEERS);
    struct peer *peer = &world->lease.peers[at];
    uint64_t member = peer->member;
    if (other < PEERS) {
        peer_set(peer, member == 1 + at ? 50 + at : 1 + at);
    } else {
        peer_set(peer, world->lease.peers[other - PEERS].member);
        peer_set(&world->lease.peers[other - PEERS], member);
    }
    world->lease.tries++;
    for (uint32_t i = at / RANKS * RANKS; i < (at / RANKS + 1) * RANKS; i++)
        world->lease.peers[i].try_number = world->lease.tries;
    world->lease.number++;
}

static void grant_giver(struct world *world)
{
    struct places places = places_of(world);
    struct place place = place_of(world, byte(world) % 8 == 7 ? 0 : GIVER_STAGE);
    uint64_t attempts[] = {places.attempt, near(world, places.attempt)};
    places.number = near(world, places.number);
    outbox_keep(world->outbox, attempts, byte(world) % 8 == 7 ? 0 : 2);
    check(outbox_lease(world->outbox, &world->lease.ticket, &place, &places) == ERR_OK);
}

static void grant_taker(struct world *world)
{
    const struct places places = places_of(world);
    const struct place place = place_of(world, TAKER_STAGE);
    struct ticket ticket = world->lease.ticket;
    ticket.member = near(world, ticket.member);
    wants_lease(world->wants, &ticket, &place, &places);
}

static void tell(struct world *world)
{
    struct places places = places_of(world);
    uint8_t whom = byte(world);
    places.number = near(world, places.number);
    places.attempt = near(world, places.attempt);
    places.peer_count = byte(world) % 8 == 7 ? PEERS - 1 : PEERS;
    if (whom % 4 != 1)
        outbox_places(world->outbox, &places);
    if (whom % 4 != 2)
        wants_places(world->wants, world->now_ms, &places);
    if (whom == 255)
        outbox_generation(world->outbox, near(world, world->lease.ticket.generation));
}

/* ---- names ---- */

/* A value that the newest lease passes over the boundary between the two, or a sum of a place. */
static struct value_name good_name(struct world *world, uint32_t sum_stage)
{
    const struct ticket *ticket = &world->lease.ticket;
    const struct place place = place_of(world, sum_stage);
    uint8_t which = byte(world);
    if (which % 4 == 3) {
        const struct executor_part part = {1 + byte(world) % 4, byte(world) % 2, which / 4 % RANKS};
        return boundaries_sum_name(ticket, &place, &part);
    }
    const struct executor_value value = {which % 4 == 2 ? EXECUTOR_BACKWARD : EXECUTOR_FORWARD,
                                         which % 8 == 0 ? TAKER_STAGE : 1 + which / 8 % 3,
                                         byte(world) % 2, byte(world) % MICROBATCHES, VALUE_BYTES};
    return boundaries_name(ticket, 0, &value);
}

static struct value_name any_name(struct world *world)
{
    struct value_name name = good_name(world, GIVER_STAGE);
    name.generation = near(world, name.generation);
    name.step = near(world, name.step);
    name.version = near(world, name.version);
    name.slot = (uint32_t)near(world, name.slot);
    name.microbatch = (uint32_t)near(world, name.microbatch);
    name.boundary = (uint32_t)near(world, name.boundary);
    name.sequence = (uint32_t)near(world, name.sequence);
    name.try_number = near(world, name.try_number);
    name.rank = (uint32_t)near(world, name.rank);
    return name;
}

/* ---- the member that gives ---- */

static void give(struct world *world)
{
    const struct value_name name = good_name(world, GIVER_STAGE);
    uint64_t attempt = world->lease.ticket.attempt - (byte(world) % 4 == 3);
    struct passage passage;
    if (attempt != world->lease.ticket.attempt ||
        (!boundaries_is_sum(&name) &&
         !boundaries_pass(&world->boundaries, &world->lease.ticket, &name, &passage)))
        return; /* no program does so */
    struct counted *value = counted_new(VALUE_BYTES);
    check(value != NULL);
    memset(value->data, 0, VALUE_BYTES);
    enum err err = outbox_give(world->outbox, attempt, &name, value, digest_of(&name));
    check(err == ERR_OK); /* the same name has the same digest here */
}

static void answer(struct world *world)
{
    if (world->asker != NULL && world->answer_count < ANSWERS_MAX &&
        outbox_next(world->asker, &world->answers[world->answer_count]))
        world->answer_count++;
}

/* ---- who asks for anything ---- */

static void ask_anything(struct world *world)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 16};
    scoped(buf_release) struct buf bytes = {0};
    struct to_peer message = {.kind = TO_PEER_WANT, .want = {byte(world) % 100, any_name(world)}};
    if (wire_encode_to_peer(&message, &bytes) != ERR_OK ||
        wire_decode_to_peer(buf_slice(&bytes), &arena, &message, NULL) != ERR_OK)
        return;
    for (unsigned left = 1 + byte(world) % 100; left > 0; left--, message.want.id++)
        if (outbox_want(world->stranger, &message.want) != ERR_OK)
            break; /* more than credits allow */
}

static void answer_stranger(struct world *world)
{
    struct outbox_answer answer;
    for (unsigned left = byte(world); left > 0 && outbox_next(world->stranger, &answer); left--)
        counted_unref(answer.value);
}

static void replace_stranger(struct world *world)
{
    struct digest shown;
    uint64_t member = byte(world) % 4 == 0 ? 1 + byte(world) % PEERS : STRANGER;
    memset(shown.bytes, (int)member, sizeof shown.bytes);
    outbox_asker_free(world->stranger);
    world->stranger = outbox_asker_new(world->outbox, member, &shown);
    check(world->stranger != NULL);
}

/* ---- the member that asks ---- */

static void cut(struct world *world)
{
    for (uint32_t i = 0; i < world->answer_count; i++)
        counted_unref(world->answers[i].value);
    world->question_count = world->answer_count = 0;
    world->stream = 0;
    outbox_asker_free(world->asker);
    world->asker = NULL;
}

static void open_stream(struct world *world, const struct wants_effect *effect)
{
    struct digest shown;
    if (effect->peer->member != GIVER) {
        world->other_stream = effect->number;
        return;
    }
    cut(world);
    memset(shown.bytes, 1 + TAKER_STAGE * RANKS, sizeof shown.bytes);
    world->stream = effect->number;
    world->asker = outbox_asker_new(world->outbox, 1 + TAKER_STAGE * RANKS, &shown);
    check(world->asker != NULL);
}

static void ask(struct world *world)
{
    struct wants_effect effect;
    bool ahead = byte(world) % 8 == 7;
    if (!(ahead ? wants_next_stream : wants_next)(world->wants, world->now_ms, &effect))
        return;
    if (effect.kind == WANTS_OPEN)
        open_stream(world, &effect);
    else if (effect.kind == WANTS_ASK && effect.number == world->stream &&
             world->question_count < QUESTIONS_MAX)
        world->questions[world->question_count++] = effect.want;
    else if (effect.kind == WANTS_ASK)
        world->other_want = effect.want;
}

static void wait_for(struct world *world)
{
    const struct value_name name =
        byte(world) % 8 == 7 ? any_name(world) : good_name(world, TAKER_STAGE);
    size_t bytes = near(world, VALUE_BYTES) % (WIRE_VALUE_BYTES_MAX + 1);
    if (byte(world) % 4 == 3) {
        wants_expect(world->wants, &name, bytes);
        return;
    }
    if (wants_begin(world->wants, world->now_ms, &name, bytes) == ERR_OK)
        world->awaited = name;
}

static void look(struct world *world)
{
    struct wants_value value;
    uint64_t member;
    if (wants_look(world->wants, &world->awaited, &value, &member) != ERR_OK)
        return;
    bool right = value.digest == digest_of(&world->awaited);
    check(right || value.member != GIVER);
    enum err err = wants_judge(world->wants, &world->awaited, right);
    check(err == (right ? ERR_OK : ERR_BEHIND));
}

/* The next question comes to the outbox. */
static void deliver(struct world *world)
{
    if (world->question_count == 0)
        return;
    check(outbox_want(world->asker, &world->questions[0]) == ERR_OK);
    world->question_count--;
    memmove(world->questions, world->questions + 1,
            world->question_count * sizeof world->questions[0]);
}

static void bring(struct world *world, uint64_t stream, const struct from_peer *message,
                  struct counted *take_value)
{
    bool kept = false;
    if (message->kind == FROM_PEER_HAVE)
        kept = wants_have(world->wants, world->now_ms, stream, message, take_value);
    else if (message->kind == FROM_PEER_PARKED)
        wants_parked(world->wants, world->now_ms, stream, message->parked.id);
    else
        wants_gone(world->wants, world->now_ms, stream, message->gone.id, message->gone.code);
    if (!kept)
        counted_unref(take_value);
}

static void receive(struct world *world)
{
    if (world->answer_count == 0)
        return;
    const struct outbox_answer answer = world->answers[0];
    world->answer_count--;
    memmove(world->answers, world->answers + 1, world->answer_count * sizeof world->answers[0]);
    bring(world, world->stream, &answer.message, answer.value);
}

/* A peer that is not the outbox answers. */
static void receive_anything(struct world *world)
{
    static const enum err codes[] = {ERR_NO_GRANT, ERR_OLD_GENERATION, ERR_NOT_FOUND, ERR_OK};
    uint64_t id = near(world, world->other_want.id);
    uint64_t stream = near(world, world->other_stream);
    uint8_t which = byte(world);
    if (stream == world->stream)
        return;
    struct from_peer message = {.kind = FROM_PEER_PARKED, .parked = {id}};
    struct counted *value = NULL;
    if (which % 4 == 1) {
        message = (struct from_peer){.kind = FROM_PEER_GONE, .gone = {id, codes[which / 4 % 4]}};
    } else if (which % 4 != 2) {
        value = counted_new(VALUE_BYTES);
        check(value != NULL);
        message = (struct from_peer){.kind = FROM_PEER_HAVE,
                                     .have = {id, near(world, digest_of(&world->other_want.name))},
                                     .payload_bytes = (uint32_t)near(world, VALUE_BYTES)};
    }
    bring(world, stream, &message, value);
}

static void lose(struct world *world)
{
    uint64_t stream = byte(world) % 2 == 0 ? world->stream : near(world, world->other_stream);
    wants_lost(world->wants, world->now_ms, stream);
    if (stream == world->stream)
        cut(world);
}

static void pass_time(struct world *world)
{
    uint64_t wake_ms = wants_wake_ms(world->wants);
    uint8_t how = byte(world);
    world->now_ms = how % 2 == 0 && wake_ms != UINT64_MAX && wake_ms > world->now_ms
                        ? wake_ms
                        : world->now_ms + how;
    if (how == 255)
        wants_heard(world->wants, world->now_ms, 1 + byte(world) % PEERS);
}

/* ---- a run ---- */

static void begin(struct world *world, uint8_t kind)
{
    world->now_ms = 1000;
    world->spec = (struct spec){
        .model = {.kind = SPEC_MLP, .sizes_count = 5, .sizes = {5, 11, 9, 7, 4}},
        .train = {.slots = 6, .slot_samples = MICROBATCHES, .microbatch = 1},
        .mesh = {.stages = STAGES,
                 .schedule = kind % 2 == 0 ? SCHEDULE_1F1B : SCHEDULE_CHIMERA,
                 .runs = 1},
    };
    world->model = model_of(world->spec.model);
    check(boundaries_init(&world->boundaries, &world->spec, &world->model) == ERR_OK);
    const struct outbox_options outbox = {&world->boundaries, kind % 4 == 3};
    const struct wants_options wants = {&world->boundaries, ANSWER_MS, 1, drop_value};
    check(outbox_new(&outbox, &world->outbox) == ERR_OK);
    check(wants_new(&wants, &world->wants) == ERR_OK);
    world->lease.ticket = (struct ticket){.generation = 3, .attempt = 76};
    new_lease(world);
    replace_stranger(world);
    grant_giver(world);
    grant_taker(world);
}

static void end(struct world *world)
{
    cut(world);
    outbox_asker_free(world->stranger);
    outbox_free(world->outbox);
    wants_free(world->wants);
    boundaries_release(&world->boundaries);
    model_release(&world->model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const events[])(struct world *) = {ask,
                                                     wait_for,
                                                     deliver,
                                                     answer,
                                                     receive,
                                                     give,
                                                     look,
                                                     ask,
                                                     pass_time,
                                                     ask,
                                                     deliver,
                                                     answer,
                                                     receive,
                                                     give,
                                                     wait_for,
                                                     refill,
                                                     tell,
                                                     grant_giver,
                                                     grant_taker,
                                                     ask_anything,
                                                     answer_stranger,
                                                     new_lease,
                                                     lose,
                                                     replace_stranger,
                                                     receive_anything};
    struct world world = {0};
    begin(&world, bytes > 0 ? data[0] : 0);
    for (size_t at = 1; at < bytes && at < EVENTS_MAX * PIECE_BYTES; at += PIECE_BYTES) {
        world.piece = fuzz_piece(data + at, bytes - at, PIECE_BYTES);
        uint8_t which = byte(&world);
        for (unsigned left = 1 + byte(&world) % TIMES_MAX; left > 0; left--)
            events[which % (sizeof events / sizeof events[0])](&world);
        outbox_check(world.outbox);
        wants_check(world.wants);
    }
    end(&world);
    return 0;
}
