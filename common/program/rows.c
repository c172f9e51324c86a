#include "common/program/rows.h"

#include "common/model/stages.h"
#include "common/program/passes.h"
#include "common/program/writer.h"
#include "common/scoped.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "program row 3 …" as "my.csv row 3 …". ERR_INVALID, or an error that is not the file's. */
static enum err named(const char *name, enum err err, const struct reason *said,
                      struct reason *reason)
{
    static const char program[] = "program";
    if (err != ERR_MALFORMED && err != ERR_INVALID)
        return err;
    bool begins = strncmp(said->text, program, sizeof program - 1) == 0;
    return reason_set(reason, ERR_INVALID, "%.200s%s%.300s", name, begins ? "" : ": ",
                      said->text + (begins ? sizeof program - 1 : 0));
}

bool rows_has(enum act act)
{
    return act == ACT_F || act == ACT_B || act == ACT_I || act == ACT_W;
}

static uint64_t count_rows(const struct program *program)
{
    uint64_t rows = 0;
    for (uint32_t p = 0; p < program->places_count; p++)
        rows += program->places[p].rows_count;
    return rows;
}

/* ---- the file ---- */

static enum err judge_whole(const char *name, const struct program *whole, struct reason *reason)
{
    bool all = false;
    if (whole->places_count == 0)
        return reason_set(reason, ERR_INVALID, "%.200s has no acts", name);
    if (whole->local_steps > 0)
        return reason_set(reason, ERR_INVALID,
                          "%.200s has local steps, which need all units in one place", name);
    for (uint32_t p = 0; p < whole->places_count; p++) {
        uint32_t computes = 0;
        for (uint32_t i = 0; i < whole->places[p].rows_count; i++)
            computes += rows_has(whole->places[p].rows[i].act);
        if (computes == 0)
            return reason_set(reason, ERR_INVALID, "%.200s place %u computes nothing", name, p);
        all |= computes < whole->places[p].rows_count;
    }
    struct reason said = {.text = ""};
    return all ? named(name, program_validate(whole, &said), &said, reason) : ERR_OK;
}

static enum err take_compute(const struct program *whole, struct program *ret_compute)
{
    struct writer writer;
    TRY(writer_init(&writer, whole));
    for (uint32_t p = 0; p < whole->places_count; p++)
        for (uint32_t i = 0; i < whole->places[p].rows_count; i++)
            if (rows_has(whole->places[p].rows[i].act))
                writer_add(&writer, p, whole->places[p].rows[i]);
    return writer_finish(&writer, ret_compute);
}

enum err rows_of_file(const char *name, struct slice text, struct buf *ret_rows,
                      struct reason *reason)
{
    scoped(program_release) struct program whole = {0}, compute = {0};
    struct reason said = {.text = ""};
    TRY(named(name, program_parse(text, &whole, &said), &said, reason));
    TRY(judge_whole(name, &whole, reason));
    TRY(take_compute(&whole, &compute));
    TRY(program_print(&compute, ret_rows));
    for (size_t i = 0; i < ret_rows->bytes; i++)
        if (ret_rows->data[i] == '\n')
            ret_rows->data[i] = ';';
    ret_rows->data[ret_rows->bytes - 1] = 0; /* nothing follows the last place */
    if (ret_rows->bytes > SPEC_ROWS_BYTES)
        return reason_set(reason, ERR_INVALID,
                          "%.200s: its acts take %zu bytes, and a run's program may take %d", name,
                          ret_rows->bytes - 1, SPEC_ROWS_BYTES - 1);
    return ERR_OK;
}

/* ---- the rows of a spec ---- */

/* Compute acts on stages. */
static enum err read_rows(const struct schedule_shape *shape, struct program *ret_stages,
                          struct reason *reason)
{
    scoped(program_release) struct program stages = {0};
    struct reason said = {.text = ""};
    struct slice text = {(const uint8_t *)shape->rows, strlen(shape->rows)};
    TRY(named(shape->program, program_parse(text, &stages, &said), &said, reason));
    for (uint32_t p = 0; p < stages.places_count; p++)
        for (uint32_t i = 0; i < stages.places[p].rows_count; i++) {
            struct program_row *row = &stages.places[p].rows[i];
            row->number = i + 1;
            if (!rows_has(row->act))
                return reason_set(
                    reason, ERR_INVALID,
                    "%.200s place %u, row %u (%s): F, B, I and W compute, and roost adds "
                    "the others",
                    shape->program, p, i + 1, program_row_text(&stages, *row).text);
        }
    *ret_stages = stages;
    stages = (struct program){0};
    return ERR_OK;
}

