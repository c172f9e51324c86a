/* The rules between settings. */
#include "common/settings/spec.h"
#include "common/settings/spec_core.h"

#include <string.h>

/* About what a million chunks (MODEL_CHUNKS_MAX) hold. */
#define MODEL_WEIGHTS_MAX (UINT64_C(1) << 36)
#define RUN_TOKENS_MAX (UINT64_C(1) << 62)
enum { ROTARY_CHANNELS_MAX = 256 }; /* of a head: KERNELS_ROPE_PAIRS_MAX pairs */

/* Those that kernels/cpu/gemm.c knows what a CPU must have for (test_spec compares the two). */
static const char *const gemm_cores[] = {"auto",        "SkylakeX", "Cooperlake", "Haswell", "Zen",
                                         "Sandybridge", "Nehalem",  "Prescott",   NULL};

static bool is_power_of_two(uint32_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

static bool reads_tokens(const struct spec_model *model)
{
    return model->kind != SPEC_MLP;
}

/* No product here leaves 64 bits: the table bounds every factor. */
static uint64_t gpt_weights(const struct spec_model *model)
{
    uint64_t width = model->width;
    return model->layers * (12 * width * width + 13 * width) +
           (model->vocabulary + model->context + UINT64_C(2)) * width;
}

static uint64_t mlp_weights(const struct spec_model *model)
{
    uint64_t weights = 0;
    for (uint32_t i = 1; i < model->sizes_count; i++)
        weights += (model->sizes[i - 1] + UINT64_C(1)) * model->sizes[i];
    return weights;
}

static uint64_t llama_weights(const struct spec_model *model)
{
    uint64_t width = model->width, kv_width = width / model->heads * model->kv_heads;
    return model->layers *
               (2 * width * width + 2 * kv_width * width + 3 * width * model->hidden + 2 * width) +
           (2 * (uint64_t)model->vocabulary + 1) * width;
}

static enum err check_heads(struct draft *draft)
{
    const struct spec_model *model = &draft->spec->model;
    if (model->width % model->heads != 0)
        return COMPLAIN(draft, "model.heads", "model.width",
                        "model.heads (%u) must divide model.width (%u)", model->heads,
                        model->width);
    if (model->kind != SPEC_LLAMA)
        return ERR_OK;
    if (model->heads % model->kv_heads != 0)
        return COMPLAIN(draft, "model.kv_heads", "model.heads",
                        "model.kv_heads (%u) must divide model.heads (%u)", model->kv_heads,
                        model->heads);
    uint32_t channels = model->width / model->heads;
    if (channels % 2 != 0 || channels > ROTARY_CHANNELS_MAX)
        return COMPLAIN(
            draft, "model.heads", "model.width",
            "a head has %u channel%s (model.width / model.heads); rotary positions need "
            "an even number of them, at most %u",
            channels, plural(channels), ROTARY_CHANNELS_MAX);
    return ERR_OK;
}

static enum err check_model(struct draft *draft)
{
    static uint64_t (*const weights_of[])(const struct spec_model *) = {
        [SPEC_GPT] = gpt_weights, [SPEC_MLP] = mlp_weights, [SPEC_LLAMA] = llama_weights};
    const struct spec_model *model = &draft->spec->model;
    if (model->tensor_max != 0 && !is_power_of_two(model->tensor_max))
        return COMPLAIN(draft, "model.tensor_max", NULL, "model.tensor_max must be a power of two");
    bool tokens = reads_tokens(model);
    if (tokens)
        TRY(check_heads(draft));
    uint64_t weights = weights_of[model->kind](model);
    if (weights > MODEL_WEIGHTS_MAX)
        return COMPLAIN(draft, tokens ? "model.width" : "model.layers",
                        tokens ? "model.layers" : NULL,
                        "the model has %llu weights; at most %llu are possible",
                        (unsigned long long)weights, (unsigned long long)MODEL_WEIGHTS_MAX);
    return ERR_OK;
}

/* Halves `most` until it divides the number. */
static uint32_t most_dividing(uint32_t number, uint32_t most)
{
    while (number % most != 0)
        most /= 2;
    return most;
}

/* The most pieces that what 1-D tensor parallelism splits has (rule 1 of common/model/model.h).
 * An mlp's linears are units, which the grid leaves whole when they are small. */
static uint32_t pieces_most(const struct spec_model *model)
{
    enum { UNIT_CUT_MIN = 16384 }; /* MODEL_UNIT_CUT_MIN */
    uint32_t most = model->tensor_max != 0 ? model->tensor_max : SPEC_PIECES_MAX;
    if (model->kind == SPEC_GPT)
        most = most_dividing(model->heads, most);
    if (model->kind == SPEC_LLAMA)
        most = most_dividing(model->hidden, most_dividing(model->kv_heads, most));
    for (uint32_t i = 1; model->kind == SPEC_MLP && i < model->sizes_count; i++)
        if ((model->sizes[i - 1] + UINT64_C(1)) * model->sizes[i] >= UNIT_CUT_MIN)
            most = most_dividing(model->sizes[i % 2 == 1 ? i : i - 1], most);
    return most;
}

static enum err check_pieces(struct draft *draft)
{
    const struct spec_model *model = &draft->spec->model;
    uint32_t most = pieces_most(model), nearest = 1;
    const char *what = model->kind == SPEC_GPT     ? "model.heads"
                       : model->kind == SPEC_LLAMA ? "model.kv_heads and model.hidden"
                                                   : "what model.layers split";
    char limit[48] = "";
    while (nearest < most && 3 * nearest <= 2 * model->pieces)
        nearest *= 2;
    if (model->tensor_max != 0)
        snprintf(limit, sizeof limit, ", at most model.tensor_max (%u)", model->tensor_max);
    if (!is_power_of_two(model->pieces) || model->pieces > most)
        return COMPLAIN(draft, "train.pieces", NULL,
                        "train.pieces (%u) must be a power of two that divides %s%s; %u works",
                        model->pieces, what, limit, nearest);
    return ERR_OK;
}

/* A microbatch has any number of samples, the last held-out ones are fewer: so each sample's tokens are
 * divided. */
static enum err check_norms(struct draft *draft)
{
    const struct spec_model *model = &draft->spec->model;
    uint32_t pieces = model->pieces, half = pieces / 2;
    if (model->norms == SPEC_NORMS_WHOLE)
        return ERR_OK;
    if (pieces == 1)
        return COMPLAIN(draft, "train.tensor_norms", "train.pieces",
                        "train.tensor_norms split needs train.pieces (1) of 2 or more");
    if (model->context % pieces != 0)
        return COMPLAIN(
            draft, "train.tensor_norms", "model.context",
            "train.tensor_norms split needs a model.context (%u) that train.pieces (%u) "
            "divides; %u works",
            model->context, pieces,
            model->context < half ? pieces : (model->context + half) / pieces * pieces);
    return ERR_OK;
}

static enum err check_spiral(struct draft *draft)
{
    const struct spec *spec = draft->spec;
    const struct spec_model *model = &spec->model;
    if (model->sizes[0] != 2)
        return COMPLAIN(draft, "model.layers", NULL,
                        "model.layers must begin with 2, the spiral's coordinates, not %u",
                        model->sizes[0]);
    if (model->sizes[model->sizes_count - 1] != spec->data.classes)
        return COMPLAIN(draft, "model.layers", "data.classes",
                        "model.layers must end with data.classes (%u), not %u", spec->data.classes,
                        model->sizes[model->sizes_count - 1]);
    return ERR_OK;
}

/* Points are few bytes; of text each token comes with the one that follows it. */
static enum err check_served(struct draft *draft)
{
    const struct spec *spec = draft->spec;
    uint64_t sample_bytes = spec->model.context * UINT64_C(8);
    uint64_t most = SPEC_SERVED_BYTES_MAX / sample_bytes;
    if (!spec->data.serve || spec->train.slot_samples <= most)
        return ERR_OK;
    if (most == 0)
        return COMPLAIN(draft, "data.serve", "model.context",
                        "data.serve must be false with a model.context of %u: a slot's samples do "
                        "not come in one message",
                        spec->model.context);
    return COMPLAIN(draft, "data.serve", "train.slot_samples",
                    "data.serve needs train.slot_samples (%u) of at most %llu with a model.context "
                    "of %u: a slot's samples come in one message",
                    spec->train.slot_samples, (unsigned long long)most, spec->model.context);
}

static enum err check_data(struct draft *draft)
{
    const struct spec *spec = draft->spec;
    bool spiral = spec->data.kind == SPEC_SPIRAL;
    if (spiral == reads_tokens(&spec->model))
        return COMPLAIN(
            draft, "data.kind", "model.kind",
            "data.kind %s does not fit model.kind %s (gpt, llama: text or tokens; mlp: spiral)",
            spec_data_kinds[spec->data.kind], spec_model_kinds[spec->model.kind]);
    if (spiral)
        return check_spiral(draft);
    if (spec->data.path[0] == 0)
        return COMPLAIN(draft, "data.path", NULL, "data.path is required");
    if (spec->data.path[0] == '~')
        return COMPLAIN(draft, "data.path", NULL,
                        "data.path is \"%.200s\", but ~ is not expanded here: write the whole path",
                        spec->data.path);
    if (spec->data.kind == SPEC_TEXT && spec->model.vocabulary < 256)
        return COMPLAIN(draft, "model.vocabulary", "data.kind",
                        "model.vocabulary (%u) must be at least 256 for text, which is bytes",
                        spec->model.vocabulary);
    return check_served(draft);
}

/* What is kept begins with the library's name (kernels.h, write_products). */
static bool says_products(const char *products)
{
    return strcmp(products, "heuristic") == 0 || spec_times_products(products) ||
           strncmp(products, "cuBLASLt ", 9) == 0;
}

static bool is_gemm_core(const char *name)
{
    for (size_t i = 0; gemm_cores[i] != NULL; i++)
        if (strcmp(gemm_cores[i], name) == 0)
            return true;
    return false;
}

static enum err check_nodes(struct draft *draft)
{
    const struct spec_train *train = &draft->spec->train;
    if (draft->spec->consistency.kind == SPEC_ASYNC && train->node_slots != 1)
        return COMPLAIN(draft, "train.node_slots", "consistency.kind",
                        "train.node_slots (%u) must be 1 when consistency.kind is async",
                        train->node_slots);
    if (train->node_slots == 0) {
        if (train->precision == SPEC_BF16)
            return COMPLAIN(draft, "train.node_slots", "train.precision",
                            "train.node_slots must be set with bf16: where sums are rounded is "
                            "part of the run; 1 would do");
        return ERR_OK;
    }
    if (!is_power_of_two(train->node_slots))
        return COMPLAIN(draft, "train.node_slots", NULL,
                        "train.node_slots (%u) must be a power of two, or 0", train->node_slots);
    if (train->node_slots > train->slots)
        return COMPLAIN(draft, "train.node_slots", "train.slots",
                        "train.node_slots (%u) must be at most train.slots (%u)", train->node_slots,
                        train->slots);
    return ERR_OK;
}

/* Servers compare bits by name: an async ticket's depend on when it was pulled, and other numerics
 * give other bits. */
static enum err check_audit(struct draft *draft)
{
    const struct spec *spec = draft->spec;
    if (spec->train.audit > 0 && spec->consistency.kind == SPEC_ASYNC)
        return COMPLAIN(draft, "train.audit", "consistency.kind",
                        "train.audit (%g) must be 0 when consistency.kind is async: two workers "
                        "compute a ticket on different weights",
                        spec->train.audit);
    if (spec->train.audit > 0 && spec->numerics == SPEC_ANY)
        return COMPLAIN(draft, "train.audit", "numerics",
                        "train.audit (%g) must be 0 with numerics any: workers may bring different "
                        "bits",
                        spec->train.audit);
    if (spec->train.audit > 0 && spec->train.slots > SPEC_AUDITED_SLOTS_MAX)
        return COMPLAIN(draft, "train.audit", "train.slots",
                        "train.audit (%g) must be 0 with more than %d train.slots (%u): servers "
                        "remember no more nodes of a step",
                        spec->train.audit, SPEC_AUDITED_SLOTS_MAX, spec->train.slots);
    if (spec->train.audit > 0 && spec->mesh.program[0] != 0)
        return COMPLAIN(
            draft, "train.audit", "mesh.program",
            "train.audit (%g) must be 0 with mesh.program, where a place may push parts "
            "of its ticket",
            spec->train.audit);
    if (spec->train.audit_rewind && spec->consistency.kind == SPEC_ASYNC)
        return COMPLAIN(
            draft, "train.audit_rewind", "consistency.kind",
            "train.audit_rewind must be false when consistency.kind is async: nobody is "
            "convicted of other bits there");
    if (spec->train.audit_rewind && spec->numerics == SPEC_ANY)
        return COMPLAIN(draft, "train.audit_rewind", "numerics",
                        "train.audit_rewind must be false with numerics any: workers may bring "
                        "different bits");
    return ERR_OK;
}

/* bf16 and tf32 are a GPU's, whose attention has so much room (kernels/cuda/attention*.cu). */
static enum err check_attention(struct draft *draft)
{
    enum { BF16_CHANNELS_MAX = 128, TF32_CHANNELS_MAX = 256, BF16_QUERIES_MAX = 1 << 22 };
    const struct spec *spec = draft->spec;
    const struct spec_model *model = &spec->model;
    bool bf16 = spec->train.compute == SPEC_COMPUTE_BF16;
    uint32_t channels = model->width / model->heads;
    uint32_t channels_max = bf16 ? BF16_CHANNELS_MAX : TF32_CHANNELS_MAX;
    if (spec->train.compute == SPEC_COMPUTE_FP32)
        return ERR_OK;
    if (channels > channels_max)
        return COMPLAIN(draft, "model.heads", "train.compute",
                        "a head has %u channels (model.width / model.heads); with train.compute: "
                        "%s at most %u are possible",
                        channels, bf16 ? "bf16" : "tf32", channels_max);
    uint64_t heads = model->heads / spec_mesh_ranks(&spec->mesh);
    uint64_t queries = heads * model->context * spec->train.microbatch;
    if (bf16 && queries > BF16_QUERIES_MAX)
        return COMPLAIN(draft, "train.microbatch", "train.compute",
                        "train.microbatch x model.heads x model.context are %llu queries at a "
                        "time; with train.compute: bf16 at most %d are possible",
                        (unsigned long long)queries, BF16_QUERIES_MAX);
    return ERR_OK;
}

static enum err check_train(struct draft *draft)
{
    const struct spec *spec = draft->spec;
    const struct spec_train *train = &spec->train;
    if (train->slot_samples % train->microbatch != 0)
        return COMPLAIN(draft, "train.microbatch", "train.slot_samples",
                        "train.microbatch (%u) must divide train.slot_samples (%u)",
                        train->microbatch, train->slot_samples);
    TRY(check_nodes(draft));
    TRY(check_audit(draft));
    if (train->offload && train->recompute != SPEC_RECOMPUTE_NONE)
        return COMPLAIN(draft, "activations.offload", "train.recompute",
                        "activations are offloaded or computed again, not both: train.recompute: "
                        "false would do");
    if (train->residency.weights == SPEC_STREAMED &&
        (spec->consistency.kind == SPEC_ASYNC || spec->consistency.kind == SPEC_LOCAL))
        return COMPLAIN(draft, "residency.weights", "consistency.kind",
                        "streamed weights are pulled again with the version that the step began "
                        "with, which async and local do not keep; sync, delay and ssp do");
    if (train->offload && spec->consistency.kind == SPEC_LOCAL)
        return COMPLAIN(draft, "activations.offload", "consistency.kind",
                        "local steps keep their activations where they are; train.recompute makes "
                        "them fewer");
    if (!is_gemm_core(train->gemm_core))
        return COMPLAIN(draft, "train.gemm_core", NULL,
                        "train.gemm_core must be auto or a core type of OpenBLAS (SkylakeX, "
                        "Cooperlake, Haswell, Zen, Sandybridge, Nehalem, Prescott), not \"%s\"",
                        train->gemm_core);
    if (!says_products(train->products))
        return COMPLAIN(draft, "train.products", NULL,
                        "train.products must be heuristic, timed or what a run keeps of timed "
                        "ones, not \"%.40s\"",
                        train->products);
    if (!reads_tokens(&spec->model))
        return ERR_OK;
    TRY(check_attention(draft));
    if (spec_run_samples(spec) > RUN_TOKENS_MAX / spec->model.context)
        return COMPLAIN(draft, "train.steps", "model.context",
                        "steps x slots x slot_samples x context is more than 2^62 tokens");
    uint64_t row_bytes = (spec->model.vocabulary + UINT64_C(127)) / 128 * 128 * sizeof(float);
    if (train->logits_bytes_max < row_bytes)
        return COMPLAIN(draft, "train.logits_bytes_max", "model.vocabulary",
                        "train.logits_bytes_max (%llu) must hold one row of logits (%llu)",
                        (unsigned long long)train->logits_bytes_max, (unsigned long long)row_bytes);
    return ERR_OK;
}

/* What its rows say is judged where the model is known (common/program/rows.h). */
static enum err check_program(struct draft *draft)
{
    const struct spec_mesh *mesh = &draft->spec->mesh;
    uint32_t lines = spec_program_lines(mesh->rows);
    if (mesh->program[0] == 0)
        return COMPLAIN(draft, "mesh.rows", NULL, "mesh.rows is no setting without mesh.program");
    if (mesh->schedule != SCHEDULE_1F1B || mesh->runs > 1)
        return COMPLAIN(draft, mesh->runs > 1 ? "mesh.units" : "mesh.schedule", "mesh.program",
                        "mesh.program says who computes what when: without mesh.schedule and "
                        "mesh.units it would do");
    if (mesh->rows[0] == 0)
        return ERR_OK;
    if (lines < 2 || lines > SPEC_STAGES_MAX)
        return COMPLAIN(draft, "mesh.program", NULL,
                        "%.100s has %u line%s; a program has one for each of 2 to %d stages",
                        mesh->program, lines, plural(lines), SPEC_STAGES_MAX);
    if (mesh->stages != lines)
        return COMPLAIN(draft, "mesh.stage", "mesh.program",
                        "mesh.stage (%u) must be the number of lines of %.100s, which has %u",
                        mesh->stages, mesh->program, lines);
    return ERR_OK;
}

static enum err check_tensor(struct draft *draft)
{
    const struct spec *spec = draft->spec;
    uint32_t ranks = spec->mesh.ranks, pieces = spec->model.pieces;
    if (ranks <= 1)
        return ERR_OK;
    if ((ranks & (ranks - 1)) != 0 || pieces % ranks != 0)
        return COMPLAIN(draft, "mesh.tensor", "train.pieces",
                        "mesh.tensor (%u) must be a power of two that divides train.pieces (%u)",
                        ranks, pieces);
    if (spec->mesh.stages * ranks > SPEC_STAGES_MAX)
        return COMPLAIN(draft, "mesh.tensor", "mesh.stage",
                        "mesh.stage x mesh.tensor (%u) must be at most %d workers",
                        spec->mesh.stages * ranks, SPEC_STAGES_MAX);
    if (spec->consistency.kind == SPEC_ASYNC || spec->consistency.kind == SPEC_LOCAL)
        return COMPLAIN(
            draft, "mesh.tensor", "consistency.kind",
            "mesh.tensor (%u) must be 1 when consistency.kind is %s, which needs the norm "
            "of a slot's whole gradient in one worker; sync, delay and ssp do not",
            ranks, spec->consistency.kind == SPEC_ASYNC ? "async" : "local");
    if (spec->numerics == SPEC_ANY)
        return COMPLAIN(draft, "mesh.tensor", "numerics",
                        "mesh.tensor (%u) must be 1 with numerics any: the workers of a place hold "
                        "the same activations, bit for bit",
                        ranks);
    if (spec->train.audit > 0 || spec->train.audit_rewind)
        return COMPLAIN(draft, "mesh.tensor", "train.audit",
                        "mesh.tensor (%u) must be 1 with train.audit: which worker of a place "
                        "computes wrongly nobody can tell",
                        ranks);
    return ERR_OK;
}

/* A clipped ticket, and a local step, need a norm over the whole gradient of a slot, of which each
 * place has a part. */
static enum err check_mesh(struct draft *draft)
{
    const struct spec *spec = draft->spec;
    bool async = spec->consistency.kind == SPEC_ASYNC;
    if (spec->mesh.stages > 1 && (async || spec->consistency.kind == SPEC_LOCAL))
        return COMPLAIN(
            draft, "mesh.stage", "consistency.kind",
            "mesh.stage (%u) must be 1 when consistency.kind is %s, which needs the norm "
            "of a slot's whole gradient in one worker; sync, delay and ssp do not",
            spec->mesh.stages, async ? "async" : "local");
    TRY(check_tensor(draft));
    if (spec->mesh.program[0] != 0 || spec->mesh.rows[0] != 0)
        return check_program(draft);
    if (spec->mesh.memory > 0 && spec->mesh.stages <= 1)
        return COMPLAIN(draft, "mesh.memory", "mesh.stage",
                        "mesh.memory (%llu) must be 0 when mesh.stage is 1: nothing is cut",
                        (unsigned long long)spec->mesh.memory);
    if (spec->mesh.runs > 1 && spec->mesh.schedule != SCHEDULE_INTERLEAVED)
        return COMPLAIN(draft, "mesh.units", "mesh.schedule",
                        "mesh.units (%u) must be 1 with mesh.schedule %s; interleaved has more",
                        spec->mesh.runs, schedule_name(spec->mesh.schedule));
    /* A forgotten mesh.stage would train without a pipeline, and without a word. */
    if (spec->mesh.schedule != SCHEDULE_1F1B && spec->mesh.stages <= 1)
        return COMPLAIN(draft, "mesh.schedule", "mesh.stage",
                        "mesh.schedule (%s) must be 1f1b when mesh.stage is 1: nothing is cut; "
                        "mesh.stage: 2 or more would use it",
                        schedule_name(spec->mesh.schedule));
    return ERR_OK;
}

static enum err check_optimizer(struct draft *draft)
{
    const struct spec_optimizer *optimizer = &draft->spec->optimizer;
    if (optimizer->schedule == SPEC_CONSTANT)
        return ERR_OK;
    if (optimizer->lr_min > optimizer->lr)
        return COMPLAIN(draft, "optimizer.lr_min", "optimizer.lr",
                        "optimizer.lr_min must be at most optimizer.lr");
    if (optimizer->warmup_samples >= optimizer->decay_samples)
        return COMPLAIN(draft, "optimizer.warmup_samples", "optimizer.decay_samples",
                        "optimizer.warmup_samples (%llu) must be less than the decay's samples "
                        "(%llu)",
                        (unsigned long long)optimizer->warmup_samples,
                        (unsigned long long)optimizer->decay_samples);
    return ERR_OK;
}

static enum err check_consistency(struct draft *draft)
{
    const struct spec *spec = draft->spec;
    const struct spec_consistency *consistency = &spec->consistency;
    if (consistency->kind == SPEC_LOCAL && spec->train.compute == SPEC_COMPUTE_BF16)
        return COMPLAIN(draft, "train.compute", "consistency.kind",
                        "local steps update the weights that are computed on, which bf16 is too "
                        "coarse for: train.compute must be fp32 or tf32");
    /* steps × slots × slot_samples alone is inside by the table's limits. */
    if (consistency->kind == SPEC_LOCAL &&
        spec->train.steps * spec->train.slots * spec->train.slot_samples >
            SPEC_SAMPLES_MAX / consistency->local_steps)
        return COMPLAIN(draft, "consistency.local_steps", "train.steps",
                        "steps x slots x slot_samples x local_steps is more than 2^62");
    return ERR_OK;
}

enum err spec_rules(struct draft *draft)
{
    TRY(check_model(draft));
    TRY(check_pieces(draft));
    TRY(check_norms(draft));
    TRY(check_data(draft));
    TRY(check_consistency(draft));
    TRY(check_train(draft));
    TRY(check_mesh(draft));
    TRY(check_optimizer(draft));
    return ERR_OK;
}
