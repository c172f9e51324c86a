/* The coordinator's office on its daemon. */
#include "server/office.h"

#include "common/data/run_data.h"
#include "common/scoped.h"
#include "common/time.h"
#include "server/answers.h"
#include "server/office_effects.h"

#include <string.h>

enum { FLUSH_MS = 1000, NS_PER_MS = 1000000 };

/* ---- life ---- */

enum err office_new(const struct office_config *config, struct office **ret_office,
                    struct reason *reason)
{
    struct office *office = calloc(1, sizeof *office);
    if (office == NULL)
        return reason_set(reason, ERR_NOMEM, "out of memory");
    office->config = *config;
    enum err err = store_take_term(config->store, &office->term, reason);
    const struct coordinator_settings settings = {
        .term = office->term,
        .heartbeat_ms = config->heartbeat_ms,
        .lease_ms = config->lease_ms,
        .speculation_percent = config->speculation_percent,
        .speculation_ms_min = config->speculation_ms_min,
        .stop_ms = config->stop_ms,
    };
    office->coordinator = coordinator_new(&settings);
    enum err waiting = waiting_init(&office->waiting);
    enum err guests = guests_init(&office->guests);
    if (err == ERR_OK && (office->coordinator == NULL || waiting != ERR_OK || guests != ERR_OK))
        err = reason_set(reason, ERR_NOMEM, "out of memory");
    if (err != ERR_OK) {
        office_free(office);
        return err;
    }
    *ret_office = office;
    return ERR_OK;
}

void office_free(struct office *office)
{
    if (office == NULL)
        return;
    waiting_release(&office->waiting);
    guests_release(&office->guests);
    record_release(&office->record);
    order_log_release(&office->order);
    coordinator_free(office->coordinator);
    office_run_free(office->run);
    free(office);
}

/* ---- starting a run ---- */

/* A server of the data that the run names, where the spec wants it served. */
static enum err open_served(const struct office_run *run, struct data **ret_data,
                            struct reason *reason)
{
    if (!run->spec.data.serve)
        return ERR_OK;
    TRY(run_data_open(&run->spec, NULL, ret_data, reason));
    if (memcmp(data_digest(*ret_data)->bytes, run->stored.data_digest, WIRE_DIGEST_BYTES) == 0)
        return ERR_OK;
    return reason_set(reason, ERR_DATA_SET,
                      "the data set that this daemon would serve differs from the run's");
}

/* The run has its number. */
static enum err serve(struct office *office, const struct office_run *run, struct data **data)
{
    struct data *take_data = *data;
    *data = NULL;
    return service_serve(office->config.service, run->stored.run, &run->spec, take_data);
}

/* The core takes the run, whose facts are stored. */
static enum err start(struct office *office, uint64_t now_ns, struct office_run *take_run,
                      struct coordinator_past *past, struct reason *reason)
{
    struct coordinator_past stored;
    struct record record;
    struct office_run *run = take_run;
    enum err err = store_get_past(office->config.store, run->stored.run, &stored, reason);
    if (err == ERR_OK)
        err = record_open(&record,
                          &(struct record_run){run->stored.directory, run->stored.spec,
                                               stored.cut.name.version, run->stored.samples},
                          &stored.recorded, reason);
    if (err == ERR_OK && run->settings.ssp) {
        /* What is late of an earlier start must not come behind what this one keeps. */
        order_log_release(&office->order);
        err =
            order_log_open(&office->order, run->stored.directory, stored.cut.name.version, reason);
        if (err != ERR_OK)
            record_release(&record);
    }
    if (err != ERR_OK) {
        office_run_free(run);
        return err;
    }
    *past = stored;
    record_release(&office->record);
    office->record = record;
    err = coordinator_start(office->coordinator, office_ms(now_ns), &run->settings, past, reason);
    if (err != ERR_OK) {
        office_run_free(run);
        return err;
    }
    office_run_free(office->run);
    office->run = run;
    office->training_ns = office->over_ns = 0;
    office_effects_carry_out(office, now_ns);
    return office->failed;
}

static enum err store_plan(struct office *office, struct office_plan *plan, struct reason *reason)
{
    struct store *store = office->config.store;
    struct office_run *run = plan->run;
    if (!plan->is_new)
        return store_change_run(store, office->term, &run->stored, reason);
    const struct coordinator_past *past = plan->has_past ? &plan->past : NULL;
    TRY(store_add_run(store, office->term, &run->stored, past, reason));
    run->settings.run = run->stored.run;
    return ERR_OK;
}

