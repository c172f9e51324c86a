#include "common/shared/lines.h"

#include "common/file.h"
#include "common/rand.h"
#include "common/thread.h"
#include "common/time.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 64,
    ACCEPTS_MAX = 64,       /* in one turn */
    STRANGERS_MAX = 256,    /* that have connected and said nothing yet */
    STRANGER_MS_MAX = 5000, /* for that long */
    FULL_MS = 50,           /* the pause when no file is left for who connects */
    LAYOUT = 2              /* of the memory and of what goes through it: others have no lines */
};

/* Who has connected. */
struct stranger {
    int socket; /* -1: nobody */
    uint64_t deadline_ns;
};

/* The link of a line that was closed, while the other side reads what was lent. */
struct lender {
    struct ring ring;
    struct shared_link *link;
};

struct lines {
    struct shared_link_options options;
    void (*returned)(void *item);
    char machine[LINES_MACHINE_BYTES];
    struct thread_mutex
        mutex; /* guards what follows, and each line's `offered`, `ready`, `closed` */
    bool started, stopping;
    struct ring offered, ready;
    uint32_t count; /* lines that are not closed */
    char name[LINES_NAME_BYTES];

    /* Made before the thread, and its own from then on. */
    struct thread thread;
    int poll, listener, waker; /* an epoll, a socket, an eventfd */
    struct stranger strangers[STRANGERS_MAX];
    uint64_t full_until_ns; /* nobody is listened to; 0: everybody is */
    uint64_t due_ns;        /* the end of that pause, or of the first stranger's time, or earlier;
                               TIME_NEVER: nothing is due */
    struct ring lenders;
};

/* ---- what is said of the machine ---- */

static void read_machine(char ret_text[static LINES_MACHINE_BYTES])
{
    char boot[64] = "";
    struct stat space;
    struct buf bytes = {0};
    struct reason reason;
    ret_text[0] = 0;
    if (file_read("/proc/sys/kernel/random/boot_id", sizeof boot, &bytes, &reason) == ERR_OK &&
        bytes.bytes > 1 && bytes.bytes < sizeof boot && stat("/proc/self/ns/net", &space) == 0) {
        memcpy(boot, bytes.data, bytes.bytes);
        boot[strcspn(boot, "\n")] = 0;
        snprintf(ret_text, LINES_MACHINE_BYTES, "%s-%llu-%d", boot,
                 (unsigned long long)space.st_ino, LAYOUT);
    }
    buf_release(&bytes);
}

/* ---- the thread ---- */

static void wake_thread(const struct lines *lines)
{
    const uint64_t one = 1;
    ssize_t written = write(lines->waker, &one, sizeof one);
    (void)written; /* a counter that is full wakes as well */
}

/* `what` tells whose news it is: a line, a lender, a stranger, or the address of the number of the
 * file. */
static bool watch(const struct lines *lines, int file, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(lines->poll, EPOLL_CTL_ADD, file, &event) == 0;
}

/* Other events of a file that is watched already: that needs no memory, so it cannot fail. */
static void watch_as(const struct lines *lines, int file, void *what, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = what};
    check(epoll_ctl(lines->poll, EPOLL_CTL_MOD, file, &event) == 0);
}

static void watch_no_more(const struct lines *lines, int file)
{
    (void)epoll_ctl(lines->poll, EPOLL_CTL_DEL, file, NULL);
}

static struct line *next_ready(struct lines *lines)
{
    struct line *line = NULL;
    thread_lock(&lines->mutex);
    if (!ring_is_empty(&lines->ready)) {
        line = RING_ITEM(lines->ready.behind, struct line, ready);
        ring_take(&line->ready);
    }
    thread_unlock(&lines->mutex);
    return line;
}

