/* The two cores against each other, from a seed: messages are late, streams break, leases and places
 * are heard of in any order, and the giver is replaced. Each value that is given is taken, nobody
 * who answers is named, and nobody asks more than the credits allow. */
#include "tests/unit/mesh_fixture.h"

#include "common/rand.h"
#include "worker/outbox.h"
#include "worker/wants.h"

enum {
    SEEDS = 300,
    ANSWER_MS = 10000,
    LATE_MS = 200, /* of a message */
    FAULTS_END_MS = 20000,
    END_MS = FAULTS_END_MS + 6000, /* no wait is left to a renewed question */
    MESSAGES_MAX = 512,
    VALUES = 8, /* of the ticket's four slots */
    GIVERS = 3, /* members that have stage 1, one after another */
};

/* On its way over a stream: to the giver, or back. */
struct message {
    uint64_t at_ms, number;
    bool back;
    struct want want;
    struct outbox_answer answer;
};

/* A member that has, or had, stage 1. */
struct giver {
    struct outbox *outbox;
    struct outbox_asker *asker; /* of the newest stream to it; NULL: none */
    uint64_t stream;
    bool leased;
    uint32_t given;
};

struct world {
    struct mesh_fixture mesh;
    struct rand_state rand;
    uint64_t now_ms;
    struct giver givers[GIVERS];
    uint32_t giver; /* has the place now */
    struct wants *wants;
    uint32_t taken;
    bool waits;
    struct message messages[MESSAGES_MAX];
    uint32_t message_count;
};

static void nothing(void *value)
{
    (void)value;
}

static bool happens(struct world *w, uint32_t percent)
{
    return w->now_ms < FAULTS_END_MS && rand_below(&w->rand, 100) < percent;
}

static struct value_name name_of(const struct world *w, uint32_t n)
{
    struct value_name name = mesh_name(&w->mesh, 2, n % 2);
    name.slot += n / 2;
    return name;
}

/* Streams keep their order. */
static void post(struct world *w, struct message message)
{
    message.at_ms = w->now_ms + rand_below(&w->rand, LATE_MS);
    for (uint32_t i = 0; i < w->message_count; i++)
        if (w->messages[i].number == message.number && w->messages[i].back == message.back &&
            w->messages[i].at_ms > message.at_ms)
            message.at_ms = w->messages[i].at_ms;
    assert_true(w->message_count < MESSAGES_MAX);
    w->messages[w->message_count++] = message;
}

static void take_out(struct world *w, uint32_t i)
{
    w->message_count--;
    memmove(&w->messages[i], &w->messages[i + 1], (w->message_count - i) * sizeof w->messages[0]);
}

static void lose_stream(struct world *w, struct giver *giver)
{
    if (giver->asker == NULL)
        return;
    wants_lost(w->wants, w->now_ms, giver->stream);
    outbox_asker_free(giver->asker);
    giver->asker = NULL;
    for (uint32_t i = w->message_count; i-- > 0;)
        if (w->messages[i].number == giver->stream) {
            counted_unref(w->messages[i].answer.value);
            take_out(w, i);
        }
}

static void deliver_back(struct world *w, const struct message *message)
{
    const struct from_peer *answer = &message->answer.message;
    if (answer->kind == FROM_PEER_HAVE) {
        bool kept = wants_have(w->wants, w->now_ms, message->number, answer, w);
        (void)kept; /* the bytes are not looked at */
        counted_unref(message->answer.value);
    } else if (answer->kind == FROM_PEER_PARKED) {
        wants_parked(w->wants, w->now_ms, message->number, answer->parked.id);
    } else {
        wants_gone(w->wants, w->now_ms, message->number, answer->gone.id, answer->gone.code);
    }
}

static void deliver(struct world *w)
{
    for (uint32_t i = 0; i < w->message_count;) {
        struct message message = w->messages[i];
        if (message.at_ms > w->now_ms) {
            i++;
            continue;
        }
        take_out(w, i);
        for (uint32_t g = 0; g < GIVERS && !message.back; g++)
            if (w->givers[g].asker != NULL && w->givers[g].stream == message.number)
                assert_int_equal(outbox_want(w->givers[g].asker, &message.want), ERR_OK);
        if (message.back)
            deliver_back(w, &message);
    }
}

static void carry_out(struct world *w, const struct wants_effect *effect)
{
    struct giver *giver = &w->givers[effect->peer->member % GIVERS];
    switch (effect->kind) {
    case WANTS_OPEN:
        lose_stream(w, giver);
        giver->stream = effect->number;
        giver->asker = outbox_asker_new(giver->outbox, 3, &(struct digest){{0}});
        assert_non_null(giver->asker);
        break;
    case WANTS_ASK:
        assert_int_equal(giver->stream, effect->number);
        post(w, (struct message){.number = effect->number, .want = effect->want});
        break;
    case WANTS_UNREACHABLE:
        fail_msg("a member that answers is named");
    }
}

