/* What workers of a mesh hand each other fits a message, or the mesh is refused. */
#include "tests/unit/unit.h"

#include "common/program/values.h"

/* Judged as a coordinator does. */
static enum err judge(const char *text, struct reason *reason)
{
    static struct spec spec;
    struct model model;
    if (spec_parse(slice_of(text), "spec", NULL, &spec, reason) != ERR_OK ||
        model_init(&model, &spec.model, reason) != ERR_OK)
        fail_msg("%s", reason->text);
    const struct schedule_shape shape =
        pipeline_shape(&spec, model.units_count, spec.train.node_slots);
    enum err err = values_judge(&shape, &spec, &model, reason);
    model_release(&model);
    return err;
}

#define MLP(samples, microbatch, mesh)                                                             \
    "model: {kind: mlp, layers: [2, 600000, 3]}\ndata: {kind: spiral}\n"                           \
    "train: {slot_samples: " samples ", microbatch: " microbatch "}\nmesh: {" mesh "}\n"
#define GPT(train, mesh)                                                                           \
    "model: {kind: gpt, layers: 2, heads: 16, width: 2048, context: 1024}\n"                       \
    "data: {kind: text, path: x}\ntrain: {slot_samples: 16, " train "}\nmesh: {" mesh "}\n"
#define LONG(mesh)                                                                                 \
    "model: {kind: gpt, layers: 1, heads: 4, width: 256, context: 1048576}\n"                      \
    "data: {kind: text, path: x}\n"                                                                \
    "train: {steps: 1, slots: 1, slot_samples: 1, pieces: 2}\nmesh: {" mesh "}\n"

TEST(a_value_that_no_message_holds_is_refused_with_the_microbatch_that_works)
{
    static const struct {
        const char *spec, *wanted;
    } rows[] = {
        {MLP("64", "32", "stage: 2"),
         "a microbatch of 32 samples passes 76800000 bytes from fc1 to another worker, and a "
         "message has at most 67108864: train.microbatch: 16 would do"},
        {MLP("54", "54", "stage: 2"),
         "a microbatch of 54 samples passes 129600000 bytes from fc1 to another worker, and a "
         "message has at most 67108864: train.microbatch: 27 would do"},
        /* Three microbatches a node are no multiple of two stages. */
        {MLP("84", "42", "stage: 2, schedule: interleaved"),
         "a microbatch of 42 samples passes 100800000 bytes from fc1 to another worker, and a "
         "message has at most 67108864: train.microbatch: 21 would do"},
        {MLP("32", "32", "stage: 2, program: my.csv, rows: '0F0,0B0;1F0,1B0'"),
         "a microbatch of 32 samples passes 76800000 bytes from fc1 to another worker, and a "
         "message has at most 67108864: a program for smaller microbatches would do"},
        {GPT("microbatch: 16", "stage: 2"),
         "a microbatch of 16 samples passes 134217728 bytes from h.0 to another worker, and a "
         "message has at most 67108864: train.microbatch: 8 would do"},
        {GPT("microbatch: 16, compute: bf16", "stage: 2"), NULL},
        {GPT("microbatch: 16", "stage: 1"), NULL},
        {MLP("32", "16", "stage: 2"), NULL},
        {LONG("stage: 2"),
         "a microbatch of 1 sample passes 1073741824 bytes from h.0 to another worker, and a "
         "message has at most 67108864: mesh.stage: 1 would do"},
        /* Two members of a place send each other half of a sum. */
        {GPT("microbatch: 16, pieces: 2", "tensor: 2"), NULL},
        {LONG("tensor: 2"),
         "a microbatch of 1 sample passes 536870912 bytes from h.0 to another worker, and a "
         "message has at most 67108864: mesh.tensor: 1 would do"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reason reason = {.text = ""};
        enum err err = judge(rows[i].spec, &reason);
        assert_string_equal(reason.text, rows[i].wanted != NULL ? rows[i].wanted : "");
        assert_int_equal(err, rows[i].wanted != NULL ? ERR_INVALID : ERR_OK);
    }
}