/* The plan is stored: it begins, or it is stored that it did not, so that no restart begins it. */
static enum err begin(struct office *office, uint64_t now_ns, struct office_plan *plan,
                      struct data **data, struct reason *reason)
{
    struct coordinator_past past;
    struct office_run *run = plan->run;
    uint64_t number = run->stored.run;
    enum err err = serve(office, run, data);
    if (err == ERR_OK) {
        plan->run = NULL;
        err = start(office, now_ns, run, &past, reason);
    }
    if (err != ERR_OK && office->failed == ERR_OK)
        ignore(store_put_state(office->config.store, office->term, number, RUN_FAILED, reason->text,
                               NULL)); /* the first error is the one to say */
    return err;
}

static enum err start_run(struct office *office, uint64_t now_ns,
                          const struct start_run_request *request, struct buf *response,
                          struct reason *reason)
{
    scoped(office_plan_release) struct office_plan plan = {0};
    scoped(data_free_scoped) struct data *data = NULL;
    const struct office_wish wish = {request, request->directory[0] != 0 ? request->directory
                                                                         : office->config.run_dir};
    TRY(office_run_plan(office->config.store, &wish, &plan, reason));
    TRY(coordinator_may_start(office->coordinator, &plan.run->settings, reason));
    TRY(open_served(plan.run, &data, reason));
    TRY(file_make_dirs(wish.directory, 0755, reason));
    TRY(store_plan(office, &plan, reason));
    struct start_run_reply reply = {.run = plan.run->stored.run,
                                    .notes = (const char *)plan.notes.data};
    TRY(begin(office, now_ns, &plan, &data, reason));
    return wire_encode_start_run_reply(&reply, response);
}

static enum err go_on(struct office *office, uint64_t now_ns, struct store_run *stored,
                      struct reason *reason)
{
    struct office_run *run;
    struct coordinator_past past;
    TRY(office_run_new(stored, &run, reason));
    scoped(data_free_scoped) struct data *data = NULL;
    enum err err = store_get_past(office->config.store, run->stored.run, &past, reason);
    run->settings.cut_servers = run->settings.async;
    if (err == ERR_OK && past.cut.server_count > 0 &&
        past.cut.server_count < run->settings.servers_min)
        run->settings.servers_min = past.cut.server_count; /* not for those that were drained */
    if (err == ERR_OK)
        err = open_served(run, &data, reason);
    if (err == ERR_OK)
        err = serve(office, run, &data);
    if (err != ERR_OK) {
        office_run_free(run);
        return err;
    }
    return start(office, now_ns, run, &past, reason);
}

void office_continue(struct office *office, uint64_t now_ns)
{
    scoped(store_run_release) struct store_run stored = {0};
    struct reason reason = {0};
    enum err err = store_find_active_run(office->config.store, &stored, &reason);
    if (err == ERR_NOT_FOUND)
        return;
    uint64_t number = stored.run;
    if (err == ERR_OK)
        err = go_on(office, now_ns, &stored, &reason);
    if (err != ERR_OK)
        log_error(office->config.logger, "run not continued", log_uint("run", number),
                  log_text("err", err_name(err)), log_text("reason", reason.text),
                  log_text("next", "wait for an operator"));
}

void office_local_server(struct office *office, uint64_t now_ns, const struct link *link)
{
    struct server_report hello = link_hello(link);
    struct reason reason = {0};
    enum err err = coordinator_server_hello(office->coordinator, office_ms(now_ns), &hello,
                                            &office->local_link, &reason);
    check(err == ERR_OK);
    office_effects_carry_out(office, now_ns);
}

/* ---- calls ---- */

void office_call_cancelled(struct office *office, uint64_t number)
{
    struct call *call = waiting_take_number(&office->waiting, number);
    if (call != NULL)
        call_fail(call, ERR_CANCELLED, "nobody waits for it any more");
}

