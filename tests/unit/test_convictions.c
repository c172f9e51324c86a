/* Who was convicted, and how many of them are remembered. */
#include "tests/unit/unit.h"

#include "server/coordinator/convictions.h"

/* Of a worker that has its certificate alone. */
static struct conviction conviction_of(uint64_t member, uint64_t certificate)
{
    return (struct conviction){
        .member = member, .certificate = certificate, .by_certificate = true, .name = "w"};
}

static struct join_request request_of(uint64_t certificate, const char *name)
{
    struct join_request request = {.certificate = certificate};
    snprintf(request.name, sizeof request.name, "%s", name);
    return request;
}

static bool is_kept_out(const struct convictions *convictions, uint64_t certificate,
                        const char *name)
{
    const struct join_request request = request_of(certificate, name);
    return convictions_find(convictions, &request) != NULL;
}

TEST(whom_a_conviction_keeps_out_is_decided_when_it_is_made)
{
    struct convictions convictions = {0};
    struct conviction alone = conviction_of(1, 7), shared = conviction_of(2, 8);
    shared.by_certificate = false;
    convictions_add(&convictions, &alone);
    convictions_add(&convictions, &shared);
    assert_true(is_kept_out(&convictions, 7, "another name"));
    assert_true(is_kept_out(&convictions, 8, "w"));
    assert_false(is_kept_out(&convictions, 8, "another name"));
    assert_false(is_kept_out(&convictions, 9, "w"));
}

TEST(convictions_of_one_worker_are_one_and_push_no_other_out)
{
    struct convictions convictions = {0};
    struct conviction first = conviction_of(1, 7), again = conviction_of(2, 8);
    convictions_add(&convictions, &first);
    for (; again.member < 2 + 2 * CONVICTIONS_MAX; again.member++)
        convictions_add(&convictions, &again);
    assert_int_equal(convictions.count, 2);
    assert_int_equal(convictions.list[1].member, 1 + 2 * CONVICTIONS_MAX);
    assert_true(is_kept_out(&convictions, 7, "w"));
}

TEST(a_worker_that_is_convicted_again_is_kept_out_by_its_certificate_as_before)
{
    struct convictions convictions = {0};
    struct conviction alone = conviction_of(1, 7), shared = conviction_of(2, 7);
    shared.by_certificate = false;
    snprintf(shared.name, sizeof shared.name, "later, under another name");
    convictions_add(&convictions, &alone);
    convictions_add(&convictions, &shared);
    assert_int_equal(convictions.count, 1);
    assert_true(is_kept_out(&convictions, 7, "a third"));
}

TEST(a_conviction_takes_over_what_an_earlier_one_of_the_worker_is_to_undo)
{
    struct convictions convictions = {0};
    uint64_t from = 0;
    struct conviction first = conviction_of(1, 7), again = conviction_of(2, 7);
    first.undo = true;
    first.undo_from = 5;
    convictions_add(&convictions, &first);
    assert_true(convictions_add(&convictions, &again)->undo);
    assert_true(convictions_undo(&convictions, &from));
    assert_int_equal(from, 5);
    again.undo = true;
    again.undo_from = 9;
    assert_int_equal(convictions_add(&convictions, &again)->undo_from, 5);
    again.undo_from = 3;
    assert_int_equal(convictions_add(&convictions, &again)->undo_from, 3);
}

TEST(what_is_still_to_be_undone_is_not_forgotten)
{
    struct convictions convictions = {0};
    uint64_t from = 0;
    for (uint64_t i = 0; i < 3 * CONVICTIONS_MAX; i++) {
        struct conviction one = conviction_of(1 + i, 1 + i);
        one.undo = i == 0;
        one.undo_from = 5;
        convictions_add(&convictions, &one);
    }
    assert_int_equal(convictions.count, CONVICTIONS_MAX);
    assert_true(is_kept_out(&convictions, 1, "w"));
    assert_false(is_kept_out(&convictions, 2, "w"));
    for (uint64_t i = 0; i < 3 * CONVICTIONS_MAX; i++) { /* not even when it is so for all */
        struct conviction one = conviction_of(1000 + i, 1000 + i);
        one.undo = true;
        one.undo_from = 100;
        convictions_add(&convictions, &one);
    }
    assert_int_equal(convictions.count, CONVICTIONS_MAX);
    assert_true(convictions_undo(&convictions, &from));
    assert_int_equal(from, 5);
}
