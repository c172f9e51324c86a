/* What a server answers to members and pushes, by what it knows of its coordinator's term. */
#include "tests/unit/unit.h"

#include "server/member/admission.h"

enum { RUN = 4, TERM = 3, GENERATION = 2, STEP = 7 };

static const uint8_t key_bytes[DIGEST_KEY_BYTES] = {1, 2, 3};

struct term_fixture {
    struct admission admission;
    struct digest_mac key; /* the coordinator's */
    uint64_t member;
    struct ticket ticket;
    struct push_entry entry;
    struct push push;
};

/* The ticket as the coordinator grants it. */
static void sign(struct term_fixture *f, struct ticket *ticket)
{
    ticket->grant = proof_ticket(&f->key, RUN, ticket);
}

static void term_set_up(struct term_fixture *f)
{
    struct admission_term term = {.term = TERM, .run = RUN};
    memcpy(term.key, key_bytes, sizeof term.key);
    assert_int_equal(admission_init(&f->admission), ERR_OK);
    admission_set(&f->admission, &term);
    assert_int_equal(digest_mac_init(&f->key), ERR_OK);
    digest_mac_set_key(&f->key, key_bytes);
    f->member = proof_member_number(TERM, 5);
    f->ticket = (struct ticket){.kind = TICKET_TRAIN,
                                .generation = GENERATION,
                                .step = STEP,
                                .version = STEP,
                                .node = {1, 2},
                                .attempt = 9,
                                .member = f->member,
                                .chunks = {10, 5},
                                .parts = {0, 2}};
    sign(f, &f->ticket);
    f->entry = (struct push_entry){.chunk = 12, .part = 1, .bytes = 4};
    f->push = (struct push){.generation = GENERATION,
                            .step = STEP,
                            .node = {1, 2},
                            .entry_count = 1,
                            .entries = &f->entry,
                            .ticket_count = 1,
                            .tickets = &f->ticket};
}

static void term_tear_down(struct term_fixture *f)
{
    admission_release(&f->admission);
    digest_mac_release(&f->key);
}

static enum err judge(struct term_fixture *f)
{
    return admission_push(&f->admission, f->member, &f->push);
}

TEST_F(a_push_of_an_audited_ticket_is_admitted_and_noted, term)
{
    f->push.audited = true; /* a worker has no say */
    assert_int_equal(judge(f), ERR_OK);
    assert_false(f->push.audited);
    f->ticket.grant = proof_audited(&f->key, RUN, &f->ticket);
    assert_int_equal(judge(f), ERR_OK);
    assert_true(f->push.audited);
    f->ticket.attempt++;
    assert_int_equal(judge(f), ERR_NO_GRANT);
}

TEST_F(a_granted_push_is_admitted, term)
{
    assert_int_equal(judge(f), ERR_OK);
    f->push.node = (struct node){0, 5}; /* inside */
    assert_int_equal(judge(f), ERR_OK);
    f->push.attempt = 9;
    assert_int_equal(judge(f), ERR_OK);
}

TEST_F(a_push_without_a_grant_is_refused, term)
{
    f->push.ticket_count = 0;
    assert_int_equal(judge(f), ERR_NO_GRANT);
}

/* Each number is signed. */
TEST_F(a_ticket_that_was_changed_or_a_push_beyond_it_is_refused, term)
{
    const struct ticket granted = f->ticket;
    const struct push push = f->push;
#define CHANGED(change)                                                                            \
    do {                                                                                           \
        change;                                                                                    \
        assert_int_equal(judge(f), ERR_NO_GRANT);                                                  \
        f->ticket = granted;                                                                       \
        f->push = push;                                                                            \
    } while (0)
    CHANGED(f->ticket.step = f->push.step = STEP + 1);
    CHANGED(f->ticket.generation = f->push.generation = GENERATION + 1);
    CHANGED(f->ticket.node = f->push.node = ((struct node){1, 3}));
    CHANGED(f->ticket.chunks.count++);
    CHANGED(f->ticket.parts.first++);
    CHANGED(f->ticket.version--);
    CHANGED(f->ticket.attempt++);
    CHANGED(f->ticket.grant.bytes[0] ^= 1);
    assert_int_equal(judge(f), ERR_OK);
    /* Beyond it. */
    CHANGED(f->push.node = ((struct node){2, 1})); /* around it */
    CHANGED(f->push.node = ((struct node){0, 6})); /* beside it */
    CHANGED(f->push.step = STEP + 1);
    CHANGED(f->push.attempt = 8);
    CHANGED(f->entry.chunk = 15);
    CHANGED(f->entry.chunk = 9);
    f->entry.chunk = 14;
    CHANGED(f->entry.part = 2);
    f->entry.part = 0;
    assert_int_equal(judge(f), ERR_OK);
#undef CHANGED
}