static void call_acquire(struct office *office, uint64_t now_ns, struct call *take_call)
{
    struct acquire_request request = take_call->acquire;
    uint64_t number = take_call->number;
    struct call *older = waiting_take_acquire(&office->waiting, request.member);
    if (older != NULL)
        call_fail(older, ERR_CANCELLED, "the member has asked anew");
    waiting_add(&office->waiting, &(struct waiting_call){.call = take_call});
    enum err err = coordinator_acquire(office->coordinator, office_ms(now_ns), &request);
    office_effects_carry_out(office, now_ns);
    struct call *call = err != ERR_OK ? waiting_take_number(&office->waiting, number) : NULL;
    if (call != NULL)
        call_fail(call, err, err_text(err));
}

/* The end of a call without content. */
static void finish(struct call *take_call, enum err err, const char *text)
{
    struct buf empty = {0};
    if (err == ERR_OK)
        call_reply(take_call, &empty);
    else
        call_fail(take_call, err, text[0] != 0 ? text : err_text(err));
}

static void call_join(struct office *office, uint64_t now_ns, struct call *take_call)
{
    struct join_reply reply;
    struct reason reason = {0};
    struct buf response = {0};
    enum err err =
        coordinator_join(office->coordinator, office_ms(now_ns), &take_call->join, &reply, &reason);
    office_effects_carry_out(office, now_ns);
    if (err == ERR_OK)
        answers_reply(take_call, wire_encode_join_reply(&reply, &response), &response);
    else
        call_fail(take_call, err, reason.text);
}

static void call_start_run(struct office *office, uint64_t now_ns, struct call *take_call)
{
    struct reason reason = {0};
    struct buf response = {0};
    enum err err = start_run(office, now_ns, &take_call->start_run, &response, &reason);
    if (err == ERR_OK) {
        call_reply(take_call, &response);
        return;
    }
    buf_release(&response);
    log_warning(office->config.logger, "run not started", log_text("err", err_name(err)),
                log_text("reason", reason.text));
    call_fail(take_call, err, reason.text[0] != 0 ? reason.text : err_text(err));
}

/* The coordinator's office cannot move: its server stays as long as the cluster does. */
static void call_drain(struct office *office, uint64_t now_ns, struct call *take_call)
{
    struct coordinator_drained drained = {.drained = true};
    struct coordinator_status status;
    struct reason reason = {0};
    struct buf response = {0};
    const char *name = take_call->drain.server;
    enum err err;
    if (strcmp(name, office->config.name) == 0)
        err =
            reason_set(&reason, ERR_INVALID,
                       "server %.64s is the coordinator's and cannot be drained: stop the run, or "
                       "restart its daemon, which goes on from the newest cut",
                       name);
    else if (take_call->drain.lost)
        err = coordinator_give_up(office->coordinator, office_ms(now_ns), name, &reason);
    else
        err = coordinator_drain(office->coordinator, office_ms(now_ns), name, &drained, &reason);
    office_effects_carry_out(office, now_ns);
    if (err != ERR_OK) {
        call_fail(take_call, err, reason.text);
        return;
    }
    coordinator_status(office->coordinator, &status);
    const struct drain_reply reply = {drained.drained, drained.chunks_left, status.reason};
    answers_reply(take_call, wire_encode_drain_reply(&reply, &response), &response);
}

static void call_checkpoint(struct office *office, struct call *take_call)
{
    struct coordinator_status status;
    coordinator_status(office->coordinator, &status);
    enum err err = coordinator_checkpoint(office->coordinator);
    if (err != ERR_OK)
        call_fail(take_call, err, err_text(err));
    else
        waiting_add(&office->waiting, &(struct waiting_call){take_call, status.version});
}

static struct answers_facts facts_of(const struct office *office, uint64_t now_ns)
{
    struct coordinator_status status;
    coordinator_status(office->coordinator, &status);
    uint64_t end_ns = office->over_ns != 0 ? office->over_ns : now_ns;
    bool begun = office->training_ns != 0;
    return (struct answers_facts){
        .coordinator = office->coordinator,
        .run = office->run,
        .now_ms = office_ms(now_ns),
        .seconds = begun ? (double)(end_ns - office->training_ns) / 1e9 : 0,
        .samples_here = begun && status.counters.samples > office->samples_before
                            ? status.counters.samples - office->samples_before
                            : 0,
    };
}

