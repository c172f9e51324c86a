/* How each effect is carried out: store, answers, logs, commands. */
#include "server/control/control_effects.h"

#include "common/files/checkpoint.h"
#include "common/scoped.h"
#include "server/control/replies.h"
#include "server/disk/prepared.h"

#include <stdlib.h>
#include <string.h>

enum { READ_AGAIN_MS = 1000 }; /* a checkpoint that could not be read */

void control_effects_fail(struct control *control, enum err err, const struct reason *reason)
{
    control->failed = err;
    log_error(control->config.logger, "store failed", log_text("err", err_name(err)),
              log_text("reason", reason->text),
              log_text("next", err == ERR_NO_SPACE
                                   ? "end; the next start goes on, when there is room"
                                   : "end"));
}

void control_effects_end_if_not_synced(struct control *control, enum err err,
                                       const struct reason *reason)
{
    if (err == ERR_NOT_SYNCED && control->failed == ERR_OK)
        control_effects_fail(control, err, reason);
}

/* The cut's file for readers. */
struct cut_file {
    const char *checkpoint_dir;
    struct checkpoint_record record;
};

static enum err write_cut_file(void *owner, struct reason *reason)
{
    const struct cut_file *file = owner;
    return checkpoint_record(&file_ops_real, file->checkpoint_dir, &file->record, reason);
}

static enum err reopen_log(void *owner, struct reason *reason)
{
    return record_reopen(owner, reason);
}

enum err control_effects_reopen_log(struct control *control, struct reason *reason)
{
    const struct store_beside beside = {reopen_log, &control->record};
    return store_write_beside(control->config.store, control->term, &beside, reason);
}

static enum err sync_log(struct control *control, struct reason *reason)
{
    enum err err = record_sync(&control->record, reason);
    if (err != ERR_OLD_TERM)
        return err;
    TRY(control_effects_reopen_log(control, reason));
    return record_sync(&control->record, reason);
}

/* P7: a successor may have ordered the run's last cut again (succession.h), whose files have other
 * digests: the file is written while the term is ours. */
static enum err store_cut(struct control *control, const struct cut_record *cut,
                          struct reason *reason)
{
    const struct control_run *run = control->run;
    struct cut_file file = {
        .checkpoint_dir = run->checkpoint_dir,
        .record = {.name = {cut->name.generation, cut->name.version},
                   .run = run->stored.run,
                   .counters = {cut->counters.samples, cut->counters.applied,
                                cut->counters.skips_in_row},
                   .spec = run->stored.spec,
                   .server_count = cut->server_count,
                   .by_seed = cut->by_seed,
                   .arrays = prepared_arrays(&run->spec)},
    };
    const struct store_beside beside = {write_cut_file, &file};
    struct checkpoint_record *record = &file.record;
    check(cut->server_count <= WIRE_SERVERS_MAX);
    memcpy(record->fingerprint.bytes, run->stored.fingerprint, WIRE_DIGEST_BYTES);
    memcpy(record->data_digest.bytes, run->stored.data_digest, WIRE_DIGEST_BYTES);
    for (uint32_t i = 0; i < cut->server_count; i++)
        memcpy(record->manifests[i].bytes, cut->servers[i].digest, WIRE_DIGEST_BYTES);
    TRY(sync_log(control, reason));
    TRY(order_log_sync(&control->order, reason));
    TRY(store_put_cut(control->config.store, control->term, run->stored.run, cut,
                      run->spec.checkpoint.keep, &beside, reason));
    return store_oldest_cut(control->config.store, run->stored.run, &control->oldest, reason);
}

static enum err carry_out_cut(struct control *control, uint64_t now_ns, const struct effect *effect,
                              struct reason *reason)
{
    struct cut_name name = effect->cut->name;
    enum err err = store_cut(control, effect->cut, reason);
    if (err != ERR_OK && err != ERR_NO_SPACE)
        return err;
    if (err != ERR_OK)
        log_warning(control->config.logger, "checkpoint not written",
                    log_text("err", err_name(err)), log_text("reason", reason->text),
                    log_text("next", "go on"));
    coordinator_cut_stored(control->coordinator, control_ms(now_ns), name, err);
    return ERR_OK;
}