/* Whose word it is; it is offered no more. NULL: nobody's. */
static struct line *take_offered(struct lines *lines, const uint8_t *word)
{
    struct line *found = NULL;
    thread_lock(&lines->mutex);
    for (struct ring *ring = lines->offered.behind; ring != &lines->offered && found == NULL;
         ring = ring->behind) {
        struct line *line = RING_ITEM(ring, struct line, offered);
        if (memcmp(line->word, word, sizeof line->word) == 0)
            found = line;
    }
    if (found != NULL)
        ring_take(&found->offered);
    thread_unlock(&lines->mutex);
    return found;
}

static void forget(struct stranger *stranger)
{
    close(stranger->socket); /* epoll forgets it as well */
    stranger->socket = -1;
}

/* It has said something: it has a line from now on, or nothing. */
static void hear(struct lines *lines, struct stranger *stranger)
{
    struct shared_link *link = NULL;
    struct reason reason;
    int heard = stranger->socket;
    watch_no_more(lines, heard);
    stranger->socket = -1;
    if (shared_link_take(heard, &lines->options, time_now_ns(), &link, &reason) != ERR_OK)
        return; /* the other side sees that its socket has ended */
    struct line *line = take_offered(lines, shared_link_word(link));
    if (line == NULL || shared_link_admit(link, &reason) != ERR_OK ||
        !watch(lines, shared_link_socket(link), line)) {
        shared_link_free(link);
        return;
    }
    line->link = link;
    line_kick(line);
}

static struct stranger *free_place(struct lines *lines)
{
    for (uint32_t i = 0; i < STRANGERS_MAX; i++)
        if (lines->strangers[i].socket < 0)
            return &lines->strangers[i];
    return NULL;
}

/* Anybody may connect; others than this user shall not take places. */
static bool is_of_this_user(int accepted)
{
    struct reason reason;
    return shared_link_judge_user(accepted, &reason) == ERR_OK;
}

static void due_at(struct lines *lines, uint64_t moment_ns)
{
    if (moment_ns < lines->due_ns)
        lines->due_ns = moment_ns;
}

/* Who wants to connect waits, and must not keep the thread busy meanwhile. */
static void pause_listening(struct lines *lines)
{
    watch_as(lines, lines->listener, &lines->listener, 0);
    lines->full_until_ns = time_after_ms(time_now_ns(), FULL_MS);
    due_at(lines, lines->full_until_ns);
}

static bool is_full(int number)
{
    return number == EMFILE || number == ENFILE || number == ENOBUFS || number == ENOMEM;
}

/* Who wants to connect; another user, or who finds no place, is sent away. Others than these wait
 * until the thread comes back: somebody may connect faster than it sends them away. */
