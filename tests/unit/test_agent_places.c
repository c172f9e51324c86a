/* A worker in a mesh: a place of a ticket, the lease that it belongs to, and who else computes there. */
#include "common/model/pieces.h"
#include "tests/unit/agent_fixture.h"

enum { ATTEMPT = 9, NEIGHBOUR = 70 };

#define TWO_STAGES .mesh = {.stages = 2, .runs = 1, .schedule = SCHEDULE_1F1B}

/* Of a lease with two places, the own one at `stage`. */
struct lease {
    struct peer peers[2];
    uint64_t kept[WIRE_LEASES_MAX];
    struct acquire_reply reply;
};

static void lease_make(struct lease *lease, const struct agent_fixture *f, uint32_t stage,
                       uint64_t attempt)
{
    *lease = (struct lease){.reply = {.result = ACQUIRE_TICKET,
                                      .ticket = ticket_of(f->member == 41 ? 1 : 2, 0),
                                      .place = {.stage = stage, .stages = 2, .ranks = 1},
                                      .places = {attempt, 1, 2, NULL}}};
    lease->reply.ticket.attempt = attempt;
    lease->reply.ticket.member = f->member;
    /* the units' chunks: fc1's two, and fc2's two with the loss */
    lease->reply.ticket.chunks =
        stage == 0 ? (struct number_range){0, 2} : (struct number_range){2, 3};
    lease->reply.ticket.parts = (struct number_range){0, 2};
    for (uint32_t i = 0; i < 2; i++)
        lease->peers[i] = (struct peer){.stage = i, .member = i == stage ? f->member : NEIGHBOUR};
    lease->reply.places.peers = lease->peers;
    lease->reply.leases = lease->kept;
}

static void answered(struct agent_fixture *f, uint64_t sequence, const struct lease *lease)
{
    agent_acquired(f->agent, f->now_ms, sequence, ERR_OK, &lease->reply);
    look(f);
}

static void placed(struct agent_fixture *f)
{
    agent_placed(f->agent, f->now_ms, 0);
    look(f);
}

/* A member computes at that stage, its weights come; the sequence of the next acquire is unknown. */
static uint64_t start_place(struct agent_fixture *f, struct lease *lease, uint32_t stage)
{
    uint64_t sequence = start(f).sequence;
    lease_make(lease, f, stage, ATTEMPT);
    answered(f, sequence, lease);
    placed(f);
    return sequence;
}

static void notice(struct agent_fixture *f, const struct places *places)
{
    agent_places(f->agent, f->now_ms, places);
    look(f);
}

static void ack_all(struct agent_fixture *f)
{
    struct agent_effect pushes[EFFECTS_MAX];
    uint32_t pushes_count = count(f, AGENT_PUSH);
    for (uint32_t i = 0; i < pushes_count; i++)
        pushes[i] = *seen(f, AGENT_PUSH, i);
    for (uint32_t i = 0; i < pushes_count; i++)
        acked(f, &pushes[i], ERR_OK, 0);
}

static void gradient(struct agent_fixture *f, uint32_t unit, struct node node)
{
    agent_gradient(f->agent, f->now_ms, 0, unit, node);
    look(f);
}

/* The place is complete; the sequence of the next acquire. */
static uint64_t finish_place(struct agent_fixture *f, const struct lease *lease)
{
    uint32_t stage = lease->reply.place.stage;
    pull_all(f);
    agent_gradient(f->agent, f->now_ms, 0, stage, lease->reply.ticket.node);
    agent_computed(
        f->agent, f->now_ms,
        &(struct agent_result){.err = ERR_OK, .sums = {1, {{1, VALUE_FORWARD, true, 1, 77}}}});
    look(f);
    ack_all(f);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_OK);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.boundary_count, 1);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.boundaries[0].sum, 77);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.place.stage, stage);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.place.stages, 2);
    return seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
}

static void expect_kept(struct agent_fixture *f, uint32_t kept)
{
    assert_int_equal(count(f, AGENT_KEEP), 1);
    assert_int_equal(seen(f, AGENT_KEEP, 0)->keep.count, kept);
}

/* ---- what belongs to a place ---- */

