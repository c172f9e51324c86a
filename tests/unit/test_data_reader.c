/* A run's data set, read beside the main thread. */
#include "server/control/data_reader.h"
#include "tests/unit/unit.h"

#include <sched.h>

#define SECOND UINT64_C(1000000000)

struct reader_fixture {
    struct data_reader reader;
    struct reason reason;
};

static atomic_bool held; /* a thread waits before it reads */
/* Its thread ends while texts are compared; NULL: none's. */
static _Atomic(struct data_reader *) ending;

static void reader_set_up(struct reader_fixture *f)
{
    (void)f;
    atomic_store(&ending, NULL);
}

static void reader_tear_down(struct reader_fixture *f)
{
    atomic_store(&held, false);
    data_reader_release(&f->reader);
}

enum err __real_run_data_open_until(const struct spec *spec, const char *path,
                                    const atomic_bool *stop, struct data **ret_data,
                                    struct reason *reason);
enum err __wrap_run_data_open_until(const struct spec *spec, const char *path,
                                    const atomic_bool *stop, struct data **ret_data,
                                    struct reason *reason);

enum err __wrap_run_data_open_until(const struct spec *spec, const char *path,
                                    const atomic_bool *stop, struct data **ret_data,
                                    struct reason *reason)
{
    while (atomic_load(&held))
        sched_yield();
    if (atomic_load(stop))
        return reason_set(reason, ERR_CANCELLED, "the data set is not read on");
    return __real_run_data_open_until(spec, path, stop, ret_data, reason);
}

int __real_strcmp(const char *one, const char *other);
int __wrap_strcmp(const char *one, const char *other);

int __wrap_strcmp(const char *one, const char *other)
{
    struct data_reader *reader = atomic_exchange(&ending, NULL);
    if (reader != NULL)
        atomic_store(&held, false);
    while (reader != NULL && !atomic_load(&reader->over))
        sched_yield();
    return __real_strcmp(one, other);
}

static enum err ask(struct reader_fixture *f, uint64_t now_ns)
{
    const struct data_wish wish = {.spec = "model: {kind: mlp, layers: [2, 8, 3]}\n"
                                           "data: {kind: spiral, points: 20}\n"};
    return data_reader_ask(&f->reader, &wish, now_ns, &f->reason);
}

/* Nobody asked for ten seconds, then somebody does, and the thread ends within that call. */
TEST_F(what_a_stopped_thread_has_read_is_no_answer, reader)
{
    enum err err;
    atomic_store(&held, true);
    assert_int_equal(ask(f, 0), ERR_SEARCHING);
    data_reader_go_on(&f->reader, 10 * SECOND);
    atomic_store(&ending, &f->reader);
    assert_int_equal(ask(f, 10 * SECOND), ERR_SEARCHING);
    assert_null(atomic_load(&ending)); /* the thread has ended */
    while ((err = ask(f, 10 * SECOND)) == ERR_SEARCHING)
        sched_yield();
    assert_int_equal(err, ERR_OK);
    assert_non_null(f->reader.data);
}