/* Acts of the stage and microbatch, a bit each, in the place that has any of the stage; UINT32_MAX: none
 * has. */
static uint32_t acts_of(const struct program *stages, uint32_t stage, uint32_t microbatch,
                        uint32_t *ret_place)
{
    uint32_t acts = 0;
    *ret_place = UINT32_MAX;
    for (uint32_t p = 0; p < stages->places_count; p++)
        for (uint32_t i = 0; i < stages->places[p].rows_count; i++) {
            struct program_row row = stages->places[p].rows[i];
            if (row.unit != stage)
                continue;
            *ret_place = p;
            acts |= row.microbatch == microbatch ? 1u << row.act : 0;
        }
    return acts;
}

/* ACT_COUNT: none. */
static enum act lacking(uint32_t acts)
{
    bool halves = acts & (1u << ACT_I | 1u << ACT_W);
    if (!(acts & 1u << ACT_F))
        return ACT_F;
    if (halves && !(acts & 1u << ACT_I))
        return ACT_I;
    if (halves && !(acts & 1u << ACT_W))
        return ACT_W;
    return halves || acts & 1u << ACT_B ? ACT_COUNT : ACT_B;
}

/* Of the stages' acts the first that there is not. */
static enum err refuse_lacking(const struct schedule_shape *shape, const struct program *stages,
                               struct reason *reason)
{
    for (uint32_t stage = 0; stage < stages->units; stage++)
        for (uint32_t microbatch = 0; microbatch < stages->microbatches; microbatch++) {
            uint32_t place;
            enum act act = lacking(acts_of(stages, stage, microbatch, &place));
            struct program_row row = {.act = act, .unit = stage, .microbatch = microbatch};
            if (place == UINT32_MAX)
                return reason_set(reason, ERR_INVALID, "%.200s has no acts of unit %u",
                                  shape->program, stage);
            if (act != ACT_COUNT)
                return reason_set(reason, ERR_INVALID,
                                  "%.200s place %u ends after row %u without %s", shape->program,
                                  place, stages->places[place].rows_count,
                                  program_row_text(stages, row).text);
        }
    check_unreachable("whose acts are all there has two rows a cell");
}

/* Each stage has two acts of a microbatch, or three. */
static enum err judge_size(const struct schedule_shape *shape, const struct program *stages,
                           struct reason *reason)
{
    uint64_t cells = (uint64_t)stages->units * stages->microbatches;
    if (stages->places_count != shape->places)
        return reason_set(reason, ERR_INVALID, "%.200s has %u place%s, and the mesh %u",
                          shape->program, stages->places_count, plural(stages->places_count),
                          shape->places);
    if (stages->units > shape->units)
        return reason_set(reason, ERR_INVALID,
                          "%.200s names %u stages, and the model has %u unit%s to give to them",
                          shape->program, stages->units, shape->units, plural(shape->units));
    return 2 * cells > count_rows(stages) ? refuse_lacking(shape, stages, reason) : ERR_OK;
}

/* The file's microbatches are whole slots, and nodes are whole repetitions of it. */
static enum err judge_node(const struct schedule_shape *shape, const struct program *stages,
                           struct reason *reason)
{
    uint32_t of_slot = shape->microbatches / shape->slots, all = stages->microbatches;
    if (all % of_slot != 0)
        return reason_set(
            reason, ERR_INVALID,
            "%.200s has %u microbatch%s, and a slot of the run %u (train.slot_samples / "
            "train.microbatch): a multiple of that would do",
            shape->program, all, all == 1 ? "" : "es", of_slot);
    uint32_t slots = all / of_slot;
    bool is_node = (slots & (slots - 1)) == 0;
    if (shape->slots % slots != 0)
        return reason_set(
            reason, ERR_INVALID,
            "%.200s has the microbatches of %u slots, and a node has %u: %s %u would do",
            shape->program, slots, shape->slots,
            is_node ? "train.node_slots:" : "the microbatches of a slot, which are",
            is_node ? slots : of_slot);
    return ERR_OK;
}

/* The place of each stage, UINT32_MAX where it has none. */
static enum err find_places(const struct schedule_shape *shape, const struct program *stages,
                            uint32_t *ret_places, struct reason *reason)
{
    memset(ret_places, 0xff, stages->units * sizeof *ret_places);
    for (uint32_t p = 0; p < stages->places_count; p++)
        for (uint32_t i = 0; i < stages->places[p].rows_count; i++) {
            struct program_row row = stages->places[p].rows[i];
            uint32_t *place = &ret_places[row.unit];
            if (*place != UINT32_MAX && *place != p)
                return reason_set(
                    reason, ERR_INVALID,
                    "%.200s place %u, row %u (%s): place %u has acts of this unit, too",
                    shape->program, p, row.number, program_row_text(stages, row).text, *place);
            *place = p;
        }
    return ERR_OK;
}

