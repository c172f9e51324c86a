#include "common/program/values.h"

#include "common/program/rows.h"
#include "common/scoped.h"

#include <inttypes.h>

/* A message of one sample. */
struct message {
    uint64_t bytes;
    const struct model_unit *unit; /* that it comes from */
    bool sum;                      /* between members of a place, not between places */
};

/* As a worker has them (kernels.h, element_bytes). */
static uint64_t array_bytes(const struct spec *spec, const struct model *model,
                            const struct model_array *array)
{
    uint64_t element = spec->train.compute == SPEC_COMPUTE_BF16 ? 2 : sizeof(float);
    return (uint64_t)array->width * model->sample_tokens * element;
}

static void keep_larger(struct message *largest, struct message message)
{
    if (message.bytes > largest->bytes)
        *largest = message;
}

/* What is in pieces passes in pieces, each member's to its like. */
static void find_values(const struct pipeline_runs *runs, const struct spec *spec,
                        const struct model *model, struct message *largest)
{
    for (uint32_t run = 1; run < runs->count; run++) {
        const struct model_unit *unit = &model->units[runs->cuts[run] - 1];
        const struct model_array *out = &unit->arrays[MODEL_OUT];
        uint32_t parts = out->split ? spec_mesh_ranks(&spec->mesh) : 1;
        uint64_t bytes = array_bytes(spec, model, out) / parts;
        if (runs->places[run - 1] != runs->places[run])
            keep_larger(largest, (struct message){bytes, unit, false});
    }
}

/* A linear's sum over pieces: of its result, or of the gradient of its input. */
static const struct model_array *summed(const struct model_unit *unit,
                                        const struct model_operation *operation)
{
    const struct model_array *in = &unit->arrays[operation->in];
    bool differ = in->split != unit->arrays[operation->out].split;
    if (operation->kind != MODEL_LINEAR || !differ)
        return NULL;
    if (in->split)
        return &unit->arrays[operation->out];
    return in->gradient != MODEL_NO_ARRAY ? in : NULL;
}

/* Halving sends half of a sum first, a reduce-scatter each member's ranges (worker/exchange.h). */
static void find_sums(const struct spec *spec, const struct model *model, struct message *largest)
{
    uint32_t ranks = spec_mesh_ranks(&spec->mesh);
    uint32_t parts = model->settings.norms == SPEC_NORMS_SPLIT ? ranks : 2;
    for (uint32_t i = 0; ranks > 1 && i < model->units_count; i++) {
        const struct model_unit *unit = &model->units[i];
        for (uint32_t o = 0; o < unit->operations_count; o++) {
            const struct model_array *array = summed(unit, &unit->operations[o]);
            uint64_t bytes = array != NULL ? array_bytes(spec, model, array) : 0;
            keep_larger(largest, (struct message){bytes / parts, unit, true});
        }
    }
}

/* The largest microbatch that a schedule or the user's program has, too; 0: none. */
static uint32_t most_samples(const struct schedule_shape *shape, const struct spec *spec,
                             uint64_t sample_bytes)
{
    uint32_t all = spec->train.slot_samples;
    for (uint32_t samples = spec->train.microbatch - 1; samples > 0; samples--) {
        struct schedule_shape smaller = *shape;
        smaller.microbatches = pipeline_microbatches(shape->slots, all / samples);
        if (all % samples == 0 && samples * sample_bytes <= VALUES_BYTES_MAX &&
            rows_judge(&smaller, NULL) == ERR_OK)
            return samples;
    }
    return 0;
}

struct remedy {
    char text[64];
};

static struct remedy remedy_of(const struct schedule_shape *shape, const struct spec *spec,
                               struct message largest)
{
    struct remedy remedy;
    uint32_t samples = most_samples(shape, spec, largest.bytes);
    bool written = shape->rows != NULL && shape->rows[0] != 0;
    if (samples > 0)
        snprintf(remedy.text, sizeof remedy.text, "train.microbatch: %u", samples);
    else if (written && largest.bytes <= VALUES_BYTES_MAX)
        snprintf(remedy.text, sizeof remedy.text, "a program for smaller microbatches");
    else
        snprintf(remedy.text, sizeof remedy.text, "mesh.%s: 1", largest.sum ? "tensor" : "stage");
    return remedy;
}

enum err values_judge(const struct schedule_shape *shape, const struct spec *spec,
                      const struct model *model, struct reason *reason)
{
    scoped(pipeline_runs_release) struct pipeline_runs runs = {0};
    struct message largest = {0};
    TRY(rows_runs(shape, model, &runs));
    find_values(&runs, spec, model, &largest);
    find_sums(spec, model, &largest);
    uint32_t samples = spec->train.microbatch;
    if (samples * largest.bytes <= VALUES_BYTES_MAX)
        return ERR_OK;
    return reason_set(reason, ERR_INVALID,
                      "a microbatch of %u sample%s passes %" PRIu64
                      " bytes from %s to another worker, and a message has at most %d: %s would do",
                      samples, plural(samples), samples * largest.bytes, largest.unit->name,
                      VALUES_BYTES_MAX, remedy_of(shape, spec, largest).text);
}