TEST_F(another_s_grant_alone_is_refused, term)
{
    f->ticket.member = proof_member_number(TERM, 6);
    sign(f, &f->ticket);
    assert_int_equal(judge(f), ERR_NO_GRANT);
}

TEST_F(a_validation_is_not_pushed, term)
{
    f->ticket.kind = TICKET_VALIDATE;
    sign(f, &f->ticket);
    assert_int_equal(judge(f), ERR_NO_GRANT);
}

/* Slots 4 to 7: its own 4 and 5, and 6 and 7 of two others. */
TEST_F(the_sums_of_others_are_brought_under_their_tickets, term)
{
    struct ticket tickets[] = {f->ticket, f->ticket, f->ticket};
    for (uint32_t i = 1; i < 3; i++) {
        tickets[i].member = proof_member_number(TERM, 5 + i);
        tickets[i].node = (struct node){0, 5 + i};
        sign(f, &tickets[i]);
    }
    f->push.node = (struct node){2, 1};
    f->push.tickets = tickets;
    f->push.ticket_count = 3;
    assert_int_equal(judge(f), ERR_OK);
    f->push.ticket_count = 2; /* slot 7 is nobody's */
    assert_int_equal(judge(f), ERR_NO_GRANT);
    f->push.ticket_count = 3;
    tickets[2].grant.bytes[3] ^= 4;
    assert_int_equal(judge(f), ERR_NO_GRANT);
    sign(f, &tickets[2]);
    f->push.node = (struct node){3, 0};
    assert_int_equal(judge(f), ERR_NO_GRANT);
}

/* The root of the largest step, covered by its first slot alone: the search ends all the same. */
TEST_F(a_node_that_is_far_from_covered_is_refused_soon, term)
{
    f->ticket.node = (struct node){0, 0};
    sign(f, &f->ticket);
    f->push.node = (struct node){TREE_LEVEL_MAX, 0};
    assert_int_equal(judge(f), ERR_NO_GRANT);
}

TEST_F(a_grant_of_an_earlier_term_is_old_and_one_of_a_later_term_waits, term)
{
    struct admission_term next = {.term = TERM + 1, .run = RUN, .key = {9}};
    admission_set(&f->admission, &next);
    assert_int_equal(judge(f), ERR_OLD_GENERATION);
    next.term = TERM - 1;
    admission_set(&f->admission, &next);
    assert_int_equal(judge(f), ERR_BEHIND);
}

/* A coordinator that takes a higher term keeps its key: what it gave is as good as before. */
TEST_F(a_higher_term_with_the_same_key_admits_who_was_admitted, term)
{
    struct admission_term next = {.term = TERM + 1, .run = RUN};
    memcpy(next.key, key_bytes, sizeof next.key);
    admission_set(&f->admission, &next);
    struct proof secret = proof_member(&f->key, RUN, f->member);
    assert_int_equal(admission_member(&f->admission, f->member, &secret), ERR_OK);
    assert_int_equal(judge(f), ERR_OK);
}

TEST_F(a_member_is_known_by_its_secret_alone, term)
{
    struct proof secret = proof_member(&f->key, RUN, f->member);
    assert_int_equal(admission_member(&f->admission, f->member, &secret), ERR_OK);
    assert_int_equal(admission_member(&f->admission, f->member + 1, &secret), ERR_UNKNOWN_MEMBER);
    secret.bytes[15] ^= 128;
    assert_int_equal(admission_member(&f->admission, f->member, &secret), ERR_UNKNOWN_MEMBER);
    secret = proof_member(&f->key, RUN + 1, f->member);
    assert_int_equal(admission_member(&f->admission, f->member, &secret), ERR_UNKNOWN_MEMBER);
}

