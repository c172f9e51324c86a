/* The coordinator on its daemon. */
#include "server/control/control.h"

#include "common/rand.h"
#include "common/scoped.h"
#include "common/time.h"
#include "server/control/control_effects.h"
#include "server/control/control_start.h"
#include "server/control/products.h"
#include "server/control/replies.h"

#include <string.h>

enum { FLUSH_MS = 1000, NS_PER_MS = 1000000 };

/* ---- life ---- */

enum err control_new(const struct control_config *config, struct control **ret_control,
                     struct reason *reason)
{
    struct control *control = calloc(1, sizeof *control);
    if (control == NULL)
        return reason_set(reason, ERR_NOMEM, "out of memory");
    control->config = *config;
    control->continue_ns = TIME_NEVER;
    control->term = config->term;
    enum err err = rand_system(control->key, sizeof control->key);
    if (err != ERR_OK)
        err = reason_set(reason, ERR_IO, "the system gives no random bytes");
    struct coordinator_settings settings = {
        .term = control->term,
        .heartbeat_ms = config->heartbeat_ms,
        .lease_ms = config->lease_ms,
        .speculation_percent = config->speculation_percent,
        .speculation_ms_min = config->speculation_ms_min,
        .certificate_members_max = config->certificate_members_max,
        .stop_ms = config->stop_ms,
    };
    memcpy(settings.key, control->key, sizeof settings.key);
    control->coordinator = coordinator_new(&settings);
    enum err waiting = waiting_init(&control->waiting);
    enum err connections = connections_init(&control->connections);
    if (err == ERR_OK &&
        (control->coordinator == NULL || waiting != ERR_OK || connections != ERR_OK))
        err = reason_set(reason, ERR_NOMEM, "out of memory");
    if (err != ERR_OK) {
        control_free(control);
        return err;
    }
    *ret_control = control;
    return ERR_OK;
}

void control_free(struct control *control)
{
    if (control == NULL)
        return;
    waiting_release(&control->waiting);
    connections_release(&control->connections);
    record_release(&control->record);
    order_log_release(&control->order);
    file_claim_release(&control->claim);
    control_effects_end_search(control);
    whole_cut_release(&control->whole);
    data_reader_release(&control->wanted_data);
    data_reader_release(&control->stored_data);
    coordinator_free(control->coordinator);
    control_run_free(control->run);
    free(control);
}

/* ---- calls ---- */

void control_call_cancelled(struct control *control, uint64_t number)
{
    struct call *call = waiting_take_number(&control->waiting, number);
    if (call != NULL)
        call_fail(call, ERR_CANCELLED, "nobody waits for it any more");
}

/* The answer is an effect, carried out when the call waits for it. Only the member itself takes the
 * place of its older call: the core has judged its secret before. */
static void call_acquire(struct control *control, uint64_t now_ns, struct call *take_call)
{
    uint64_t member = take_call->acquire.member;
    enum err err =
        coordinator_acquire(control->coordinator, control_ms(now_ns), &take_call->acquire);
    if (err == ERR_OK) {
        struct call *older = waiting_take_acquire(&control->waiting, member);
        if (older != NULL)
            call_fail(older, ERR_CANCELLED, "the member has asked anew");
        waiting_add(&control->waiting, &(struct waiting_call){.call = take_call});
    } else {
        call_fail(take_call, err, err_text(err));
    }
    control_effects_carry_out(control, now_ns);
}

/* Answers a call that has no content. */
static void finish(struct call *take_call, enum err err, const char *text)
{
    struct buf empty = {0};
    if (err == ERR_OK)
        call_reply(take_call, &empty);
    else
        call_fail(take_call, err, text[0] != 0 ? text : err_text(err));
}

static void call_join(struct control *control, uint64_t now_ns, struct call *take_call)
{
    struct join_reply reply;
    struct reason reason = {0};
    struct buf response = {0};
    enum err err = coordinator_join(control->coordinator, control_ms(now_ns), &take_call->join,
                                    &reply, &reason);
    control_effects_carry_out(control, now_ns);
    if (err == ERR_OK)
        replies_send(take_call, wire_encode_join_reply(&reply, &response), &response);
    else
        call_fail(take_call, err, reason.text);
}

