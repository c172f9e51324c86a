/* How a run begins, and goes on, on the coordinator's daemon. */
#include "server/control/control_start.h"

#include "common/data/data.h"
#include "common/files/checkpoint.h"
#include "common/files/run_directory.h"
#include "common/model/pipeline.h"
#include "common/scoped.h"
#include "common/time.h"
#include "server/control/control_effects.h"
#include "server/control/control_mesh.h"
#include "server/control/run_request.h"
#include "server/coordinator/cuts.h"
#include "server/disk/journal.h"

#include <string.h>

enum { CONTINUE_MS = 10000 /* until the store's run is tried again */ };
enum { READ_MS = 100 /* between two questions whether the stored run's data are read */ };

/* ---- its data ---- */

/* The data of the run, where the spec wants them served. ERR_SEARCHING: they are read. */
static enum err read_served(const struct control_run *run, struct data_reader *reader,
                            const struct data_wish *wish, uint64_t now_ns, struct reason *reason)
{
    if (!run->spec.data.serve)
        return ERR_OK;
    TRY(data_reader_ask(reader, wish, now_ns, reason));
    if (memcmp(data_digest(reader->data)->bytes, run->stored.data_digest, WIRE_DIGEST_BYTES) == 0)
        return ERR_OK;
    return reason_set(reason, ERR_DATA_SET,
                      "the data set that this daemon would serve differs from the run's");
}

/* Whoever has the data set that this start waits for may wait for the checkpoints that it holds. */
static void give_way(struct control *control, const struct data_wish *wish)
{
    if (!data_reader_is_for(&control->wanted_data, wish))
        whole_cut_end_call(&control->whole, false);
}

/* The run has its number, and read_served() was OK. */
static enum err serve_data(struct control *control, const struct control_run *run,
                           struct data_reader *reader)
{
    return service_serve(control->config.service, run->stored.run, control->key, &run->spec,
                         run->spec.data.serve ? data_reader_take(reader) : NULL);
}

/* ---- its directory ---- */

/* While a run goes on nobody else may choose or remove its checkpoints. Coordinators share the
 * claim: one may not have heard yet that its term is over. */
static enum err claim_directory(const char *directory, struct file_claim *ret_claim,
                                struct reason *reason)
{
    scoped(buf_release) struct buf path = {0};
    TRY(buf_printf(&path, "%s/lock", directory));
    enum err err = file_claim_take((const char *)path.data, true, ret_claim, reason);
    if (err == ERR_EXISTS)
        return reason_set(reason, ERR_BUSY, "%s: roost checkpoint works in it", directory);
    return err;
}

/* A run that another store has may go on there: its coordinator is cut off from its operators, and
 * still reaches the directory. Successors of that one have its store, and do not come here. */
static enum err claim_adopted(const char *directory, struct file_claim *ret_claim,
                              struct reason *reason)
{
    scoped(buf_release) struct buf path = {0};
    TRY(buf_printf(&path, "%s/lock", directory));
    enum err err = file_claim_take((const char *)path.data, false, ret_claim, reason);
    if (err == ERR_EXISTS && run_directory_use(directory) == RUN_DIRECTORY_EDITED)
        return reason_set(reason, ERR_BUSY, "%s: roost checkpoint works in it", directory);
    if (err == ERR_EXISTS)
        return reason_set(reason, ERR_BUSY,
                          "%s: another coordinator goes on with this run: stop the run there, or "
                          "that daemon, or its machine",
                          directory);
    return err;
}

static enum err judge_adopted(const char *directory, struct reason *reason)
{
    struct file_claim claim;
    TRY(claim_adopted(directory, &claim, reason));
    file_claim_release(&claim);
    return ERR_OK;
}

static enum err remove_journal(const char *checkpoint_dir, struct reason *reason)
{
    scoped(buf_release) struct buf path = {0};
    TRY(buf_printf(&path, "%s/" JOURNAL_FOLDER, checkpoint_dir));
    return journal_remove(&file_ops_real, (const char *)path.data, reason);
}

