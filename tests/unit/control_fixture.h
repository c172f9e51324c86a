/* A coordinator's daemon, over a real store and a real run's directory. The
 * shards of this daemon, transport and data service are this file's, so one test program includes
 * it once. */
#ifndef ROOST_TESTS_UNIT_CONTROL_FIXTURE_H
#define ROOST_TESTS_UNIT_CONTROL_FIXTURE_H

#include "tests/unit/folder.h"

#include "server/control/connections.h"
#include "server/control/control.h"

#include <sys/mman.h>
#include <unistd.h>

enum { LEASE_MS = 10000, BOOT = 5, FAR_BOOT = 6, CALL_BYTES_MAX = 1 << 20 };
#define SECOND UINT64_C(1000000000)

#define SPEC(served)                                                                               \
    "model: {kind: mlp, layers: [2, 8, 3]}\n"                                                      \
    "data: {kind: spiral, points: 20, validation: 0.1" served "}\n"                                \
    "train: {steps: 10, slots: 2, slot_samples: 3, microbatch: 3, node_slots: 2}\n"
static const char spec[] = SPEC(""), spec_served[] = SPEC(", serve: true");

/* ---- the rest of the daemon ---- */

struct rpc_stream {
    unsigned sent;
    bool full; /* it takes no more */
    bool finished, cancelled;
    enum err err;
};

struct rpc_stream *rpc_stream_ref(struct rpc_stream *stream)
{
    return stream;
}

void rpc_stream_unref(struct rpc_stream *stream)
{
    (void)stream;
}

enum err rpc_stream_send(struct rpc_stream *stream, enum rpc_priority priority,
                         struct buf *take_header, const struct rpc_part *parts, size_t part_count)
{
    (void)priority, (void)parts, (void)part_count;
    buf_release(take_header);
    stream->sent += stream->full ? 0 : 1;
    return stream->full ? ERR_BUSY : ERR_OK;
}

void rpc_stream_finish(struct rpc_stream *stream, enum err err, const char *text)
{
    assert_non_null(text);
    assert_false(stream->finished);
    stream->finished = true;
    stream->err = err;
}

void rpc_stream_cancel(struct rpc_stream *stream)
{
    assert_true(stream->full); /* nobody else is cancelled here */
    stream->cancelled = true;
}

/* What the newest answer said, and the one before. */
static struct {
    unsigned count;
    uint64_t number_before;
    enum err err_before;
    uint64_t number;
    enum err err;
    char text[512];
    struct buf response;
} answer;

static inline void answered(struct call *take_call, enum err err, const char *text)
{
    answer.count++;
    answer.number_before = answer.number;
    answer.err_before = answer.err;
    answer.number = take_call->number;
    answer.err = err;
    snprintf(answer.text, sizeof answer.text, "%s", text);
    arena_release(&take_call->arena);
    free(take_call);
}

void call_reply(struct call *take_call, struct buf *take_response)
{
    buf_release(&answer.response);
    answer.response = buf_detach(take_response);
    answered(take_call, ERR_OK, "");
}

void call_fail(struct call *take_call, enum err err, const char *text)
{
    assert_non_null(text);
    answered(take_call, err, text);
}

struct shards {
    unsigned prepared; /* how often it was told to */
    uint64_t generation;
    char spec[4096]; /* with the newest */
    bool ended;
};

void shards_command(struct shards *shards, const struct server_command *command)
{
    assert_int_equal(command->boot, BOOT);
    shards->ended = command->kind == SERVER_END;
    if (command->kind == SERVER_PREPARE) {
        shards->prepared++;
        shards->generation = command->prepare.generation;
        snprintf(shards->spec, sizeof shards->spec, "%s", command->prepare.spec);
    }
}

struct server_report link_hello(const struct link *link)
{
    (void)link;
    return (struct server_report){
        .kind = SERVER_HELLO, .boot = BOOT, .hello = {.name = "here", .address = "here:1"}};
}

static uint64_t served_run; /* the newest whose samples may be served; with data or without */
static bool served_data;

enum err service_serve(struct service *service, uint64_t run,
                       const uint8_t key[static DIGEST_KEY_BYTES], const struct spec *of,
                       struct data *take_data)
{
    (void)service, (void)key, (void)of;
    served_run = run;
    served_data = take_data != NULL;
    data_free(take_data);
    return ERR_OK;
}

/* ---- a coordinator's daemon ---- */

enum { SECRETS_MAX = 64 };