TEST_F(a_place_pulls_and_pushes_what_its_units_have, agent, TWO_STAGES)
{
    for (uint32_t stage = 0; stage < 2; stage++) {
        struct lease lease;
        if (stage == 0)
            start_place(f, &lease, stage);
        const uint32_t first = stage == 0 ? 0 : 2;
        uint32_t pulled = 0;
        assert_int_equal(count(f, AGENT_PULL), SERVERS);
        for (uint32_t i = 0; i < SERVERS; i++)
            for (uint32_t c = 0; c < seen(f, AGENT_PULL, i)->pull.chunk_count; c++, pulled++)
                assert_in_range(seen(f, AGENT_PULL, i)->pull.chunks[c], first, first + 1);
        assert_int_equal(pulled, 2);
        if (stage == 0) {
            uint64_t sequence = finish_place(f, &lease);
            lease_make(&lease, f, 1, ATTEMPT + 1);
            answered(f, sequence, &lease);
            placed(f);
        } else {
            pull_all(f);
            gradient(f, 1, ticket_of(1, 0).node);
            uint32_t entries = 0;
            for (uint32_t i = 0; i < count(f, AGENT_PUSH); i++)
                entries += seen(f, AGENT_PUSH, i)->push.entry_count;
            assert_int_equal(entries, 3); /* the loss too */
        }
    }
}

TEST_F(nothing_is_pulled_before_the_place_s_executor_is_there, agent, TWO_STAGES)
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    lease_make(&lease, f, 0, ATTEMPT);
    answered(f, sequence, &lease);
    assert_int_equal(f->effects[0].kind, AGENT_LEASE); /* before its compute */
    assert_int_equal(f->effects[0].places.peer_count, 2);
    assert_int_equal(f->effects[0].places.peers[1].member, NEIGHBOUR);
    assert_int_equal(f->effects[1].kind, AGENT_COMPUTE);
    assert_int_equal(f->effects[1].place.stages, 2);
    assert_int_equal(f->count, 2);
    placed(f);
    assert_int_equal(count(f, AGENT_PULL), SERVERS);
}

TEST_F(the_same_place_holds_its_weights_and_another_holds_none, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 1);
    uint64_t sequence = finish_place(f, &lease);
    for (uint32_t i = 1; i < 4; i++) {
        const uint32_t stage = i == 2 ? 0 : 1;
        lease_make(&lease, f, stage, ATTEMPT + i);
        answered(f, sequence, &lease);
        placed(f);
        assert_int_equal(count(f, AGENT_PULL), i == 1 ? 0 : SERVERS);
        sequence = finish_place(f, &lease);
    }
}

TEST_F(a_tied_parameter_is_pulled_for_the_place_s_first_use, agent, .tied = true, TWO_STAGES)
{
    const struct model_parameter *shared = &f->model.parameters[0];
    assert_int_equal(shared->parts, 2);
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    lease_make(&lease, f, 1, ATTEMPT);
    lease.reply.ticket.chunks = (struct number_range){0, f->model.chunks_count};
    answered(f, sequence, &lease);
    placed(f);
    uint32_t found = 0;
    for (uint32_t i = 0; i < count(f, AGENT_PULL); i++)
        for (uint32_t c = 0; c < seen(f, AGENT_PULL, i)->pull.chunk_count; c++)
            found += seen(f, AGENT_PULL, i)->pull.chunks[c] == shared->chunk_first;
    assert_int_equal(found, 1);
    pull_all(f); /* and the unit that uses it last is ready */
    const uint32_t last = f->model.units_count - 1;
    gradient(f, last, lease.reply.ticket.node);
    uint32_t pushed = 0;
    for (uint32_t i = 0; i < count(f, AGENT_PUSH); i++)
        for (uint32_t e = 0; e < seen(f, AGENT_PUSH, i)->push.entry_count; e++)
            if (seen(f, AGENT_PUSH, i)->push.entries[e].chunk == shared->chunk_first) {
                assert_int_equal(seen(f, AGENT_PUSH, i)->push.entries[e].part, 1);
                pushed++;
            }
    assert_int_equal(pushed, 1);
}

/* The embedding, a layer and the head, of 1,056, 872 and 1,044 weights: the even cut gives the first
 * place two of them, the memory of 1,920 only one. */
