/* The polling threads, the arguments of connections, and the groups of open calls. */
#include "common/file.h"
#include "common/log.h"
#include "common/rpc/grpc/core.h"
#include "common/rpc/grpc/stream.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <grpc/support/log.h>
#include <grpc/support/time.h>

/* ---- The process ---- */

/* The library's words are about its own inside: who looks for a fault in it wants them. */
static void log_line(gpr_log_func_args *line)
{
    const struct logger logger = {.level = LOG_LEVEL_DEBUG, .fd = STDERR_FILENO};
    log_debug(&logger, "transport", log_text("text", line->message));
}

static void log_nothing(gpr_log_func_args *line)
{
    (void)line;
}

/* Debian builds the library's locks (absl) with a detector that aborts the process when two locks
 * were ever taken in both orders. It takes locks of different connections for one where memory is
 * used again, so it fires without any deadlock while connections come and go (grpc/grpc issues
 * 40390 and 43248: "dying due to potential deadlock"), and it costs time and memory for each lock.
 * There is no C interface to turn it off; where the name is another one, it is usually off. */
static void lock_orders_forget(void)
{
    enum { IGNORE = 0 }; /* absl::OnDeadlockCycle::kIgnore */
    void (*set_mode)(int mode);
    void *symbol = dlsym(RTLD_DEFAULT,
                         "_ZN4absl7debian329SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE");
    memcpy(&set_mode, &symbol, sizeof symbol);
    if (set_mode != NULL)
        set_mode(IGNORE);
}

