/* The coordinator's office: what it decides about calls, reports and streams, over a real store and
 * a real run's directory. The shards of this daemon, transport and data service are this file. */
#include "tests/unit/folder.h"

#include "common/scoped.h"
#include "server/guests.h"
#include "server/office.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEASE_MS = 10000, BOOT = 5, FAR_BOOT = 6, CALL_BYTES_MAX = 1 << 20 };
#define SECOND UINT64_C(1000000000)

static const char spec[] = "model: {kind: mlp, layers: [2, 8, 3]}\n"
                           "data: {kind: spiral, points: 20, validation: 0.1}\n"
                           "train: {steps: 10, slots: 2, slot_samples: 3, microbatch: 3}\n";
static const char spec_served[] = "model: {kind: mlp, layers: [2, 8, 3]}\n"
                                  "data: {kind: spiral, points: 20, validation: 0.1, serve: true}\n"
                                  "train: {steps: 10, slots: 2, slot_samples: 3, microbatch: 3}\n";

/* ---- the rest of the daemon ---- */

struct rpc_stream {
    unsigned sent;
    bool finished;
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
    stream->sent++;
    return ERR_OK;
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
    (void)stream;
    fail_msg("nobody is cancelled here");
}

/* What the newest answer said. */
static struct {
    unsigned count;
    uint64_t number;
    enum err err;
    char text[512];
    struct buf response;
} answer;

static void answered(struct call *take_call, enum err err, const char *text)
{
    answer.count++;
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
    bool ended;
};

