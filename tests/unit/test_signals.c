/* Signals as events, and those that whoever started the process wants ignored. */
#include "tests/unit/unit.h"

#include "common/signals.h"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

/* The fixture: dispositions as the process inherited them. */
struct signals_fixture {
    struct signals signals;
    sigset_t mask_before;
    sem_t last_came;
    int numbers[8];
    size_t count;
};

static void signals_set_up(struct signals_fixture *f)
{
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &f->mask_before), 0);
    assert_int_equal(sem_init(&f->last_came, 0, 0), 0);
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
}

static void signals_tear_down(struct signals_fixture *f)
{
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &f->mask_before, NULL);
    sem_destroy(&f->last_came);
}

static void note(void *owner, int number)
{
    struct signals_fixture *f = owner;
    assert_true(f->count < sizeof f->numbers / sizeof f->numbers[0]);
    f->numbers[f->count++] = number;
    if (number == SIGTERM)
        sem_post(&f->last_came);
}

/* Of several that are pending the lowest number comes first, SIGTERM last. */
static void send_each(struct signals_fixture *f)
{
    assert_int_equal(signals_start(&f->signals, note, f), ERR_OK);
    assert_int_equal(kill(getpid(), SIGHUP), 0);
    assert_int_equal(kill(getpid(), SIGINT), 0);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    assert_int_equal(sem_wait(&f->last_came), 0);
    signals_stop(&f->signals);
}

TEST_F(each_signal_is_an_event, signals)
{
    const int wanted[] = {SIGHUP, SIGINT, SIGTERM};
    send_each(f);
    assert_int_equal(f->count, 3);
    assert_memory_equal(f->numbers, wanted, sizeof wanted);
}

/* As nohup does. */
TEST_F(a_hang_up_that_the_parent_ignores_is_no_event, signals)
{
    const int wanted[] = {SIGINT, SIGTERM};
    signal(SIGHUP, SIG_IGN);
    send_each(f);
    assert_int_equal(f->count, 2);
    assert_memory_equal(f->numbers, wanted, sizeof wanted);
}

/* As a script's shell does for what it starts with `&`. */
TEST_F(an_interrupt_that_the_parent_ignores_is_no_event, signals)
{
    const int wanted[] = {SIGHUP, SIGTERM};
    signal(SIGINT, SIG_IGN);
    send_each(f);
    assert_int_equal(f->count, 2);
    assert_memory_equal(f->numbers, wanted, sizeof wanted);
}
