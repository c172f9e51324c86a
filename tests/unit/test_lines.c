/* Lines: who may have one, and when their owner hears of it. */
#include "tests/unit/unit.h"

#include "common/shared/lines.h"
#include "common/thread.h"
#include "common/time.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 10000 };

static const struct shared_link_options options = {.ring_bytes = 4096, .payload_bytes_max = 4096};
static atomic_uint returned_count;

static void count_returned(void *item)
{
    (void)item;
    atomic_fetch_add(&returned_count, 1);
}

struct end {
    struct line line;
    struct lines_fixture *f;
    uint32_t works, read; /* the fixture's mutex guards these and the next two lines */
    bool has_link, closed, borrowed;
    bool waits, close, borrow; /* what work() is to do */
};

struct lines_fixture {
    struct shared_pool *pool;
    struct lines *here, *there;
    struct end server, client;
    struct line_offer offer;
    struct reason reason;
    struct thread_mutex mutex;
    struct thread_cond changed;
};

static uint32_t read_all(struct line *line)
{
    struct slice header;
    uint64_t bytes;
    uint32_t read = 0;
    while (line->link != NULL && shared_link_next(line->link, &header, &bytes, NULL) == ERR_OK)
        read++;
    return read;
}

static enum line_state work(struct line *line)
{
    struct end *end = (struct end *)line;
    struct lines_fixture *f = end->f;
    thread_lock(&f->mutex);
    bool waits = end->waits, close = end->close, borrow = end->borrow;
    thread_unlock(&f->mutex);
    uint32_t read = waits ? 0 : read_all(line);
    bool borrowed = borrow && shared_link_borrow(line->link, 0, &f->reason) == ERR_OK;
    if (close)
        line_close(line);
    thread_lock(&f->mutex);
    end->works++;
    end->read += read;
    end->has_link = line->link != NULL;
    end->closed = close;
    end->borrowed |= borrowed;
    end->borrow &= !borrow;
    thread_wake_all(&f->changed);
    thread_unlock(&f->mutex);
    return close ? LINE_CLOSED : waits ? LINE_WAITS : LINE_RESTS;
}

/* Until the flag is set, or the number has grown to so many. */
static void wait_until(struct lines_fixture *f, const bool *flag, const uint32_t *number,
                       uint32_t wanted)
{
    uint64_t deadline = time_after_ms(time_now_ns(), WAIT_MS);
    enum err err = ERR_OK;
    thread_lock(&f->mutex);
    while (err == ERR_OK && !(flag != NULL && *flag) && !(number != NULL && *number >= wanted))
        err = thread_wait_locked(&f->changed, &f->mutex, deadline);
    thread_unlock(&f->mutex);
    assert_int_equal(err, ERR_OK);
}

static void lines_set_up(struct lines_fixture *f)
{
    thread_mutex_init(&f->mutex);
    thread_cond_init(&f->changed);
    f->server.f = f->client.f = f;
    struct shared_link_options own = options;
    assert_int_equal(shared_pool_new(&f->pool, &f->reason), ERR_OK);
    own.pool = f->pool;
    atomic_store(&returned_count, 0);
    assert_int_equal(lines_new(&options, NULL, &f->here), ERR_OK);
    assert_int_equal(lines_new(&own, count_returned, &f->there), ERR_OK);
    assert_int_equal(line_offer(f->here, work, &f->server.line, &f->offer, &f->reason), ERR_OK);
}

static void end_line(struct lines_fixture *f, struct end *end)
{
    thread_lock(&f->mutex);
    bool over = end->line.lines == NULL || end->closed;
    end->close = true;
    thread_unlock(&f->mutex);
    if (over)
        return;
    line_kick(&end->line);
    wait_until(f, &end->closed, NULL, 0);
}

static void lines_tear_down(struct lines_fixture *f)
{
    end_line(f, &f->server);
    end_line(f, &f->client);
    lines_free(f->here);
    lines_free(f->there);
    shared_pool_free(f->pool);
    thread_cond_release(&f->changed);
    thread_mutex_release(&f->mutex);
}

static void connect_client(struct lines_fixture *f)
{
    assert_int_equal(line_connect(f->there, &f->offer, work, &f->client.line, &f->reason), ERR_OK);
    wait_until(f, &f->server.has_link, NULL, 0);
    wait_until(f, &f->client.has_link, NULL, 0);
}

static void send_one(struct end *end)
{
    assert_int_equal(shared_link_begin(end->line.link, slice_of("a"), 0, NULL), ERR_OK);
}

TEST_F(who_knows_the_word_gets_the_line, lines)
{
    connect_client(f);
    for (uint32_t i = 1; i <= 100; i++) {
        send_one(&f->client);
        wait_until(f, NULL, &f->server.read, i);
        send_one(&f->server);
        wait_until(f, NULL, &f->client.read, i);
    }
}