/* What an async run's servers have logged follows the newest cut, not the chosen one. The
 * choice of the newest itself, which takes back another, loses nothing. `forgotten`: the store had a
 * newer one; after a crash their folders say so. */
static enum err drop_journal(const char *checkpoint_dir, bool forgotten, struct reason *reason)
{
    scoped(checkpoint_names_release) struct checkpoint_names names = {0};
    TRY(checkpoint_list(checkpoint_dir, &names, reason));
    return forgotten || names.set_aside > 0 ? remove_journal(checkpoint_dir, reason) : ERR_OK;
}

/* The run goes on from the cut that an operator chose. What is newer is forgotten: first by the
 * store, then in the rows, at last on the disk; a crash in between begins this anew. */
static enum err take_chosen(struct control *control, const struct control_run *run,
                            struct record *record, struct coordinator_past *past,
                            struct reason *reason)
{
    struct cut_name cut = past->cut.name;
    struct store *store = control->config.store;
    struct coordinator_past newest;
    TRY(store_get_past(store, run->stored.run, &newest, reason));
    TRY(store_forget_cuts(store, control->term, run->stored.run, cut, reason));
    record_rewind(record, cut.version);
    TRY(record_sync(record, reason)); /* on a full disk this is begun anew, too */
    past->recorded = cut.version;     /* a server that is further has nobody's rows, and rewinds */
    TRY(drop_journal(run->checkpoint_dir, cuts_is_newer(newest.cut.name, cut), reason));
    TRY(checkpoint_take_chosen(run->checkpoint_dir, reason));
    log_warning(control->config.logger, "checkpoint restored",
                log_uint("generation", cut.generation), log_uint("version", cut.version),
                log_text("next", "go on from it"));
    return ERR_OK;
}

/* What is written beside the checkpoints. */
struct logs {
    struct control *control;
    const struct control_run *run;
    uint64_t version; /* that the run goes on from */
    uint64_t generation;
    struct record record;
    struct order_log order; /* ssp */
    uint64_t recorded;
};

static enum err open_logs(void *owner, struct reason *reason)
{
    struct logs *logs = owner;
    const struct store_run *stored = &logs->run->stored;
    const struct record_run about = {.directory = stored->directory,
                                     .spec = stored->spec,
                                     .version = logs->version,
                                     .generation = logs->generation,
                                     .epoch_samples = stored->samples};
    TRY(record_open(&logs->record, &about, &logs->recorded, reason));
    if (!logs->run->settings.ssp)
        return ERR_OK;
    /* What an earlier start here has not written yet must not follow the rows that this one keeps. */
    ignore(order_log_sync(&logs->control->order, NULL)); /* nor does a recorded cut need it */
    return order_log_open(&logs->order, stored->directory, logs->version, reason);
}

static void logs_release(struct logs *logs)
{
    record_release(&logs->record);
    order_log_release(&logs->order);
}

/* P7: whoever opens them takes the place of those that another coordinator has open. So they are
 * opened while the term is ours. */
static enum err open_logs_in_term(struct control *control, struct logs *logs, struct reason *reason)
{
    const struct store_beside beside = {open_logs, logs};
    enum err err = store_write_beside(control->config.store, control->term, &beside, reason);
    if (err != ERR_OK)
        logs_release(logs);
    if (err == ERR_OLD_TERM)
        control_effects_fail(control, err, reason);
    return err;
}

/* Those of the run that recorded the cuts: after a crash behind their adoption nobody knows that it
 * did. */
static enum err adopt_settings(struct control *control, uint64_t run, uint64_t by,
                               struct reason *reason)
{
    struct store *store = control->config.store;
    scoped(store_run_release) struct store_run other = {0};
    TRY(store_get_run(store, by, &other, reason));
    TRY(store_put_spec(store, control->term, run, other.spec, reason));
    return other.has_fingerprint
               ? store_put_fingerprint(store, control->term, run, other.fingerprint, reason)
               : ERR_OK;
}

