/* The run that the coordinator's daemon holds. */
#include "server/control/control_run.h"

#include "common/file.h"
#include "common/files/checkpoint.h"
#include "common/scoped.h"
#include "common/settings/config.h"
#include "kernels/kernels.h"
#include "server/disk/journal.h"
#include "server/disk/prepared.h"
#include "server/disk/restore.h"

#include <string.h>

/* A parameter larger than this is shared between servers. */
enum { PARAMETER_BYTES_MAX = 32 * 1024 * 1024 };

/* ---- the grid and the core's view ---- */

static enum err fill_parameters(struct control_run *run)
{
    const struct model *model = &run->model;
    run->parameters = calloc(model->parameters_count, sizeof *run->parameters);
    if (run->parameters == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < model->parameters_count; i++) {
        const struct model_parameter *parameter = &model->parameters[i];
        run->parameters[i] = (struct map_parameter){
            .chunk_first = parameter->chunk_first,
            .chunk_count = parameter->chunks_count,
            .chunk_bytes = (uint64_t)model->chunks[parameter->chunk_first].weights * sizeof(float),
            .bytes = parameter->weights * sizeof(float),
        };
    }
    return ERR_OK;
}

static uint64_t held_out(const struct spec *spec, uint64_t all)
{
    uint64_t limit = spec->train.validation_samples;
    return limit > 0 && limit < all ? limit : all;
}

uint64_t control_run_held_out(const struct control_run *run)
{
    return held_out(&run->spec, run->stored.validation_samples);
}

static void fill_settings(struct control_run *run)
{
    const struct spec *spec = &run->spec;
    bool lossy = spec->train.precision != SPEC_FP32;
    uint32_t node_slots = spec->train.node_slots;
    run->settings = (struct coordinator_run){
        .run = run->stored.run,
        .steps = spec->train.steps,
        .servers_min = run->stored.servers_min,
        .slots = spec->train.slots,
        .slot_samples = spec->train.slot_samples,
        .delay = spec_staleness(spec),
        .async = spec->consistency.kind == SPEC_ASYNC,
        .ssp = spec->consistency.kind == SPEC_SSP,
        .window = spec->consistency.window,
        .node_slots = lossy && node_slots == 0 ? 1 : node_slots,
        .chosen_slots_max = run->mesh.node_slots_max,
        .audit = spec->train.audit,
        .audit_rewind = spec->train.audit_rewind,
        .numerics_any = spec->numerics == SPEC_ANY,
        .data_served = spec->data.serve,
        .validate_every = spec->train.validate_every,
        .validation_samples = control_run_held_out(run),
        .cut_every = spec->checkpoint.every_steps,
        .cut_bytes = prepared_cut_bytes(spec, &run->model),
        .place_count = spec->mesh.stages,
        .places = run->mesh.places,
        .place_ranks = spec->mesh.ranks,
        .chunk_ranks = run->mesh.chunk_ranks,
        .boundary_count = run->model.units_count,
        .boundary_pieces = run->mesh.boundary_pieces,
        .places_ring = run->mesh.ring,
        .place_leases = spec_place_leases(spec),
        .seal = seal_settings_of_spec(spec),
        .parameter_count = run->model.parameters_count,
        .parameters = run->parameters,
        .parameter_bytes_max = PARAMETER_BYTES_MAX,
        .spec = run->prepared_spec,
        .checkpoint_dir = run->checkpoint_dir,
        .restore = run->stored.restore,
    };
    memcpy(run->settings.data_digest, run->stored.data_digest, WIRE_DIGEST_BYTES);
}

/* A text that is stored without products may be an older version's: it stays as it is. */
static enum err fill_prepared_spec(struct control_run *run)
{
    scoped(buf_release) struct buf text = {0};
    scoped(free_scoped) struct spec *spec = malloc(sizeof *spec);
    bool plain = strcmp(run->spec.train.products, "heuristic") == 0;
    if (spec == NULL)
        return ERR_NOMEM;
    *spec = run->spec;
    snprintf(spec->train.products, sizeof spec->train.products, "heuristic");
    TRY(plain ? buf_printf(&text, "%s", run->stored.spec) : spec_print(spec, &text));
    run->prepared_spec = strndup((const char *)text.data, text.bytes);
    return run->prepared_spec != NULL ? ERR_OK : ERR_NOMEM;
}