TEST_F(an_offer_is_good_once, lines)
{
    struct shared_link *link = NULL;
    struct shared_link_options own = options;
    connect_client(f);
    memcpy(own.word, f->offer.word, sizeof own.word);
    assert_int_equal(shared_link_connect(f->offer.name, &own, &link, &f->reason), ERR_OK);
    while (!shared_link_ended(link))
        assert_int_equal(shared_link_wait(&link, 1, time_after_ms(time_now_ns(), WAIT_MS)), ERR_OK);
    shared_link_free(link);
    send_one(&f->client);
    wait_until(f, NULL, &f->server.read, 1);
}

TEST_F(an_offer_that_ended_is_taken_by_nobody, lines)
{
    struct shared_link *link = NULL;
    struct shared_link_options own = options;
    end_line(f, &f->server);
    memcpy(own.word, f->offer.word, sizeof own.word);
    assert_int_equal(shared_link_connect(f->offer.name, &own, &link, &f->reason), ERR_OK);
    while (!shared_link_ended(link))
        assert_int_equal(shared_link_wait(&link, 1, time_after_ms(time_now_ns(), WAIT_MS)), ERR_OK);
    shared_link_free(link);
}

TEST_F(where_nobody_listens_there_is_no_line, lines)
{
    struct line_offer other = f->offer;
    struct line line = {.lines = NULL};
    other.name[6] = other.name[6] == '0' ? '1' : '0';
    assert_int_equal(line_connect(f->there, &other, work, &line, &f->reason), ERR_UNREACHABLE);
}

/* Else its thread would look after it all the time. */
TEST_F(a_line_that_waits_is_left_alone_until_it_is_kicked, lines)
{
    connect_client(f);
    thread_lock(&f->mutex);
    f->server.waits = true;
    uint32_t works = f->server.works;
    thread_unlock(&f->mutex);
    line_kick(&f->server.line); /* it hears that it is to wait */
    wait_until(f, NULL, &f->server.works, works + 1);
    send_one(&f->client);
    send_one(&f->server);
    wait_until(f, NULL, &f->client.read, 1);
    usleep(20000);
    thread_lock(&f->mutex);
    bool few = f->server.works <= works + 5; /* the kick, what came, and what was before */
    assert_int_equal(f->server.read, 0);
    f->server.waits = false;
    thread_unlock(&f->mutex);
    assert_true(few);
    line_kick(&f->server.line);
    wait_until(f, NULL, &f->server.read, 1);
}

int __real_epoll_ctl(int poll, int operation, int file, struct epoll_event *event);
int __wrap_epoll_ctl(int poll, int operation, int file, struct epoll_event *event);

static _Thread_local bool no_watch; /* of this thread, as if the user had no watches left */

int __wrap_epoll_ctl(int poll, int operation, int file, struct epoll_event *event)
{
    if (no_watch && operation == EPOLL_CTL_ADD) {
        errno = ENOSPC;
        return -1;
    }
    return __real_epoll_ctl(poll, operation, file, event);
}

/* Else the server would have a line with nobody at its other end. */
TEST_F(who_cannot_wait_for_a_line_says_no_word, lines)
{
    struct end first = {.f = f}; /* makes the thread */
    struct line_offer offer;
    assert_int_equal(line_offer(f->there, work, &first.line, &offer, &f->reason), ERR_OK);
    end_line(f, &first);
    no_watch = true;
    enum err err = line_connect(f->there, &f->offer, work, &f->client.line, &f->reason);
    no_watch = false;
    assert_int_equal(err, ERR_IO);
    connect_client(f); /* the offer is still good */
    send_one(&f->client);
    wait_until(f, NULL, &f->server.read, 1);
}

ssize_t __real_sendmsg(int file, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags);

static _Thread_local int sends_left = INT_MAX; /* of this thread, then too much is under way */

ssize_t __wrap_sendmsg(int file, const struct msghdr *message, int flags)
{
    if (sends_left-- <= 0) {
        errno = ETOOMANYREFS;
        return -1;
    }
    return __real_sendmsg(file, message, flags);
}

TEST_F(who_cannot_hand_over_a_pool_has_a_line_and_lends_nothing, lines)
{
    sends_left = 1; /* the word */
    connect_client(f);
    sends_left = INT_MAX;
    send_one(&f->client);
    wait_until(f, NULL, &f->server.read, 1);
    send_one(&f->server);
    wait_until(f, NULL, &f->client.read, 1);
    assert_false(shared_link_may_lend(f->client.line.link));
}

/* Its socket stays readable from then on, as long as the line lives. */
TEST_F(a_line_whose_other_side_is_gone_is_left_alone, lines)
{
    connect_client(f);
    thread_lock(&f->mutex);
    uint32_t works = f->client.works;
    thread_unlock(&f->mutex);
    end_line(f, &f->server);
    wait_until(f, NULL, &f->client.works, works + 1);
    usleep(20000);
    thread_lock(&f->mutex);
    bool few = f->client.works <= works + 5; /* the end, and what was before */
    thread_unlock(&f->mutex);
    assert_true(few);
}

/* ---- strangers ---- */