static void call_start_run(struct control *control, uint64_t now_ns, struct call *take_call)
{
    struct reason reason = {0};
    struct buf response = {0};
    enum err err = control_start_run(control, now_ns, &take_call->start_run, &response, &reason);
    data_reader_end_call(&control->wanted_data, err == ERR_SEARCHING);
    whole_cut_end_call(&control->whole, err == ERR_SEARCHING);
    if (err == ERR_OK) {
        call_reply(take_call, &response);
        return;
    }
    buf_release(&response);
    if (err != ERR_SEARCHING) /* the operator asks again */
        log_warning(control->config.logger, "run not started", log_text("err", err_name(err)),
                    log_text("reason", reason.text));
    control_effects_end_if_not_synced(control, err, &reason);
    call_fail(take_call, err, reason_text(err, &reason));
}

/* The coordinator cannot move to another daemon: its own server stays as long as the cluster does.
 */
static void call_drain(struct control *control, uint64_t now_ns, struct call *take_call)
{
    struct coordinator_drained drained = {.drained = true};
    struct coordinator_status status;
    struct reason reason = {0};
    struct buf response = {0};
    const char *name = take_call->drain.server;
    enum err err;
    if (strcmp(name, control->config.name) == 0)
        err =
            reason_set(&reason, ERR_INVALID,
                       "server %.64s is the coordinator's and cannot be drained: stop the run, or "
                       "restart its daemon, which goes on from the newest checkpoint",
                       name);
    else if (take_call->drain.lost)
        err = coordinator_give_up(control->coordinator, control_ms(now_ns), name, &reason);
    else
        err = coordinator_drain(control->coordinator, control_ms(now_ns), name, &drained, &reason);
    control_effects_carry_out(control, now_ns);
    if (err != ERR_OK) {
        call_fail(take_call, err, reason.text);
        return;
    }
    coordinator_status(control->coordinator, &status);
    const struct drain_reply reply = {drained.drained, drained.chunks_left, status.reason};
    replies_send(take_call, wire_encode_drain_reply(&reply, &response), &response);
}

/* The core takes a stop up when the run goes on. A second one ends a run that cannot, at its newest
 * checkpoint: nothing else would make way for another run. */
static enum err stop_expected(struct control *control, uint64_t now_ns, const char *why,
                              struct reason *reason)
{
    struct store *store = control->config.store;
    struct control_told *told = &control->told;
    bool ends = told->stops && !control_reads_stored(control);
    if (told->run == 0)
        return reason_set(reason, ERR_BUSY, "the store does not read yet: %s", told->reason);
    enum err err = ends ? store_put_state(store, control->term, told->run, RUN_STOPPED, why, reason)
                        : store_put_stop(store, control->term, told->run, why, reason);
    if (err != ERR_OK && err != ERR_NO_SPACE)
        control_effects_fail(control, err, reason);
    TRY(err);
    told->stops = true;
    if (!ends)
        return ERR_OK;
    log_info(control->config.logger, "run stops", log_uint("version", told->cut.version),
             log_text("reason", why));
    control_continue(control, now_ns); /* which finds how the run ended */
    return ERR_OK;
}

/* P7: a stop is in the store before it is acknowledged, or the operator asks the successor. */
static void call_stop_run(struct control *control, uint64_t now_ns, struct call *take_call)
{
    struct reason reason = {0};
    const char *why = take_call->stop_run.reason;
    enum err err = control_expects_run(control)
                       ? stop_expected(control, now_ns, why, &reason)
                       : coordinator_stop(control->coordinator, control_ms(now_ns), why);
    control_effects_carry_out(control, now_ns);
    if (control->failed != ERR_OK)
        finish(take_call, ERR_CANCELLED, "the coordinator ends");
    else
        finish(take_call, err, reason.text);
}