void office_call(struct office *office, uint64_t now_ns, struct call *take_call)
{
    struct answers_facts facts;
    enum err err = ERR_OK;
    switch (take_call->kind) {
    case CALL_ACQUIRE:
        call_acquire(office, now_ns, take_call);
        return;
    case CALL_JOIN:
        call_join(office, now_ns, take_call);
        return;
    case CALL_DESCRIBE:
        facts = facts_of(office, now_ns);
        answers_describe(&facts, take_call);
        return;
    case CALL_STATUS:
        facts = facts_of(office, now_ns);
        answers_status(&facts, take_call);
        return;
    case CALL_START_RUN:
        call_start_run(office, now_ns, take_call);
        return;
    case CALL_CHECKPOINT:
        call_checkpoint(office, take_call);
        return;
    case CALL_DRAIN:
        call_drain(office, now_ns, take_call);
        return;
    case CALL_COMPLETE:
        err = coordinator_complete(office->coordinator, office_ms(now_ns), &take_call->complete);
        break;
    case CALL_LEAVE:
        err = coordinator_leave(office->coordinator, office_ms(now_ns), take_call->leave.member,
                                take_call->leave.reason);
        break;
    case CALL_STOP_RUN:
        err = coordinator_stop(office->coordinator, office_ms(now_ns), take_call->stop_run.reason);
        break;
    }
    office_effects_carry_out(office, now_ns);
    finish(take_call, err, "");
}

/* ---- streams ---- */

static enum err decode_report(const struct rpc_message *message, struct arena *arena,
                              struct server_report *ret_report, struct reason *reason)
{
    uint8_t *bytes = arena_take(arena, message->bytes);
    if (bytes == NULL)
        return ERR_NOMEM;
    rpc_message_copy(message, 0, message->bytes, bytes);
    return wire_decode_server_report((struct slice){bytes, message->bytes}, arena, ret_report,
                                     reason);
}

static enum err server_says(struct office *office, uint64_t now_ns, struct guest *guest,
                            const struct rpc_message *message, struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = (size_t)9 * WIRE_CONTROL_BYTES_MAX};
    struct server_report report;
    TRY(decode_report(message, &arena, &report, reason));
    if (guest->id != 0)
        return coordinator_server_report(office->coordinator, office_ms(now_ns), guest->id,
                                         &report);
    uint64_t link;
    TRY(guests_add(&office->guests, guest, 0));
    enum err err =
        coordinator_server_hello(office->coordinator, office_ms(now_ns), &report, &link, reason);
    if (err != ERR_OK)
        guests_remove(&office->guests, guest);
    else
        guest->id = link; /* before its first command is carried out */
    return err;
}

static enum err member_says(struct office *office, uint64_t now_ns, struct guest *guest,
                            const struct rpc_message *message, struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct member_report report;
    if (guest->id != 0)
        return coordinator_heartbeat(office->coordinator, office_ms(now_ns), guest->id);
    uint8_t *bytes = arena_take(&arena, message->bytes);
    if (bytes == NULL)
        return ERR_NOMEM;
    rpc_message_copy(message, 0, message->bytes, bytes);
    TRY(wire_decode_member_report((struct slice){bytes, message->bytes}, &arena, &report, reason));
    TRY(coordinator_heartbeat(office->coordinator, office_ms(now_ns), report.member));
    struct guest *older = guests_member(&office->guests, report.member);
    if (older != NULL)
        guests_send_away(&office->guests, older, ERR_CANCELLED, "the member opened another stream");
    return guests_add(&office->guests, guest, report.member);
}

void office_guest_message(struct office *office, uint64_t now_ns, struct guest *guest,
                          const struct rpc_message *message)
{
    struct reason reason = {0};
    if (guest->id != 0 && !guest->listed)
        return; /* expelled; its end is under way */
    enum err err = guest->is_server ? server_says(office, now_ns, guest, message, &reason)
                                    : member_says(office, now_ns, guest, message, &reason);
    office_effects_carry_out(office, now_ns);
    /* Late reports are of no harm; anything else ends the stream. */
    bool harmless = guest->is_server && (err == ERR_OLD_GENERATION || err == ERR_OLD_BOOT);
    if (err == ERR_OK || harmless)
        return;
    log_warning(office->config.logger, "stream refused", log_text("peer", guest->address),
                log_text("err", err_name(err)), log_text("reason", reason.text),
                log_text("next", "close"));
    rpc_stream_finish(guest->stream, err, reason.text[0] != 0 ? reason.text : err_text(err));
}

