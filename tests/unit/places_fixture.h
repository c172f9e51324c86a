/* For tests of leases that several members share: members whom others reach, and what they do. */
#ifndef ROOST_TESTS_UNIT_PLACES_FIXTURE_H
#define ROOST_TESTS_UNIT_PLACES_FIXTURE_H

#include "tests/unit/coordinator_fixture.h"

enum { PLACES = 2, MEMBERS = 6, JOINED = 5, ASK_MS = 5000 };

/* Members that others reach. */
struct places_fixture {
    struct coordinator_fixture c;
    uint64_t m[MEMBERS];
    uint64_t sequence[MEMBERS];
};

static inline uint64_t join_reached(struct coordinator_fixture *f, const char *name)
{
    struct join_request request = join_request();
    snprintf(request.name, sizeof request.name, "%s", name);
    snprintf(request.address, sizeof request.address, "%s.net:7", name);
    request.shown[0] = (uint8_t)name[0];
    assert_int_equal(ask_to_join(f, &request), ERR_OK);
    return f->joined.member;
}

static inline void places_set_up(struct places_fixture *f)
{
    f->c.staged = true;
    coordinator_set_up(&f->c);
    for (uint32_t i = 0; i < JOINED; i++)
        f->m[i] = join_reached(&f->c, (const char *[]){"a", "b", "c", "d", "e"}[i]);
}

static inline void places_tear_down(struct places_fixture *f)
{
    coordinator_tear_down(&f->c);
}

static inline void ask(struct places_fixture *f, uint32_t i)
{
    assert_int_equal(acquire(&f->c, f->m[i], ++f->sequence[i], ASK_MS), ERR_OK);
}

/* Member i got a ticket just now. */
static inline bool is_answered(const struct places_fixture *f, uint32_t i)
{
    for (size_t k = 0; k < f->c.count; k++)
        if (f->c.seen[k].kind == EFFECT_ANSWER && f->c.seen[k].answer.member == f->m[i])
            return f->c.seen[k].answer.reply.result == ACQUIRE_TICKET;
    return false;
}

/* Member i hears of that lease. */
static inline bool hears(const struct places_fixture *f, uint32_t i, uint64_t attempt)
{
    for (size_t k = 0; k < f->c.count; k++)
        if (f->c.seen[k].kind == EFFECT_PLACES && f->c.seen[k].places.member == f->m[i] &&
            f->c.seen[k].places.attempt == attempt)
            return true;
    return false;
}

static inline struct places places_now(const struct places_fixture *f, uint64_t attempt,
                                       struct peer *ret_peers)
{
    struct places places = {0};
    for (uint32_t i = 0; i < MEMBERS && places.peer_count == 0; i++)
        coordinator_places(f->c.coordinator, attempt, f->m[i], ret_peers, &places);
    return places;
}

/* Its only one. */
static inline bool has_lease(const struct places_fixture *f, uint32_t i, uint64_t *ret_attempt)
{
    uint64_t attempts[WIRE_LEASES_MAX];
    uint32_t count = coordinator_leases(f->c.coordinator, f->m[i], attempts);
    assert_true(count <= 1);
    *ret_attempt = count > 0 ? attempts[0] : 0;
    return count > 0;
}

/* Two ask, and share a lease; the replies are theirs. */
static inline void lease(struct places_fixture *f, uint32_t first, uint32_t second,
                         struct acquire_reply ret_replies[static PLACES])
{
    ask(f, first);
    ask(f, second);
    ret_replies[0] = answer(&f->c, f->m[first]);
    ret_replies[1] = answer(&f->c, f->m[second]);
    assert_int_equal(ret_replies[0].ticket.attempt, ret_replies[1].ticket.attempt);
}

/* Members 0 and 1 have a lease that is overdue, 2 and 3 its copy. */
static inline void lease_copy(struct places_fixture *f,
                              struct acquire_reply ret_first[static PLACES],
                              struct acquire_reply ret_copy[static PLACES])
{
    lease(f, 0, 1, ret_first);
    f->c.now_ms += LEASE_MS - 1;
    for (uint32_t i = 0; i < JOINED; i++)
        assert_int_equal(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[i]), ERR_OK);
    f->c.now_ms += 1;
    lease(f, 2, 3, ret_copy);
    assert_int_equal(ret_copy[0].ticket.node.index, ret_first[0].ticket.node.index);
    assert_int_not_equal(ret_copy[0].ticket.attempt, ret_first[0].ticket.attempt);
}

static inline void done(struct places_fixture *f, uint32_t i, const struct acquire_reply *reply,
                        enum err outcome)
{
    struct complete_request request = {.member = f->m[i],
                                       .secret = secret_of(f->m[i]),
                                       .ticket = reply->ticket,
                                       .outcome = outcome,
                                       .place = reply->place};
    if (reply->place.stage == PLACES - 1 && reply->ticket.kind == TICKET_VALIDATE)
        request.sample_count = reply->ticket.node.index == 2 ? 1 : 2;
    assert_int_equal(say_complete(&f->c, &request), ERR_OK);
}

