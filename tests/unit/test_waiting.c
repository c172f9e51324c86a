/* Calls that wait for their answer. */
#include "tests/unit/unit.h"

#include "server/control/waiting.h"

#include <stdlib.h>

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

static int setup(void **state)
{
    static struct waiting waiting;
    assert_int_equal(waiting_init(&waiting), ERR_OK);
    failed_count = 0;
    *state = &waiting;
    return 0;
}

static void take_and_free(struct call *call, uint64_t number)
{
    assert_non_null(call);
    assert_int_equal(call->number, number);
    free(call);
}

TEST(an_acquire_is_found_by_its_member_once, .setup_func = setup)
{
    struct waiting *waiting = *state;
    add(waiting, CALL_ACQUIRE, 1, 7);
    add(waiting, CALL_CHECKPOINT, 2, 0);
    add(waiting, CALL_ACQUIRE, 3, 8);
    take_and_free(waiting_take_acquire(waiting, 8), 3);
    assert_null(waiting_take_acquire(waiting, 8));
    assert_null(waiting_take_acquire(waiting, 0)); /* a checkpoint has no member */
    take_and_free(waiting_take_acquire(waiting, 7), 1);
    assert_int_equal(waiting->count, 1);
    waiting_release(waiting);
}

TEST(a_call_is_found_by_its_number_and_the_others_stay, .setup_func = setup)
{
    struct waiting *waiting = *state;
    for (uint64_t number = 1; number <= 4; number++)
        add(waiting, CALL_CHECKPOINT, number, 0);
    assert_null(waiting_take_number(waiting, 5));
    take_and_free(waiting_take_number(waiting, 2), 2);
    assert_null(waiting_take_number(waiting, 2));
    assert_int_equal(waiting->count, 3);
    take_and_free(waiting_take_number(waiting, 4), 4);
    take_and_free(waiting_take_number(waiting, 1), 1);
    take_and_free(waiting_take(waiting, 0), 3);
    assert_int_equal(waiting->count, 0);
    waiting_release(waiting);
    assert_int_equal(failed_count, 0);
}

TEST(a_call_too_many_is_busy_and_those_that_wait_go_on, .setup_func = setup)
{
    struct waiting *waiting = *state;
    for (uint64_t number = 1; number <= WAITING_MAX + 1; number++)
        add(waiting, CALL_ACQUIRE, number, number);
    assert_int_equal(failed_count, 1);
    assert_int_equal(failed[WAITING_MAX + 1], ERR_BUSY);
    take_and_free(waiting_take_acquire(waiting, WAITING_MAX), WAITING_MAX);
    waiting_release(waiting);
}

TEST(what_still_waits_at_the_end_is_cancelled, .setup_func = setup)
{
    struct waiting *waiting = *state;
    add(waiting, CALL_ACQUIRE, 1, 7);
    add(waiting, CALL_CHECKPOINT, 2, 0);
    waiting_release(waiting);
    assert_int_equal(failed_count, 2);
    assert_int_equal(failed[1], ERR_CANCELLED);
    assert_int_equal(failed[2], ERR_CANCELLED);
}