static enum err fill_run(struct control_run *run, struct reason *reason)
{
    const char *text = run->stored.spec;
    scoped(buf_release) struct buf path = {0};
    TRY(spec_parse((struct slice){(const uint8_t *)text, strlen(text)}, "the run's spec", NULL,
                   &run->spec, reason));
    TRY(model_init(&run->model, &run->spec.model, reason));
    TRY(fill_parameters(run));
    TRY(control_mesh_new(&run->spec, &run->model, &run->mesh, reason));
    TRY(buf_printf(&path, "%s/checkpoints", run->stored.directory));
    run->checkpoint_dir = strndup((const char *)path.data, path.bytes);
    if (run->checkpoint_dir == NULL)
        return ERR_NOMEM;
    TRY(fill_prepared_spec(run));
    fill_settings(run);
    return ERR_OK;
}

enum err control_run_new(struct store_run *take_stored, struct control_run **ret_run,
                         struct reason *reason)
{
    struct control_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        store_run_release(take_stored);
        return ERR_NOMEM;
    }
    run->stored = *take_stored;
    *take_stored = (struct store_run){0};
    enum err err = fill_run(run, reason);
    if (err != ERR_OK) {
        control_run_free(run);
        return err;
    }
    *ret_run = run;
    return ERR_OK;
}

void control_run_free(struct control_run *run)
{
    if (run == NULL)
        return;
    store_run_release(&run->stored);
    model_release(&run->model);
    free(run->parameters);
    control_mesh_release(&run->mesh);
    free(run->checkpoint_dir);
    free(run->prepared_spec);
    free(run);
}

/* ---- what an operator asks for ---- */

void control_plan_release(struct control_plan *plan)
{
    control_run_free(plan->run);
    control_cuts_release(&plan->older);
    buf_release(&plan->notes);
    *plan = (struct control_plan){0};
}

/* The newest whole cut of the directory as facts, for a run that this store does not know. */
static enum err adopt(const struct control_wish *wish, struct store_run *stored,
                      struct control_plan *plan, struct reason *reason)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    scoped(buf_release) struct buf path = {0};
    struct checkpoint_name name;
    TRY(buf_printf(&path, "%s/checkpoints", wish->directory));
    const char *dir = (const char *)path.data;
    enum err err = whole_cut_ask(wish->whole, dir, wish->now_ns, &name, reason);
    if (err == ERR_NOT_FOUND)
        return reason_set(reason, ERR_INVALID, "%s holds no run to resume", wish->directory);
    TRY(err);
    TRY(checkpoint_open(dir, name, &checkpoint, reason));
    const struct checkpoint_record *about = checkpoint_about(checkpoint);
    const struct buf *damage = &wish->whole->passed;
    const struct control_passed passed = {.spec = about->spec,
                                          .directory = wish->directory,
                                          .damage =
                                              damage->bytes > 0 ? (const char *)damage->data : NULL,
                                          .whole = {name.generation, name.version}};
    TRY(control_past_judge_passed(&passed, reason));
    stored->spec = strdup(about->spec);
    stored->restore = strdup("");
    memcpy(stored->data_digest, about->data_digest.bytes, WIRE_DIGEST_BYTES);
    TRY(control_past_adopt(wish->directory, about, &plan->past, reason));
    return stored->spec != NULL && stored->restore != NULL ? ERR_OK : ERR_NOMEM;
}

/* What store and directory have of the run. */
static enum err find_run(struct store *store, const struct control_wish *wish,
                         struct store_run *ret_stored, struct control_plan *plan,
                         struct reason *reason)
{
    enum err err = store_find_run(store, wish->directory, ret_stored, reason);
    bool chosen;
    if (err == ERR_NOT_FOUND)
        err = store_find_run(store, wish->spelled, ret_stored, reason);
    if (err == ERR_OK) {
        TRY(control_past_find(store, ret_stored, &plan->past, &chosen, reason));
        return control_past_take_other(store, ret_stored, &plan->past, reason);
    }
    if (err != ERR_NOT_FOUND)
        return err;
    plan->is_new = plan->has_past = true;
    return adopt(wish, ret_stored, plan, reason);
}

/* What the differences from the stored spec change. */
struct differences {
    bool bits;
    bool updates; /* that servers make of the same gradient (seal_ticket()) */
};

static bool decides_updates(const char *path)
{
    return strncmp(path, "optimizer.", strlen("optimizer.")) == 0 ||
           strcmp(path, "train.slot_samples") == 0;
}