/* P10: what is written beside the checkpoints goes back only when the store has the rewind. */
static enum err carry_out_rewind(struct control *control, uint64_t now_ns, uint64_t generation,
                                 struct reason *reason)
{
    struct coordinator_status status;
    enum err err = store_put_generation(control->config.store, control->term,
                                        control->run->stored.run, generation, reason);
    if (err != ERR_OK && err != ERR_NO_SPACE)
        return err;
    coordinator_rewind_stored(control->coordinator, control_ms(now_ns), generation, err);
    if (err == ERR_NO_SPACE)
        return ERR_OK;
    coordinator_status(control->coordinator, &status);
    record_rewind(&control->record, status.version);
    return order_log_rewind(&control->order, status.version, reason);
}

/* ---- the newest cut that is whole ---- */

static void end_reading(struct control_search *search)
{
    whole_cut_reader_release(&search->reader);
    search->reads = false;
}

void control_effects_end_search(struct control *control)
{
    end_reading(&control->search);
    control->search = (struct control_search){0};
}

static enum err begin_search(struct control *control, const struct effect *effect,
                             struct reason *reason)
{
    struct control_search *search = &control->search;
    uint64_t run = control->run->stored.run;
    uint32_t count; /* none leaves generation 0 */
    if ((search->reads || search->late) && search->run == run)
        return ERR_OK; /* another server reports the same */
    control_effects_end_search(control);
    search->reads = true;
    search->run = run;
    search->version_max = effect->find.version_max;
    memcpy(search->unready, effect->find.unready, sizeof search->unready);
    return store_get_cuts(control->config.store, run, &search->cut, 1, &count, reason);
}