static void call_checkpoint(struct control *control, struct call *take_call)
{
    struct coordinator_status status;
    coordinator_status(control->coordinator, &status);
    enum err err = coordinator_checkpoint(control->coordinator);
    if (err != ERR_OK)
        call_fail(take_call, err, err_text(err));
    else
        waiting_add(&control->waiting, &(struct waiting_call){take_call, status.version});
}

static struct replies_facts facts_of(const struct control *control, uint64_t now_ns)
{
    struct coordinator_status status;
    coordinator_status(control->coordinator, &status);
    uint64_t end_ns = control->over_ns != 0 ? control->over_ns : now_ns;
    bool begun = control->training_ns != 0;
    return (struct replies_facts){
        .coordinator = control->coordinator,
        .run = control->run,
        .told = &control->told,
        .connections = &control->connections,
        .costs = &control->costs,
        .name = control->config.name,
        .folder = control->config.folder,
        .local_link = control->local_link,
        .ends_s = control->certificate_ends_s,
        .log_error = control->record.err != ERR_OK ? control->record.reason.text : "",
        .now_ms = control_ms(now_ns),
        .seconds = begun ? (double)(end_ns - control->training_ns) / 1e9 : 0,
        .samples_here = begun && status.counters.samples > control->samples_before
                            ? status.counters.samples - control->samples_before
                            : 0,
    };
}

void control_call(struct control *control, uint64_t now_ns, struct call *take_call)
{
    struct replies_facts facts;
    enum err err = ERR_OK;
    if (control->failed != ERR_OK) { /* P7: what this one thinks of the run is worth nothing */
        call_fail(take_call, ERR_CANCELLED, "the coordinator ends");
        return;
    }
    switch (take_call->kind) {
    case CALL_ACQUIRE:
        call_acquire(control, now_ns, take_call);
        return;
    case CALL_JOIN:
        call_join(control, now_ns, take_call);
        return;
    case CALL_DESCRIBE:
        facts = facts_of(control, now_ns);
        replies_describe(&facts, take_call);
        return;
    case CALL_STATUS:
        facts = facts_of(control, now_ns);
        replies_status(&facts, take_call);
        return;
    case CALL_START_RUN:
        call_start_run(control, now_ns, take_call);
        return;
    case CALL_CHECKPOINT:
        call_checkpoint(control, take_call);
        return;
    case CALL_DRAIN:
        call_drain(control, now_ns, take_call);
        return;
    case CALL_COMPLETE:
        err = coordinator_complete(control->coordinator, control_ms(now_ns), &take_call->complete);
        if (err == ERR_OK)
            costs_add(&control->costs, take_call->complete.place.stage, &take_call->complete.cost,
                      take_call->complete.ticket.kind);
        break;
    case CALL_LEAVE:
        err = coordinator_leave(control->coordinator, control_ms(now_ns), &take_call->leave);
        if (err == ERR_OK)
            costs_add(&control->costs, take_call->leave.place.stage, &take_call->leave.cost,
                      TICKET_TRAIN);
        break;
    case CALL_PRODUCTS:
        products_call(control, take_call);
        return;
    case CALL_STOP_RUN:
        call_stop_run(control, now_ns, take_call);
        return;
    }
    control_effects_carry_out(control, now_ns);
    finish(take_call, err, "");
}

/* ---- streams ---- */

void control_local_server(struct control *control, uint64_t now_ns, const struct link *link)
{
    struct server_report hello = link_hello(link);
    struct reason reason = {0};
    enum err err = coordinator_server_hello(control->coordinator, control_ms(now_ns), &hello,
                                            &control->local_link, &reason);
    check(err == ERR_OK);
    control_effects_carry_out(control, now_ns);
}

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

/* Whoever is told of the server connects there. */
static enum err judge_address(const struct server_report *hello, struct reason *reason)
{
    struct reason why;
    if (hello->kind != SERVER_HELLO ||
        rpc_address_check(hello->hello.address, false, &why) == ERR_OK)
        return ERR_OK;
    return reason_set(reason, ERR_INVALID, "server %.64s: %s", hello->hello.name, why.text);
}