/* Before the run goes on from them, because what the store lacks is removed with older ones. */
static enum err adopt_cuts(struct control *control, const struct store_run *stored,
                           struct reason *reason)
{
    struct store *store = control->config.store;
    scoped(control_cuts_release) struct control_cuts lacks = {0};
    TRY(control_past_lacks(store, stored, &lacks, reason));
    if (lacks.count == 0)
        return ERR_OK;
    const struct cut_name newest = lacks.list[0].name;
    const struct store_cuts cuts = {lacks.list, lacks.count};
    if (lacks.by != 0)
        TRY(adopt_settings(control, stored->run, lacks.by, reason));
    TRY(store_adopt_cuts(store, control->term, stored->run, cuts, lacks.alone, reason));
    log_warning(control->config.logger, "checkpoints were not in the store",
                log_uint("generation", newest.generation), log_uint("version", newest.version),
                log_text("next", "take them from the run's directory"));
    return ERR_OK;
}

/* Opens what is written beside the checkpoints; *ret_past: what the run goes on from. */
static enum err open_claimed(struct control *control, const struct control_run *run,
                             struct coordinator_past *ret_past, struct reason *reason)
{
    const struct store_run *stored = &run->stored;
    bool chosen;
    TRY(adopt_cuts(control, stored, reason));
    TRY(control_past_find(control->config.store, stored, ret_past, &chosen, reason));
    struct logs logs = {.control = control,
                        .run = run,
                        .version = ret_past->cut.name.version,
                        .generation = ret_past->generation};
    TRY(open_logs_in_term(control, &logs, reason));
    ret_past->recorded = logs.recorded;
    enum err err =
        chosen ? take_chosen(control, run, &logs.record, ret_past, reason) : (enum err)ERR_OK;
    if (err != ERR_OK) {
        logs_release(&logs);
        return err;
    }
    record_release(&control->record);
    order_log_release(&control->order);
    control->record = logs.record;
    control->order = logs.order;
    return ERR_OK;
}

/* One that is not there may lie on a disk that is not mounted yet: a new one in its place would hide
 * behind that disk. A run without a checkpoint has nothing there, and a crash may have taken its new
 * folder. */
static enum err find_directory(const struct control *control, const struct store_run *stored,
                               struct reason *reason)
{
    struct cut_name oldest;
    struct file_info info;
    const char *directory = stored->directory;
    enum err err = store_oldest_cut(control->config.store, stored->run, &oldest, reason);
    if (err == ERR_NOT_FOUND)
        return file_make_dirs(directory, 0755, reason);
    TRY(err);
    err = file_stat(directory, &info, reason);
    return err == ERR_NOT_FOUND ? reason_set(reason, err,
                                             "%s is missing, with the run's checkpoints: is its "
                                             "disk mounted?",
                                             directory)
                                : err;
}

/* A start that fails leaves all to the run that goes on in this directory. */
static enum err open_directory(struct control *control, const struct control_run *run,
                               struct coordinator_past *ret_past, struct reason *reason)
{
    struct file_claim claim;
    TRY(find_directory(control, &run->stored, reason));
    TRY(claim_directory(run->stored.directory, &claim, reason));
    enum err err = open_claimed(control, run, ret_past, reason);
    if (err != ERR_OK) {
        file_claim_release(&claim);
        return err;
    }
    file_claim_release(&control->claim);
    control->claim = claim;
    return ERR_OK;
}

/* ---- what its operator may want to know ---- */

/* It trains as well, with gaps. */
static void note_waits(const struct control *control, const struct control_run *run)
{
    const struct spec *spec = &run->spec;
    const struct schedule_shape shape =
        pipeline_shape(spec, run->model.units_count, spec->train.node_slots);
    struct reason why;
    if (pipeline_waits(&shape, spec, &why))
        log_warning(control->config.logger, "the delay does not keep all stages busy",
                    log_text("why", why.text), log_text("next", "go on"));
}