TEST_F(a_place_has_the_units_that_are_cut_by_memory, agent, .tied = true,
       .mesh = {.stages = 2, .runs = 1, .schedule = SCHEDULE_1F1B, .memory = 8 * 1920})
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    lease_make(&lease, f, 0, ATTEMPT);
    lease.reply.ticket.chunks = (struct number_range){0, f->model.chunks_count};
    answered(f, sequence, &lease);
    placed(f);
    assert_true(count(f, AGENT_PULL) > 0);
    for (uint32_t i = 0; i < count(f, AGENT_PULL); i++)
        for (uint32_t c = 0; c < seen(f, AGENT_PULL, i)->pull.chunk_count; c++) {
            uint32_t chunk = seen(f, AGENT_PULL, i)->pull.chunks[c];
            const uint32_t parameter = f->model.chunks[chunk].parameter;
            assert_int_equal(f->model.parameters[parameter].part_units[0], 0);
        }
}

TEST_F(what_the_ticket_does_not_name_is_not_pushed, agent, TWO_STAGES)
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    lease_make(&lease, f, 1, ATTEMPT);
    lease.reply.ticket.chunks = (struct number_range){2, 1};
    lease.reply.ticket.also_count = 1;
    lease.reply.ticket.also[0] = (struct grant_range){{4, 1}, {0, 1}};
    answered(f, sequence, &lease);
    placed(f);
    pull_all(f);
    gradient(f, 1, lease.reply.ticket.node);
    assert_int_equal(count(f, AGENT_PUSH), 1);
    assert_int_equal(seen(f, AGENT_PUSH, 0)->push.entry_count, 2);
    ack_all(f);
    computed(f, ERR_OK);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_OK);
}

TEST_F(halves_of_a_node_are_pushed_as_nodes_of_their_own, agent,
       .mesh = {.stages = 2, .runs = 1, .schedule = SCHEDULE_CHIMERA})
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    lease_make(&lease, f, 0, ATTEMPT);
    lease.reply.ticket.node = (struct node){1, 1};
    lease.reply.ticket.chunks = (struct number_range){0, 5};
    answered(f, sequence, &lease);
    placed(f);
    pull_all(f);
    agent_gradient(f->agent, f->now_ms, 0, 1, (struct node){0, 3});
    agent_gradient(f->agent, f->now_ms, 0, 0, (struct node){0, 2});
    look(f);
    assert_int_equal(count(f, AGENT_PUSH), 2 * SERVERS);
    for (uint32_t i = 0; i < 2 * SERVERS; i++) {
        const struct push *push = &seen(f, AGENT_PUSH, i)->push;
        assert_int_equal(push->node.level, 0);
        for (uint32_t e = 0; e < push->entry_count; e++)
            assert_int_equal(push->node.index, push->entries[e].chunk < 2 ? 2 : 3);
    }
    assert_int_equal(seen(f, AGENT_PUSH, 0)->push.tickets->node.level, 1);
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_OK});
    ack_all(f);
    assert_int_equal(count(f, AGENT_COMPLETE), 1);
}

/* ---- S3: until the lease is over ---- */

TEST_F(s3_what_was_produced_is_kept_until_the_lease_is_over, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    uint64_t sequence = finish_place(f, &lease);
    assert_int_equal(count(f, AGENT_KEEP), 0);
    lease.reply.result = ACQUIRE_WAIT;
    lease.kept[0] = ATTEMPT;
    lease.reply.lease_count = 1;
    answered(f, sequence, &lease);
    assert_int_equal(count(f, AGENT_KEEP), 0);
    lease.reply.lease_count = 0;
    answered(f, seen(f, AGENT_ACQUIRE, 0)->acquire.sequence, &lease);
    expect_kept(f, 0);
}

TEST_F(s3_the_next_grant_says_that_the_lease_before_is_over, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    uint64_t sequence = finish_place(f, &lease);
    lease_make(&lease, f, 0, ATTEMPT + 1);
    answered(f, sequence, &lease);
    expect_kept(f, 1);
    assert_int_equal(seen(f, AGENT_KEEP, 0)->keep.attempts[0], ATTEMPT + 1);
    assert_int_equal(f->effects[0].kind, AGENT_KEEP); /* before the next one takes memory */
}

TEST_F(s3_a_notice_says_that_a_lease_is_over, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    finish_place(f, &lease);
    notice(f, &(struct places){.attempt = ATTEMPT, .number = 2});
    expect_kept(f, 0);
    assert_int_equal(f->count, 1);
}

