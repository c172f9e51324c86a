/* Who is there. */
#include "tests/unit/unit.h"

#include "server/coordinator/members.h"

enum { LEASE_MS = 1000 };

static struct join_request request_of(const char *name)
{
    struct join_request request = {.wire_version = WIRE_VERSION};
    snprintf(request.name, sizeof request.name, "%s", name);
    memset(request.fingerprint, 7, sizeof request.fingerprint);
    memset(request.data_digest, 9, sizeof request.data_digest);
    return request;
}

static const uint8_t sevens[WIRE_DIGEST_BYTES] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
                                                  7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
static const uint8_t nines[WIRE_DIGEST_BYTES] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
                                                 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};

TEST(a_worker_of_another_wire_version_is_refused_by_name)
{
    struct members_demands demands = {.fingerprint = sevens, .data_digest = nines};
    struct join_request request = request_of("w1");
    struct reason reason;
    assert_int_equal(members_judge(&demands, &request, &reason), ERR_OK);
    request.wire_version = 99;
    assert_int_equal(members_judge(&demands, &request, &reason), ERR_WIRE_VERSION);
    assert_string_equal(reason.text, "worker w1 speaks wire version 99, the coordinator 2 to 2");
}

TEST(a_worker_that_would_compute_other_bits_is_refused_unless_any_may)
{
    struct members_demands demands = {.fingerprint = sevens, .data_digest = nines};
    struct join_request request = request_of("w1");
    struct reason reason;
    request.fingerprint[0] = 0xab;
    assert_int_equal(members_judge(&demands, &request, &reason), ERR_FINGERPRINT);
    assert_non_null(strstr(reason.text, "ab070707"));
    assert_non_null(strstr(reason.text, "07070707"));
    demands.fingerprint = NULL;
    assert_int_equal(members_judge(&demands, &request, &reason), ERR_OK);
}

TEST(a_worker_with_another_data_set_is_refused)
{
    struct members_demands demands = {.fingerprint = sevens, .data_digest = nines};
    struct join_request request = request_of("w1");
    struct reason reason;
    request.data_digest[31] = 1;
    assert_int_equal(members_judge(&demands, &request, &reason), ERR_DATA_SET);
    demands.data_served = true;
    assert_int_equal(members_judge(&demands, &request, &reason), ERR_DATA_SET);
}

TEST(a_worker_without_a_copy_of_the_data_needs_it_served)
{
    struct members_demands demands = {.fingerprint = sevens, .data_digest = nines};
    struct join_request request = request_of("w1");
    struct reason reason;
    memset(request.data_digest, 0, sizeof request.data_digest);
    assert_int_equal(members_judge(&demands, &request, &reason), ERR_DATA_SET);
    demands.data_served = true;
    assert_int_equal(members_judge(&demands, &request, &reason), ERR_OK);
}

static uint64_t add(struct members *members, const char *name)
{
    struct join_request request = request_of(name);
    struct member *member;
    assert_int_equal(members_add(members, 5, &request, &member), ERR_OK);
    return member->id;
}

/* Else one stolen certificate takes the places of all. */
TEST(a_certificate_has_so_many_members)
{
    scoped(members_release) struct members members = {0};
    assert_int_equal(members_init(&members, 1, LEASE_MS), ERR_OK);
    members.certificate_max = 2;
    struct join_request request = request_of("w");
    struct member *first, *member;
    request.certificate = 7;
    assert_int_equal(members_add(&members, 5, &request, &first), ERR_OK);
    assert_int_equal(members_add(&members, 5, &request, &member), ERR_OK);
    assert_int_equal(members_add(&members, 5, &request, &member), ERR_BUSY);
    request.previous_member = first->id; /* it comes again */
    assert_int_equal(members_add(&members, 5, &request, &member), ERR_OK);
    request.previous_member = 0;
    request.certificate = 8;
    assert_int_equal(members_add(&members, 5, &request, &member), ERR_OK);
    add(&members, "no TLS");
    add(&members, "no TLS");
    add(&members, "no TLS");
}

TEST(members_are_found_by_their_number_whoever_left)
{
    scoped(members_release) struct members members = {0};
    assert_int_equal(members_init(&members, 1, LEASE_MS), ERR_OK);
    uint64_t a = add(&members, "a"), b = add(&members, "b"), c = add(&members, "c");
    members_remove(&members, members_find(&members, b), MEMBER_LEFT, "done");
    assert_string_equal(members_find(&members, a)->name, "a");
    assert_string_equal(members_find(&members, c)->name, "c");
    assert_null(members_find(&members, b));
    assert_null(members_find(&members, 0));
}

TEST(a_successor_never_gives_a_number_again)
{
    struct members first, second;
    assert_int_equal(members_init(&first, 1, LEASE_MS), ERR_OK);
    assert_int_equal(members_init(&second, 2, LEASE_MS), ERR_OK);
    assert_int_not_equal(add(&first, "a"), add(&second, "a"));
    members_release(&first);
    members_release(&second);
}

