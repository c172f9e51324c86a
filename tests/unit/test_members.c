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

struct judged_fixture {
    struct members_demands demands;
    struct join_request request;
    struct reason reason;
};

static void judged_set_up(struct judged_fixture *f)
{
    f->demands = (struct members_demands){.fingerprint = sevens, .data_digest = nines};
    f->request = request_of("w1");
}

static void judged_tear_down(struct judged_fixture *f)
{
    (void)f;
}

static enum err judge(struct judged_fixture *f)
{
    return members_judge(&f->demands, &f->request, &f->reason);
}

TEST_F(a_worker_of_another_wire_version_is_refused_by_name, judged)
{
    assert_int_equal(judge(f), ERR_OK);
    f->request.wire_version = 99;
    assert_int_equal(judge(f), ERR_WIRE_VERSION);
    assert_string_equal(f->reason.text, "worker w1 speaks wire version 99, the coordinator 2 to 3");
}

TEST_F(a_worker_of_the_wire_version_before_stages_may_join_without_an_address, judged)
{
    f->request.wire_version = 2;
    assert_string_equal(f->request.address, "");
    assert_int_equal(judge(f), ERR_OK);
    f->request.wire_version = 1;
    assert_int_equal(judge(f), ERR_WIRE_VERSION);
}

/* Else nothing that counts against it would be remembered. */
TEST_F(a_worker_without_a_name_is_refused, judged)
{
    f->request.name[0] = 0;
    assert_int_equal(judge(f), ERR_INVALID);
    assert_string_equal(f->reason.text, "a worker must have a name");
}

TEST_F(a_worker_that_would_compute_other_bits_is_refused_unless_any_may, judged)
{
    f->request.fingerprint[0] = 0xab;
    assert_int_equal(judge(f), ERR_FINGERPRINT);
    assert_non_null(strstr(f->reason.text, "ab070707"));
    assert_non_null(strstr(f->reason.text, "07070707"));
    f->demands.fingerprint = NULL;
    assert_int_equal(judge(f), ERR_OK);
}

TEST_F(a_worker_with_another_data_set_is_refused, judged)
{
    f->request.data_digest[31] = 1;
    assert_int_equal(judge(f), ERR_DATA_SET);
    f->demands.data_served = true;
    assert_int_equal(judge(f), ERR_DATA_SET);
}

TEST_F(a_worker_without_a_copy_of_the_data_needs_it_served, judged)
{
    memset(f->request.data_digest, 0, sizeof f->request.data_digest);
    assert_int_equal(judge(f), ERR_DATA_SET);
    f->demands.data_served = true;
    assert_int_equal(judge(f), ERR_OK);
}

struct members_fixture {
    struct members list;
};

static void members_set_up(struct members_fixture *f)
{
    assert_int_equal(members_init(&f->list, 1, LEASE_MS), ERR_OK);
}

static void members_tear_down(struct members_fixture *f)
{
    members_release(&f->list);
}

static uint64_t add(struct members *members, const char *name)
{
    struct join_request request = request_of(name);
    struct member *member;
    assert_int_equal(members_add(members, 5, &request, &member), ERR_OK);
    return member->id;
}

/* Who says nothing of devices has one. */
TEST_F(devices_of_all_members_are_counted, members)
{
    struct join_request request = request_of("w");
    struct member *one, *four, *two;
    assert_int_equal(members_add(&f->list, 5, &request, &one), ERR_OK);
    request.devices = 4;
    assert_int_equal(members_add(&f->list, 5, &request, &four), ERR_OK);
    assert_int_equal(one->devices, 1);
    assert_int_equal(f->list.devices, 5);
    request.devices = 2;
    request.previous_member = four->id;
    assert_int_equal(members_add(&f->list, 5, &request, &two), ERR_OK);
    assert_int_equal(f->list.devices, 3);
    members_remove(&f->list, one, MEMBER_LEFT, "");
    assert_int_equal(f->list.devices, 2);
}

/* Else one stolen certificate takes the places of all. */
TEST_F(a_certificate_has_so_many_members, members)
{
    f->list.certificate_max = 2;
    struct join_request request = request_of("w");
    struct member *first, *member;
    request.certificate = 7;
    assert_int_equal(members_add(&f->list, 5, &request, &first), ERR_OK);
    assert_int_equal(members_add(&f->list, 5, &request, &member), ERR_OK);
    assert_int_equal(members_add(&f->list, 5, &request, &member), ERR_BUSY);
    request.previous_member = first->id; /* it comes again */
    assert_int_equal(members_add(&f->list, 5, &request, &member), ERR_OK);
    request.previous_member = 0;
    request.certificate = 8;
    assert_int_equal(members_add(&f->list, 5, &request, &member), ERR_OK);
    add(&f->list, "no TLS");
    add(&f->list, "no TLS");
    add(&f->list, "no TLS");
}