TEST_F(s3_the_end_of_a_lease_ends_its_compute_without_complete, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    notice(f, &(struct places){.attempt = ATTEMPT, .number = 2});
    assert_int_equal(f->effects[0].kind, AGENT_CANCEL);
    expect_kept(f, 0);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    lease_make(&lease, f, 1, ATTEMPT + 1);
    answered(f, sequence, &lease);
    assert_int_equal(count(f, AGENT_LEASE), 0); /* the compute before has not ended */
    computed(f, ERR_CANCELLED);
    assert_int_equal(f->effects[0].kind, AGENT_LEASE);
    assert_int_equal(count(f, AGENT_COMPUTE), 1);
}

/* It was given up between grant and answer. */
TEST_F(s3_an_answer_may_say_that_its_lease_is_over, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    uint64_t sequence = finish_place(f, &lease);
    lease_make(&lease, f, 0, ATTEMPT + 1);
    lease.reply.places.peer_count = 0;
    answered(f, sequence, &lease);
    expect_kept(f, 0);
    assert_int_equal(count(f, AGENT_STOP) + count(f, AGENT_COMPUTE), 0);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
}

TEST_F(s3_who_leaves_stays_until_its_leases_are_over, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    finish_place(f, &lease);
    agent_leave(f->agent, f->now_ms, f->now_ms + 5000);
    look(f);
    assert_int_equal(f->count, 0);
    notice(f, &(struct places){.attempt = ATTEMPT, .number = 2});
    assert_int_equal(count(f, AGENT_LEAVE), 1);
}

TEST_F(s3_who_leaves_does_not_wait_for_ever, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    finish_place(f, &lease);
    agent_leave(f->agent, f->now_ms, f->now_ms + 5000);
    look(f);
    wait(f, 5000);
    assert_int_equal(count(f, AGENT_LEAVE), 1);
}

TEST_F(s3_who_leaves_gives_a_place_back_at_once, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    uint64_t sequence = finish_place(f, &lease);
    agent_leave(f->agent, f->now_ms, f->now_ms + 5000);
    lease_make(&lease, f, 0, ATTEMPT + 1);
    lease.kept[0] = ATTEMPT;
    lease.reply.lease_count = 1;
    answered(f, sequence, &lease);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_CANCELLED);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.ticket.attempt, ATTEMPT + 1);
    assert_int_equal(count(f, AGENT_COMPUTE) + count(f, AGENT_ACQUIRE) + count(f, AGENT_LEAVE), 0);
}

/* ---- S7: notices, and whom nobody reaches ---- */

static struct places replaced(struct lease *lease, uint64_t number)
{
    lease->peers[1 - lease->reply.place.stage].member = NEIGHBOUR + number;
    return (struct places){ATTEMPT, number, 2, lease->peers};
}

TEST_F(s7_an_older_notice_is_ignored, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    const uint64_t numbers[] = {3, 3, 2, 4};
    for (uint32_t i = 0; i < 4; i++) {
        const struct places places = replaced(&lease, numbers[i]);
        notice(f, &places);
        assert_int_equal(count(f, AGENT_PLACES), i == 0 || i == 3);
        assert_int_equal(f->count, i == 0 || i == 3);
    }
    notice(f, &(struct places){.attempt = ATTEMPT, .number = 3});
    assert_int_equal(f->count, 0);
    notice(f, &(struct places){.attempt = ATTEMPT, .number = 4});
    expect_kept(f, 0); /* the last word of that number */
}

TEST_F(s7_a_done_place_hears_who_asks_it_next, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    finish_place(f, &lease);
    const struct places places = replaced(&lease, 2);
    notice(f, &places);
    assert_int_equal(seen(f, AGENT_PLACES, 0)->places.peers[1].member, NEIGHBOUR + 2);
}

TEST_F(s7_a_notice_may_come_before_the_answer_that_grants, agent, TWO_STAGES)
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    lease_make(&lease, f, 0, ATTEMPT);
    struct places places = replaced(&lease, 2);
    notice(f, &places);
    assert_int_equal(f->count, 0);
    lease.peers[1].member = NEIGHBOUR;
    answered(f, sequence, &lease);
    assert_int_equal(seen(f, AGENT_LEASE, 0)->places.number, 2);
    assert_int_equal(seen(f, AGENT_LEASE, 0)->places.peers[1].member, NEIGHBOUR + 2);
}