/* It trains as well, with members that all do the same. */
static void note_nothing_shared(const struct control *control, const struct control_run *run)
{
    uint32_t ranks = spec_mesh_ranks(&run->spec.mesh);
    if (ranks > 1 && !control_mesh_shares(&run->mesh, &run->model))
        log_warning(control->config.logger, "the workers of a place have nothing to share",
                    log_uint("mesh.tensor", ranks),
                    log_text("why", "all layers of the model are too small to be split"),
                    log_uint("weights_min", MODEL_UNIT_CUT_MIN), log_text("next", "go on"));
}

/* Whether somebody removed rows that led to the checkpoint which the run goes on from. */
static bool lacks_rows(const struct control *control)
{
    struct coordinator_status status;
    coordinator_status(control->coordinator, &status);
    return !step_log_has_all(&control->record.steps, status.cut.version);
}

/* It trains as well: the rows are for people. */
static void note_missing_rows(const struct control *control, const struct control_run *run)
{
    if (lacks_rows(control))
        log_warning(control->config.logger, "steps are missing in the run's log",
                    log_text("directory", run->stored.directory),
                    log_text("next", "go on; roost ledger names the steps"));
}

/* ---- a start ---- */

/* The run has its number. */
static enum err open_run(struct control *control, struct control_run *run,
                         struct coordinator_past *ret_past, struct reason *reason)
{
    TRY(store_run_secret(control->config.store, control->term, run->stored.run,
                         run->settings.secret, reason));
    return open_directory(control, run, ret_past, reason);
}

/* P12: what was logged goes before the store has the new settings: after a crash behind that nobody
 * knows that there were others. */
static enum err open_stored(struct control *control, const struct control_plan *plan,
                            struct coordinator_past *ret_past, struct reason *reason)
{
    TRY(open_run(control, plan->run, ret_past, reason));
    return plan->drops_journal ? remove_journal(plan->run->checkpoint_dir, reason) : ERR_OK;
}

/* The same of a run that the store does not have yet. */
static enum err drop_adopted_journal(const struct control_plan *plan, struct reason *reason)
{
    struct file_claim claim;
    if (!plan->drops_journal)
        return ERR_OK;
    TRY(claim_adopted(plan->run->stored.directory, &claim, reason));
    enum err err = remove_journal(plan->run->checkpoint_dir, reason);
    file_claim_release(&claim);
    return err;
}

/* Gives the core the run, whose facts are stored and whose directory is open. */
static enum err begin_run(struct control *control, uint64_t now_ns, struct control_run *take_run,
                          const struct coordinator_past *past, struct reason *reason)
{
    struct control_run *run = take_run;
    enum err err =
        coordinator_start(control->coordinator, control_ms(now_ns), &run->settings, past, reason);
    if (err != ERR_OK) {
        control_run_free(run);
        return err;
    }
    note_missing_rows(control, run);
    note_waits(control, run);
    note_nothing_shared(control, run);
    control_run_free(control->run);
    control->run = run;
    control->told = (struct control_told){0};
    control->continue_ns = TIME_NEVER;
    control->costs = (struct costs){0};
    control->training_ns = control->over_ns = 0;
    control_effects_carry_out(control, now_ns);
    return control->failed;
}

/* ---- the run that an operator starts ---- */

/* Runs that the store calls active and that nobody has resumed, as one whose directory has moved, end:
 * no later start goes on with one beside this run. */
static enum err end_left(struct control *control, uint64_t run, struct reason *reason)
{
    return store_stop_others(control->config.store, control->term, run,
                             "another run was begun in its place", reason);
}