/* A run.yaml has decay_samples written out, so that more steps do not move them. */
static enum err note_decay(const struct spec *stored, const struct spec *wanted, struct buf *notes)
{
    const struct spec_optimizer *optimizer = &wanted->optimizer;
    if (wanted->train.steps <= stored->train.steps || optimizer->schedule == SPEC_CONSTANT ||
        optimizer->decay_samples != stored->optimizer.decay_samples ||
        optimizer->decay_samples >= spec_run_samples(wanted))
        return ERR_OK;
    return buf_printf(notes,
                      "\noptimizer.decay_samples stays %llu: the steps behind it have "
                      "optimizer.lr_min",
                      (unsigned long long)optimizer->decay_samples);
}

static enum err compare(const char *stored_text, const char *wanted_text, struct buf *notes,
                        struct differences *ret_other, struct reason *reason)
{
    struct spec stored, wanted;
    scoped(free_scoped) struct spec_changes *changes = calloc(1, sizeof *changes);
    if (changes == NULL)
        return ERR_NOMEM;
    TRY(spec_parse((struct slice){(const uint8_t *)stored_text, strlen(stored_text)},
                   "the stored spec", NULL, &stored, reason));
    TRY(spec_parse((struct slice){(const uint8_t *)wanted_text, strlen(wanted_text)},
                   "the run's spec", NULL, &wanted, reason));
    stored.model.tensor_max = spec_tensor_max(&stored.model);
    TRY(spec_compare_for_resume(&stored, &wanted, changes, reason));
    for (uint32_t i = 0; i < changes->count; i++) {
        bool other_bits = changes->changes[i].verdict == SPEC_RESUME_DIGEST;
        TRY(buf_printf(notes, "%s%s%s", i > 0 ? "\n" : "", changes->changes[i].text,
                       other_bits ? " (the weights will differ from an uninterrupted run's)" : ""));
        ret_other->bits |= other_bits;
        ret_other->updates |= other_bits && decides_updates(changes->changes[i].path);
    }
    return note_decay(&stored, &wanted, notes);
}

static enum err take_text(char **text, const char *value)
{
    char *copy = strdup(value);
    if (copy == NULL)
        return ERR_NOMEM;
    free(*text);
    *text = copy;
    return ERR_OK;
}

/* Whose file is not there any more; a mesh that is not as large is refused with the rest. */
static void take_program(struct spec_mesh *wanted, const struct spec_mesh *stored)
{
    bool lacks = wanted->rows[0] == 0 && wanted->program[0] != 0;
    if (!lacks || strcmp(wanted->program, stored->program) != 0)
        return;
    memcpy(wanted->rows, stored->rows, sizeof wanted->rows);
    if (wanted->stages == 1)
        wanted->stages = stored->stages;
}

/* Those that were timed for the run are its own. */
static void take_products(struct spec_train *wanted, const struct spec_train *stored)
{
    if (spec_times_products(wanted->products) && strcmp(stored->products, "heuristic") != 0)
        memcpy(wanted->products, stored->products, sizeof wanted->products);
}

/* The chunks are a stored run's; else for as many ranks as there are pieces. */
static enum err pin_grid(struct spec_model *wanted, const struct spec_model *stored,
                         struct reason *reason)
{
    if (wanted->tensor_max != 0)
        return ERR_OK;
    wanted->tensor_max = spec_tensor_max(stored != NULL ? stored : wanted);
    return wanted->pieces <= wanted->tensor_max
               ? ERR_OK
               : reason_set(reason, ERR_SPEC_DIFFERS,
                            "the stored run cannot be continued with train.pieces: %u; its "
                            "model.tensor_max is %u",
                            wanted->pieces, wanted->tensor_max);
}

/* The request's spec with what it leaves open made one for all workers and every resume, the stored
 * run's: the core type (else this machine's) and the grid of chunks (else the pieces'). Empty when the
 * request has none. */
static enum err pin_spec(const char *wanted, const char *stored_text, struct buf *ret_text,
                         struct reason *reason)
{
    struct spec spec, stored;
    const char *core = kernels_gemm_core_auto();
    if (wanted[0] == 0)
        return buf_append(ret_text, "", 1);
    TRY(spec_parse((struct slice){(const uint8_t *)wanted, strlen(wanted)}, "the run's spec", NULL,
                   &spec, reason));
    if (stored_text != NULL) {
        TRY(spec_parse((struct slice){(const uint8_t *)stored_text, strlen(stored_text)},
                       "the stored spec", NULL, &stored, reason));
        core = stored.train.gemm_core;
        take_program(&spec.mesh, &stored.mesh);
        take_products(&spec.train, &stored.train);
    }
    TRY(pin_grid(&spec.model, stored_text != NULL ? &stored.model : NULL, reason));
    if (strcmp(spec.train.gemm_core, "auto") == 0)
        snprintf(spec.train.gemm_core, sizeof spec.train.gemm_core, "%s", core);
    TRY(spec_print(&spec, ret_text));
    return buf_append(ret_text, "", 1);
}