void office_guest_closed(struct office *office, uint64_t now_ns, struct guest *guest)
{
    if (!guest->listed)
        return;
    uint64_t id = guest->id;
    guests_remove(&office->guests, guest);
    if (guest->is_server)
        coordinator_server_lost(office->coordinator, office_ms(now_ns), id);
    else
        coordinator_member_lost(office->coordinator, office_ms(now_ns), id, "control stream broke");
    office_effects_carry_out(office, now_ns);
}

void office_report(struct office *office, uint64_t now_ns, const struct rpc_message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = (size_t)9 * WIRE_CONTROL_BYTES_MAX};
    struct server_report report;
    struct reason reason = {0};
    enum err err = decode_report(message, &arena, &report, &reason);
    if (err == ERR_OK)
        err = coordinator_server_report(office->coordinator, office_ms(now_ns), office->local_link,
                                        &report);
    office_effects_carry_out(office, now_ns);
    if (err != ERR_OK && err != ERR_OLD_GENERATION)
        log_error(office->config.logger, "own report refused", log_text("err", err_name(err)),
                  log_text("reason", reason.text), log_text("next", "none"));
}

/* ---- time ---- */

uint64_t office_next_ns(const struct office *office)
{
    uint64_t due_ms = coordinator_next_ms(office->coordinator);
    uint64_t due_ns = due_ms < UINT64_MAX / NS_PER_MS ? due_ms * NS_PER_MS : TIME_NEVER;
    due_ns = office->heartbeat_ns < due_ns ? office->heartbeat_ns : due_ns;
    return office->flush_ns < due_ns ? office->flush_ns : due_ns;
}

static void flush(struct office *office)
{
    struct record *record = &office->record;
    record_flush(record);
    bool said = record->said;
    record->said = record->err != ERR_OK;
    if (said == record->said)
        return;
    if (said)
        log_info(office->config.logger, "run's log written again");
    else
        log_error(office->config.logger, "run's log not written",
                  log_text("err", err_name(record->err)), log_text("reason", record->reason.text),
                  log_text("next", "go on without it"));
}

static void store_late_state(struct office *office)
{
    struct reason reason = {0};
    if (!office->state_late)
        return;
    enum err err = office_effects_store_state(office, &reason);
    if (err != ERR_OK)
        office_effects_fail(office, err, &reason);
}

void office_tick(struct office *office, uint64_t now_ns)
{
    if (coordinator_next_ms(office->coordinator) <= office_ms(now_ns)) {
        coordinator_tick(office->coordinator, office_ms(now_ns));
        office_effects_carry_out(office, now_ns);
    }
    if (office->heartbeat_ns <= now_ns) {
        office->heartbeat_ns = time_after_ms(now_ns, office->config.heartbeat_ms);
        guests_notice(&office->guests, &(struct member_notice){.kind = NOTICE_ALIVE, .text = ""});
    }
    if (office->flush_ns <= now_ns) {
        office->flush_ns = time_after_ms(now_ns, FLUSH_MS);
        flush(office);
        store_late_state(office);
    }
}

void office_pause(struct office *office, uint64_t now_ns, const char *why)
{
    ignore(
        coordinator_pause(office->coordinator, office_ms(now_ns), why)); /* none is active: fine */
    office_effects_carry_out(office, now_ns);
}

bool office_paused(const struct office *office)
{
    struct coordinator_status status;
    coordinator_status(office->coordinator, &status);
    return office->failed != ERR_OK || status.paused || !office_active(office);
}

bool office_loading(const struct office *office)
{
    struct coordinator_status status;
    coordinator_status(office->coordinator, &status);
    return status.state == RUN_STARTING;
}

enum err office_failed(const struct office *office)
{
    return office->failed;
}

enum err office_status_line(const struct office *office, struct buf *line)
{
    struct coordinator_status status;
    struct coordinator_server server;
    uint32_t connected = 0, known = 0;
    coordinator_status(office->coordinator, &status);
    for (; coordinator_server(office->coordinator, known, &server); known++)
        connected += server.connected ? 1 : 0;
    return buf_printf(line, "%u/%u servers, %u workers, step %llu of %llu, cut %llu%s%s", connected,
                      known, status.member_count, (unsigned long long)status.version,
                      (unsigned long long)status.steps, (unsigned long long)status.cut.version,
                      status.reason[0] != 0 ? ", " : "", status.reason);
}