static enum err search_older(struct control *control, struct reason *reason)
{
    struct control_search *search = &control->search;
    search->passed = true;
    enum err err =
        store_older_cut(control->config.store, search->run, search->cut.name, &search->cut, reason);
    if (err == ERR_NOT_FOUND)
        search->cut = (struct cut_record){0};
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* The search passes over what is damaged. Else it stays there and reads it again: the store is to
 * forget no cut that may be whole. */
static enum err not_read(struct control *control, uint64_t now_ns, enum err err,
                         struct reason *reason)
{
    struct control_search *search = &control->search;
    const struct cut_name name = search->cut.name;
    bool damaged = whole_cut_is_damage(err);
    if (damaged || search->again_ns == 0)
        log_warning(control->config.logger, "checkpoint cannot be read",
                    log_uint("generation", name.generation), log_uint("version", name.version),
                    log_text("err", err_name(err)), log_text("reason", reason->text),
                    log_text("next", damaged ? "an older one" : "again"));
    search->again_ns = damaged ? 0 : time_after_ms(now_ns, READ_AGAIN_MS);
    return damaged ? search_older(control, reason) : ERR_OK;
}

/* The store forgets the cuts that are newer, and the run goes back. What failed is late: on a full
 * disk, and where an operator's call met another error of the store. */
static enum err take_found(struct control *control, uint64_t now_ns, struct reason *reason)
{
    struct control_search *search = &control->search;
    enum err err = store_forget_cuts(control->config.store, control->term, search->run,
                                     search->cut.name, reason);
    bool late = search->late;
    search->late = err != ERR_OK;
    if (err == ERR_NO_SPACE && !late)
        log_warning(control->config.logger, "damaged checkpoints not forgotten",
                    log_uint("version", search->cut.name.version), log_text("err", err_name(err)),
                    log_text("reason", reason->text), log_text("next", "again"));
    if (search->late)
        return err == ERR_NO_SPACE ? ERR_OK : err;
    coordinator_cut_found(control->coordinator, control_ms(now_ns), &search->cut, search->unready);
    control_effects_end_search(control);
    return ERR_OK;
}

/* `whole`: the one that was read last is. */
static enum err finish_search(struct control *control, uint64_t now_ns, bool whole,
                              struct reason *reason)
{
    struct control_search *search = &control->search;
    if (whole && search->passed) {
        end_reading(search);
        return take_found(control, now_ns, reason);
    }
    coordinator_cut_found(control->coordinator, control_ms(now_ns), whole ? &search->cut : NULL,
                          search->unready);
    control_effects_end_search(control);
    return ERR_OK;
}

/* Whether the run that the search is for still needs a cut. */
static bool is_wanted(const struct control *control)
{
    return control->search.run == control->run->stored.run &&
           coordinator_wants_cut(control->coordinator);
}

/* A part of the cut that is next. *ret_over: it is whole, or there is none. */
static enum err read_next(struct control *control, uint64_t now_ns, bool *ret_whole, bool *ret_over,
                          struct reason *reason)
{
    struct control_search *search = &control->search;
    const struct cut_name *cut = &search->cut.name;
    while (cut->generation > 0 && cut->version > search->version_max)
        TRY(search_older(control, reason));
    *ret_over = cut->generation == 0;
    if (*ret_over)
        return ERR_OK;
    const struct checkpoint_name name = {cut->generation, cut->version};
    enum err err =
        whole_cut_read(&search->reader, control->run->checkpoint_dir, name, ret_whole, reason);
    if (err != ERR_OK)
        return not_read(control, now_ns, err, reason);
    search->again_ns = 0;
    *ret_over = *ret_whole;
    return ERR_OK;
}

void control_effects_search(struct control *control, uint64_t now_ns)
{
    struct reason reason = {0};
    bool whole = false, over = false;
    if (!is_wanted(control)) {
        control_effects_end_search(control);
        return;
    }
    enum err err = read_next(control, now_ns, &whole, &over, &reason);
    if (err == ERR_OK && over)
        err = finish_search(control, now_ns, whole, &reason);
    if (err != ERR_OK)
        control_effects_fail(control, err, &reason);
}

enum err control_effects_store_state(struct control *control, struct reason *reason)
{
    struct coordinator_status status;
    coordinator_status(control->coordinator, &status);
    enum err err = store_put_state(control->config.store, control->term, control->run->stored.run,
                                   status.state, status.reason, reason);
    control->state_late = err != ERR_OK;
    if (err == ERR_OK)
        coordinator_state_stored(control->coordinator);
    return err == ERR_NO_SPACE ? ERR_OK : err;
}

enum err control_effects_store_conviction(struct control *control,
                                          const struct conviction *conviction,
                                          struct reason *reason)
{
    enum err err = store_put_conviction(control->config.store, control->term,
                                        control->run->stored.run, conviction, reason);
    if (err != ERR_OK)
        control->convictions_late = true;
    return err == ERR_NO_SPACE ? ERR_OK : err;
}

enum err control_effects_store_stop(struct control *control, const char *why, struct reason *reason)
{
    enum err err =
        store_put_stop(control->config.store, control->term, control->run->stored.run, why, reason);
    control->stop_late = err != ERR_OK;
    if (control->stop_late)
        memmove(control->stop, why, strlen(why) + 1);
    return err == ERR_NO_SPACE ? ERR_OK : err;
}

/* Numerics are the first worker's for good, so no ticket is granted before. On a full disk
 * later. */
static enum err store_fingerprint(struct control *control, uint64_t now_ns, struct reason *reason)
{
    struct store_run *stored = &control->run->stored;
    enum err err = store_put_fingerprint(control->config.store, control->term, stored->run,
                                         control->fingerprint, reason);
    bool late = control->fingerprint_late;
    control->fingerprint_late = err != ERR_OK;
    if (err == ERR_NO_SPACE && !late)
        log_warning(control->config.logger, "fingerprint not stored",
                    log_text("err", err_name(err)), log_text("reason", reason->text),
                    log_text("next", "again"));
    if (err == ERR_OK) {
        stored->has_fingerprint = true;
        memcpy(stored->fingerprint, control->fingerprint, WIRE_DIGEST_BYTES);
        coordinator_fingerprint_stored(control->coordinator, control_ms(now_ns));
    }
    return err == ERR_NO_SPACE ? ERR_OK : err;
}

static enum err store_late_convictions(struct control *control, struct reason *reason)
{
    const struct conviction *conviction;
    control->convictions_late = false;
    for (uint32_t i = 0; !control->convictions_late &&
                         (conviction = coordinator_conviction(control->coordinator, i)) != NULL;
         i++)
        TRY(control_effects_store_conviction(control, conviction, reason));
    return ERR_OK;
}

static enum err take_late_found(struct control *control, uint64_t now_ns, struct reason *reason)
{
    if (is_wanted(control))
        return take_found(control, now_ns, reason);
    control_effects_end_search(control);
    return ERR_OK;
}

enum err control_effects_store_late(struct control *control, uint64_t now_ns, struct reason *reason)
{
    if (control->search.late)
        TRY(take_late_found(control, now_ns, reason));
    if (control->fingerprint_late)
        TRY(store_fingerprint(control, now_ns, reason));
    if (control->state_late)
        TRY(control_effects_store_state(control, reason));
    if (control->convictions_late)
        TRY(store_late_convictions(control, reason));
    if (control->stop_late)
        TRY(control_effects_store_stop(control, control->stop, reason));
    bool late = control->state_late || control->convictions_late || control->stop_late ||
                control->fingerprint_late || control->search.late;
    return late ? reason_set(reason, ERR_NO_SPACE,
                             "the store has no room for what is known of run %llu",
                             (unsigned long long)control->run->stored.run)
                : ERR_OK;
}

enum err control_effects_take_term(struct control *control, const struct server_report *hello,
                                   struct reason *reason)
{
    uint64_t newer = coordinator_term_for(control->coordinator, hello);
    if (newer == control->term)
        return ERR_OK;
    check(newer > control->term); /* P7 */
    enum err err = store_put_term(control->config.store, control->term, newer, reason);
    bool late = control->term_late;
    control->term_late = err == ERR_NO_SPACE;
    if (control->term_late && !late)
        log_warning(control->config.logger, "term not stored", log_uint("term", newer),
                    log_text("server", hello->hello.name), log_text("err", err_name(err)),
                    log_text("reason", reason->text), log_text("next", "again"));
    if (control->term_late)
        return reason_set(reason, err,
                          "it waits for room: the coordinator could not store term %llu: %s",
                          (unsigned long long)newer, err_text(err));
    if (err != ERR_OK)
        control_effects_fail(control, err, reason);
    TRY(err);
    control->term = newer;
    coordinator_take_term(control->coordinator, hello);
    return ERR_OK;
}

/* Training goes on: only a replay needs what is lost. */
static enum err store_order(struct control *control, const struct order_step *order,
                            struct reason *reason)
{
    TRY(order_log_add(&control->order, order, reason));
    if (control->order.steps_lost)
        log_warning(control->config.logger, "order log has a gap",
                    log_text("err", err_name(ERR_NO_SPACE)), log_text("reason", reason->text),
                    log_text("next", "the run cannot be replayed"));
    control->order.steps_lost = false;
    return ERR_OK;
}

static enum err carry_out_fact(struct control *control, uint64_t now_ns,
                               const struct effect *effect, struct reason *reason)
{
    switch (effect->kind) {
    case EFFECT_STORE_REWIND:
        return carry_out_rewind(control, now_ns, effect->generation, reason);
    case EFFECT_STORE_FINGERPRINT:
        memcpy(control->fingerprint, effect->fingerprint, WIRE_DIGEST_BYTES);
        return store_fingerprint(control, now_ns, reason);
    case EFFECT_STORE_CUT:
        return carry_out_cut(control, now_ns, effect, reason);
    case EFFECT_FIND_CUT:
        return begin_search(control, effect, reason);
    case EFFECT_STORE_CONVICTION:
        return control_effects_store_conviction(control, &effect->conviction, reason);
    case EFFECT_STORE_STOP:
        return control_effects_store_stop(control, effect->stop, reason);
    case EFFECT_STORE_ORDER:
        return store_order(control, &effect->order, reason);
    default:
        return control_effects_store_state(control, reason);
    }
}

/* Training's own time: from the first version that can be computed on to the end. */
static void watch_state(struct control *control, uint64_t now_ns, enum run_state state)
{
    struct coordinator_status status;
    if (state == RUN_TRAINING && control->training_ns == 0) {
        coordinator_status(control->coordinator, &status);
        control->training_ns = now_ns;
        control->samples_before = status.counters.samples + status.read_again;
    } else if (state != RUN_STARTING && state != RUN_TRAINING) {
        control->over_ns = now_ns;
        record_flush(&control->record);
        file_claim_release(&control->claim);
    }
}

/* To this daemon's own shards, or over a server's stream. */
static void pass_command(struct control *control, uint64_t link,
                         const struct server_command *command)
{
    struct server_command told = *command;
    const struct connection *server = connections_server(&control->connections, link);
    check(command->term == control->term); /* P7: the one that is stored */
    check(command->kind != SERVER_COMMIT || command->commit.term == command->term);
    check(command->kind == SERVER_COMMIT || command->move_count == 0); /* P11 */
    if (told.kind == SERVER_RECORDED)
        told.recorded.oldest = control->oldest;
    if (link == control->local_link)
        shards_command(control->config.shards, &told);
    else if (server != NULL) /* otherwise the end of its stream is under way to the core */
        connections_command(server, &told);
}

static void expel(struct control *control, uint64_t member)
{
    struct connection *connection = connections_member(&control->connections, member);
    if (connection != NULL)
        connections_send_away(&control->connections, connection, ERR_UNKNOWN_MEMBER,
                              "the membership has ended");
}

/* The newer hello may have come late, from a stream that the server has given up: ending the older
 * stream makes the server send its hello again. */
static void unlink_server(struct control *control, uint64_t link)
{
    struct connection *connection = connections_server(&control->connections, link);
    if (connection != NULL)
        connections_send_away(&control->connections, connection, ERR_CANCELLED,
                              "the server said hello elsewhere");
}

static void carry_out_answer(struct control *control, const struct effect *effect)
{
    struct buf response = {0};
    struct call *call = waiting_take_acquire(&control->waiting, effect->answer.member);
    if (call == NULL)
        return; /* nobody waits for it any more; the member asks again and gets the same answer */
    enum err err = effect->answer.err;
    struct acquire_reply reply = effect->answer.reply;
    struct peer peers[WIRE_PLACES_MAX];
    uint64_t attempts[WIRE_LEASES_MAX];
    if (reply.place.stages > 0)
        coordinator_places(control->coordinator, reply.ticket.attempt, effect->answer.member, peers,
                           &reply.places);
    reply.leases = attempts;
    reply.lease_count = coordinator_leases(control->coordinator, effect->answer.member, attempts);
    if (err == ERR_OK)
        err = wire_encode_acquire_reply(&reply, &response);
    replies_send(call, err, &response);
}

static void notice_places(struct control *control, const struct effect *effect)
{
    struct peer peers[WIRE_PLACES_MAX];
    struct member_notice notice = {.kind = NOTICE_PLACES, .text = ""};
    coordinator_places(control->coordinator, effect->places.attempt, effect->places.member, peers,
                       &notice.places);
    connections_notice_one(&control->connections, effect->places.member, &notice);
}

static void carry_out_word(struct control *control, uint64_t now_ns, const struct effect *effect)
{
    switch (effect->kind) {
    case EFFECT_COMMAND:
        pass_command(control, effect->command.link, &effect->command.command);
        break;
    case EFFECT_ANSWER:
        carry_out_answer(control, effect);
        break;
    case EFFECT_EXPEL:
        expel(control, effect->member);
        break;
    case EFFECT_UNLINK:
        unlink_server(control, effect->link);
        break;
    case EFFECT_NOTICE:
        if (effect->notice_to != 0)
            connections_notice_one(&control->connections, effect->notice_to, &effect->notice);
        else
            connections_notice(&control->connections, &effect->notice);
        break;
    case EFFECT_PLACES:
        notice_places(control, effect);
        break;
    case EFFECT_ADOPT:
        record_rewind(&control->record, effect->adopted.version);
        break;
    case EFFECT_STEP:
        if (effect->step.samples <= control->samples_before)
            control->training_ns = now_ns;
        record_step(&control->record, &effect->step);
        /* Before the commit is sent: P7: a successor adopts a decision that a shard holds. */
        record_write(&control->record);
        break;
    case EFFECT_VALIDATION:
        record_validation(&control->record, &effect->validation);
        break;
    default:
        log_event(control->config.logger, effect->log.warning ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
                  effect->log.text, (struct log_field[]){{0}});
    }
}

static void answer_checkpoints(struct control *control)
{
    struct coordinator_status status;
    if (control->waiting.checkpoint_count == 0)
        return;
    coordinator_status(control->coordinator, &status);
    bool over = !control_active(control);
    for (size_t i = control->waiting.count; i-- > 0;) {
        const struct waiting_call *waiting = &control->waiting.list[i];
        if (waiting->call->kind != CALL_CHECKPOINT)
            continue;
        struct buf response = {0};
        if (status.cut.version > waiting->after_version)
            replies_send(waiting_take(&control->waiting, i),
                         wire_encode_cut_name(&status.cut, &response), &response);
        else if (over)
            call_fail(waiting_take(&control->waiting, i), ERR_NO_RUN, "the run is over");
    }
}

/* In order; effects of a stored cut come behind. */
void control_effects_carry_out(struct control *control, uint64_t now_ns)
{
    struct reason reason = {0};
    bool cut = false;
    size_t count;
    coordinator_check_event(control->coordinator);
    const struct effect *effects = coordinator_effects(control->coordinator, &count);
    for (size_t i = 0; i < count && control->failed == ERR_OK; i++) {
        const struct effect *effect = &effects[i];
        if (effect->kind > EFFECT_STORE_STATE) {
            carry_out_word(control, now_ns, effect);
            continue;
        }
        cut = true;
        enum err err = carry_out_fact(control, now_ns, effect, &reason);
        if (err != ERR_OK)
            control_effects_fail(control, err, &reason);
        else if (effect->kind == EFFECT_STORE_STATE)
            watch_state(control, now_ns, effect->state.state);
        effects = coordinator_effects(control->coordinator, &count);
    }
    coordinator_effects_clear(control->coordinator);
    control_effects_end_if_not_synced(control, control->record.err, &control->record.reason);
    if (cut)
        answer_checkpoints(control);
}