static void accept_some(struct lines *lines)
{
    for (uint32_t i = 0; i < ACCEPTS_MAX; i++) {
        int accepted = accept4(lines->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (accepted < 0 && is_full(errno))
            pause_listening(lines);
        if (accepted < 0)
            return;
        struct stranger *stranger = free_place(lines);
        if (stranger == NULL || !is_of_this_user(accepted) || !watch(lines, accepted, stranger)) {
            close(accepted);
            continue;
        }
        *stranger = (struct stranger){accepted, time_after_ms(time_now_ns(), STRANGER_MS_MAX)};
        due_at(lines, stranger->deadline_ns);
    }
}

static void forget_silent(struct lines *lines, uint64_t now)
{
    for (uint32_t i = 0; i < STRANGERS_MAX; i++) {
        struct stranger *stranger = &lines->strangers[i];
        if (stranger->socket >= 0 && stranger->deadline_ns <= now)
            forget(stranger);
        else if (stranger->socket >= 0)
            due_at(lines, stranger->deadline_ns);
    }
}

static void listen_again(struct lines *lines, uint64_t now)
{
    if (lines->full_until_ns > now) {
        due_at(lines, lines->full_until_ns);
    } else if (lines->full_until_ns > 0) {
        lines->full_until_ns = 0;
        watch_as(lines, lines->listener, &lines->listener, EPOLLIN);
    }
}

static void do_what_is_due(struct lines *lines)
{
    uint64_t now = lines->due_ns == TIME_NEVER ? 0 : time_now_ns();
    if (now < lines->due_ns)
        return;
    lines->due_ns = TIME_NEVER;
    forget_silent(lines, now);
    listen_again(lines, now);
}

static int ms_until(uint64_t moment_ns)
{
    uint64_t now = time_now_ns();
    return moment_ns <= now ? 0 : (int)((moment_ns - now + 999999) / 1000000);
}

static int wait_ms(struct lines *lines)
{
    thread_lock(&lines->mutex);
    bool ready = !ring_is_empty(&lines->ready);
    thread_unlock(&lines->mutex);
    if (ready)
        return 0;
    return lines->due_ns == TIME_NEVER ? -1 : ms_until(lines->due_ns);
}

static bool is_stopping(struct lines *lines)
{
    thread_lock(&lines->mutex);
    bool stopping = lines->stopping;
    thread_unlock(&lines->mutex);
    return stopping;
}

static bool is_stranger(const struct lines *lines, const void *what)
{
    return (uintptr_t)what >= (uintptr_t)lines->strangers &&
           (uintptr_t)what < (uintptr_t)(lines->strangers + STRANGERS_MAX);
}

/* ---- what was lent ---- */

/* Whether all is back. */
static bool is_back(const struct lines *lines, struct shared_link *link)
{
    void *item;
    while ((item = shared_link_returned(link, shared_link_ended(link))) != NULL)
        lines->returned(item);
    return !shared_link_lends(link);
}

static void let_go(struct lines *lines, struct shared_link *link)
{
    watch_no_more(lines, shared_link_socket(link)); /* it stays open while something is borrowed */
    shared_link_free(link);
}

static void lender_free(struct lines *lines, struct lender *lender)
{
    ring_take(&lender->ring);
    let_go(lines, lender->link);
    free(lender);
}

/* Without memory for that, or a place to wait, what is out stays out. */
static void lend_on(struct lines *lines, struct shared_link *link)
{
    struct lender *lender = malloc(sizeof *lender);
    watch_no_more(lines, shared_link_socket(link));
    if (lender == NULL || !watch(lines, shared_link_socket(link), lender)) {
        free(lender);
        return;
    }
    lender->link = link;
    ring_add(&lines->lenders, &lender->ring);
}

static struct lender *lender_of(const struct lines *lines, const void *what)
{
    for (struct ring *ring = lines->lenders.behind; ring != &lines->lenders; ring = ring->behind)
        if (RING_ITEM(ring, struct lender, ring) == what)
            return RING_ITEM(ring, struct lender, ring);
    return NULL;
}

static void hear_lender(struct lines *lines, struct lender *lender)
{
    shared_link_woken(lender->link);
    if (is_back(lines, lender->link))
        lender_free(lines, lender);
}

/* Nobody looks after the other side any more. */
static void call_in(struct lines *lines, struct lender *lender)
{
    void *item;
    while ((item = shared_link_returned(lender->link, true)) != NULL)
        lines->returned(item);
    lender_free(lines, lender);
}

/* ---- news ---- */

/* The socket of a link that has ended stays readable, while its line lives on. */
static void hear_line(struct lines *lines, struct line *line)
{
    line_kick(line); /* first: with the lock it sees the link that connect_link() has made */
    shared_link_woken(line->link);
    if (shared_link_ended(line->link))
        watch_no_more(lines, shared_link_socket(line->link));
}

static void take_news(struct lines *lines, void *what)
{
    struct lender *lender = lender_of(lines, what);
    uint64_t count;
    if (what == &lines->waker) {
        ssize_t got = read(lines->waker, &count, sizeof count);
        (void)got; /* it woke, whatever the count */
    } else if (what == &lines->listener) {
        accept_some(lines);
    } else if (is_stranger(lines, what)) {
        hear(lines, what);
    } else if (lender != NULL) {
        hear_lender(lines, lender);
    } else {
        hear_line(lines, what);
    }
}

/* A line that has news again has to wait for the others. */
static void work_off(struct lines *lines)
{
    struct line *line;
    for (int i = 0; i < EVENTS_MAX && (line = next_ready(lines)) != NULL; i++)
        if (line->work(line) == LINE_RESTS && line->link != NULL && !shared_link_rests(line->link))
            line_kick(line);
}

static void look_after_lines(void *argument)
{
    struct lines *lines = argument;
    struct epoll_event events[EVENTS_MAX];
    while (!is_stopping(lines)) {
        int count = epoll_wait(lines->poll, events, EVENTS_MAX, wait_ms(lines));
        for (int i = 0; i < count; i++)
            take_news(lines, events[i].data.ptr);
        do_what_is_due(lines);
        work_off(lines);
    }
}

/* ---- life ---- */

enum err lines_new(const struct shared_link_options *options, void (*returned)(void *item),
                   struct lines **ret_lines)
{
    struct lines *lines = calloc(1, sizeof *lines);
    if (lines == NULL)
        return ERR_NOMEM;
    lines->options = *options;
    lines->returned = returned;
    lines->poll = lines->listener = lines->waker = -1;
    lines->due_ns = TIME_NEVER;
    for (uint32_t i = 0; i < STRANGERS_MAX; i++)
        lines->strangers[i].socket = -1;
    thread_mutex_init(&lines->mutex);
    ring_init(&lines->offered);
    ring_init(&lines->ready);
    ring_init(&lines->lenders);
    read_machine(lines->machine);
    *ret_lines = lines;
    return ERR_OK;
}

static void close_file(int *file)
{
    if (*file >= 0)
        close(*file);
    *file = -1;
}

static void close_own(struct lines *lines)
{
    close_file(&lines->poll);
    close_file(&lines->listener);
    close_file(&lines->waker);
}

void lines_stop(struct lines *lines)
{
    if (lines == NULL)
        return;
    check(lines->count == 0);
    thread_lock(&lines->mutex);
    bool running = lines->started && !lines->stopping;
    lines->stopping = true;
    thread_unlock(&lines->mutex);
    if (running) {
        wake_thread(lines);
        thread_join(&lines->thread);
    }
    while (!ring_is_empty(&lines->lenders))
        call_in(lines, RING_ITEM(lines->lenders.behind, struct lender, ring));
}

void lines_free(struct lines *lines)
{
    if (lines == NULL)
        return;
    lines_stop(lines);
    for (uint32_t i = 0; i < STRANGERS_MAX; i++)
        close_file(&lines->strangers[i].socket);
    close_own(lines);
    thread_mutex_release(&lines->mutex);
    free(lines);
}

const char *lines_machine(const struct lines *lines)
{
    return lines->machine;
}

static enum err open_own(struct lines *lines, struct reason *reason)
{
    uint64_t number[2];
    TRY(rand_system(number, sizeof number));
    snprintf(lines->name, sizeof lines->name, "roost-%016llx%016llx", (unsigned long long)number[0],
             (unsigned long long)number[1]);
    TRY(shared_link_listen(lines->name, &lines->listener, reason));
    lines->poll = epoll_create1(EPOLL_CLOEXEC);
    lines->waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lines->poll < 0 || lines->waker < 0 || !watch(lines, lines->listener, &lines->listener) ||
        !watch(lines, lines->waker, &lines->waker))
        return reason_set(reason, err_from_errno(errno), "cannot wait for shared memory: %s",
                          strerror(errno));
    return ERR_OK;
}