static inline void lose(struct places_fixture *f, uint32_t i)
{
    coordinator_member_lost(f->c.coordinator, f->c.now_ms, f->m[i], "its machine is gone");
    look(&f->c);
}

/* The member's place of that lease. */
static inline struct place seat_of(const struct places_fixture *f,
                                   const struct acquire_reply *lease, uint64_t member)
{
    struct peer peers[WIRE_PLACES_MAX];
    const struct places places = places_now(f, lease->ticket.attempt, peers);
    uint32_t i = 0;
    while (i < places.peer_count && peers[i].member != member)
        i++;
    assert_true(i < places.peer_count);
    return (struct place){.stage = peers[i].stage,
                          .stages = PLACES,
                          .rank = peers[i].rank,
                          .try_number = peers[i].try_number};
}

/* Member i says that member `named` does not answer it. */
static inline void name(struct places_fixture *f, const struct acquire_reply *lease, uint32_t i,
                        uint32_t named)
{
    const struct member_report report = {.unreachable = f->m[named],
                                         .attempt = lease->ticket.attempt};
    assert_int_equal(coordinator_member_report(f->c.coordinator, f->c.now_ms, f->m[i], &report),
                     ERR_OK);
    look(&f->c);
}

/* It says so until the coordinator has heard that member. */
static inline void wait_in_vain(struct places_fixture *f, const struct acquire_reply *lease,
                                uint32_t i, uint32_t named)
{
    name(f, lease, i, named);
    f->c.now_ms++;
    assert_int_equal(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[named]), ERR_OK);
    name(f, lease, i, named);
}

/* Member i is given the same place after the first time; then it asks again. */
static inline void fail_twice(struct places_fixture *f, const struct acquire_reply *lease,
                              uint32_t i, uint32_t named)
{
    wait_in_vain(f, lease, i, named);
    ask(f, i);
    assert_int_equal(answer(&f->c, f->m[i]).ticket.attempt, lease->ticket.attempt);
    wait_in_vain(f, lease, i, named);
    ask(f, i);
}

/* That one worker's bits are not the other's. */
static inline bool is_contradicted(const struct places_fixture *f, uint32_t i, const char *by)
{
    struct coordinator_member member;
    char worker[32];
    snprintf(worker, sizeof worker, "worker %s:", by);
    assert_true(coordinator_member(f->c.coordinator, i, &member));
    return strstr(member.reason, worker) != NULL;
}

static inline bool is_named(const struct places_fixture *f, uint32_t i)
{
    struct coordinator_member member;
    assert_true(coordinator_member(f->c.coordinator, i, &member));
    return member.reason[0] != 0;
}

/* A server holds the sums of `first`, and others came from `second`. */
static inline void pushes_differ(struct places_fixture *f, const struct acquire_reply *reply,
                                 uint32_t first, uint32_t second)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    wrong.wrong_bits.member = f->m[second];
    wrong.wrong_bits.first_member = f->m[first];
    wrong.wrong_bits.step = reply->ticket.step;
    wrong.wrong_bits.node = reply->ticket.node;
    wrong.wrong_bits.chunk = reply->place.stage;
    assert_int_equal(report(&f->c, 0, wrong), ERR_OK);
}

/* A lease passes; those who are there say that they live. */
static inline void wait_a_lease(struct places_fixture *f)
{
    for (uint32_t half = 0; half < 2; half++) {
        for (uint32_t i = 0; i < JOINED; i++)
            assert_int_equal(coordinator_heartbeat(f->c.coordinator, f->c.now_ms, f->m[i]), ERR_OK);
        tick(&f->c, LEASE_MS / 2);
    }
}

static inline uint64_t asked_for(const struct places_fixture *f)
{
    const struct server_command *asked = command(&f->c, 0, SERVER_ASK_MISSING);
    assert_non_null(asked);
    return asked->ask_missing.question;
}

/* Server 0 answers that question: the chunk's part lacks the slot. */
static inline enum err answer_lack(struct places_fixture *f, uint64_t question, struct lack lack)
{
    const uint64_t slots = UINT64_C(1) << lack.slot;
    struct server_report missing = {.kind = SERVER_MISSING};
    missing.missing.generation = f->c.generation;
    missing.missing.question = question;
    missing.missing.word_count = 1;
    missing.missing.slots = &slots;
    missing.missing.lack_count = 1;
    missing.missing.lacks = &lack;
    return report(&f->c, 0, missing);
}

static inline enum err say_lack(struct places_fixture *f, struct lack lack)
{
    return answer_lack(f, asked_for(f), lack);
}

#endif