static enum err judge_boundaries(const struct schedule_shape *shape, uint32_t stages,
                                 const uint32_t *places, struct reason *reason)
{
    for (uint32_t place = 0; place < shape->places; place++) {
        uint32_t boundaries = 0;
        for (uint32_t stage = 1; stage < stages; stage++) {
            bool passes = places[stage - 1] != places[stage];
            boundaries += passes && (places[stage - 1] == place || places[stage] == place);
        }
        if (boundaries > PIPELINE_BOUNDARIES_MAX)
            return reason_set(
                reason, ERR_INVALID,
                "%.200s place %u has %u boundaries with other places, and a place may have "
                "%d: fewer stages, or more places, would do",
                shape->program, place, boundaries, PIPELINE_BOUNDARIES_MAX);
    }
    return ERR_OK;
}

static enum err judge_places(const struct schedule_shape *shape, const struct program *stages,
                             struct reason *reason)
{
    scoped(free_scoped) uint32_t *places = calloc(stages->units, sizeof *places);
    if (places == NULL)
        return ERR_NOMEM;
    TRY(find_places(shape, stages, places, reason));
    for (uint32_t stage = 0; stage < stages->units; stage++) {
        uint32_t here = places[stage], before = stage > 0 ? places[stage - 1] : here;
        uint32_t apart = here > before ? here - before : before - here;
        if (here == UINT32_MAX)
            return reason_set(reason, ERR_INVALID, "%.200s has no acts of unit %u", shape->program,
                              stage);
        if (apart > 1 && apart + 1 < shape->places)
            return reason_set(
                reason, ERR_INVALID,
                "%.200s: place %u hands unit %u's result to place %u, and only places "
                "beside each other can, and the last and the first",
                shape->program, before, stage - 1, here);
    }
    /* Who completes a validation for all of them is the last place: it brings the losses. */
    if (places[stages->units - 1] != shape->places - 1)
        return reason_set(
            reason, ERR_INVALID,
            "%.200s place %u computes unit %u, the last one, which the last place does: "
            "another order of the lines would do",
            shape->program, places[stages->units - 1], stages->units - 1);
    return judge_boundaries(shape, stages->units, places, reason);
}

enum err rows_judge(const struct schedule_shape *shape, struct reason *reason)
{
    scoped(program_release) struct program stages = {0}, whole = {0};
    struct reason said = {.text = ""};
    TRY(schedule_judge(shape, reason));
    if (shape->rows == NULL || shape->rows[0] == 0)
        return ERR_OK;
    TRY(read_rows(shape, &stages, reason));
    TRY(judge_size(shape, &stages, reason));
    TRY(judge_node(shape, &stages, reason));
    TRY(judge_places(shape, &stages, reason));
    stages.slots = stages.microbatches / (shape->microbatches / shape->slots);
    TRY(passes_complete(&stages, &(struct passes_options){0}, &whole));
    return named(shape->program, program_validate(&whole, &said), &said, reason);
}

enum err rows_last_judge(const struct schedule_shape *shape, const struct spec_train *train,
                         struct reason *reason)
{
    uint32_t rest = train->slots % shape->slots, more = train->slots - rest + shape->slots;
    struct schedule_shape last = *shape;
    struct reason why;
    if (rest == 0)
        return ERR_OK;
    if (shape->schedule == SCHEDULE_CHIMERA && train->precision == SPEC_BF16)
        return reason_set(reason, ERR_INVALID,
                          "chimera rounds the halves of nodes to bf16, and the last node of a step "
                          "of %u slots has other halves than those of %u; train.slots: %u would do",
                          train->slots, shape->slots, more);
    last.slots = rest;
    last.microbatches = pipeline_microbatches(rest, shape->microbatches / shape->slots);
    enum err err = rows_judge(&last, &why);
    return err != ERR_INVALID
               ? err
               : reason_set(reason, err,
                            "the last node of a step of %u slots has %u: train.slots: %u would do "
                            "(%.300s)",
                            train->slots, rest, more, why.text);
}

/* ---- of the model's units ---- */

