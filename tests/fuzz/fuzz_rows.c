/* The rows of a program that a user wrote (mesh.rows), as they come in a spec: of a file that the
 * command read, or as whoever starts a run wrote them. What the coordinator takes is a program for
 * every node of a step, for all workers: valid, and it runs to its end on a fake clock.
 *
 * The first bytes are the run's shape: layers, slots, slot_samples, node_slots, and bits. */
#include "tests/fuzz/fuzz.h"

#include "common/program/rows.h"
#include "common/scoped.h"
#include "server/control/control_mesh.h"
#include "worker/program/mesh.h"
#include "worker/program/simulate.h"

#include <stdlib.h>
#include <string.h>

enum { SHAPE_BYTES = 5, LAYERS_MAX = 8, SLOTS_MAX = 8, SAMPLES_MAX = 8 };
enum { IS_FILE = 1, RECOMPUTES = 2, STREAMS = 4 }; /* bits */

/* False: the spec is refused. */
static bool make_spec(const uint8_t *shape, const char *rows, struct spec *ret_spec)
{
    scoped(buf_release) struct buf text = {0}, setting = {0};
    struct reason reason = {.text = ""};
    check(buf_printf(&text, "model: {kind: mlp, layers: [2") == ERR_OK);
    for (uint32_t i = 0; i < 1 + shape[0] % LAYERS_MAX; i++)
        check(buf_printf(&text, ", 3") == ERR_OK);
    uint32_t slots = 1 + shape[1] % SLOTS_MAX, level = shape[3] % 5;
    check(buf_printf(&text,
                     "]}\ntrain: {microbatch: 1, slots: %u, slot_samples: %u, node_slots: %u, "
                     "recompute: %s}\nresidency: {weights: %s}\nmesh: {program: my.csv}\n"
                     "data: {kind: spiral}\n",
                     slots, 1 + shape[2] % SAMPLES_MAX, level == 0 ? 0 : 1u << (level - 1),
                     (shape[4] & RECOMPUTES) != 0 ? "true" : "false",
                     (shape[4] & STREAMS) != 0 ? "streamed" : "resident") == ERR_OK);
    check(buf_printf(&setting, "mesh.rows=%s", rows) == ERR_OK);
    const char *flags[] = {(const char *)setting.data};
    enum err err =
        spec_parse(buf_slice(&text), "run.yaml",
                   &(struct config_overrides){.flags = flags, .flags_count = 1}, ret_spec, &reason);
    check(err == ERR_OK || reason.text[0] != 0);
    return err == ERR_OK;
}

static void run(const struct program *program)
{
    scoped(simulate_release) struct simulate_result result = {0};
    scoped(free_scoped) struct program_sizes *sizes = calloc(program->units, sizeof *sizes);
    scoped(free_scoped) struct simulate_cost *costs = calloc(program->units, sizeof *costs);
    check(sizes != NULL && costs != NULL);
    for (uint32_t unit = 0; unit < program->units; unit++) {
        sizes[unit] = (struct program_sizes){.output = unit + 1 == program->units ? 0 : 100,
                                             .saved = 50,
                                             .dinput = unit == 0 ? 0 : 100,
                                             .weights = 500};
        costs[unit] = (struct simulate_cost){unit + 1, unit % 5, 1};
    }
    const struct simulate_options options = {.costs = costs, .sizes = sizes};
    check(simulate_program(program, &options, &result) == ERR_OK);
}

/* What a worker computes such a node by. */
static void compute_node(const struct spec *spec, const struct model *model, uint32_t slots)
{
    scoped(program_release) struct program train = {0}, validate = {0};
    const struct mesh mesh = mesh_of(spec);
    const struct mesh_node node = {slots, spec->train.slot_samples / spec->train.microbatch};
    struct reason reason = {.text = ""};
    check(mesh_training(&mesh, model, node, &train, &reason) == ERR_OK);
    check(program_validate(&train, &reason) == ERR_OK);
    check(train.places_count == spec->mesh.stages && train.units == model->units_count);
    run(&train);
    check(mesh_validation(&mesh, model, node, &validate) == ERR_OK);
    check(program_validate(&validate, &reason) == ERR_OK);
}

static void start_run(const struct spec *spec)
{
    scoped(model_release) struct model model = {0};
    struct control_mesh mesh;
    struct reason reason = {.text = ""};
    check(model_init(&model, &spec->model, &reason) == ERR_OK);
    enum err err = control_mesh_new(spec, &model, &mesh, &reason);
    check(err == ERR_OK || (err == ERR_INVALID && reason.text[0] != 0));
    if (err != ERR_OK)
        return;
    const struct spec_train *train = &spec->train;
    uint32_t slots = train->node_slots > 0 ? train->node_slots : 1;
    compute_node(spec, &model, slots);
    if (train->slots % slots != 0)
        compute_node(spec, &model, train->slots % slots);
    for (uint32_t more = 2; train->node_slots == 0 && more <= train->slots; more *= 2)
        compute_node(spec, &model, more); /* as many as the coordinator likes */
    free(mesh.places);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct spec spec;
    scoped(buf_release) struct buf text = {0}, rows = {0};
    struct reason reason = {.text = ""};
    if (bytes < SHAPE_BYTES || memchr(data + SHAPE_BYTES, 0, bytes - SHAPE_BYTES) != NULL)
        return -1;
    check(buf_append(&text, data + SHAPE_BYTES, bytes - SHAPE_BYTES) == ERR_OK);
    check(buf_append(&text, "", 1) == ERR_OK);
    bool is_file = (data[4] & IS_FILE) != 0;
    const struct slice file = {text.data, text.bytes - 1};
    if (is_file && rows_of_file("my.csv", file, &rows, &reason) != ERR_OK) {
        check(reason.text[0] != 0);
        return 0;
    }
    if (make_spec(data, (const char *)(is_file ? rows.data : text.data), &spec))
        start_run(&spec);
    return 0;
}