TEST_F(s7_a_lease_may_be_over_before_its_answer_comes, agent, TWO_STAGES)
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    lease_make(&lease, f, 0, ATTEMPT);
    notice(f, &(struct places){.attempt = ATTEMPT, .number = 2});
    answered(f, sequence, &lease);
    assert_int_equal(count(f, AGENT_COMPUTE) + count(f, AGENT_COMPLETE), 0);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
}

/* The place is given up: what a neighbour gave cannot be used. */
static void give_up(struct agent_fixture *f)
{
    agent_computed(f->agent, f->now_ms,
                   &(struct agent_result){.err = ERR_NOT_FOUND, .blamed = NEIGHBOUR});
    look(f);
}

/* The place was given up, given again, and lost again; the second word of it comes last. */
TEST_F(s7_the_end_of_a_lease_is_remembered_until_an_older_answer_comes, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    give_up(f);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    notice(f, &(struct places){.attempt = ATTEMPT, .number = 6});
    expect_kept(f, 0);
    for (uint64_t i = 1; i <= WIRE_LEASES_MAX; i++) /* of as many others as it may have */
        notice(f, &(struct places){.attempt = ATTEMPT + i, .number = 6 + i});
    lease_make(&lease, f, 0, ATTEMPT);
    lease.reply.places.number = 5;
    answered(f, sequence, &lease);
    assert_int_equal(count(f, AGENT_LEASE) + count(f, AGENT_COMPUTE), 0);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
}

TEST_F(s7_whom_nobody_reaches_is_named, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    assert_false(agent_waits_for(f->agent, ATTEMPT + 1, NEIGHBOUR)); /* of an earlier lease */
    assert_true(agent_waits_for(f->agent, ATTEMPT, NEIGHBOUR));
    computed(f, ERR_OK);
    assert_false(agent_waits_for(f->agent, ATTEMPT, NEIGHBOUR));
}

/* The coordinator says which of the two is lost; until then the place waits. */
TEST_F(s7_whose_place_is_taken_asks_for_work, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    notice(f, &(struct places){.attempt = ATTEMPT, .number = 2});
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1);
}

TEST_F(s7_who_was_replaced_is_not_named, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    const struct places places = replaced(&lease, 2);
    notice(f, &places);
    assert_false(agent_waits_for(f->agent, ATTEMPT, NEIGHBOUR));
}

TEST_F(s7_a_peer_that_has_no_such_value_is_named_too, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    give_up(f);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_NOT_FOUND);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.unreachable, NEIGHBOUR);
    assert_int_equal(count(f, AGENT_KEEP), 0); /* S3: others may still ask */
}

/* It was given up, and is given again: the carrier has to hear of it. */
TEST_F(a_place_of_the_same_lease_may_come_again, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    give_up(f);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    lease_make(&lease, f, 1, ATTEMPT);
    lease.reply.places.number = 5;
    answered(f, sequence, &lease);
    assert_int_equal(count(f, AGENT_KEEP), 0);
    assert_int_equal(seen(f, AGENT_LEASE, 0)->place.stage, 1);
    assert_int_equal(seen(f, AGENT_LEASE, 0)->places.number, 5);
}

/* ---- S8, and what does not fit ---- */

TEST_F(s8_a_new_generation_ends_all_leases, agent, TWO_STAGES)
{
    struct lease lease;
    start_place(f, &lease, 0);
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_OLD_GENERATION});
    look(f);
    expect_kept(f, 0);
    wait(f, BACKOFF_MS);
    joined(f, 2);
    assert_int_equal(f->effects[0].kind, AGENT_GENERATION);
    assert_int_equal(f->effects[0].generation, 2);
}

TEST_F(a_place_of_another_mesh_is_not_computed, agent, TWO_STAGES)
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    lease_make(&lease, f, 0, ATTEMPT);
    lease.reply.place.stages = 3;
    answered(f, sequence, &lease);
    assert_int_equal(seen(f, AGENT_STOP, 0)->stop, ERR_RUN_CHANGED);
}

TEST_F(where_all_is_one_place_a_place_is_not_computed, agent)
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    lease_make(&lease, f, 0, ATTEMPT);
    answered(f, sequence, &lease);
    assert_int_equal(seen(f, AGENT_STOP, 0)->stop, ERR_RUN_CHANGED);
}

/* ---- several leases (S9) ---- */

#define TWO_LEASES(...) TWO_STAGES, .leases = 2, .lanes = {__VA_ARGS__}

