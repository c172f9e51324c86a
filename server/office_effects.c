/* The store, answers, logs and commands that effects mean. */
#include "server/office_effects.h"

#include "common/checkpoint.h"
#include "server/answers.h"

#include <string.h>

void office_effects_fail(struct office *office, enum err err, const struct reason *reason)
{
    office->failed = err;
    log_error(office->config.logger, "store failed", log_text("err", err_name(err)),
              log_text("reason", reason->text), log_text("next", "end"));
}

/* The cut's file for readers, then the fact. */
static enum err store_cut(struct office *office, const struct cut_record *cut,
                          struct reason *reason)
{
    const struct office_run *run = office->run;
    struct checkpoint_record record = {
        .name = {cut->name.generation, cut->name.version},
        .run = run->stored.run,
        .counters = {cut->counters.samples, cut->counters.applied, cut->counters.skips_in_row},
        .spec = run->stored.spec,
        .server_count = cut->server_count,
    };
    memcpy(record.fingerprint.bytes, run->stored.fingerprint, WIRE_DIGEST_BYTES);
    memcpy(record.data_digest.bytes, run->stored.data_digest, WIRE_DIGEST_BYTES);
    for (uint32_t i = 0; i < cut->server_count; i++)
        memcpy(record.manifests[i].bytes, cut->servers[i].digest, WIRE_DIGEST_BYTES);
    record_sync(&office->record);
    TRY(order_log_sync(&office->order, reason));
    TRY(checkpoint_record(&file_ops_real, run->checkpoint_dir, &record, reason));
    return store_put_cut(office->config.store, office->term, run->stored.run, cut,
                         run->spec.checkpoint.keep, reason);
}

static enum err carry_out_cut(struct office *office, uint64_t now_ns, const struct effect *effect,
                              struct reason *reason)
{
    struct cut_name name = effect->cut->name;
    enum err err = store_cut(office, effect->cut, reason);
    if (err != ERR_OK && err != ERR_NO_SPACE)
        return err;
    if (err != ERR_OK)
        log_warning(office->config.logger, "cut not written", log_text("err", err_name(err)),
                    log_text("reason", reason->text), log_text("next", "go on"));
    coordinator_cut_stored(office->coordinator, office_ms(now_ns), name, err);
    return ERR_OK;
}

enum err office_effects_store_state(struct office *office, struct reason *reason)
{
    struct coordinator_status status;
    coordinator_status(office->coordinator, &status);
    enum err err = store_put_state(office->config.store, office->term, office->run->stored.run,
                                   status.state, status.reason, reason);
    office->state_late = err == ERR_NO_SPACE;
    return office->state_late ? ERR_OK : err;
}

static enum err carry_out_fact(struct office *office, uint64_t now_ns, const struct effect *effect,
                               struct reason *reason)
{
    struct store *store = office->config.store;
    struct store_run *stored = &office->run->stored;
    struct coordinator_status status;
    switch (effect->kind) {
    case EFFECT_STORE_REWIND:
        coordinator_status(office->coordinator, &status);
        record_rewind(&office->record, status.version);
        TRY(order_log_rewind(&office->order, status.version, reason));
        return store_put_generation(store, office->term, effect->generation, reason);
    case EFFECT_STORE_FINGERPRINT:
        stored->has_fingerprint = true;
        memcpy(stored->fingerprint, effect->fingerprint, WIRE_DIGEST_BYTES);
        return store_put_fingerprint(store, office->term, stored->run, effect->fingerprint, reason);
    case EFFECT_STORE_CUT:
        return carry_out_cut(office, now_ns, effect, reason);
    case EFFECT_STORE_ORDER:
        return order_log_add(&office->order, &effect->order, reason);
    default:
        return office_effects_store_state(office, reason);
    }
}

/* Training's own time: from the first version that can be computed on to the end. */
static void watch_state(struct office *office, uint64_t now_ns, enum run_state state)
{
    struct coordinator_status status;
    if (state == RUN_TRAINING && office->training_ns == 0) {
        coordinator_status(office->coordinator, &status);
        office->training_ns = now_ns;
        office->samples_before = status.counters.samples;
    } else if (state != RUN_STARTING && state != RUN_TRAINING) {
        office->over_ns = now_ns;
        record_flush(&office->record);
    }
}