int __real_getsockopt(int file, int level, int option, void *value, socklen_t *bytes);
int __wrap_getsockopt(int file, int level, int option, void *value, socklen_t *bytes);
int __real_accept4(int file, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int file, struct sockaddr *address, socklen_t *bytes, int flags);

static atomic_bool others;         /* every other end of a socket belongs to another user */
static atomic_bool no_file;        /* none is left for who connects */
static atomic_uint accepts_failed; /* for that reason */

int __wrap_getsockopt(int file, int level, int option, void *value, socklen_t *bytes)
{
    int got = __real_getsockopt(file, level, option, value, bytes);
    if (got == 0 && option == SO_PEERCRED && atomic_load(&others))
        ((struct ucred *)value)->uid++;
    return got;
}

int __wrap_accept4(int file, struct sockaddr *address, socklen_t *bytes, int flags)
{
    if (!atomic_load(&no_file))
        return __real_accept4(file, address, bytes, flags);
    atomic_fetch_add(&accepts_failed, 1);
    errno = EMFILE;
    return -1;
}

static int connect_stranger(struct lines_fixture *f)
{
    int stranger = -1;
    assert_int_equal(shared_link_reach(f->offer.name, &stranger, &f->reason), ERR_OK);
    return stranger;
}

static bool is_sent_away(int stranger, int ms)
{
    struct pollfd poll_one = {.fd = stranger, .events = POLLIN};
    return poll(&poll_one, 1, ms) == 1;
}

/* Else many of them would leave no place for anybody else. */
TEST_F(who_says_nothing_is_sent_away_also_while_there_is_news, lines)
{
    int stranger = connect_stranger(f);
    bool away = false;
    for (int ms = 0; ms < WAIT_MS && !away; ms += 100) {
        line_kick(&f->server.line);
        away = is_sent_away(stranger, 100);
    }
    close(stranger);
    assert_true(away);
}

TEST_F(who_belongs_to_another_user_is_sent_away_at_once, lines)
{
    atomic_store(&others, true);
    int stranger = connect_stranger(f);
    bool away = is_sent_away(stranger, 3000);
    atomic_store(&others, false);
    close(stranger);
    assert_true(away);
}

TEST_F(while_no_file_is_left_who_connects_waits_and_costs_nothing, lines)
{
    atomic_store(&no_file, true);
    int stranger = connect_stranger(f);
    usleep(200000);
    atomic_store(&no_file, false);
    unsigned failed = atomic_load(&accepts_failed);
    close(stranger);
    assert_in_range(failed, 1, 6);
    connect_client(f);
}

/* ---- what was lent when the line ended ---- */

/* The client lends one thing, which the server borrows, and closes its line. */
static struct shared_link *lend_and_close(struct lines_fixture *f)
{
    struct shared_link *reader;
    connect_client(f);
    reader = f->server.line.link;
    for (uint32_t ms = 0; !shared_link_may_lend(f->client.line.link); ms++) {
        assert_true(ms < WAIT_MS);
        usleep(1000);
    }
    assert_int_equal(shared_link_lend(f->client.line.link, f), 0);
    thread_lock(&f->mutex);
    f->server.borrow = true;
    thread_unlock(&f->mutex);
    line_kick(&f->server.line);
    wait_until(f, &f->server.borrowed, NULL, 0);
    end_line(f, &f->client);
    assert_int_equal(atomic_load(&returned_count), 0);
    return reader;
}

static void wait_returned(void)
{
    for (uint32_t ms = 0; atomic_load(&returned_count) == 0; ms++) {
        assert_true(ms < WAIT_MS);
        usleep(1000);
    }
}

TEST_F(a_loan_outlives_both_lines, lines)
{
    struct shared_link *reader = lend_and_close(f);
    end_line(f, &f->server);
    assert_int_equal(atomic_load(&returned_count), 0);
    shared_link_give_back(reader, 0);
    wait_returned();
}

TEST_F(a_loan_that_comes_back_after_the_line_s_end_is_noticed, lines)
{
    struct shared_link *reader = lend_and_close(f);
    shared_link_give_back(reader, 0);
    wait_returned();
}

TEST_F(a_loan_that_nobody_borrowed_ends_with_the_other_side, lines)
{
    connect_client(f);
    for (uint32_t ms = 0; !shared_link_may_lend(f->client.line.link); ms++) {
        assert_true(ms < WAIT_MS);
        usleep(1000);
    }
    assert_int_equal(shared_link_lend(f->client.line.link, f), 0);
    end_line(f, &f->client);
    assert_int_equal(atomic_load(&returned_count), 0);
    end_line(f, &f->server);
    wait_returned();
}

TEST_F(processes_of_one_machine_have_the_same_name_for_it, lines)
{
    assert_true(strlen(lines_machine(f->here)) > 36);
    assert_string_equal(lines_machine(f->here), lines_machine(f->there));
}

TEST(without_a_line_there_is_no_thread)
{
    struct lines *lines = NULL;
    assert_int_equal(lines_new(&options, NULL, &lines), ERR_OK);
    lines_free(lines);
}
