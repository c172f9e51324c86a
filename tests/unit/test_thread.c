/* Threads, locks and conditions. */
#include "tests/unit/unit.h"

#include "common/thread.h"
#include "common/time.h"

#include <pthread.h>
#include <signal.h>

#define THREADS 4
#define TURNS 1000

struct counter {
    struct thread_cond grown;
    struct thread_mutex mutex; /* guards what follows */
    unsigned count;
};

static void counter_init(struct counter *counter)
{
    *counter = (struct counter){0};
    thread_cond_init(&counter->grown);
    thread_mutex_init(&counter->mutex);
}

static void counter_release(struct counter *counter)
{
    thread_cond_release(&counter->grown);
    thread_mutex_release(&counter->mutex);
}

static void count_up(void *argument)
{
    struct counter *counter = argument;
    for (int i = 0; i < TURNS; i++) {
        thread_lock(&counter->mutex);
        counter->count++;
        thread_unlock(&counter->mutex);
        thread_wake_all(&counter->grown);
    }
}

TEST(a_lock_makes_counts_exact_and_a_condition_tells_of_them)
{
    struct counter counter;
    struct thread threads[THREADS];
    counter_init(&counter);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(thread_start(&threads[i], "counter", count_up, &counter), ERR_OK);
    thread_lock(&counter.mutex);
    while (counter.count < THREADS * TURNS)
        assert_int_equal(thread_wait_locked(&counter.grown, &counter.mutex, TIME_NEVER), ERR_OK);
    thread_unlock(&counter.mutex);
    for (int i = 0; i < THREADS; i++)
        thread_join(&threads[i]);
    assert_int_equal(counter.count, THREADS * TURNS);
    counter_release(&counter);
}

TEST(a_wait_ends_at_a_deadline_that_has_passed)
{
    struct counter counter;
    counter_init(&counter);
    thread_lock(&counter.mutex);
    assert_int_equal(thread_wait_locked(&counter.grown, &counter.mutex, 1), ERR_DEADLINE);
    thread_unlock(&counter.mutex);
    counter_release(&counter);
}

struct seen {
    char name[16];
    sigset_t blocked;
};

static void look(void *argument)
{
    struct seen *seen = argument;
    pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
}

TEST(a_thread_has_its_name_cut_and_gets_no_signals)
{
    struct thread thread;
    struct seen seen = {{0}};
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(thread_start(&thread, "shard-of-a-long-name", look, &seen), ERR_OK);
    thread_join(&thread);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_string_equal(seen.name, "shard-of-a-long");
    assert_true(sigismember(&seen.blocked, SIGTERM) && sigismember(&seen.blocked, SIGINT));
    assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
}

TEST(there_is_a_core)
{
    assert_in_range(thread_core_count(), 1, 100000);
}