/* The first line needs it. */
static enum err start_locked(struct lines *lines, struct reason *reason)
{
    if (lines->started)
        return ERR_OK;
    enum err err = open_own(lines, reason);
    if (err == ERR_OK)
        err = thread_start(&lines->thread, "lines", look_after_lines, lines);
    if (err != ERR_OK)
        close_own(lines);
    lines->started = err == ERR_OK;
    return err;
}

/* A line that is neither offered nor ready. */
static enum err begin(struct lines *lines, enum line_state (*work)(struct line *line),
                      struct line *line, struct reason *reason)
{
    *line = (struct line){.lines = lines, .work = work};
    ring_init(&line->offered);
    ring_init(&line->ready);
    thread_lock(&lines->mutex);
    enum err err = start_locked(lines, reason);
    if (err == ERR_OK)
        lines->count++;
    thread_unlock(&lines->mutex);
    return err;
}

/* Of a line that begin() began, before anybody else knows it. */
static enum err abandon(struct line *line, enum err err)
{
    thread_lock(&line->lines->mutex);
    line->lines->count--;
    thread_unlock(&line->lines->mutex);
    return err;
}

enum err line_offer(struct lines *lines, enum line_state (*work)(struct line *line),
                    struct line *line, struct line_offer *ret_offer, struct reason *reason)
{
    TRY(begin(lines, work, line, reason));
    enum err err = rand_system(line->word, sizeof line->word);
    if (err != ERR_OK)
        return abandon(line, err);
    memcpy(ret_offer->name, lines->name, sizeof ret_offer->name);
    memcpy(ret_offer->word, line->word, sizeof ret_offer->word);
    thread_lock(&lines->mutex);
    ring_add(&lines->offered, &line->offered);
    thread_unlock(&lines->mutex);
    return ERR_OK;
}