/* Of that step, with the weights of the version before. */
static void grant_step(struct agent_fixture *f, uint64_t sequence, struct lease *lease,
                       uint64_t step, uint64_t keeps)
{
    lease_make(lease, f, 0, ATTEMPT + step);
    lease->reply.ticket.step = step;
    lease->reply.ticket.version = step > 0 ? step - 1 : 0;
    lease->kept[0] = keeps;
    lease->reply.lease_count = keeps != 0 ? 1 : 0;
    answered(f, sequence, lease);
}

TEST_F(s9_leases_are_computed_beside_each_other, agent, TWO_LEASES(2, 2))
{
    struct lease first, second;
    grant_step(f, start(f).sequence, &first, 1, 0);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->lane, 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence; /* at once */
    placed(f);
    grant_step(f, sequence, &second, 2, ATTEMPT + 1);
    assert_int_equal(seen(f, AGENT_LEASE, 0)->lane, 1);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->lane, 1);
    assert_int_equal(count(f, AGENT_ACQUIRE), 0); /* it has two */
    agent_placed(f->agent, f->now_ms, 1);
    look(f);
    assert_int_equal(count(f, AGENT_PULL),
                     SERVERS); /* of its own version, as the first one's wait */
    assert_int_equal(seen(f, AGENT_PULL, 0)->pull.version, 1);
    pull_all(f);
    assert_int_equal(seen(f, AGENT_UNIT_READY, 0)->lane, 1);
    agent_gradient(f->agent, f->now_ms, 1, 0, second.reply.ticket.node);
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_OK, .lane = 1});
    look(f);
    assert_int_equal(seen(f, AGENT_PUSH, 0)->lane, 1);
    assert_int_equal(seen(f, AGENT_PUSH, 0)->push.step, 2);
    ack_all(f);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.ticket.step, 2);
}

TEST_F(s9_with_one_lane_a_lease_waits_for_the_older_one, agent, TWO_LEASES(1, 1))
{
    struct lease first, second;
    grant_step(f, start(f).sequence, &first, 1, 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    placed(f);
    grant_step(f, sequence, &second, 2, ATTEMPT + 1);
    assert_int_equal(count(f, AGENT_COMPUTE), 0);
    notice(f, &(struct places){.attempt = ATTEMPT + 1, .number = 2}); /* it is over */
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    assert_int_equal(count(f, AGENT_COMPUTE), 0);
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_CANCELLED});
    look(f);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->ticket.step, 2);
}

/* The first lane waits for weights or values that nobody will bring any more. */
TEST_F(a_lease_that_fails_ends_what_the_other_lane_computes, agent, TWO_LEASES(2, 2))
{
    struct lease first, second;
    struct agent_effect effect;
    grant_step(f, start(f).sequence, &first, 1, 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    placed(f);
    lease_make(&second, f, 0, ATTEMPT + 2);
    second.reply.ticket.step = 2;
    second.kept[0] = ATTEMPT + 1;
    second.reply.lease_count = 1;
    agent_acquired(f->agent, f->now_ms, sequence, ERR_OK, &second.reply);
    do
        assert_true(agent_next(f->agent, f->now_ms, &effect));
    while (effect.kind != AGENT_LEASE);
    agent_lease_failed(f->agent, ERR_NOMEM);
    look(f);
    assert_int_equal(seen(f, AGENT_CANCEL, 0)->lane, 0);
    assert_int_equal(count(f, AGENT_COMPUTE) + count(f, AGENT_STOP), 0);
    computed(f, ERR_CANCELLED);
    assert_int_equal(seen(f, AGENT_STOP, 0)->stop, ERR_NOMEM);
}

/* Else each of two members could wait for a lease that the other one has no lane for. */
TEST_F(s9_an_older_lease_takes_the_lane_of_a_younger_one, agent, TWO_LEASES(1, 1))
{
    struct lease old, young;
    grant_step(f, start(f).sequence, &young, 2, 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    placed(f);
    grant_step(f, sequence, &old, 1, ATTEMPT + 2); /* its member was lost elsewhere */
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_CANCELLED});
    look(f);
    assert_int_equal(seen(f, AGENT_LEASE, 0)->ticket.step, 1);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->ticket.step, 1);
    assert_int_equal(count(f, AGENT_COMPLETE), 0); /* the younger one goes on later: */
    notice(f, &(struct places){.attempt = ATTEMPT + 1, .number = 2});
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_CANCELLED});
    look(f);
    assert_int_equal(seen(f, AGENT_LEASE, 0)->ticket.step, 2); /* with its lane */
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->ticket.step, 2);
}