static enum err add_new(struct control *control, struct control_plan *plan, struct reason *reason)
{
    struct control_run *run = plan->run;
    const struct store_past past = {&plan->past, {plan->older.list, plan->older.count}};
    TRY(store_add_run(control->config.store, control->term, &run->stored,
                      plan->has_past ? &past : NULL, reason));
    run->settings.run = run->stored.run;
    return ERR_OK;
}

/* The directory is open. A stop that was asked for, and what the new settings change, are no more in
 * *past. */
static enum err change_stored(struct control *control, const struct control_run *run,
                              struct coordinator_past *past, struct reason *reason)
{
    struct store *store = control->config.store;
    uint64_t recorded = past->recorded, generation = past->generation;
    TRY(store_change_run(store, control->term, &run->stored, reason));
    TRY(store_get_past(store, run->stored.run, past, reason));
    past->recorded = recorded;
    past->generation = generation; /* the directory may have a later one than the store */
    return ERR_OK;
}

/* The plan's run is stored. */
static enum err begin_stored(struct control *control, uint64_t now_ns, struct control_plan *plan,
                             const struct coordinator_past *past, struct reason *reason)
{
    struct control_run *run = plan->run;
    TRY(serve_data(control, run, &control->wanted_data));
    plan->run = NULL;
    return begin_run(control, now_ns, run, past, reason);
}

/* The store has the run, and begins, or its failure is stored, so that no restart begins it. A stored
 * run is changed when all is open: a successor may go on with it as it was. */
static enum err begin_plan(struct control *control, uint64_t now_ns, struct control_plan *plan,
                           struct reason *reason)
{
    struct store *store = control->config.store;
    struct coordinator_past past;
    struct control_run *run = plan->run;
    enum err err;
    if (plan->is_new) {
        TRY(drop_adopted_journal(plan, reason));
        TRY(add_new(control, plan, reason));
        err = open_run(control, run, &past, reason);
    } else {
        TRY(open_stored(control, plan, &past, reason));
        TRY(change_stored(control, run, &past, reason));
        err = ERR_OK;
    }
    uint64_t number = run->stored.run;
    if (err == ERR_OK)
        err = end_left(control, number, reason);
    if (err == ERR_OK)
        err = begin_stored(control, now_ns, plan, &past, reason);
    if (err == ERR_OK || control->failed != ERR_OK)
        return err;
    /* The caller returns the first error. */
    struct reason second = {0};
    control_effects_end_if_not_synced(
        control, store_put_state(store, control->term, number, RUN_FAILED, reason->text, &second),
        &second);
    return err;
}

/* Two runs would go on beside each other. `run`: the number of the one that is resumed; 0: it has none. */
static enum err judge_beside_expected(const struct control *control, uint64_t run,
                                      struct reason *reason)
{
    const struct control_told *told = &control->told;
    if (!control_expects_run(control) || (run != 0 && run == told->run))
        return ERR_OK;
    return reason_set(reason, ERR_BUSY,
                      "the stored run cannot go on yet: %s; it is tried again, and a second `roost "
                      "stop` ends it",
                      told->reason);
}