/* To this daemon's own shards, or over a server's stream. */
static void send_command(struct office *office, uint64_t link, const struct server_command *command)
{
    const struct guest *server = guests_server(&office->guests, link);
    if (link == office->local_link)
        shards_command(office->config.shards, command);
    else if (server != NULL) /* otherwise its end is under way to the core */
        guests_command(server, command);
}

static void expel(struct office *office, uint64_t member)
{
    struct guest *guest = guests_member(&office->guests, member);
    if (guest != NULL)
        guests_send_away(&office->guests, guest, ERR_UNKNOWN_MEMBER, "the membership has ended");
}

/* Hello may have come late, from a stream that the server has given up: it is to say it again. */
static void unlink_server(struct office *office, uint64_t link)
{
    struct guest *guest = guests_server(&office->guests, link);
    if (guest != NULL)
        guests_send_away(&office->guests, guest, ERR_CANCELLED, "the server said hello elsewhere");
}

static void carry_out_answer(struct office *office, const struct effect *effect)
{
    struct buf response = {0};
    struct call *call = waiting_take_acquire(&office->waiting, effect->answer.member);
    if (call == NULL)
        return; /* nobody waits for it any more; asked again, it is the same */
    enum err err = effect->answer.err;
    if (err == ERR_OK)
        err = wire_encode_acquire_reply(&effect->answer.reply, &response);
    answers_reply(call, err, &response);
}

static void carry_out_word(struct office *office, const struct effect *effect)
{
    switch (effect->kind) {
    case EFFECT_COMMAND:
        send_command(office, effect->command.link, &effect->command.command);
        break;
    case EFFECT_ANSWER:
        carry_out_answer(office, effect);
        break;
    case EFFECT_EXPEL:
        expel(office, effect->member);
        break;
    case EFFECT_UNLINK:
        unlink_server(office, effect->link);
        break;
    case EFFECT_NOTICE:
        guests_notice(&office->guests, &effect->notice);
        break;
    case EFFECT_ADOPT:
        record_rewind(&office->record, effect->adopted.version);
        break;
    case EFFECT_STEP:
        record_step(&office->record, &effect->step);
        record_write(&office->record); /* before its commands: a successor may adopt the step */
        break;
    case EFFECT_VALIDATION:
        record_validation(&office->record, &effect->validation);
        break;
    default:
        log_event(office->config.logger, effect->log.warning ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
                  effect->log.text, (struct log_field[]){{0}});
    }
}

static void answer_checkpoints(struct office *office)
{
    struct coordinator_status status;
    coordinator_status(office->coordinator, &status);
    bool over = !office_active(office);
    for (size_t i = office->waiting.count; i-- > 0;) {
        const struct waiting_call *waiting = &office->waiting.list[i];
        if (waiting->call->kind != CALL_CHECKPOINT)
            continue;
        struct buf response = {0};
        if (status.cut.version > waiting->after_version)
            answers_reply(waiting_take(&office->waiting, i),
                          wire_encode_cut_name(&status.cut, &response), &response);
        else if (over)
            call_fail(waiting_take(&office->waiting, i), ERR_NO_RUN, "the run is over");
    }
}

/* In order; what a stored cut adds comes behind. */
void office_effects_carry_out(struct office *office, uint64_t now_ns)
{
    struct reason reason = {0};
    bool cut = false;
    size_t count;
    const struct effect *effects = coordinator_effects(office->coordinator, &count);
    for (size_t i = 0; i < count && office->failed == ERR_OK; i++) {
        const struct effect *effect = &effects[i];
        if (effect->kind > EFFECT_STORE_STATE) {
            carry_out_word(office, effect);
            continue;
        }
        cut = true;
        enum err err = carry_out_fact(office, now_ns, effect, &reason);
        if (err != ERR_OK)
            office_effects_fail(office, err, &reason);
        else if (effect->kind == EFFECT_STORE_STATE)
            watch_state(office, now_ns, effect->state.state);
        effects = coordinator_effects(office->coordinator, &count);
    }
    coordinator_effects_clear(office->coordinator);
    if (cut)
        answer_checkpoints(office);
}