TEST(who_is_gone_is_remembered_newest_first_and_bounded)
{
    scoped(members_release) struct members members = {0};
    assert_int_equal(members_init(&members, 1, LEASE_MS), ERR_OK);
    add(&members, "stays");
    for (int i = 0; i < MEMBERS_PAST_MAX + 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        members_remove(&members, members_find(&members, add(&members, name)), MEMBER_TIMED_OUT,
                       "no heartbeat");
    }
    assert_string_equal(members_at(&members, 0)->name, "stays");
    assert_string_equal(members_at(&members, 1)->name, "w66");
    assert_int_equal(members_at(&members, 1)->state, MEMBER_TIMED_OUT);
    assert_string_equal(members_at(&members, 1)->reason, "no heartbeat");
    assert_string_equal(members_at(&members, MEMBERS_PAST_MAX)->name, "w3");
    assert_null(members_at(&members, MEMBERS_PAST_MAX + 1));
}

TEST(leaving_is_no_loss)
{
    scoped(members_release) struct members members = {0};
    assert_int_equal(members_init(&members, 1, LEASE_MS), ERR_OK);
    members_remove(&members, members_find(&members, add(&members, "a")), MEMBER_LEFT, "");
    members_remove(&members, members_find(&members, add(&members, "b")), MEMBER_PREEMPTED, "");
    assert_int_equal(members.lost_count, 0);
    members_remove(&members, members_find(&members, add(&members, "c")), MEMBER_ERROR, "");
    assert_int_equal(members.lost_count, 1);
    assert_int_equal(members.joined_count, 3);
}

TEST(parked_questions_wait_in_line)
{
    scoped(members_release) struct members members = {0};
    assert_int_equal(members_init(&members, 1, LEASE_MS), ERR_OK);
    uint64_t a = add(&members, "a"), b = add(&members, "b");
    assert_null(members_first_parked(&members));
    members_park(&members, members_find(&members, b), 100);
    members_park(&members, members_find(&members, a), 100);
    struct member *first = members_first_parked(&members);
    assert_int_equal(first->id, b);
    assert_int_equal(members_next_parked(&members, first)->id, a);
    members_park(&members, first, 200); /* asked again: behind the others */
    assert_int_equal(members.parked_count, 2);
    assert_int_equal(members_first_parked(&members)->id, a);
    members_remove(&members, members_find(&members, a), MEMBER_LEFT, "");
    assert_int_equal(members.parked_count, 1);
}

static uint64_t due(struct members *members, uint64_t now_ms)
{
    const struct member *member = members_find_due(members, now_ms);
    return member != NULL ? member->id : 0;
}

TEST(a_member_is_due_when_it_lapses_or_has_waited_long_enough)
{
    scoped(members_release) struct members members = {0};
    assert_int_equal(members_init(&members, 1, LEASE_MS), ERR_OK);
    assert_int_equal(members_due_ms(&members), UINT64_MAX);
    uint64_t a = add(&members, "a"), b = add(&members, "b"); /* at 5 */
    members_park(&members, members_find(&members, b), 100);
    assert_int_equal(members_due_ms(&members), 100);
    assert_int_equal(due(&members, 99), 0);
    assert_int_equal(due(&members, 100), b);
    members_unpark(&members, members_find(&members, b));
    members_find(&members, b)->seen_ms = 300;
    assert_int_equal(due(&members, 1004), 0);
    assert_int_equal(due(&members, 1005), a);
    members_remove(&members, members_find(&members, a), MEMBER_TIMED_OUT, "");
    assert_int_equal(due(&members, 1299), 0);
    assert_int_equal(due(&members, 1300), b);
}

TEST(many_members_are_due_in_the_order_of_their_times)
{
    enum { MANY = 300 };
    scoped(members_release) struct members members = {0};
    assert_int_equal(members_init(&members, 1, LEASE_MS), ERR_OK);
    for (uint64_t i = 0; i < MANY; i++)
        members_park(&members, members_find(&members, add(&members, "w")), 5 + i * 7919 % MANY);
    for (uint64_t i = 0; i < MANY; i += 3) /* whoever else leaves */
        members_remove(&members, members.list[i / 3], MEMBER_LEFT, "");
    for (uint64_t before_ms = 0; members.count > 0;) {
        struct member *next = members_find_due(&members, 5 + MANY);
        assert_true(next->parked_until_ms >= before_ms);
        before_ms = next->parked_until_ms;
        members_remove(&members, next, MEMBER_TIMED_OUT, "");
    }
}

TEST(membership_is_summed_until_each_was_last_heard_of)
{
    scoped(members_release) struct members members = {0};
    assert_int_equal(members_init(&members, 1, LEASE_MS), ERR_OK);
    uint64_t a = add(&members, "a"), b = add(&members, "b"); /* at 5 */
    members_find(&members, a)->seen_ms = 105;
    members_find(&members, b)->seen_ms = 25;
    assert_int_equal(members_present_ms(&members), 100 + 20);
    members_remove(&members, members_find(&members, a), MEMBER_ERROR, "");
    members_find(&members, b)->seen_ms = 30;
    assert_int_equal(members_present_ms(&members), 100 + 25);
    struct join_request again = request_of("b"); /* in its own place: it was there all the time */
    struct member *member;
    again.previous_member = b;
    assert_int_equal(members_add(&members, 40, &again, &member), ERR_OK);
    assert_int_equal(members_present_ms(&members), 100 + 35);
}