/* Members know of places when they are told: the giver that has the place may be told late. */
static void tell_giver(struct world *w, uint32_t g)
{
    struct giver *giver = &w->givers[g];
    const struct place place = mesh_place(1);
    if (g != w->giver)
        return;
    assert_int_equal(outbox_lease(giver->outbox, &w->mesh.ticket, &place, &w->mesh.places), ERR_OK);
    giver->leased = true;
}

static void give(struct world *w, struct giver *giver)
{
    const struct value_name name = name_of(w, giver->given);
    struct counted *value = counted_new(8);
    assert_non_null(value);
    assert_int_equal(outbox_give(giver->outbox, ATTEMPT, &name, value, 1), ERR_OK);
    giver->given++;
}

/* Another member has the place, and computes it from the node's start (S4). */
static void replace(struct world *w)
{
    if (w->giver + 1 == GIVERS)
        return;
    w->giver++;
    w->mesh.peers[1].member = 100 * GIVERS + w->giver;
    w->mesh.places.number++;
}

static void take(struct world *w)
{
    const struct value_name name = name_of(w, w->taken);
    struct wants_value value;
    uint64_t member = 0;
    if (!w->waits)
        assert_int_equal(wants_begin(w->wants, w->now_ms, &name, 8), ERR_OK);
    w->waits = true;
    enum err err = wants_look(w->wants, &name, &value, &member);
    if (err == ERR_BEHIND)
        return;
    assert_int_equal(err, ERR_OK);
    assert_int_equal(wants_judge(w->wants, &name, true), ERR_OK);
    w->waits = false;
    w->taken++;
}

static void faults(struct world *w)
{
    struct places older = w->mesh.places;
    older.number--;
    if (happens(w, 2))
        replace(w);
    if (happens(w, 2))
        lose_stream(w, &w->givers[rand_below(&w->rand, GIVERS)]);
    if (happens(w, 5))
        wants_places(w->wants, w->now_ms, &older);
}

/* Some milliseconds; what is there to be done is done, but not always at once. */
static void step(struct world *w)
{
    struct giver *giver = &w->givers[w->giver];
    bool calm = w->now_ms >= FAULTS_END_MS;
    w->now_ms += 1 + rand_below(&w->rand, 50);
    faults(w);
    deliver(w);
    if (calm || happens(w, 10))
        wants_places(w->wants, w->now_ms, &w->mesh.places);
    if (calm || happens(w, 5))
        tell_giver(w, w->giver);
    giver = &w->givers[w->giver];
    if (giver->leased && giver->given < VALUES && (calm || happens(w, 1)))
        give(w, giver);
    for (uint32_t g = 0; g < GIVERS; g++) {
        struct message message = {.number = w->givers[g].stream, .back = true};
        while (w->givers[g].asker != NULL && outbox_next(w->givers[g].asker, &message.answer))
            post(w, message);
    }
    if (w->waits || calm || happens(w, 20))
        take(w);
    struct wants_effect effect;
    while (wants_next(w->wants, w->now_ms, &effect))
        carry_out(w, &effect);
}

static void set_up(struct world *w, uint64_t seed)
{
    const struct place place = mesh_place(2);
    mesh_set_up(&w->mesh);
    w->rand.state = seed;
    w->now_ms = 1000;
    w->mesh.ticket.node = (struct node){2, 0};
    w->mesh.peers[1].member = 100 * GIVERS;
    const struct wants_options options = {&w->mesh.boundaries, ANSWER_MS, seed, nothing};
    assert_int_equal(wants_new(&options, &w->wants), ERR_OK);
    for (uint32_t g = 0; g < GIVERS; g++) {
        const struct outbox_options outbox = {&w->mesh.boundaries, true};
        assert_int_equal(outbox_new(&outbox, &w->givers[g].outbox), ERR_OK);
    }
    wants_lease(w->wants, &w->mesh.ticket, &place, &w->mesh.places);
}

static void tear_down(struct world *w)
{
    for (uint32_t g = 0; g < GIVERS; g++) {
        lose_stream(w, &w->givers[g]);
        outbox_free(w->givers[g].outbox);
    }
    wants_free(w->wants);
    mesh_tear_down(&w->mesh);
}

TEST(s2_whatever_comes_when_each_value_is_taken)
{
    uint32_t replaced = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world world = {.mesh = {0}};
        set_up(&world, seed);
        while (world.taken < VALUES && world.now_ms < END_MS)
            step(&world);
        if (world.taken < VALUES)
            fail_msg("seed %lu: %u of %d values taken", seed, world.taken, VALUES);
        replaced += world.giver;
        tear_down(&world);
    }
    assert_true(replaced > 0);
}
