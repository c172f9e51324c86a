/* Calls that wait for their answer. */
#include "tests/unit/unit.h"

#include "server/control/waiting.h"

/* How each call that is failed ends, by its number. */
static enum err failed[WAITING_MAX + 2];
static unsigned failed_count;

/* As events.c has it, but for the answer. */
void call_fail(struct call *take_call, enum err err, const char *text)
{
    assert_non_null(text);
    failed[take_call->number] = err;
    failed_count++;
    free(take_call);
}

static void add(struct waiting *waiting, enum call_kind kind, uint64_t number, uint64_t member)
{
    struct call *call = calloc(1, sizeof *call);
    assert_non_null(call);
    call->kind = kind;
    call->number = number;
    if (kind == CALL_ACQUIRE)
        call->acquire.member = member;
    waiting_add(waiting, &(struct waiting_call){.call = call});
}

struct waiting_fixture {
    struct waiting waiting;
};

static void waiting_set_up(struct waiting_fixture *f)
{
    assert_int_equal(waiting_init(&f->waiting), ERR_OK);
    failed_count = 0;
}

static void waiting_tear_down(struct waiting_fixture *f)
{
    waiting_release(&f->waiting);
}

static void take_and_free(struct call *call, uint64_t number)
{
    assert_non_null(call);
    assert_int_equal(call->number, number);
    free(call);
}

TEST_F(an_acquire_is_found_by_its_member_once, waiting)
{
    add(&f->waiting, CALL_ACQUIRE, 1, 7);
    add(&f->waiting, CALL_CHECKPOINT, 2, 0);
    add(&f->waiting, CALL_ACQUIRE, 3, 8);
    take_and_free(waiting_take_acquire(&f->waiting, 8), 3);
    assert_null(waiting_take_acquire(&f->waiting, 8));
    assert_null(waiting_take_acquire(&f->waiting, 0)); /* a checkpoint has no member */
    take_and_free(waiting_take_acquire(&f->waiting, 7), 1);
    assert_int_equal(f->waiting.count, 1);
}

TEST_F(a_call_is_found_by_its_number_and_the_others_stay, waiting)
{
    for (uint64_t number = 1; number <= 4; number++)
        add(&f->waiting, CALL_CHECKPOINT, number, 0);
    assert_null(waiting_take_number(&f->waiting, 5));
    take_and_free(waiting_take_number(&f->waiting, 2), 2);
    assert_null(waiting_take_number(&f->waiting, 2));
    assert_int_equal(f->waiting.count, 3);
    take_and_free(waiting_take_number(&f->waiting, 4), 4);
    take_and_free(waiting_take_number(&f->waiting, 1), 1);
    take_and_free(waiting_take(&f->waiting, 0), 3);
    assert_int_equal(f->waiting.count, 0);
    waiting_release(&f->waiting);
    assert_int_equal(failed_count, 0);
}

TEST_F(a_call_too_many_is_busy_and_those_that_wait_go_on, waiting)
{
    for (uint64_t number = 1; number <= WAITING_MAX + 1; number++)
        add(&f->waiting, CALL_ACQUIRE, number, number);
    assert_int_equal(failed_count, 1);
    assert_int_equal(failed[WAITING_MAX + 1], ERR_BUSY);
    take_and_free(waiting_take_acquire(&f->waiting, WAITING_MAX), WAITING_MAX);
}

TEST_F(what_still_waits_at_the_end_is_cancelled, waiting)
{
    add(&f->waiting, CALL_ACQUIRE, 1, 7);
    add(&f->waiting, CALL_CHECKPOINT, 2, 0);
    waiting_release(&f->waiting);
    assert_int_equal(failed_count, 2);
    assert_int_equal(failed[1], ERR_CANCELLED);
    assert_int_equal(failed[2], ERR_CANCELLED);
}