void shards_command(struct shards *shards, const struct server_command *command)
{
    assert_int_equal(command->boot, BOOT);
    shards->ended = command->kind == SERVER_END;
    if (command->kind == SERVER_PREPARE) {
        shards->prepared++;
        shards->generation = command->prepare.generation;
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

enum err service_serve(struct service *service, uint64_t run, const struct spec *of,
                       struct data *take_data)
{
    (void)service, (void)of;
    served_run = run;
    served_data = take_data != NULL;
    data_free(take_data);
    return ERR_OK;
}

/* ---- a daemon that holds the office ---- */

struct fixture {
    void **folder;
    struct store *store;
    struct shards shards;
    struct logger logger;
    struct office *office;
    uint64_t now_ns;
    uint64_t calls;
};

static void open_office(struct fixture *f)
{
    const struct office_config config = {
        .store = f->store,
        .shards = &f->shards,
        .name = "here",
        .run_dir = folder_path(f->folder, "run"),
        .heartbeat_ms = 2000,
        .lease_ms = LEASE_MS,
        .stop_ms = 1000,
        .speculation_percent = 200,
        .logger = &f->logger,
    };
    struct reason reason = {0};
    assert_int_equal(office_new(&config, &f->office, &reason), ERR_OK);
    office_local_server(f->office, f->now_ns, NULL);
}

static struct fixture open_daemon(void **state)
{
    struct fixture f = {.folder = state, .logger = {.fd = -1}, .now_ns = 100 * SECOND};
    served_run = 0;
    answer.count = 0;
    assert_int_equal(store_open_sqlite(folder_path(state, "roost.db"), &f.store, NULL), ERR_OK);
    return f;
}

static void close_daemon(struct fixture *f)
{
    office_free(f->office);
    store_free(f->store);
    buf_release(&answer.response);
    answer.response = (struct buf){0};
}

/* ---- what comes from outside ---- */

static struct call *call_new(struct fixture *f, enum call_kind kind)
{
    struct call *call = calloc(1, sizeof *call);
    assert_non_null(call);
    call->kind = kind;
    call->number = ++f->calls;
    call->arena.bytes_max = CALL_BYTES_MAX;
    return call;
}

/* Says it, and how it was answered: at once. */
static enum err say(struct fixture *f, struct call *call)
{
    unsigned before = answer.count;
    uint64_t number = call->number;
    office_call(f->office, f->now_ns, call);
    assert_int_equal(answer.count, before + 1);
    assert_int_equal(answer.number, number);
    return answer.err;
}

/* Says it; the answer comes later. */
static uint64_t say_and_wait(struct fixture *f, struct call *call)
{
    unsigned before = answer.count;
    uint64_t number = call->number;
    office_call(f->office, f->now_ns, call);
    assert_int_equal(answer.count, before);
    return number;
}

static struct call *run_call(struct fixture *f, const char *text, bool resume)
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

static enum err start_run(struct fixture *f)
{
    return say(f, run_call(f, spec, false));
}

static struct rpc_message *message_of(const struct server_report *report)
{
    scoped(buf_release) struct buf bytes = {0};
    assert_int_equal(wire_encode_server_report(report, &bytes), ERR_OK);
    struct rpc_message *message = rpc_message_new(buf_slice(&bytes));
    assert_non_null(message);
    return message;
}

/* This daemon's own shards report. */
static void report(struct fixture *f, struct server_report report)
{
    report.boot = BOOT;
    struct rpc_message *message = message_of(&report);
    office_report(f->office, f->now_ns, message);
    rpc_message_unref(message);
}

static void ready(struct fixture *f)
{
    report(f, (struct server_report){.kind = SERVER_READY,
                                     .ready = {.cut = {f->shards.generation, 0}, .text = ""}});
}

static void manifest(struct fixture *f, uint64_t version)
{
    report(f, (struct server_report){.kind = SERVER_MANIFEST,
                                     .manifest = {.cut = {f->shards.generation, version}}});
}

/* A run whose version 0 is recorded: tickets are granted. */
static void train(struct fixture *f)
{
    assert_int_equal(start_run(f), ERR_OK);
    assert_true(office_loading(f->office));
    ready(f);
    manifest(f, 0);
    assert_false(office_loading(f->office));
}

static uint64_t join(struct fixture *f)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct join_reply reply;
    struct call *call = call_new(f, CALL_JOIN);
    call->join = (struct join_request){
        .wire_version = WIRE_VERSION, .name = "w", .device = "test", .fingerprint = {1}};
    assert_int_equal(say(f, call), ERR_OK);
    assert_int_equal(wire_decode_join_reply(buf_slice(&answer.response), &arena, &reply, NULL),
                     ERR_OK);
    return reply.member;
}

static struct call *acquire_call(struct fixture *f, uint64_t member, uint64_t sequence)
{
    struct call *call = call_new(f, CALL_ACQUIRE);
    call->acquire = (struct acquire_request){.member = member,
                                             .generation = f->shards.generation,
                                             .sequence = sequence,
                                             .wait_ms = 5000};
    return call;
}

static struct status_reply status(struct fixture *f, struct arena *arena)
{
    struct status_reply reply;
    assert_int_equal(say(f, call_new(f, CALL_STATUS)), ERR_OK);
    assert_int_equal(wire_decode_status_reply(buf_slice(&answer.response), arena, &reply, NULL),
                     ERR_OK);
    return reply;
}

static bool store_has_active_run(struct fixture *f)
{
    scoped(store_run_release) struct store_run run = {0};
    struct reason reason;
    return store_find_active_run(f->store, &run, &reason) == ERR_OK;
}

/* ---- runs ---- */

static void a_bad_spec_is_refused_with_its_place_and_nothing_is_stored(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    assert_int_equal(say(&f, run_call(&f, "model: {kind: mlp}\nnonsense: 3\n", false)),
                     ERR_INVALID);
    assert_non_null(strstr(answer.text, ":2:"));
    assert_false(store_has_active_run(&f));
    assert_int_equal(served_run, 0);
    assert_int_equal(f.shards.prepared, 0);
    close_daemon(&f);
}

static void a_run_that_names_no_directory_gets_the_daemons(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    assert_int_equal(start_run(&f), ERR_OK);
    assert_int_equal(f.shards.prepared, 1);
    assert_int_equal(access(folder_path(state, "run/run.yaml"), F_OK), 0);
    assert_true(store_has_active_run(&f));
    close_daemon(&f);
}

static void a_second_run_is_refused_while_one_is_active(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    assert_int_equal(start_run(&f), ERR_OK);
    ready(&f);
    manifest(&f, 0);
    struct call *call = run_call(&f, spec, false);
    call->start_run.directory = folder_path(state, "other");
    assert_int_equal(say(&f, call), ERR_EXISTS);
    scoped(store_run_release) struct store_run other = {0};
    struct reason reason;
    assert_int_equal(store_find_run(f.store, folder_path(state, "other"), &other, &reason),
                     ERR_NOT_FOUND);
    assert_int_equal(f.shards.prepared, 1);
    close_daemon(&f);
}

static void a_resume_of_nothing_is_refused(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    assert_int_equal(say(&f, run_call(&f, spec, true)), ERR_NOT_FOUND);
    assert_false(store_has_active_run(&f));
    close_daemon(&f);
}

static void a_resume_on_other_data_is_refused_and_the_stored_run_stays(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    train(&f);
    struct call *stop = call_new(&f, CALL_STOP_RUN);
    stop->stop_run.reason = "a test";
    assert_int_equal(say(&f, stop), ERR_OK);
    manifest(&f, 0);
    assert_false(store_has_active_run(&f));
    struct call *call = run_call(&f, spec, true);
    call->start_run.data_digest[0] = 9;
    assert_int_equal(say(&f, call), ERR_DATA_SET);
    assert_false(store_has_active_run(&f));
    assert_int_equal(say(&f, run_call(&f, spec, true)), ERR_OK);
    assert_true(store_has_active_run(&f));
    close_daemon(&f);
}

static void data_that_this_daemon_would_serve_otherwise_is_refused(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    assert_int_equal(say(&f, run_call(&f, spec_served, false)), ERR_DATA_SET);
    assert_false(store_has_active_run(&f));
    assert_int_equal(served_run, 0);
    close_daemon(&f);
}

static void a_successor_goes_on_with_the_stored_run_in_a_new_generation(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    office_continue(f.office, f.now_ns); /* nothing is stored yet */
    assert_int_equal(f.shards.prepared, 0);
    train(&f);
    uint64_t generation = f.shards.generation;
    office_free(f.office);
    open_office(&f);
    office_continue(f.office, f.now_ns);
    assert_int_equal(f.shards.prepared, 2);
    assert_true(f.shards.generation > generation);
    assert_true(served_run != 0);
    assert_false(served_data);
    close_daemon(&f);
}

static void a_stored_run_that_cannot_go_on_waits_for_an_operator(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    train(&f);
    office_free(f.office);
    assert_int_equal(file_remove_tree(folder_path(state, "run"), NULL), ERR_OK);
    FILE *file = fopen(folder_path(state, "run"), "w"); /* where its directory was */
    assert_non_null(file);
    fclose(file);
    open_office(&f);
    office_continue(f.office, f.now_ns);
    assert_int_equal(office_failed(f.office), ERR_OK);
    assert_false(office_loading(f.office));
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    assert_int_equal(status(&f, &arena).state, RUN_NONE);
    close_daemon(&f);
}

static void p7_a_term_that_was_taken_ends_the_daemon(void **state)
{
    struct fixture f = open_daemon(state);
    uint64_t term;
    open_office(&f);
    assert_int_equal(start_run(&f), ERR_OK);
    ready(&f);
    assert_int_equal(store_take_term(f.store, &term, NULL), ERR_OK);
    assert_int_equal(office_failed(f.office), ERR_OK);
    manifest(&f, 0); /* a fact to store */
    assert_int_equal(office_failed(f.office), ERR_OLD_TERM);
    close_daemon(&f);
}

/* ---- other calls ---- */

static void the_coordinators_own_server_is_not_drained(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    struct call *call = call_new(&f, CALL_DRAIN);
    call->drain.server = "here";
    assert_int_equal(say(&f, call), ERR_INVALID);
    assert_non_null(strstr(answer.text, "the coordinator's"));
    call = call_new(&f, CALL_DRAIN);
    call->drain.server = "nobody";
    assert_int_equal(say(&f, call), ERR_NOT_FOUND);
    close_daemon(&f);
}

static void without_a_run_what_needs_one_is_refused(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    assert_int_equal(say(&f, call_new(&f, CALL_CHECKPOINT)), ERR_NO_RUN);
    struct call *call = call_new(&f, CALL_STOP_RUN);
    call->stop_run.reason = "";
    assert_int_equal(say(&f, call), ERR_NO_RUN);
    call = call_new(&f, CALL_JOIN);
    call->join = (struct join_request){.wire_version = WIRE_VERSION};
    assert_int_equal(say(&f, call), ERR_NO_RUN);
    assert_int_equal(say(&f, acquire_call(&f, 7, 1)), ERR_UNKNOWN_MEMBER);
    close_daemon(&f);
}

static void a_checkpoint_waits_for_its_cut_and_fails_when_the_run_ends_before(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    train(&f);
    uint64_t number = say_and_wait(&f, call_new(&f, CALL_CHECKPOINT));
    struct call *call = call_new(&f, CALL_STOP_RUN);
    call->stop_run.reason = "a test";
    unsigned before = answer.count;
    office_call(f.office, f.now_ns, call);
    assert_int_equal(answer.count, before + 2); /* nothing is in flight: it stops at once */
    assert_true(answer.number == number || answer.err == ERR_OK);
    assert_false(store_has_active_run(&f));
    close_daemon(&f);
}

static void a_member_that_asks_anew_gets_one_answer(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    train(&f);
    uint64_t member = join(&f);
    assert_int_equal(say(&f, acquire_call(&f, member, 1)), ERR_OK);
    uint64_t others[2] = {join(&f), join(&f)};
    assert_int_equal(say(&f, acquire_call(&f, others[0], 1)), ERR_OK);
    uint64_t parked = say_and_wait(&f, acquire_call(&f, others[1], 1)); /* two slots are out */
    unsigned before = answer.count;
    office_call(f.office, f.now_ns, acquire_call(&f, others[1], 2));
    assert_int_equal(answer.count, before + 1);
    assert_int_equal(answer.number, parked);
    assert_int_equal(answer.err, ERR_CANCELLED);
    office_call_cancelled(f.office, parked); /* late */
    assert_int_equal(answer.count, before + 1);
    office_call_cancelled(f.office, f.calls);
    assert_int_equal(answer.count, before + 2);
    assert_int_equal(answer.err, ERR_CANCELLED);
    close_daemon(&f);
}

/* ---- reports and streams ---- */

static void reports_that_do_not_decode_or_belong_elsewhere_change_nothing(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    assert_int_equal(start_run(&f), ERR_OK);
    struct rpc_message *nonsense = rpc_message_new((struct slice){(const uint8_t *)"\xff\xff", 2});
    office_report(f.office, f.now_ns, nonsense);
    rpc_message_unref(nonsense);
    report(&f, (struct server_report){.kind = SERVER_MANIFEST, .manifest = {.cut = {99, 4}}});
    report(&f, (struct server_report){.kind = SERVER_COMMITTED,
                                      .committed = {f.shards.generation, 77}});
    assert_int_equal(office_failed(f.office), ERR_OK);
    assert_true(office_loading(f.office));
    ready(&f);
    manifest(&f, 0);
    assert_false(office_loading(f.office));
    close_daemon(&f);
}

static struct guest *guest_new(struct rpc_stream *stream, bool is_server)
{
    const struct rpc_peer peer = {.address = "127.0.0.1:1"};
    struct guest *guest = guests_new(NULL, stream, &peer, is_server);
    assert_non_null(guest);
    return guest;
}

static void server_says(struct fixture *f, struct guest *guest, struct server_report said)
{
    struct rpc_message *message = message_of(&said);
    office_guest_message(f->office, f->now_ns, guest, message);
    rpc_message_unref(message);
}

static void a_servers_stream_that_begins_with_no_hello_is_closed(void **state)
{
    struct fixture f = open_daemon(state);
    struct rpc_stream stream = {0};
    open_office(&f);
    struct guest *guest = guest_new(&stream, true);
    server_says(&f, guest, (struct server_report){.kind = SERVER_COMMITTED, .boot = FAR_BOOT});
    assert_true(stream.finished);
    assert_int_equal(stream.err, ERR_MALFORMED);
    assert_false(guest->listed);
    guests_unref(guest);
    close_daemon(&f);
}

static const struct server_report far_hello = {
    .kind = SERVER_HELLO, .boot = FAR_BOOT, .hello = {.name = "far", .address = "far:1"}};

static void a_late_report_is_harmless_and_a_wrong_one_ends_the_stream(void **state)
{
    struct fixture f = open_daemon(state);
    struct rpc_stream stream = {0};
    open_office(&f);
    train(&f);
    struct guest *guest = guest_new(&stream, true);
    server_says(&f, guest, far_hello);
    assert_true(guest->listed);
    server_says(&f, guest, (struct server_report){.kind = SERVER_COMMITTED, .boot = FAR_BOOT});
    server_says(&f, guest, (struct server_report){.kind = SERVER_STATISTICS, .boot = BOOT});
    assert_false(stream.finished); /* another generation, another boot */
    server_says(&f, guest, far_hello);
    assert_true(stream.finished); /* who has said hello says it on a new stream */
    assert_int_equal(stream.err, ERR_MALFORMED);
    office_guest_closed(f.office, f.now_ns, guest);
    assert_false(guest->listed);
    guests_unref(guest);
    close_daemon(&f);
}

static void a_server_that_says_hello_again_ends_its_older_stream(void **state)
{
    struct fixture f = open_daemon(state);
    struct rpc_stream streams[2] = {{0}};
    open_office(&f);
    struct guest *older = guest_new(&streams[0], true);
    struct guest *newer = guest_new(&streams[1], true);
    server_says(&f, older, far_hello);
    server_says(&f, newer, far_hello);
    assert_true(streams[0].finished);
    assert_false(older->listed);
    assert_false(streams[1].finished);
    assert_true(newer->listed);
    guests_unref(older);
    guests_unref(newer);
    close_daemon(&f);
}

static void member_says(struct fixture *f, struct guest *guest, uint64_t member)
{
    scoped(buf_release) struct buf bytes = {0};
    assert_int_equal(wire_encode_member_report(&(struct member_report){member}, &bytes), ERR_OK);
    struct rpc_message *message = rpc_message_new(buf_slice(&bytes));
    office_guest_message(f->office, f->now_ns, guest, message);
    rpc_message_unref(message);
}

static void the_stream_of_a_member_that_is_none_is_closed(void **state)
{
    struct fixture f = open_daemon(state);
    struct rpc_stream stream = {0};
    open_office(&f);
    train(&f);
    struct guest *guest = guest_new(&stream, false);
    member_says(&f, guest, 4711);
    assert_true(stream.finished);
    assert_int_equal(stream.err, ERR_UNKNOWN_MEMBER);
    assert_false(guest->listed);
    guests_unref(guest);
    close_daemon(&f);
}

static void a_member_has_one_stream_and_loses_it_when_it_is_silent(void **state)
{
    struct fixture f = open_daemon(state);
    struct rpc_stream streams[2] = {{0}};
    open_office(&f);
    train(&f);
    uint64_t member = join(&f);
    struct guest *older = guest_new(&streams[0], false);
    struct guest *newer = guest_new(&streams[1], false);
    member_says(&f, older, member);
    member_says(&f, newer, member);
    assert_true(streams[0].finished);
    assert_int_equal(streams[0].err, ERR_CANCELLED);
    office_guest_closed(f.office, f.now_ns, older); /* not the member's end */
    office_tick(f.office, f.now_ns);
    assert_true(streams[1].sent > 0); /* the coordinator lives */
    assert_false(streams[1].finished);
    f.now_ns += 2 * LEASE_MS * (SECOND / 1000);
    assert_true(office_next_ns(f.office) < f.now_ns);
    office_tick(f.office, f.now_ns);
    assert_true(streams[1].finished);
    assert_int_equal(streams[1].err, ERR_UNKNOWN_MEMBER);
    member_says(&f, newer, member); /* on its way when it was closed */
    guests_unref(older);
    guests_unref(newer);
    close_daemon(&f);
}

static void the_end_answers_who_waits_and_ends_streams(void **state)
{
    struct fixture f = open_daemon(state);
    struct rpc_stream stream = {0};
    open_office(&f);
    train(&f);
    struct guest *guest = guest_new(&stream, false);
    member_says(&f, guest, join(&f));
    say_and_wait(&f, call_new(&f, CALL_CHECKPOINT));
    unsigned before = answer.count;
    office_free(f.office);
    f.office = NULL;
    assert_int_equal(answer.count, before + 1);
    assert_int_equal(answer.err, ERR_CANCELLED);
    assert_true(stream.finished);
    assert_int_equal(stream.err, ERR_UNREACHABLE);
    guests_unref(guest);
    close_daemon(&f);
}

static void a_pause_leaves_the_run_to_the_next_start(void **state)
{
    struct fixture f = open_daemon(state);
    open_office(&f);
    assert_true(office_paused(f.office)); /* no run */
    train(&f);
    assert_false(office_paused(f.office));
    office_pause(f.office, f.now_ns, "a test");
    for (int i = 0; i < 10 && !office_paused(f.office); i++) {
        f.now_ns += SECOND;
        office_tick(f.office, f.now_ns);
    }
    assert_true(office_paused(f.office));
    assert_true(store_has_active_run(&f));
    close_daemon(&f);
}

static void the_status_line_counts_servers_workers_and_steps(void **state)
{
    struct fixture f = open_daemon(state);
    struct buf line = {0};
    open_office(&f);
    train(&f);
    join(&f);
    assert_int_equal(office_status_line(f.office, &line), ERR_OK);
    assert_non_null(strstr((const char *)line.data, "1/1 servers, 1 workers, step 0 of 10, cut 0"));
    buf_release(&line);
    close_daemon(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        unit_test_in_folder(a_bad_spec_is_refused_with_its_place_and_nothing_is_stored),
        unit_test_in_folder(a_run_that_names_no_directory_gets_the_daemons),
        unit_test_in_folder(a_second_run_is_refused_while_one_is_active),
        unit_test_in_folder(a_resume_of_nothing_is_refused),
        unit_test_in_folder(a_resume_on_other_data_is_refused_and_the_stored_run_stays),
        unit_test_in_folder(data_that_this_daemon_would_serve_otherwise_is_refused),
        unit_test_in_folder(a_successor_goes_on_with_the_stored_run_in_a_new_generation),
        unit_test_in_folder(a_stored_run_that_cannot_go_on_waits_for_an_operator),
        unit_test_in_folder(p7_a_term_that_was_taken_ends_the_daemon),
        unit_test_in_folder(the_coordinators_own_server_is_not_drained),
        unit_test_in_folder(without_a_run_what_needs_one_is_refused),
        unit_test_in_folder(a_checkpoint_waits_for_its_cut_and_fails_when_the_run_ends_before),
        unit_test_in_folder(a_member_that_asks_anew_gets_one_answer),
        unit_test_in_folder(reports_that_do_not_decode_or_belong_elsewhere_change_nothing),
        unit_test_in_folder(a_servers_stream_that_begins_with_no_hello_is_closed),
        unit_test_in_folder(a_late_report_is_harmless_and_a_wrong_one_ends_the_stream),
        unit_test_in_folder(a_server_that_says_hello_again_ends_its_older_stream),
        unit_test_in_folder(the_stream_of_a_member_that_is_none_is_closed),
        unit_test_in_folder(a_member_has_one_stream_and_loses_it_when_it_is_silent),
        unit_test_in_folder(the_end_answers_who_waits_and_ends_streams),
        unit_test_in_folder(a_pause_leaves_the_run_to_the_next_start),
        unit_test_in_folder(the_status_line_counts_servers_workers_and_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