TEST_F(members_are_found_by_their_number_whoever_left, members)
{
    uint64_t a = add(&f->list, "a"), b = add(&f->list, "b"), c = add(&f->list, "c");
    members_remove(&f->list, members_find(&f->list, b), MEMBER_LEFT, "done");
    assert_string_equal(members_find(&f->list, a)->own.name, "a");
    assert_string_equal(members_find(&f->list, c)->own.name, "c");
    assert_null(members_find(&f->list, b));
    assert_null(members_find(&f->list, 0));
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

TEST_F(who_is_gone_is_remembered_newest_first_and_bounded, members)
{
    add(&f->list, "stays");
    for (int i = 0; i < MEMBERS_PAST_MAX + 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        members_remove(&f->list, members_find(&f->list, add(&f->list, name)), MEMBER_TIMED_OUT,
                       "no heartbeat");
    }
    assert_string_equal(members_at(&f->list, 0)->own.name, "stays");
    assert_string_equal(members_at(&f->list, 1)->own.name, "w66");
    assert_int_equal(members_at(&f->list, 1)->state, MEMBER_TIMED_OUT);
    assert_string_equal(members_at(&f->list, 1)->reason, "no heartbeat");
    assert_string_equal(members_at(&f->list, MEMBERS_PAST_MAX)->own.name, "w3");
    assert_null(members_at(&f->list, MEMBERS_PAST_MAX + 1));
}

TEST_F(leaving_is_no_loss, members)
{
    members_remove(&f->list, members_find(&f->list, add(&f->list, "a")), MEMBER_LEFT, "");
    members_remove(&f->list, members_find(&f->list, add(&f->list, "b")), MEMBER_PREEMPTED, "");
    assert_int_equal(f->list.lost_count, 0);
    members_remove(&f->list, members_find(&f->list, add(&f->list, "c")), MEMBER_ERROR, "");
    assert_int_equal(f->list.lost_count, 1);
    assert_int_equal(f->list.joined_count, 3);
}

TEST_F(parked_questions_wait_in_line, members)
{
    uint64_t a = add(&f->list, "a"), b = add(&f->list, "b");
    assert_null(members_first_parked(&f->list));
    members_park(&f->list, members_find(&f->list, b), 100);
    members_park(&f->list, members_find(&f->list, a), 100);
    struct member *first = members_first_parked(&f->list);
    assert_int_equal(first->id, b);
    assert_int_equal(members_next_parked(&f->list, first)->id, a);
    members_park(&f->list, first, 200); /* asked again: behind the others */
    assert_int_equal(f->list.parked_count, 2);
    assert_int_equal(members_first_parked(&f->list)->id, a);
    members_remove(&f->list, members_find(&f->list, a), MEMBER_LEFT, "");
    assert_int_equal(f->list.parked_count, 1);
}

static uint64_t due(struct members *members, uint64_t now_ms)
{
    const struct member *member = members_find_due(members, now_ms);
    return member != NULL ? member->id : 0;
}

TEST_F(a_member_is_due_when_it_lapses_or_has_waited_long_enough, members)
{
    assert_int_equal(members_due_ms(&f->list), UINT64_MAX);
    uint64_t a = add(&f->list, "a"), b = add(&f->list, "b"); /* at 5 */
    members_park(&f->list, members_find(&f->list, b), 100);
    assert_int_equal(members_due_ms(&f->list), 100);
    assert_int_equal(due(&f->list, 99), 0);
    assert_int_equal(due(&f->list, 100), b);
    members_unpark(&f->list, members_find(&f->list, b));
    members_find(&f->list, b)->seen_ms = 300;
    assert_int_equal(due(&f->list, 1004), 0);
    assert_int_equal(due(&f->list, 1005), a);
    members_remove(&f->list, members_find(&f->list, a), MEMBER_TIMED_OUT, "");
    assert_int_equal(due(&f->list, 1299), 0);
    assert_int_equal(due(&f->list, 1300), b);
}

TEST_F(many_members_are_due_in_the_order_of_their_times, members)
{
    enum { MANY = 300 };
    for (uint64_t i = 0; i < MANY; i++)
        members_park(&f->list, members_find(&f->list, add(&f->list, "w")), 5 + i * 7919 % MANY);
    for (uint64_t i = 0; i < MANY; i += 3) /* whoever else leaves */
        members_remove(&f->list, f->list.list[i / 3], MEMBER_LEFT, "");
    for (uint64_t before_ms = 0; f->list.count > 0;) {
        struct member *next = members_find_due(&f->list, 5 + MANY);
        assert_true(next->parked_until_ms >= before_ms);
        before_ms = next->parked_until_ms;
        members_remove(&f->list, next, MEMBER_TIMED_OUT, "");
    }
}

TEST_F(membership_is_summed_until_each_was_last_heard_of, members)
{
    uint64_t a = add(&f->list, "a"), b = add(&f->list, "b"); /* at 5 */
    members_find(&f->list, a)->seen_ms = 105;
    members_find(&f->list, b)->seen_ms = 25;
    assert_int_equal(members_present_ms(&f->list), 100 + 20);
    members_remove(&f->list, members_find(&f->list, a), MEMBER_ERROR, "");
    members_find(&f->list, b)->seen_ms = 30;
    assert_int_equal(members_present_ms(&f->list), 100 + 25);
    struct join_request again = request_of("b"); /* in its own place: it was there all the time */
    struct member *member;
    again.previous_member = b;
    assert_int_equal(members_add(&f->list, 40, &again, &member), ERR_OK);
    assert_int_equal(members_present_ms(&f->list), 100 + 35);
}