/* A coordinator of the wire's first version sends none: what anybody can compute proves nothing. */
TEST_F(without_a_key_nobody_is_admitted, term)
{
    const uint8_t zeros[DIGEST_KEY_BYTES] = {0};
    admission_set(&f->admission, &(struct admission_term){.term = TERM, .run = RUN});
    digest_mac_set_key(&f->key, zeros);
    struct proof secret = proof_member(&f->key, RUN, f->member);
    assert_int_equal(admission_member(&f->admission, f->member, &secret), ERR_NO_RUN);
    sign(f, &f->ticket);
    assert_int_equal(judge(f), ERR_NO_RUN);
}

static void end_member(struct term_fixture *f, uint64_t generation, uint64_t step, uint64_t member)
{
    struct server_command command = {.kind = SERVER_ENDED};
    command.ended.generation = generation;
    command.ended.step = step;
    command.ended.member_count = 1;
    command.ended.members = &member;
    admission_end(&f->admission, &command);
}

TEST_F(who_has_ended_is_unknown_until_its_steps_are_decided, term)
{
    struct proof secret = proof_member(&f->key, RUN, f->member);
    end_member(f, GENERATION, STEP + 1, f->member);
    assert_int_equal(admission_member(&f->admission, f->member, &secret), ERR_UNKNOWN_MEMBER);
    assert_int_equal(judge(f), ERR_NO_GRANT);
    admission_decided(&f->admission, GENERATION, STEP);
    assert_int_equal(judge(f), ERR_NO_GRANT);
    admission_decided(&f->admission, GENERATION - 1, STEP + 1); /* P2: another run of steps */
    assert_int_equal(judge(f), ERR_NO_GRANT);
    admission_decided(&f->admission, GENERATION, STEP + 1);
    assert_int_equal(judge(f), ERR_OK); /* the shards take it for a duplicate */
}

TEST_F(who_ended_in_an_older_generation_is_forgotten_with_it, term)
{
    end_member(f, GENERATION, STEP, f->member);
    end_member(f, GENERATION + 1, STEP, 99);
    assert_int_equal(judge(f), ERR_OK);
    end_member(f, GENERATION, STEP, f->member); /* late */
    assert_int_equal(judge(f), ERR_OK);
}

TEST_F(of_too_many_that_have_ended_the_newest_are_known, term)
{
    end_member(f, GENERATION, STEP, f->member);
    for (uint64_t i = 1; i < WIRE_ENDED_MAX; i++)
        end_member(f, GENERATION, STEP, f->member + i);
    assert_int_equal(judge(f), ERR_NO_GRANT);
    end_member(f, GENERATION, STEP, f->member + WIRE_ENDED_MAX);
    assert_int_equal(judge(f), ERR_OK);
}

/* As a coordinator names them: those who were expelled come last in every report. */
TEST_F(who_is_named_again_is_known_whoever_ends_meanwhile, term)
{
    for (uint64_t i = 0; i < WIRE_ENDED_MAX + 10; i++) {
        uint64_t members[] = {f->member + 1 + i, f->member};
        struct server_command command = {.kind = SERVER_ENDED};
        command.ended.generation = GENERATION;
        command.ended.step = STEP;
        command.ended.member_count = 2;
        command.ended.members = members;
        admission_end(&f->admission, &command);
        assert_int_equal(judge(f), ERR_NO_GRANT);
    }
}

TEST_F(without_a_run_a_member_waits, term)
{
    struct admission_term ended = {.term = TERM, .key = {1, 2, 3}};
    struct proof secret = proof_member(&f->key, 0, f->member);
    admission_set(&f->admission, &ended);
    assert_int_equal(admission_member(&f->admission, f->member, &secret), ERR_NO_RUN);
}