void rpc_process_init(bool log)
{
    lock_orders_forget();
    (void)file_limit_raise();
    tls_process_init();
    /* Otherwise glibc gives the pages of every message back to the kernel and gets them again:
     * 512 KiB messages over loopback at 2.4 instead of 5.5 GiB/s. Another allocator
     * (a sanitizer's) refuses this, and does not need it. */
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    gpr_set_log_function(log ? log_line : log_nothing);
    if (!rpc_protects_slices())
        gpr_log(GPR_INFO, "not gRPC 1.51: it copies what TLS encrypts");
    /* A connection's bytes are handled by its own polling thread. With the default (one epoll set
     * for all of them) any idle polling thread takes them and hands them on: 1.2 to 1.6 times the
     * processor time of a plain socket instead of 1.1 (tests/bench/bench_rpc, two threads). */
    check(setenv("GRPC_POLL_STRATEGY", "poll", 1) == 0);
    /* The library's only handle on TLS versions: a list of ciphers for 1.2 (those of 1.3 are listed
     * elsewhere). With one that needs a shared secret nobody has, 1.2 cannot be agreed on. */
    check(setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES128-GCM-SHA256", 1) == 0);
}

struct rpc_settings rpc_settings_default(void)
{
    return (struct rpc_settings){.keepalive_ms = 5000,
                                 .keepalive_timeout_ms = 4000,
                                 .message_bytes_max = 1 << 20,
                                 .queue_messages_max = 256,
                                 .calls_max = 128,
                                 .connections_max = 4096,
                                 .unfinished_bytes_max = 512 << 20,
                                 .role_bytes_max = {1 << 20, 1 << 20, 1 << 20, 1 << 20},
                                 .reconnect_ms_min = 100,
                                 .reconnect_ms_max = 1000,
                                 .shared_ring_bytes = 256 << 10};
}

/* ---- The loop ---- */

static void poll_queue(void *argument)
{
    struct rpc_poller *poller = argument;
    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(poller->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return;
        (void)atomic_load_explicit(&poller->loop->tags, memory_order_acquire);
        struct rpc_tag *tag = event.tag;
        tag->done(tag, event.success != 0);
    }
}

void rpc_tag_given(struct rpc_loop *loop)
{
    atomic_fetch_add_explicit(&loop->tags, 1, memory_order_release);
}

void rpc_batch(struct rpc_loop *loop, grpc_call *call, const grpc_op *ops, size_t count,
               struct rpc_tag *tag)
{
    rpc_tag_given(loop);
    check(grpc_call_start_batch(call, ops, count, tag, NULL) == GRPC_CALL_OK);
}

static void poller_stop(struct rpc_poller *poller)
{
    grpc_completion_queue_shutdown(poller->queue);
    thread_join(&poller->thread);
    grpc_completion_queue_destroy(poller->queue);
}

static enum err lines_of(struct rpc_poller *poller)
{
    const struct rpc_settings *settings = &poller->loop->settings;
    const struct shared_link_options options = {.ring_bytes = settings->shared_ring_bytes,
                                                .payload_bytes_max = settings->message_bytes_max,
                                                .pool = poller->loop->pool};
    return options.ring_bytes == 0 ? ERR_OK
                                   : lines_new(&options, stream_loan_returned, &poller->lines);
}

static enum err poller_start(struct rpc_poller *poller, unsigned number)
{
    char name[16];
    snprintf(name, sizeof name, "rpc-%u", number);
    poller->queue = grpc_completion_queue_create_for_next(NULL);
    enum err err = lines_of(poller);
    if (err == ERR_OK)
        err = thread_start(&poller->thread, name, poll_queue, poller);
    if (err == ERR_OK)
        return ERR_OK;
    lines_free(poller->lines);
    grpc_completion_queue_shutdown(poller->queue);
    poll_queue(poller); /* until it says that it is shut down */
    grpc_completion_queue_destroy(poller->queue);
    return err;
}

enum err rpc_loop_new(const struct rpc_settings *settings, struct rpc_loop **ret_loop)
{
    struct rpc_settings chosen = settings != NULL ? *settings : rpc_settings_default();
    unsigned count = chosen.threads != 0 ? chosen.threads : thread_core_count();
    struct rpc_loop *loop = calloc(1, sizeof *loop + count * sizeof loop->pollers[0]);
    if (loop == NULL)
        return ERR_NOMEM;
    loop->settings = chosen;
    if (chosen.shared_ring_bytes != 0) /* without it payloads are copied */
        ignore(shared_pool_new(&loop->pool, &(struct reason){{0}}));
    grpc_init();
    for (; loop->poller_count < count; loop->poller_count++) {
        loop->pollers[loop->poller_count].loop = loop;
        enum err err = poller_start(&loop->pollers[loop->poller_count], loop->poller_count);
        if (err != ERR_OK) {
            rpc_loop_free(loop);
            return err;
        }
    }
    *ret_loop = loop;
    return ERR_OK;
}

void rpc_loop_free(struct rpc_loop *loop)
{
    if (loop == NULL)
        return;
    for (unsigned i = 0; i < loop->poller_count; i++)
        lines_stop(loop->pollers[i].lines); /* whose threads may still drop something, too */
    for (unsigned i = 0; i < loop->poller_count; i++)
        poller_stop(&loop->pollers[i]); /* their last callback may still drop something, or kick */
    for (unsigned i = 0; i < loop->poller_count; i++)
        lines_free(loop->pollers[i].lines);
    check(atomic_load(&loop->objects) == 0);
    grpc_shutdown_blocking();
    shared_pool_free(loop->pool);
    free(loop);
}

struct shared_pool *rpc_loop_pool(const struct rpc_loop *loop)
{
    return loop != NULL ? loop->pool : NULL;
}

/* ---- Groups ---- */

void rpc_group_init(struct rpc_group *group)
{
    *group = (struct rpc_group){0};
    thread_mutex_init(&group->lock);
    thread_cond_init(&group->empty);
    group->ring.next = group->ring.previous = &group->ring;
}

void rpc_group_release(struct rpc_group *group)
{
    check(group->ring.next == &group->ring);
    thread_cond_release(&group->empty);
    thread_mutex_release(&group->lock);
}

bool rpc_group_join(struct rpc_group *group, struct rpc_member *member)
{
    thread_lock(&group->lock);
    bool open = !group->closing;
    if (open) {
        member->next = &group->ring;
        member->previous = group->ring.previous;
        member->previous->next = member;
        group->ring.previous = member;
    }
    thread_unlock(&group->lock);
    return open;
}

void rpc_group_leave(struct rpc_group *group, struct rpc_member *member)
{
    thread_lock(&group->lock);
    member->next->previous = member->previous;
    member->previous->next = member->next;
    if (group->ring.next == &group->ring)
        thread_wake_all(&group->empty); /* under the lock: the waiter frees the group */
    thread_unlock(&group->lock);
}

bool rpc_group_closing(struct rpc_group *group)
{
    thread_lock(&group->lock);
    bool closing = group->closing;
    thread_unlock(&group->lock);
    return closing;
}

/* A reference to the call of a member not yet cancelled; NULL: there is none. */
static grpc_call *next_to_cancel_locked(struct rpc_group *group)
{
    for (struct rpc_member *member = group->ring.next; member != &group->ring;
         member = member->next)
        if (member->call != NULL && !member->cancelled) {
            member->cancelled = true;
            grpc_call_ref(member->call);
            return member->call;
        }
    return NULL;
}

void rpc_group_end(struct rpc_group *group)
{
    for (;;) {
        thread_lock(&group->lock);
        group->closing = true;
        grpc_call *call = next_to_cancel_locked(group);
        thread_unlock(&group->lock);
        if (call == NULL)
            break;
        grpc_call_cancel_with_status(call, GRPC_STATUS_UNAVAILABLE, "shutting down", NULL);
        grpc_call_unref(call);
    }
    thread_lock(&group->lock);
    while (group->ring.next != &group->ring)
        ignore(thread_wait_locked(&group->empty, &group->lock, UINT64_MAX)); /* never times out */
    thread_unlock(&group->lock);
}

/* ---- Arguments ---- */

/* A client's attempt to connect and shake hands ends well within a call's deadline of 10 s, so that
 * a call into a partition ends as unreachable instead of at its deadline. */
enum { ATTEMPT_MS = 6000, HANDSHAKE_MS = 10000 };
/* Of headers that end in one frame, as 1.51 counts them; and what is read from a connection before
 * others have their turn. */
enum { HEADERS_BYTES_MAX = 16 << 10, READ_BYTES_MAX = 512 << 10 };

static void argument_add(struct rpc_arguments *arguments, const char *key, uint32_t value)
{
    check(arguments->all.num_args < RPC_ARGUMENTS_MAX);
    arguments->rows[arguments->all.num_args++] =
        (grpc_arg){.type = GRPC_ARG_INTEGER,
                   .key = (char *)(uintptr_t)key,
                   .value.integer = value > INT32_MAX ? INT32_MAX : (int)value};
}

void rpc_arguments_init(struct rpc_arguments *arguments, const struct rpc_settings *settings,
                        bool server)
{
    *arguments = (struct rpc_arguments){0};
    arguments->all.args = arguments->rows;
    argument_add(arguments, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, settings->message_bytes_max);
    argument_add(arguments, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, settings->message_bytes_max);
    /* The defaults would not notice a vanished machine for hours, and would answer frequent pings
     * by closing the connection (too_many_pings). */
    argument_add(arguments, GRPC_ARG_KEEPALIVE_TIME_MS, settings->keepalive_ms);
    argument_add(arguments, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, settings->keepalive_timeout_ms);
    argument_add(arguments, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    argument_add(arguments, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    /* Messages travel as they are: what is compressed could be a bomb. */
    argument_add(arguments, GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
    argument_add(arguments, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    argument_add(arguments, GRPC_ARG_ENABLE_CHANNELZ, 0);
    argument_add(arguments, GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0);
    if (server) {
        argument_add(arguments, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                     settings->keepalive_ms / 2);
        argument_add(arguments, GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
        argument_add(arguments, GRPC_ARG_MAX_CONCURRENT_STREAMS, settings->calls_max);
        argument_add(arguments, GRPC_ARG_MAX_METADATA_SIZE, HEADERS_BYTES_MAX);
        argument_add(arguments, GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, READ_BYTES_MAX);
        argument_add(arguments, GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS);
    } else {
        argument_add(arguments, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, settings->reconnect_ms_min);
        /* Despite its name: how long one attempt, with its handshake, may take. */
        argument_add(arguments, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, ATTEMPT_MS);
        argument_add(arguments, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, settings->reconnect_ms_max);
        argument_add(arguments, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        argument_add(arguments, GRPC_ARG_ENABLE_RETRIES, 0);
        argument_add(arguments, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
        argument_add(arguments, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    }
}

void rpc_arguments_host(struct rpc_arguments *arguments, const char *host)
{
    check(arguments->all.num_args < RPC_ARGUMENTS_MAX);
    arguments->rows[arguments->all.num_args++] =
        (grpc_arg){.type = GRPC_ARG_STRING,
                   .key = (char *)(uintptr_t)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
                   .value.string = (char *)(uintptr_t)host};
}