/* The link of a line. When the other side has the word, it may give up its connection for the line:
 * from then on nothing may fail. So the thread waits for the socket before; until the line has its
 * link, what comes is nobody's. */
static enum err connect_link(struct line *line, const struct line_offer *offer,
                             struct reason *reason)
{
    struct lines *lines = line->lines;
    struct shared_link_options options = lines->options;
    int connected;
    memcpy(options.word, offer->word, sizeof options.word);
    TRY(shared_link_reach(offer->name, &connected, reason));
    if (!watch(lines, connected, &lines->waker)) {
        close(connected);
        return reason_set(reason, ERR_IO, "cannot wait for shared memory: %s", strerror(errno));
    }
    TRY(shared_link_offer(connected, &options, &line->link, reason));
    thread_lock(&lines->mutex);
    watch_as(lines, connected, line, EPOLLIN);
    thread_unlock(&lines->mutex);
    return ERR_OK;
}

enum err line_connect(struct lines *lines, const struct line_offer *offer,
                      enum line_state (*work)(struct line *line), struct line *line,
                      struct reason *reason)
{
    TRY(begin(lines, work, line, reason));
    enum err err = connect_link(line, offer, reason);
    if (err != ERR_OK)
        return abandon(line, err);
    line_kick(line); /* before it rests for the first time */
    return ERR_OK;
}

void line_kick(struct line *line)
{
    struct lines *lines = line->lines;
    thread_lock(&lines->mutex);
    bool first = !line->closed && ring_is_empty(&line->ready);
    if (first) {
        ring_add(&lines->ready, &line->ready);
        if (!thread_is_current(&lines->thread))
            wake_thread(lines); /* with the lock: after it the line may be closed, and all freed */
    }
    thread_unlock(&lines->mutex);
}

void line_close(struct line *line)
{
    struct lines *lines = line->lines;
    check(thread_is_current(&lines->thread));
    thread_lock(&lines->mutex);
    check(!line->closed);
    line->closed = true;
    lines->count--;
    ring_take(&line->offered);
    ring_take(&line->ready);
    thread_unlock(&lines->mutex);
    struct shared_link *link = line->link;
    line->link = NULL;
    if (link != NULL && is_back(lines, link))
        let_go(lines, link);
    else if (link != NULL)
        lend_on(lines, link);
}