enum err control_start_run(struct control *control, uint64_t now_ns,
                           const struct start_run_request *request, struct buf *response,
                           struct reason *reason)
{
    scoped(control_plan_release) struct control_plan plan = {0};
    struct run_request wanted;
    struct data_reader *reader = &control->wanted_data;
    if (control_reads_stored(control))
        return reason_set(reason, ERR_SEARCHING,
                          "the coordinator reads the data set of run %llu, which goes on then",
                          (unsigned long long)control->told.run);
    if (!request->resume)
        TRY(judge_beside_expected(control, 0, reason));
    TRY(coordinator_may_start_any(control->coordinator, reason));
    const struct run_places places = {control->config.store, control->config.run_dir,
                                      control->config.folder};
    TRY(run_request_init(&wanted, request, &places, reader, now_ns, reason));
    const struct control_wish wish = {.request = &wanted.request,
                                      .directory = wanted.directory,
                                      .spelled = wanted.spelled,
                                      .chosen = request->directory[0] == 0,
                                      .whole = &control->whole,
                                      .now_ns = now_ns};
    TRY(control_run_plan(control->config.store, &wish, &plan, reason));
    TRY(judge_beside_expected(control, plan.is_new ? 0 : plan.run->stored.run, reason));
    TRY(coordinator_may_start(control->coordinator, &plan.run->settings, &plan.past, reason));
    if (plan.has_past)
        TRY(judge_adopted(wish.directory, reason));
    enum err err = control_effects_store_late(control, now_ns, reason);
    control_effects_carry_out(control, now_ns);
    TRY(err); /* later it would be taken for the new run's */
    /* What was read for its facts is what is served. */
    const struct data_wish served = {wanted.reads ? request->spec : plan.run->stored.spec,
                                     wanted.reads};
    err = read_served(plan.run, reader, &served, now_ns, reason);
    if (err == ERR_SEARCHING)
        give_way(control, &served);
    TRY(err);
    if (plan.has_past)
        TRY(control_past_read_older(&control->whole, &plan.older, reason));
    if (!request->resume)
        TRY(control_run_check_weights(plan.run, control->local_link == 0, reason));
    if (plan.is_new) /* before the store has it */
        TRY(file_make_dirs(wish.directory, 0755, reason));
    TRY(begin_plan(control, now_ns, &plan, reason));
    if (plan.has_past && control->whole.passed.bytes > 0)
        log_warning(control->config.logger, "damaged checkpoints passed over",
                    log_text("reason", (const char *)control->whole.passed.data),
                    log_uint("version", plan.past.cut.name.version));
    struct start_run_reply reply = {.run = control->run->stored.run};
    if (lacks_rows(control))
        TRY(control_plan_note(&plan, "steps are missing in the run's log (steps.jsonl, steps/): "
                                     "roost ledger names them"));
    reply.notes = (const char *)plan.notes.data;
    return wire_encode_start_run_reply(&reply, response);
}

/* ---- the store's run ---- */

/* The status shows the run until it goes on, and an operator may stop it. */
static void tell_of_stored(struct control *control, const struct store_run *stored)
{
    struct control_told *told = &control->told;
    struct reason reason = {0};
    bool known = told->run == stored->run;
    if (known && control_reads_stored(control))
        return;
    if (control_past_told(control->config.store, stored, told, &reason) == ERR_OK || known)
        return;
    *told = (struct control_told){.run = stored->run};
    log_warning(control->config.logger, "the store's run does not read",
                log_text("reason", reason.text), log_text("next", "say only that it starts"));
}

static void tell_why_not(struct control *control, enum err err, const struct reason *reason)
{
    struct control_told *told = &control->told;
    told->state = RUN_STARTING;
    snprintf(told->reason, sizeof told->reason, "%.*s", COORDINATOR_TEXT_BYTES - 1,
             err == ERR_SEARCHING ? "the coordinator reads its data set"
                                  : reason_text(err, reason));
}

static enum err continue_stored(struct control *control, uint64_t now_ns, struct store_run *stored,
                                struct reason *reason)
{
    struct control_run *run;
    struct coordinator_past past;
    TRY(control_run_new(stored, &run, reason));
    run->settings.restarts = true;
    struct data_reader *reader = &control->stored_data;
    const struct data_wish served = {.spec = run->stored.spec};
    enum err err = read_served(run, reader, &served, now_ns, reason);
    if (err == ERR_OK)
        err = serve_data(control, run, reader);
    if (err != ERR_SEARCHING)
        data_reader_forget(reader);
    if (err != ERR_OK) {
        control_run_free(run);
        return err;
    }
    err = open_run(control, run, &past, reason);
    if (err != ERR_OK) {
        control_run_free(run);
        return err;
    }
    return begin_run(control, now_ns, run, &past, reason);
}