/* Other settings have other products, and others may be the fastest. */
static enum err time_again(const char *wanted, struct buf *pinned, struct reason *reason)
{
    struct spec spec;
    TRY(spec_parse((struct slice){(const uint8_t *)wanted, strlen(wanted)}, "the run's spec", NULL,
                   &spec, reason));
    if (!spec_times_products(spec.train.products))
        return ERR_OK;
    TRY(spec_parse((struct slice){pinned->data, pinned->bytes - 1}, "the run's spec", NULL, &spec,
                   reason));
    snprintf(spec.train.products, sizeof spec.train.products, "timed");
    pinned->bytes = 0;
    TRY(spec_print(&spec, pinned));
    return buf_append(pinned, "", 1);
}

/* Overwrites the stored facts with the request's. */
static enum err overlay(const struct control_wish *wish, const char *spec, struct store_run *stored)
{
    const struct start_run_request *request = wish->request;
    if (spec[0] != 0 || stored->spec == NULL)
        TRY(take_text(&stored->spec, spec));
    if (stored->directory == NULL)
        TRY(take_text(&stored->directory, wish->directory));
    if (stored->restore == NULL)
        TRY(take_text(&stored->restore, request->restore));
    stored->servers_min = request->servers_min > 0 ? request->servers_min : 1;
    stored->samples = request->samples;
    stored->validation_samples = request->validation_samples;
    stored->unigram_entropy = request->unigram_entropy;
    memcpy(stored->data_digest, request->data_digest, WIRE_DIGEST_BYTES);
    stored->state = RUN_STARTING;
    stored->reason[0] = 0;
    return ERR_OK;
}

/* Whether a validation has another last piece, or none any more: workers probe their numerics with
 * its products too (worker/fingerprint.h), though no weight depends on them. `all`: held-out samples. */
static enum err compare_pieces(const char *stored, const char *wanted, uint64_t all,
                               bool *ret_other, struct reason *reason)
{
    const char *const texts[2] = {stored, wanted};
    uint64_t count[2], rest[2];
    for (int i = 0; i < 2; i++) {
        struct spec spec;
        TRY(spec_parse((struct slice){(const uint8_t *)texts[i], strlen(texts[i])},
                       "the run's spec", NULL, &spec, reason));
        count[i] = held_out(&spec, all);
        rest[i] = count[i] % spec.train.microbatch;
    }
    *ret_other = (count[0] > 0) != (count[1] > 0) || rest[0] != rest[1];
    return ERR_OK;
}

/* The cuts of the directory that are newer than the one that was adopted. */
static enum err note_passed(const struct whole_cut *whole, struct control_plan *plan)
{
    if (whole->passed.bytes == 0)
        return ERR_OK;
    return buf_printf(&plan->notes, "%sdamaged checkpoints are passed over: %s",
                      plan->notes.bytes > 0 ? "\n" : "", (const char *)whole->passed.data);
}

/* One that was left for another run is STOPPED, too, without a last cut. */
static bool is_over(enum run_state state, const struct coordinator_past *past)
{
    return state == RUN_ENDED || (state == RUN_STOPPED && past->stops);
}

/* A journal has the gradients that servers took behind the newest cut, and not the settings by which
 * they updated the weights: other settings would make other weights of what was acknowledged (P12).
 * With these a run that was stopped, or that goes on from a chosen cut, goes on without the journal:
 * its tickets are computed again. */
static enum err judge_journal(const struct control_wish *wish, enum run_state state,
                              struct control_plan *plan, struct reason *reason)
{
    scoped(buf_release) struct buf dir = {0};
    scoped(buf_release) struct buf journal = {0};
    struct checkpoint_name name;
    bool has;
    TRY(buf_printf(&dir, "%s/checkpoints", wish->directory));
    TRY(buf_printf(&journal, "%s/checkpoints/" JOURNAL_FOLDER, wish->directory));
    TRY(journal_has_records((const char *)journal.data, &has, reason));
    if (!has)
        return ERR_OK;
    if (!is_over(state, &plan->past) &&
        checkpoint_chosen((const char *)dir.data, &name, NULL) != ERR_OK)
        return reason_set(reason, ERR_SPEC_DIFFERS,
                          "servers have logged updates behind the newest checkpoint, which "
                          "other settings of the optimizer or another train.slot_samples would "
                          "change: resume the run once without these changes, stop it (roost "
                          "stop), then change them: %s",
                          wish->directory);
    plan->drops_journal = true;
    return buf_printf(&plan->notes,
                      "\nwhat servers have logged behind the newest checkpoint is computed again");
}