struct control_fixture {
    bool trains; /* tickets of a run are granted; or the test starts one */
    void *folder;
    struct rpc_stream streams[3]; /* of servers and members */
    struct store *store;
    struct shards shards;
    struct logger logger;
    struct control *control;
    uint64_t now_ns;
    uint64_t calls;
    struct proof secrets[SECRETS_MAX]; /* of members, by serial */
};

/* Of a daemon that holds no chunks. */
static inline void open_bare_office(struct control_fixture *f)
{
    uint64_t term;
    assert_int_equal(store_take_term(f->store, &term, NULL), ERR_OK);
    const struct control_config config = {
        .store = f->store,
        .term = term,
        .shards = &f->shards,
        .name = "here",
        .run_dir = folder_path(&f->folder, "run"),
        .folder = ((const struct folder *)f->folder)->path,
        .heartbeat_ms = 2000,
        .lease_ms = LEASE_MS,
        .stop_ms = 1000,
        .speculation_percent = 200,
        .logger = &f->logger,
    };
    struct reason reason = {0};
    assert_int_equal(control_new(&config, &f->control, &reason), ERR_OK);
}

static inline void open_office(struct control_fixture *f)
{
    open_bare_office(f);
    control_local_server(f->control, f->now_ns, NULL);
}

/* Its warnings and errors from now on are kept for is_logged(). */
static inline void log_begin(struct control_fixture *f)
{
    int file = memfd_create("log", MFD_CLOEXEC);
    assert_true(file >= 0);
    f->logger = (struct logger){.level = LOG_LEVEL_WARNING, .fd = file};
}

/* Since the last look. */
static inline bool is_logged(const struct control_fixture *f, const char *words)
{
    char text[4096] = {0};
    assert_true(pread(f->logger.fd, text, sizeof text - 1, 0) >= 0);
    assert_int_equal(ftruncate(f->logger.fd, 0), 0);
    assert_int_equal(lseek(f->logger.fd, 0, SEEK_SET), 0);
    return strstr(text, words) != NULL;
}

static inline void control_tear_down(struct control_fixture *f)
{
    folder_remove(&f->folder);
    control_free(f->control);
    store_free(f->store);
    if (f->logger.fd >= 0)
        close(f->logger.fd);
    buf_release(&answer.response);
    answer.response = (struct buf){0};
}

/* ---- what comes from outside ---- */

static inline struct call *call_new(struct control_fixture *f, enum call_kind kind)
{
    struct call *call = calloc(1, sizeof *call);
    assert_non_null(call);
    call->kind = kind;
    call->number = ++f->calls;
    call->arena.bytes_max = CALL_BYTES_MAX;
    return call;
}

/* Says it, and how it was answered: at once. */
static inline enum err say(struct control_fixture *f, struct call *call)
{
    unsigned before = answer.count;
    uint64_t number = call->number;
    control_call(f->control, f->now_ns, call);
    assert_int_equal(answer.count, before + 1);
    assert_int_equal(answer.number, number);
    return answer.err;
}

/* Says it; the answer comes later. */
static inline uint64_t say_and_wait(struct control_fixture *f, struct call *call)
{
    unsigned before = answer.count;
    uint64_t number = call->number;
    control_call(f->control, f->now_ns, call);
    assert_int_equal(answer.count, before);
    return number;
}

static inline struct call *run_call(struct control_fixture *f, const char *text, bool resume)
{
    struct call *call = call_new(f, CALL_START_RUN);
    call->start_run = (struct start_run_request){.spec = text,
                                                 .servers_min = 1,
                                                 .resume = resume,
                                                 .directory = "",
                                                 .restore = "",
                                                 .samples = 54,
                                                 .validation_samples = 6};
    return call;
}

static inline enum err start_run(struct control_fixture *f)
{
    return say(f, run_call(f, spec, false));
}

static inline struct rpc_message *message_of(const struct server_report *report)
{
    scoped(buf_release) struct buf bytes = {0};
    assert_int_equal(wire_encode_server_report(report, &bytes), ERR_OK);
    struct rpc_message *message = rpc_message_new(buf_slice(&bytes));
    assert_non_null(message);
    return message;
}

static inline struct rpc_message *nonsense_new(void)
{
    struct rpc_message *message = rpc_message_new((struct slice){(const uint8_t *)"\xff\xff", 2});
    assert_non_null(message);
    return message;
}

/* This daemon's own shards report. */
static inline void report(struct control_fixture *f, struct server_report report)
{
    report.boot = BOOT;
    struct rpc_message *message = message_of(&report);
    control_report(f->control, f->now_ns, message);
    rpc_message_unref(message);
}