/* Who watched a run while the daemon was started again asks how it ended. */
static void recall_ended(struct control *control)
{
    scoped(store_run_release) struct store_run stored = {0};
    struct reason reason = {0};
    enum err err = store_find_newest_run(control->config.store, &stored, &reason);
    if (err == ERR_OK)
        err = control_past_told(control->config.store, &stored, &control->told, &reason);
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        log_warning(control->config.logger, "the newest run does not read",
                    log_text("reason", reason.text), log_text("next", "say nothing of it"));
}

/* Whether it is another run than this daemon was started for: the store comes from a folder that was
 * moved or copied, and the run may go on where that was. */
static bool is_left(const struct control *control, const struct store_run *stored)
{
    const char *only = control->config.continue_only, *folder = control->config.folder;
    char wanted[WIRE_TEXT_BYTES_MAX + 1], there[WIRE_TEXT_BYTES_MAX + 1];
    if (only == NULL ||
        (run_directory_name(only, folder, wanted, sizeof wanted, NULL) == ERR_OK &&
         run_directory_name(stored->directory, folder, there, sizeof there, NULL) == ERR_OK &&
         strcmp(wanted, there) == 0))
        return false;
    log_warning(control->config.logger, "run not continued", log_uint("run", stored->run),
                log_text("directory", stored->directory), log_text("continue_only", only),
                log_text("next", "wait for a resume"));
    return true;
}

/* The active run of the place that this daemon was started for; ERR_NOT_FOUND: there is none. */
static enum err find_own(const struct control *control, struct store_run *ret_stored,
                         struct reason *reason)
{
    scoped(store_run_release) struct store_run run = {0};
    const char *only = control->config.continue_only;
    char name[WIRE_TEXT_BYTES_MAX + 1];
    if (only == NULL ||
        run_directory_name(only, control->config.folder, name, sizeof name, NULL) != ERR_OK)
        return ERR_NOT_FOUND;
    TRY(store_find_run(control->config.store, name, &run, reason));
    if (run.state != RUN_STARTING && run.state != RUN_TRAINING)
        return ERR_NOT_FOUND;
    *ret_stored = run;
    run = (struct store_run){0};
    return ERR_OK;
}

/* A crash may have come between the begin of one run and the end of another, which was active at
 * another place. */
static enum err find_stored(const struct control *control, struct store_run *ret_stored,
                            struct reason *reason)
{
    enum err err = find_own(control, ret_stored, reason);
    return err == ERR_NOT_FOUND ? store_find_active_run(control->config.store, ret_stored, reason)
                                : err;
}

void control_continue(struct control *control, uint64_t now_ns)
{
    scoped(store_run_release) struct store_run stored = {0};
    struct reason reason = {0};
    control->continue_ns = TIME_NEVER;
    if (control_active(control))
        return;
    enum err err = find_stored(control, &stored, &reason);
    bool left = err == ERR_OK && is_left(control, &stored);
    coordinator_expect_run(control->coordinator, err != ERR_NOT_FOUND && !left);
    if (left)
        return;
    if (err == ERR_NOT_FOUND) {
        recall_ended(control);
        return;
    }
    uint64_t number = stored.run;
    if (err == ERR_OK) {
        tell_of_stored(control, &stored);
        err = continue_stored(control, now_ns, &stored, &reason);
    }
    control_effects_end_if_not_synced(control, err, &reason);
    if (err == ERR_OK || control->failed != ERR_OK)
        return;
    tell_why_not(control, err, &reason);
    if (err == ERR_SEARCHING) {
        control->continue_ns = time_after_ms(now_ns, READ_MS);
        return;
    }
    log_error(control->config.logger, "run not continued", log_uint("run", number),
              log_text("err", err_name(err)), log_text("reason", reason.text),
              log_text("next", "try again"), log_uint("after_ms", CONTINUE_MS));
    control->continue_ns = time_after_ms(now_ns, CONTINUE_MS);
}