static enum err server_says(struct control *control, uint64_t now_ns, struct connection *connection,
                            const struct rpc_message *message, struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = (size_t)9 * WIRE_CONTROL_BYTES_MAX};
    struct server_report report;
    TRY(decode_report(message, &arena, &report, reason));
    if (connection->id != 0)
        return coordinator_server_report(control->coordinator, control_ms(now_ns), connection->id,
                                         &report);
    uint64_t link;
    TRY(judge_address(&report, reason));
    TRY(control_effects_take_term(control, &report, reason));
    TRY(connections_add(&control->connections, connection, 0));
    enum err err =
        coordinator_server_hello(control->coordinator, control_ms(now_ns), &report, &link, reason);
    if (err != ERR_OK)
        connections_remove(&control->connections, connection);
    else
        connection->id = link; /* before its first command is carried out */
    return err;
}

static enum err member_says(struct control *control, uint64_t now_ns, struct connection *connection,
                            const struct rpc_message *message, struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct member_report report;
    uint8_t *bytes = arena_take(&arena, message->bytes);
    if (bytes == NULL)
        return ERR_NOMEM;
    rpc_message_copy(message, 0, message->bytes, bytes);
    TRY(wire_decode_member_report((struct slice){bytes, message->bytes}, &arena, &report, reason));
    if (connection->id != 0)
        return coordinator_member_report(control->coordinator, control_ms(now_ns), connection->id,
                                         &report);
    TRY(coordinator_member_hello(control->coordinator, control_ms(now_ns), &report));
    struct connection *older = connections_member(&control->connections, report.member);
    if (older != NULL)
        connections_send_away(&control->connections, older, ERR_CANCELLED,
                              "the member opened another stream");
    return connections_add(&control->connections, connection, report.member);
}

/* When a stream begins; control_certificate() warns of those that last. */
static void warn_of_end(const struct control *control, const struct connection *connection)
{
    int64_t ends_s = connection->certificate_ends_s;
    if (ends_s == 0 || !tls_ends_soon(ends_s, (int64_t)time_wall_s()))
        return;
    log_warning(control->config.logger, "certificate ends soon",
                log_text("peer", connection->address),
                log_uint(connection->is_server ? "link" : "member", connection->id),
                log_text("ends", time_format_utc((uint64_t)ends_s * 1000000000).text),
                log_text("next", "make a new one (roost cert)"));
}

/* Certificates that end within a week. */
struct ending {
    uint64_t count;
    const struct connection *first;
};

static void find_ending(struct connection *const *list, size_t count, int64_t now_s,
                        struct ending *ending)
{
    for (size_t i = 0; i < count; i++) {
        if (!tls_ends_soon(list[i]->certificate_ends_s, now_s))
            continue;
        ending->count++;
        if (ending->first == NULL ||
            list[i]->certificate_ends_s < ending->first->certificate_ends_s)
            ending->first = list[i];
    }
}

void control_certificate(struct control *control, int64_t ends_s, int64_t now_s)
{
    const struct connections *all = &control->connections;
    struct ending ending = {0};
    control->certificate_ends_s = ends_s;
    find_ending(all->members, all->member_count, now_s, &ending);
    find_ending(all->servers, all->server_count, now_s, &ending);
    if (ending.first == NULL ||
        !tls_warning_is_due(ending.first->certificate_ends_s, now_s, &control->warned_s))
        return;
    uint64_t first_ns = (uint64_t)ending.first->certificate_ends_s * 1000000000;
    log_warning(control->config.logger, "certificates of others end soon",
                log_uint("streams", ending.count), log_text("first", ending.first->address),
                log_text("ends", time_format_utc(first_ns).text),
                log_text("next", "make new ones (roost cert); `roost status` names them"));
}