static inline void ready(struct control_fixture *f)
{
    report(f, (struct server_report){.kind = SERVER_READY,
                                     .ready = {.cut = {f->shards.generation, 0}, .text = ""}});
}

/* The server's file of the cut is written. */
static inline void manifest(struct control_fixture *f, uint64_t version)
{
    char name[64];
    snprintf(name, sizeof name, "run/checkpoints/g%d-v%d", (int)f->shards.generation, (int)version);
    assert_int_equal(file_make_dirs(folder_path(&f->folder, name), 0755, NULL), ERR_OK);
    report(f, (struct server_report){.kind = SERVER_MANIFEST,
                                     .manifest = {.cut = {f->shards.generation, version}}});
}

/* A run whose version 0 is recorded: tickets are granted. */
static inline void train(struct control_fixture *f)
{
    assert_int_equal(start_run(f), ERR_OK);
    assert_true(control_loading(f->control));
    ready(f);
    manifest(f, 0);
    assert_false(control_loading(f->control));
}

static inline void control_set_up(struct control_fixture *f)
{
    f->logger.fd = -1;
    f->now_ns = 100 * SECOND;
    assert_int_equal(folder_make(&f->folder), 0);
    served_run = 0;
    answer.count = 0;
    assert_int_equal(store_open_sqlite(folder_path(&f->folder, "roost.db"), &f->store, NULL),
                     ERR_OK);
    open_office(f);
    if (f->trains)
        train(f);
}

static inline uint64_t join_as(struct control_fixture *f, const char *name)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct join_reply reply;
    struct call *call = call_new(f, CALL_JOIN);
    call->join =
        (struct join_request){.wire_version = WIRE_VERSION, .device = "test", .fingerprint = {1}};
    snprintf(call->join.name, sizeof call->join.name, "%s", name);
    assert_int_equal(say(f, call), ERR_OK);
    assert_int_equal(wire_decode_join_reply(buf_slice(&answer.response), &arena, &reply, NULL),
                     ERR_OK);
    f->secrets[reply.member % SECRETS_MAX] = reply.secret;
    return reply.member;
}

static inline uint64_t join(struct control_fixture *f)
{
    return join_as(f, "w");
}

static inline struct call *acquire_call(struct control_fixture *f, uint64_t member,
                                        uint64_t sequence)
{
    struct call *call = call_new(f, CALL_ACQUIRE);
    call->acquire = (struct acquire_request){.member = member,
                                             .secret = f->secrets[member % SECRETS_MAX],
                                             .generation = f->shards.generation,
                                             .sequence = sequence,
                                             .wait_ms = 5000};
    return call;
}

static inline struct status_reply status(struct control_fixture *f, struct arena *arena)
{
    struct status_reply reply;
    assert_int_equal(say(f, call_new(f, CALL_STATUS)), ERR_OK);
    assert_int_equal(wire_decode_status_reply(buf_slice(&answer.response), arena, &reply, NULL),
                     ERR_OK);
    return reply;
}

static inline bool store_has_active_run(struct control_fixture *f)
{
    scoped(store_run_release) struct store_run run = {0};
    struct reason reason;
    return store_find_active_run(f->store, &run, &reason) == ERR_OK;
}

/* At version 0, which is recorded. */
static inline void stop_run(struct control_fixture *f)
{
    struct call *stop = call_new(f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(f, stop), ERR_OK);
    manifest(f, 0);
    assert_false(store_has_active_run(f));
}

/* What the store knows of the run a while later. */
static inline struct coordinator_past past_later(struct control_fixture *f)
{
    scoped(store_run_release) struct store_run active = {0};
    struct coordinator_past past;
    f->now_ns += SECOND;
    control_tick(f->control, f->now_ns);
    assert_int_equal(control_failed(f->control), ERR_OK);
    assert_int_equal(store_find_active_run(f->store, &active, NULL), ERR_OK);
    assert_int_equal(store_get_past(f->store, active.run, &past, NULL), ERR_OK);
    return past;
}

/* The start is refused, with the words of the test's store, and the daemon goes on. */
static inline void expect_refused_by_store(struct control_fixture *f)
{
    assert_int_equal(say(f, run_call(f, spec, true)), ERR_IO);
    assert_non_null(strstr(answer.text, "the store takes nothing"));
    assert_int_equal(control_failed(f->control), ERR_OK);
}

#endif