TEST_F(s3_a_ticket_ends_with_the_lease_that_an_answer_does_not_name, agent, TWO_LEASES(2, 2))
{
    struct lease first, second;
    grant_step(f, start(f).sequence, &first, 1, 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    placed(f);
    grant_step(f, sequence, &second, 2, 0);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    expect_kept(f, 1);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
}

/* ---- several members to a place (S6) ---- */

#define TWO_RANKS                                                                                  \
    .cut = true, .mesh = {.stages = 1, .ranks = 2, .schedule = SCHEDULE_1F1B, .runs = 1}

/* A lease of one place, as that member of it. */
static void rank_lease(struct lease *lease, const struct agent_fixture *f, uint32_t rank)
{
    lease_make(lease, f, 0, ATTEMPT);
    lease->reply.place = (struct place){.stages = 1, .rank = rank, .ranks = 2, .try_number = 1};
    lease->reply.ticket.chunks = (struct number_range){0, f->model.chunks_count};
    for (uint32_t i = 0; i < 2; i++)
        lease->peers[i] =
            (struct peer){.rank = i, .try_number = 1, .member = i == rank ? f->member : NEIGHBOUR};
}

TEST_F(a_member_of_a_place_pulls_and_pushes_its_pieces, agent, TWO_RANKS)
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    rank_lease(&lease, f, 1);
    answered(f, sequence, &lease);
    placed(f);
    uint32_t pulled = 0, pushed = 0, held = 0, own = 0;
    for (uint32_t c = 0; c < f->model.chunks_count; c++) {
        bool is_loss = f->model.chunks[c].parameter == f->model.loss_parameter;
        held += !is_loss && pieces_rank_holds(&f->model, c, 1, 2) ? 1 : 0;
        own += pieces_chunk_rank(&f->model, c, 2) == 1 ? 1 : 0;
    }
    for (uint32_t i = 0; i < count(f, AGENT_PULL); i++)
        for (uint32_t c = 0; c < seen(f, AGENT_PULL, i)->pull.chunk_count; c++, pulled++)
            assert_true(pieces_rank_holds(&f->model, seen(f, AGENT_PULL, i)->pull.chunks[c], 1, 2));
    assert_true(own > 0 && own < held && held < f->model.chunks_count);
    assert_int_equal(pulled, held);
    pull_all(f);
    for (uint32_t unit = 1; unit < 2; unit++) { /* the layer */
        gradient(f, unit, lease.reply.ticket.node);
        for (uint32_t i = 0; i < count(f, AGENT_PUSH); i++)
            for (uint32_t e = 0; e < seen(f, AGENT_PUSH, i)->push.entry_count; e++, pushed++)
                assert_int_equal(
                    pieces_chunk_rank(&f->model, seen(f, AGENT_PUSH, i)->push.entries[e].chunk, 2),
                    1);
    }
    assert_true(pushed > 0);
}

/* Its place lost another member, and the coordinator was asked for work just then. */
TEST_F(s6_a_grant_of_the_lease_that_is_computed_begins_it_again, agent, TWO_LEASES(2, 2))
{
    struct lease lease;
    grant_step(f, start(f).sequence, &lease, 1, 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    placed(f);
    lease.reply.place.try_number = 2;
    lease.reply.places.number = 3;
    lease.kept[0] = ATTEMPT + 1;
    lease.reply.lease_count = 1;
    answered(f, sequence, &lease);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    assert_int_equal(seen(f, AGENT_CANCEL, 0)->lane, 0);
    assert_int_equal(count(f, AGENT_COMPLETE), 0);
    assert_int_equal(seen(f, AGENT_LEASE, 0)->place.try_number, 2);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->lane, 1);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->place.try_number, 2);
    assert_int_equal(count(f, AGENT_ACQUIRE), 1); /* it may have another one beside it */
}