void control_connection_message(struct control *control, uint64_t now_ns,
                                struct connection *connection, const struct rpc_message *message)
{
    struct reason reason = {0};
    if (connection->id != 0 && !connection->listed)
        return; /* expelled; the end of its stream is under way */
    bool greets = connection->id == 0;
    enum err err = connection->is_server
                       ? server_says(control, now_ns, connection, message, &reason)
                       : member_says(control, now_ns, connection, message, &reason);
    if (greets && connection->listed)
        warn_of_end(control, connection);
    control_effects_carry_out(control, now_ns);
    /* A late report does no harm; any other error ends the stream. */
    bool greeted = connection->is_server && connection->id != 0;
    bool harmless = greeted && (err == ERR_OLD_GENERATION || err == ERR_OLD_BOOT);
    if (err == ERR_OK || harmless)
        return;
    if (err != ERR_NO_SPACE) /* of which the log has a line already */
        log_warning(control->config.logger, "stream refused", log_text("peer", connection->address),
                    log_text("err", err_name(err)), log_text("reason", reason.text),
                    log_text("next", "close"));
    rpc_stream_finish(connection->stream, err, reason_text(err, &reason));
}

void control_connection_closed(struct control *control, uint64_t now_ns,
                               struct connection *connection)
{
    if (!connection->listed)
        return;
    uint64_t id = connection->id;
    connections_remove(&control->connections, connection);
    if (connection->is_server)
        coordinator_server_lost(control->coordinator, control_ms(now_ns), id);
    else
        coordinator_member_lost(control->coordinator, control_ms(now_ns), id,
                                "control stream broke");
    control_effects_carry_out(control, now_ns);
}

void control_report(struct control *control, uint64_t now_ns, const struct rpc_message *message)
{
    scoped(arena_release) struct arena arena = {.bytes_max = (size_t)9 * WIRE_CONTROL_BYTES_MAX};
    struct server_report report;
    struct reason reason = {0};
    enum err err = decode_report(message, &arena, &report, &reason);
    if (err == ERR_OK)
        err = coordinator_server_report(control->coordinator, control_ms(now_ns),
                                        control->local_link, &report);
    control_effects_carry_out(control, now_ns);
    if (err != ERR_OK && err != ERR_OLD_GENERATION)
        log_error(control->config.logger, "own report refused", log_text("err", err_name(err)),
                  log_text("reason", reason.text), log_text("next", "none"));
}

void control_describe(const struct control *control, char *text, size_t bytes)
{
    coordinator_describe(control->coordinator, text, bytes);
}

/* ---- time ---- */

uint64_t control_next_ns(const struct control *control)
{
    uint64_t due_ms = coordinator_next_ms(control->coordinator);
    if (whole_cut_reads(&control->whole))
        return 0; /* it goes on at once, behind what has come meanwhile */
    uint64_t due_ns = due_ms < UINT64_MAX / NS_PER_MS ? due_ms * NS_PER_MS : TIME_NEVER;
    if (control->search.reads && control->search.again_ns < due_ns)
        due_ns = control->search.again_ns; /* 0: the same */
    due_ns = control->heartbeat_ns < due_ns ? control->heartbeat_ns : due_ns;
    due_ns = control->continue_ns < due_ns ? control->continue_ns : due_ns;
    return control->flush_ns < due_ns ? control->flush_ns : due_ns;
}

static void say_lost_rows(struct control *control)
{
    struct record *record = &control->record;
    if (record->rows_lost)
        log_error(control->config.logger, "rows of the run's log are lost",
                  log_text("reason", record->reason.text),
                  log_text("next", "go on; roost ledger names the steps"));
    if (record->steps.changed)
        log_warning(
            control->config.logger, "run's log was changed",
            log_text("reason", "somebody removed, emptied, replaced or wrote to steps.jsonl"),
            log_text("next", "go on with the rows that are there; roost ledger names the "
                             "steps that are missing"));
    record->rows_lost = record->steps.changed = false;
}

static void say_curves(struct control *control)
{
    struct record *record = &control->record;
    bool said = record->scalars_said;
    record->scalars_said = record->scalars_err != ERR_OK;
    if (said && !record->scalars_said)
        log_info(control->config.logger, "run's curves written again");
    else if (!said && record->scalars_said)
        log_warning(control->config.logger, "run's curves not written",
                    log_text("err", err_name(record->scalars_err)),
                    log_text("reason", record->scalars_reason.text),
                    log_text("next", "go on; try again, and the curves may have a gap"));
}