/* One repetition after the other: a place goes on without waiting for the others. */
enum err rows_compute(const struct schedule_shape *shape, const struct pipeline_runs *runs,
                      struct program *ret_compute)
{
    scoped(program_release) struct program stages = {0};
    const struct program about = {.units = shape->units,
                                  .microbatches = shape->microbatches,
                                  .slots = shape->slots,
                                  .places_count = shape->places};
    struct writer writer;
    TRY(read_rows(shape, &stages, NULL));
    check(stages.units == runs->count && stages.places_count == shape->places);
    TRY(writer_init(&writer, &about));
    for (uint32_t first = 0; first < shape->microbatches; first += stages.microbatches)
        for (uint32_t p = 0; p < stages.places_count; p++)
            for (uint32_t i = 0; i < stages.places[p].rows_count; i++) {
                struct program_row row = stages.places[p].rows[i];
                row.microbatch += first;
                writer_add_run(&writer, p, runs->cuts, row);
            }
    return writer_finish(&writer, ret_compute);
}

enum { WEIGHT_BYTES = 8 /* its own and its gradient's */ };

/* The most that a place has; in chimera each has one for each half. */
static uint32_t runs_of_place(const struct schedule_shape *shape, const struct pipeline_runs *runs)
{
    uint32_t most = shape->schedule == SCHEDULE_CHIMERA ? 2 : 1;
    for (uint32_t place = 0; place < shape->places; place++) {
        uint32_t count = 0;
        for (uint32_t run = 0; run < runs->count; run++)
            count += runs->places[run] == place;
        most = count > most ? count : most;
    }
    return most;
}

/* Each run of a place may have an equal part of its memory. */
static enum err cut(const struct schedule_shape *shape, const struct model *model,
                    struct pipeline_runs *runs)
{
    uint64_t weights = shape->memory / WEIGHT_BYTES / runs_of_place(shape, runs);
    if (shape->memory > 0 && weights == 0)
        return ERR_INVALID;
    return stages_cut(model, runs->count, weights, runs->cuts) ? ERR_OK : ERR_INVALID;
}

static enum err runs_of_rows(const struct schedule_shape *shape, const struct model *model,
                             struct pipeline_runs *runs)
{
    scoped(program_release) struct program stages = {0};
    TRY(read_rows(shape, &stages, NULL));
    if (stages.places_count != shape->places || stages.units > model->units_count)
        return ERR_INVALID;
    TRY(pipeline_runs_new(stages.units, runs));
    TRY(find_places(shape, &stages, runs->places, NULL));
    for (uint32_t stage = 0; stage < stages.units; stage++)
        if (runs->places[stage] == UINT32_MAX)
            return ERR_INVALID;
    return cut(shape, model, runs);
}

static enum err runs_of_schedule(const struct schedule_shape *shape, const struct model *model,
                                 struct pipeline_runs *runs)
{
    uint64_t count = (uint64_t)shape->places * shape->runs;
    if (count == 0 || count > model->units_count)
        return ERR_INVALID;
    TRY(pipeline_runs_new((uint32_t)count, runs));
    for (uint32_t run = 0; run < runs->count; run++)
        runs->places[run] = run % shape->places;
    return cut(shape, model, runs);
}

enum err rows_runs(const struct schedule_shape *shape, const struct model *model,
                   struct pipeline_runs *ret_runs)
{
    bool written = shape->rows != NULL && shape->rows[0] != 0;
    *ret_runs = (struct pipeline_runs){0};
    enum err err = (written ? runs_of_rows : runs_of_schedule)(shape, model, ret_runs);
    if (err != ERR_OK)
        pipeline_runs_release(ret_runs);
    return err;
}

enum err rows_memory_judge(const struct schedule_shape *shape, const struct model *model,
                           struct reason *reason)
{
    struct schedule_shape any = *shape;
    scoped(pipeline_runs_release) struct pipeline_runs runs = {0};
    any.memory = 0;
    TRY(rows_runs(&any, model, &runs));
    if (shape->memory == 0 || cut(shape, model, &runs) == ERR_OK)
        return ERR_OK;
    uint64_t weights = stages_weights(model, runs.count, runs.cuts);
    return reason_set(reason, ERR_INVALID,
                      "mesh.memory (%" PRIu64
                      ") is too little for the weights and gradients of one of %u places: "
                      "mesh.memory: %" PRIu64 "%s would do",
                      shape->memory, shape->places,
                      weights * WEIGHT_BYTES * runs_of_place(shape, &runs),
                      shape->places < model->units_count ? ", or perhaps more of mesh.stage," : "");
}