/* The executors of all lanes are those of one rank: they are made again when nobody computes. */
TEST_F(s6_a_seat_of_another_rank_waits_for_what_is_computed, agent, TWO_RANKS, .leases = 2,
       .lanes = {2})
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    rank_lease(&lease, f, 0);
    answered(f, sequence, &lease);
    sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    placed(f);
    rank_lease(&lease, f, 1);
    lease.reply.place.try_number = 2;
    lease.reply.places.number = 3;
    lease.kept[0] = ATTEMPT;
    lease.reply.lease_count = 1;
    answered(f, sequence, &lease);
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    assert_int_equal(count(f, AGENT_COMPUTE), 0);
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_CANCELLED});
    look(f);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->place.rank, 1);
}

/* Of that step, under that try. */
static void grant_rank(struct agent_fixture *f, uint64_t sequence, struct lease *lease,
                       uint64_t step, uint64_t keeps, uint32_t number)
{
    rank_lease(lease, f, 1);
    lease->reply.ticket.step = step;
    lease->reply.ticket.version = step - 1;
    lease->reply.ticket.attempt = lease->reply.places.attempt = ATTEMPT + step;
    lease->reply.place.try_number = number;
    lease->peers[0].try_number = lease->peers[1].try_number = number;
    lease->reply.places.number = number;
    lease->kept[0] = keeps;
    lease->reply.lease_count = keeps != 0 ? 1 : 0;
    answered(f, sequence, lease);
}

/* The others of its place go on, and keep no sums for one that begins again alone. */
TEST_F(s9_a_younger_lease_of_several_members_is_given_up_for_an_older_one, agent, TWO_RANKS,
       .leases = 2, .lanes = {1})
{
    struct lease old, young;
    grant_rank(f, start(f).sequence, &young, 2, 0, 1);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    placed(f);
    grant_rank(f, sequence, &old, 1, ATTEMPT + 2, 2); /* its member was lost */
    assert_int_equal(count(f, AGENT_CANCEL), 1);
    expect_kept(f, 1);
    assert_int_equal(count(f, AGENT_COMPLETE), 1);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.outcome, ERR_CANCELLED);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.ticket.step, 2);
    assert_int_equal(seen(f, AGENT_COMPLETE, 0)->complete.place.try_number, 1);
    sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_CANCELLED});
    look(f);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->ticket.step, 1);
    grant_rank(f, sequence, &young, 2, ATTEMPT + 1, 3); /* its seat once more */
    assert_int_equal(count(f, AGENT_LEASE), 0);
    assert_int_equal(count(f, AGENT_CANCEL), 0);
    notice(f, &(struct places){.attempt = ATTEMPT + 1, .number = 4}); /* the older one is over */
    agent_computed(f->agent, f->now_ms, &(struct agent_result){.err = ERR_CANCELLED});
    look(f);
    assert_int_equal(seen(f, AGENT_LEASE, 0)->place.try_number, 3);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->ticket.step, 2);
}

TEST_F(a_place_of_other_ranks_is_not_computed, agent, TWO_RANKS)
{
    struct lease lease;
    uint64_t sequence = start(f).sequence;
    rank_lease(&lease, f, 0);
    lease.reply.place.ranks = 4;
    answered(f, sequence, &lease);
    assert_int_equal(seen(f, AGENT_STOP, 0)->stop, ERR_RUN_CHANGED);
}

/* The wire brings a version once, whatever number of lanes computes on it. */
TEST_F(weights_that_another_lane_has_are_copied, agent, TWO_LEASES(2, 2))
{
    struct lease first, second;
    grant_step(f, start(f).sequence, &first, 1, 0);
    uint64_t sequence = seen(f, AGENT_ACQUIRE, 0)->acquire.sequence;
    placed(f);
    pull_all(f);
    lease_make(&second, f, 0, ATTEMPT + 2);
    second.reply.ticket.step = 1;
    second.reply.ticket.node.index = 1;
    second.kept[0] = ATTEMPT + 1;
    second.reply.lease_count = 1;
    answered(f, sequence, &second);
    assert_int_equal(seen(f, AGENT_COMPUTE, 0)->lane, 1);
    agent_placed(f->agent, f->now_ms, 1);
    look(f);
    assert_int_equal(count(f, AGENT_PULL), 0);
    assert_int_equal(count(f, AGENT_COPY), 2); /* fc1's chunks */
    assert_int_equal(seen(f, AGENT_COPY, 0)->lane, 1);
    assert_int_equal(seen(f, AGENT_COPY, 0)->from, 0);
    assert_int_equal(seen(f, AGENT_UNIT_READY, 0)->lane, 1);
}