static enum err plan_resume(struct store *store, const struct control_wish *wish,
                            struct store_run *stored, struct control_plan *plan, struct buf *spec,
                            struct reason *reason)
{
    const struct start_run_request *request = wish->request;
    struct differences other = {0};
    bool other_pieces = false;
    TRY(find_run(store, wish, stored, plan, reason));
    TRY(pin_spec(request->spec, stored->spec, spec, reason));
    const char *wanted = (const char *)spec->data;
    if (request->spec[0] != 0) {
        TRY(compare(stored->spec, wanted, &plan->notes, &other, reason));
        TRY(compare_pieces(stored->spec, wanted, request->validation_samples, &other_pieces,
                           reason));
    }
    if (other.updates)
        TRY(judge_journal(wish, stored->state, plan, reason));
    if (other.bits || other_pieces) /* the first worker brings the one of what it computes now */
        stored->has_fingerprint = plan->past.has_fingerprint = false;
    if (other.bits)
        TRY(time_again(request->spec, spec, reason));
    if (memcmp(stored->data_digest, request->data_digest, WIRE_DIGEST_BYTES) != 0)
        return reason_set(reason, ERR_DATA_SET,
                          "the data set is not the one that %s was trained on", wish->directory);
    return plan->has_past ? note_passed(wish->whole, plan) : ERR_OK;
}

static enum err plan_new(const struct control_wish *wish, struct control_plan *plan,
                         struct buf *spec, struct reason *reason)
{
    struct checkpoint_name name;
    scoped(buf_release) struct buf path = {0};
    TRY(buf_printf(&path, "%s/checkpoints", wish->directory));
    plan->is_new = true;
    if (checkpoint_newest((const char *)path.data, &name, NULL) == ERR_OK)
        return reason_set(
            reason, ERR_EXISTS,
            "%s holds checkpoints of a run: --resume goes on with it, --directory names "
            "another place",
            wish->directory);
    return pin_spec(wish->request->spec, NULL, spec, reason);
}

static bool opens(const char *path)
{
    struct reason why;
    struct file_map map;
    if (file_map_open(path, &map, &why) != ERR_OK)
        return false;
    file_map_release(&map);
    return true;
}

/* Those that do not fit the model are the operator's to mend: no run begins with them. */
enum err control_run_check_weights(const struct control_run *run, bool elsewhere,
                                   struct reason *reason)
{
    const char *path = run->stored.restore;
    if (path[0] == 0 || (elsewhere && !opens(path)))
        return ERR_OK;
    return config_path_error(restore_check(path, &run->model, reason));
}

/* Somebody who resumes a run that is at its end usually wants to train on. */
static enum err note_end(struct control_plan *plan)
{
    uint64_t steps = plan->run->settings.steps;
    if (plan->past.cut.name.version != steps)
        return ERR_OK;
    return buf_printf(&plan->notes,
                      "%sthe run is at its last step, %llu, already; raise train.steps to train on",
                      plan->notes.bytes > 0 ? "\n" : "", (unsigned long long)steps);
}

static enum err note_directory(const struct control_wish *wish, struct control_plan *plan)
{
    if (!wish->chosen)
        return ERR_OK;
    return buf_printf(&plan->notes, "%sthe run's directory is %s",
                      plan->notes.bytes > 0 ? "\n" : "", wish->directory);
}

enum err control_plan_note(struct control_plan *plan, const char *line)
{
    plan->notes.bytes--; /* the 0 that ends them */
    TRY(buf_printf(&plan->notes, "%s%s", plan->notes.bytes > 0 ? "\n" : "", line));
    return buf_append(&plan->notes, "", 1);
}

enum err control_run_plan(struct store *store, const struct control_wish *wish,
                          struct control_plan *ret_plan, struct reason *reason)
{
    scoped(store_run_release) struct store_run stored = {0};
    scoped(control_plan_release) struct control_plan plan = {0};
    scoped(buf_release) struct buf spec = {0};
    if (wish->request->resume)
        TRY(plan_resume(store, wish, &stored, &plan, &spec, reason));
    else
        TRY(plan_new(wish, &plan, &spec, reason));
    TRY(overlay(wish, (const char *)spec.data, &stored));
    TRY(control_run_new(&stored, &plan.run, reason));
    TRY(note_end(&plan));
    TRY(note_directory(wish, &plan));
    TRY(buf_append(&plan.notes, "", 1));
    *ret_plan = plan;
    plan = (struct control_plan){0};
    return ERR_OK;
}