static void flush(struct control *control)
{
    struct record *record = &control->record;
    struct reason replaced;
    record_flush(record);
    if (record->err == ERR_OLD_TERM)
        ignore(control_effects_reopen_log(control, &replaced)); /* record->err says why not */
    say_lost_rows(control);
    say_curves(control);
    bool said = record->said;
    record->said = record->err != ERR_OK;
    if (said == record->said)
        return;
    if (said)
        log_info(control->config.logger, "run's log written again");
    else
        log_error(control->config.logger, "run's log not written",
                  log_text("err", err_name(record->err)), log_text("reason", record->reason.text),
                  log_uint("needed_bytes", record->lines.bytes),
                  log_text("next", record->err == ERR_NO_SPACE
                                       ? "its rows wait in memory until there is room"
                                       : "go on without it"));
}

/* Nothing else tells that such a server is gone: no timer runs out for it, as for a member. */
static void close_servers(struct control *control, uint64_t now_ns)
{
    struct connection *closed;
    while ((closed = connections_closed_server(&control->connections)) != NULL) {
        connection_ref(closed); /* the list may have the last one */
        control_connection_closed(control, now_ns, closed);
        connection_unref(closed);
    }
}

void control_tick(struct control *control, uint64_t now_ns)
{
    struct reason reason = {0};
    close_servers(control, now_ns);
    if (control->search.reads && control->search.again_ns <= now_ns && control->failed == ERR_OK) {
        control_effects_search(control, now_ns);
        control_effects_carry_out(control, now_ns);
    }
    whole_cut_go_on(&control->whole, now_ns);
    if (coordinator_next_ms(control->coordinator) <= control_ms(now_ns)) {
        coordinator_tick(control->coordinator, control_ms(now_ns));
        control_effects_carry_out(control, now_ns);
    }
    if (control->continue_ns <= now_ns)
        control_continue(control, now_ns);
    data_reader_go_on(&control->wanted_data, now_ns);
    data_reader_go_on(&control->stored_data, now_ns);
    if (control->heartbeat_ns <= now_ns) {
        control->heartbeat_ns = time_after_ms(now_ns, control->config.heartbeat_ms);
        connections_notice(&control->connections,
                           &(struct member_notice){.kind = NOTICE_ALIVE, .text = ""});
    }
    if (control->flush_ns <= now_ns) {
        control->flush_ns = time_after_ms(now_ns, FLUSH_MS);
        flush(control);
        enum err err = control_effects_store_late(control, now_ns, &reason);
        control_effects_carry_out(control, now_ns);
        if (err != ERR_OK && err != ERR_NO_SPACE)
            control_effects_fail(control, err, &reason);
    }
}

void control_pause(struct control *control, uint64_t now_ns, const char *why)
{
    ignore(coordinator_pause(control->coordinator, control_ms(now_ns),
                             why)); /* none is active: fine */
    control_effects_carry_out(control, now_ns);
}

bool control_paused(const struct control *control)
{
    struct coordinator_status status;
    coordinator_status(control->coordinator, &status);
    return control->failed != ERR_OK || status.paused || !control_active(control);
}

bool control_loading(const struct control *control)
{
    struct coordinator_status status;
    coordinator_status(control->coordinator, &status);
    return status.state == RUN_STARTING || control_reads_stored(control);
}

enum err control_failed(const struct control *control)
{
    return control->failed;
}

enum err control_status_line(const struct control *control, struct buf *line)
{
    struct coordinator_status status;
    struct coordinator_server server;
    uint32_t connected = 0, known = 0;
    coordinator_status(control->coordinator, &status);
    for (; coordinator_server(control->coordinator, known, &server); known++)
        connected += server.connected ? 1 : 0;
    return buf_printf(line, "%u/%u servers, %u worker%s, step %llu of %llu, checkpoint %llu%s%s",
                      connected, known, status.member_count, plural(status.member_count),
                      (unsigned long long)status.version, (unsigned long long)status.steps,
                      (unsigned long long)status.cut.version, status.reason[0] != 0 ? ", " : "",
                      status.reason);
}
