/* Pushes that wait for a device: who gives them goes on meanwhile. */
#include "tests/unit/rpc_fixture.h"

#include "worker/encoder.h"

#include <sched.h>
#include <stdatomic.h>

enum { SENT, FAILED, ASKED, KEPT = 8 };

struct encoder_fixture {
    struct rpc_loop *loop;
    struct rpc_channel *channel;
    struct rpc_stream *stream; /* to nobody */
    struct encoder *encoder;
    struct tally tally;
    struct thread_mutex device; /* held: it has not come so far */
    struct push_entry entries[2];
    struct push push;
};

static struct encoder_fixture *at_hand; /* of the test that runs: send() has no context */
static uint64_t sent_ids[KEPT];
static uint32_t sent_chunks[KEPT];
static uint32_t failed_server;

static enum err send(const struct push_source *source, const struct push_stream *to,
                     const struct push *push, size_t *ret_bytes)
{
    (void)source, (void)to;
    unsigned at = tally_of(&at_hand->tally, SENT) % KEPT;
    thread_lock(&at_hand->device);
    thread_unlock(&at_hand->device);
    sent_ids[at] = push->id;
    sent_chunks[at] = push->entries[1].chunk;
    tally_add(&at_hand->tally, SENT);
    *ret_bytes = 5;
    return push->id == 13 ? ERR_IO : ERR_OK;
}

static void done(void *context, const struct encoder_job *job, enum err err, size_t bytes)
{
    struct encoder_fixture *f = context;
    assert_int_equal(job->number, 7);
    assert_int_equal(bytes, 5);
    if (err == ERR_OK)
        return;
    assert_int_equal(err, ERR_IO);
    failed_server = job->server;
    tally_add(&f->tally, FAILED);
}

static void encoder_set_up(struct encoder_fixture *f)
{
    const struct encoder_options options = {.send = send, .done = done, .context = f};
    static const struct rpc_stream_events events = {.message = NULL};
    f->loop = loop_new(NULL);
    f->channel = channel_new(f->loop, 1, NULL);
    assert_int_equal(rpc_stream_open(f->channel, "/test.T/Any", &events, f, &f->stream), ERR_OK);
    at_hand = f;
    tally_init(&f->tally);
    thread_mutex_init(&f->device);
    f->push = (struct push){.entry_count = 2, .entries = f->entries};
    assert_int_equal(encoder_new(&options, &f->encoder), ERR_OK);
}

static void encoder_tear_down(struct encoder_fixture *f)
{
    encoder_free(f->encoder);
    rpc_stream_unref(f->stream);
    rpc_channel_free(f->channel);
    rpc_loop_free(f->loop);
    thread_mutex_release(&f->device);
    tally_release(&f->tally);
}

static void give(struct encoder_fixture *f, uint64_t id)
{
    f->push.id = id;
    f->entries[1].chunk = (uint32_t)id * 10;
    const struct encoder_job job = {
        .server = 3, .number = 7, .to = {.stream = f->stream}, .push = f->push};
    assert_int_equal(encoder_push(f->encoder, &job), ERR_OK);
}

TEST_F(nobody_waits_for_the_device, encoder)
{
    thread_lock(&f->device);
    for (uint64_t id = 1; id <= 4; id++)
        give(f, id);
    f->entries[1].chunk = 999; /* what was given is a copy */
    assert_int_equal(tally_of(&f->tally, SENT), 0);
    thread_unlock(&f->device);
    encoder_drain(f->encoder);
    assert_int_equal(tally_of(&f->tally, SENT), 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(sent_ids[i], i + 1);
        assert_int_equal(sent_chunks[i], (i + 1) * 10);
    }
}

TEST_F(what_is_not_sent_is_told_and_others_go_on, encoder)
{
    give(f, 13);
    give(f, 14);
    encoder_drain(f->encoder);
    assert_int_equal(tally_of(&f->tally, SENT), 2);
    assert_int_equal(tally_of(&f->tally, FAILED), 1);
    assert_int_equal(failed_server, 3);
}

/* What encoder_lock() takes, once a thread that `learns` has called it. */
static _Atomic(struct thread_mutex *) learned;
static _Thread_local bool learns;

void __real_thread_lock(struct thread_mutex *mutex);
void __wrap_thread_lock(struct thread_mutex *mutex);
void __wrap_thread_lock(struct thread_mutex *mutex)
{
    if (learns)
        atomic_store(&learned, mutex);
    else if (mutex == atomic_load(&learned))
        tally_add(&at_hand->tally, ASKED);
    __real_thread_lock(mutex);
}

TEST_F(who_reads_gradients_meanwhile_has_them_alone, encoder)
{
    learns = true;
    encoder_lock(f->encoder);
    learns = false;
    give(f, 1);
    while (tally_of(&f->tally, ASKED) + tally_of(&f->tally, SENT) == 0)
        sched_yield();
    unsigned sent = tally_of(&f->tally, SENT);
    atomic_store(&learned, NULL);
    encoder_unlock(f->encoder);
    encoder_drain(f->encoder);
    assert_int_equal(sent, 0);
    assert_int_equal(tally_of(&f->tally, SENT), 1);
}
