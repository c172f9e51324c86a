/* The table of the run's settings, and the defaults that depend on others. */
#include "common/settings/spec.h"

#include "common/scoped.h"
#include "common/settings/spec_core.h"
#include "common/tree.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

const char *const spec_model_kinds[] = {"gpt", "mlp", "llama", NULL};
static const char *const activations[] = {"relu", "tanh", NULL};
const char *const spec_data_kinds[] = {"text", "tokens", "spiral", NULL};
static const char *const precisions[] = {"fp32", "bf16", NULL};
static const char *const computes[] = {"fp32", "tf32", "bf16", NULL};
static const char *const optimizer_kinds[] = {"sgd", "momentum", "adamw", NULL};
static const char *const schedules[] = {"constant", "linear", "cosine", NULL};
static const char *const consistency_kinds[] = {"sync", "delay", "ssp", "async", "local", NULL};
static const char *const outer_kinds[] = {"average", "nesterov", NULL};
static const char *const retired_inner_states[] = {"reset", NULL};
static const char *const durabilities[] = {"cut", "logged", NULL};
static const char *const numerics[] = {"exact", "any", NULL};
static const char *const norms[] = {"whole", "split", NULL};
static const char *const residencies[] = {"resident", "streamed", NULL};
static const char *const orders[] = {"unit", "microbatch", NULL};
static const char *const pipelines[] = {"naive", "gpipe",   "1f1b", "interleaved",
                                        "zb-h1", "chimera", NULL};
/* From SPEC_RECOMPUTE_COUNT on: other words for the first ones (complete()). */
static const char *const recomputes[] = {"false", "true", "every", "none", "all", NULL};

_Static_assert(COUNT(spec_model_kinds) == SPEC_LLAMA + 2, "a name for each");
_Static_assert(COUNT(activations) == SPEC_TANH + 2, "a name for each");
_Static_assert(COUNT(spec_data_kinds) == SPEC_SPIRAL + 2, "a name for each");
_Static_assert(COUNT(precisions) == SPEC_BF16 + 2, "a name for each");
_Static_assert(COUNT(optimizer_kinds) == SPEC_ADAMW + 2, "a name for each");
_Static_assert(COUNT(schedules) == SPEC_COSINE + 2, "a name for each");
_Static_assert(COUNT(consistency_kinds) == SPEC_LOCAL + 2, "a name for each");
_Static_assert(COUNT(outer_kinds) == SPEC_NESTEROV + 2, "a name for each");
_Static_assert(COUNT(durabilities) == SPEC_DURABILITY_LOGGED + 2, "a name for each");
_Static_assert(COUNT(computes) == SPEC_COMPUTE_BF16 + 2, "a name for each");
_Static_assert(COUNT(pipelines) == SCHEDULE_COUNT + 1, "a name for each");
_Static_assert(COUNT(numerics) == SPEC_ANY + 2, "a name for each");
_Static_assert(COUNT(norms) == SPEC_NORMS_SPLIT + 2, "a name for each");
_Static_assert(sizeof(enum spec_model_kind) == sizeof(uint32_t), "config.c stores names so");

#define LR_SPIRAL 0.02
enum {
    STEPS_MAX = 1 << 30,
    SLOT_SAMPLES_MAX = 1 << 16,
    CONTEXT_MAX = 1 << 20,
    VOCABULARY_MAX = 1 << 20,
    WIDTH_MAX = 1 << 17,
    HIDDEN_MAX = 1 << 19,
    HIDDEN_MULTIPLE = 256,
    LAYERS_MAX = 1024,
    MICROBATCH_DEFAULT = 8,
    GPU_TOKENS = 1 << 15,  /* of a microbatch, as an H200 was measured with (RESULTS.md) */
    BF16_TOKEN_BYTES = 34, /* of activations, times layers and width: arXiv:2205.05198, 4.1 */
    LOCAL_STEPS_MAX = 1 << 16,
    STALENESS_MAX = 32, /* readable versions that a server keeps of each chunk */
    WINDOW_MAX = 1 << 16,
    WINDOW_STEPS = 4,
};
#define GPU_ACTIVATION_BYTES (UINT64_C(12) << 30) /* leaves a card of 16 GiB room for weights */
#define GPU_LOGITS_BYTES (UINT64_C(1) << 30)

/* One row: its place, and whether a change is allowed on resume; the rest by name. */
#define ROW(section, member, resume)                                                               \
    .offset = offsetof(struct spec, section.member), .tag = SPEC_RESUME_##resume
#define TOKENS .when_path = "model.kind", .when_mask = 1 << SPEC_GPT | 1 << SPEC_LLAMA
#define LLAMA .when_path = "model.kind", .when_mask = 1 << SPEC_LLAMA
#define MLP .when_path = "model.kind", .when_mask = 1 << SPEC_MLP
#define FILES .when_path = "data.kind", .when_mask = 1 << SPEC_TEXT | 1 << SPEC_TOKENS
#define SPIRAL .when_path = "data.kind", .when_mask = 1 << SPEC_SPIRAL
#define ADAMW .when_path = "optimizer.kind", .when_mask = 1 << SPEC_ADAMW
#define MOMENTUM .when_path = "optimizer.kind", .when_mask = 1 << SPEC_MOMENTUM
#define NOT_ADAMW .when_path = "optimizer.kind", .when_mask = 1 << SPEC_SGD | 1 << SPEC_MOMENTUM
#define IS(kind_) .when_path = "consistency.kind", .when_mask = 1 << SPEC_##kind_
#define NESTEROV .when_path = "consistency.outer.kind", .when_mask = 1 << SPEC_NESTEROV
#define AVERAGE .when_path = "consistency.outer.kind", .when_mask = 1 << SPEC_AVERAGE
#define STREAMED .when_path = "residency.weights", .when_mask = 1 << SPEC_STREAMED
#define FALLING .when_path = "optimizer.schedule", .when_mask = 1 << SPEC_LINEAR | 1 << SPEC_COSINE

/* clang-format off */
static const struct config_field fields[] = {
    {"model.kind", "what is trained: a GPT-2, fully connected layers, or a Llama", CONFIG_NAME,
     ROW(model, kind, REFUSED), .names = spec_model_kinds, .initial = "gpt"},
    {"model.layers", "transformer blocks", CONFIG_U32,
     ROW(model, layers, REFUSED), .min = 1, .max = LAYERS_MAX, .initial = "4", TOKENS,
     .called = "n_layer num_layers num_hidden_layers"},
    {"model.heads", "attention heads; divide the width", CONFIG_U32,
     ROW(model, heads, REFUSED), .min = 1, .max = 1024, .initial = "4", TOKENS,
     .called = "n_head num_heads num_attention_heads"},
    {"model.kv_heads", "heads of keys and values; divide the heads; as many as heads unless set",
     CONFIG_U32, ROW(model, kv_heads, REFUSED), .min = 1, .max = 1024, LLAMA,
     .called = "n_kv_heads num_kv_heads num_key_value_heads"},
    {"model.width", "channels of the residual stream", CONFIG_U32,
     ROW(model, width, REFUSED), .min = 1, .max = WIDTH_MAX, .initial = "128", TOKENS,
     .called = "n_embd d_model hidden_size dim"},
    {"model.hidden", "channels between a block's gate and down projections; 2/3 of 4 x width, rounded "
     "up to a multiple of 256, unless set", CONFIG_U32,
     ROW(model, hidden, REFUSED), .min = 1, .max = HIDDEN_MAX, LLAMA,
     .called = "intermediate_size ffn_hidden_size d_ff"},
    {"model.context", "tokens of one sample", CONFIG_U32,
     ROW(model, context, REFUSED), .min = 1, .max = CONTEXT_MAX, .initial = "128", TOKENS,
     .called = "block_size seq_len seq_length max_seq_len n_positions max_position_embeddings"},
    {"model.vocabulary", "token values; text: 256, tokens: 50257 unless set", CONFIG_U32,
     ROW(model, vocabulary, REFUSED), .min = 2, .max = VOCABULARY_MAX, TOKENS,
     .called = "vocab_size"},
    {"model.layers", "sizes from inputs to classes; [2, 100, classes] unless set", CONFIG_U32S,
     ROW(model, sizes, REFUSED), .min = 1, .max = 1 << 20, .count_min = 2,
     .count_max = SPEC_SIZES_MAX, .count_offset = offsetof(struct spec, model.sizes_count), MLP},
    {"model.activation", "between the linears", CONFIG_NAME,
     ROW(model, activation, REFUSED), .names = activations, .initial = "relu", MLP},
    {"model.tensor_max", "largest tensor degree that the grid of chunks admits, a power of two; 0: "
     "train.pieces, or what a stored run has; set it where train.pieces is to grow on a resume",
     CONFIG_U32, ROW(model, tensor_max, REFUSED), .max = SPEC_PIECES_MAX, .initial = "0"},

    {"data.kind", "bytes of text files, token files (llm.c, nanoGPT), or the spiral set",
     CONFIG_NAME, ROW(data, kind, REFUSED), .names = spec_data_kinds, .initial = "text"},
    {"data.path", "a file, a folder or a glob, relative to the file that names it, in --set to the working folder; required", CONFIG_TEXT,
     ROW(data, path, FREE), .min = 1, .max = SPEC_PATH_BYTES - 1, FILES},
    {"data.validation", "fraction of the samples that is held out", CONFIG_REAL,
     ROW(data, validation, REFUSED), .real_max = 0.5, .initial = "0.1", FILES},
    {"data.validation", "fraction of the samples that is held out", CONFIG_REAL,
     ROW(data, validation, REFUSED), .real_max = 0.5, .initial = "0", SPIRAL},
    {"data.serve", "servers stream samples to workers that have no copy", CONFIG_BOOL,
     ROW(data, serve, FREE), .initial = "false"},
    {"data.points", "points of one class", CONFIG_U32,
     ROW(data, points, REFUSED), .min = 1, .max = 1 << 20, .initial = "100", SPIRAL},
    {"data.classes", "arms of the spiral", CONFIG_U32,
     ROW(data, classes, REFUSED), .min = 2, .max = 1024, .initial = "3", SPIRAL},
    {"data.noise", "standard deviation of the angle", CONFIG_REAL,
     ROW(data, noise, REFUSED), .real_max = 10, .initial = "0.2", SPIRAL},

    {"train.steps", "updates of all weights on the servers", CONFIG_U64,
     ROW(train, steps, FREE), .min = 1, .max = STEPS_MAX, .initial = "300",
     .called = "max_iters train_iters iterations"},
    {"train.slots", "fixed pieces of a step's batch; what workers lease", CONFIG_U32,
     ROW(train, slots, DIGEST), .min = 1, .max = TREE_SLOTS_MAX, .initial = "16"},
    {"train.slot_samples", "samples of one slot; with local steps, of each of them", CONFIG_U32,
     ROW(train, slot_samples, DIGEST), .min = 1, .max = SLOT_SAMPLES_MAX, .initial = "4",
     .called = "batch_size"},
    {"train.microbatch", "samples of one forward and backward pass; divides slot_samples, the "
     "largest divisor up to 8 unless set, with tf32 or bf16 up to 32768 tokens or 12 GiB of "
     "activations", CONFIG_U32,
     ROW(train, microbatch, DIGEST), .min = 1, .max = SLOT_SAMPLES_MAX,
     .called = "micro_batch_size per_device_train_batch_size"},
    {"train.pieces", "products of fixed shape that each layer is computed by which tensor parallelism "
     "could split, a power of two that divides its heads (and its heads of keys and values) or its "
     "width; sums over them are taken in one order, so that any tensor degree that divides it would "
     "give the same weights", CONFIG_U32,
     ROW(model, pieces, DIGEST), .min = 1, .max = SPEC_PIECES_MAX, .initial = "1", .late = true},
    {"train.tensor_norms", "split: norms' gradients are summed over as many ranges of a microbatch's "
     "tokens as there are pieces, in one order; of what lies between the split layers each of the "
     "mesh.tensor workers then keeps and computes its own ranges alone", CONFIG_NAME,
     ROW(model, norms, DIGEST), .names = norms, .initial = "whole", .late = true, TOKENS},
    {"train.seed", "of initial values and of the order of samples", CONFIG_U64,
     ROW(train, seed, REFUSED), .max = UINT64_MAX, .initial = "1"},
    {"train.precision", "of weights and gradients on the wire; sums and state stay fp32",
     CONFIG_NAME, ROW(train, precision, DIGEST), .names = precisions, .initial = "fp32"},
    {"train.compute", "what workers multiply, sums are fp32; tf32 and bf16 need GPUs", CONFIG_NAME,
     ROW(train, compute, DIGEST), .names = computes, .initial = "fp32",
     .called = "dtype mixed_precision"},
    {"train.threads", "of one worker's kernels", CONFIG_U32,
     ROW(train, threads, DIGEST), .min = 1, .max = 256, .initial = "1"},
    {"train.node_slots", "slots that one push sums, a power of two; 0 lets the coordinator choose; "
     "1 with bf16, and with streamed weights in one stage, unless set; async admits 1 alone",
     CONFIG_U32,
     ROW(train, node_slots, DIGEST), .max = TREE_SLOTS_MAX},
    {"train.gemm_core", "OpenBLAS core type that every worker uses", CONFIG_TEXT,
     ROW(train, gemm_core, DIGEST), .min = 1, .max = SPEC_CORE_BYTES - 1, .initial = "auto"},
    {"train.products", "how GPUs compute products: heuristic, by cuBLASLt's own choice; timed: the first "
     "worker times all of its algorithms and the run keeps the fastest in place of this word, so that "
     "its other workers compute the same bits; another run with these bits is given what that one keeps",
     CONFIG_TEXT,
     ROW(train, products, DIGEST), .min = 1, .max = SPEC_PRODUCTS_BYTES - 1, .initial = "heuristic",
     .late = true},
    {"train.validate_every", "steps between validations; 0: only at the end", CONFIG_U32,
     ROW(train, validate_every, FREE), .max = STEPS_MAX, .initial = "100",
     .called = "eval_interval eval_every eval_steps"},
    {"train.validation_samples", "held-out samples used, at most; 0: all; where that is 65536 x "
     "train.slot_samples or more, the run is refused", CONFIG_U32,
     ROW(train, validation_samples, FREE), .max = STEPS_MAX, .initial = "256",
     .called = "eval_iters"},
    {"train.recompute", "activations of layers again in backward instead of keeping them: of none "
     "(false), of all (true), or of every recompute_every-th layer (in a file also {every: 2})", CONFIG_NAME,
     ROW(train, recompute, FREE), .names = recomputes, .initial = "false",
     .called = "gradient_checkpointing activation_checkpointing"},
    {"train.recompute_every", "2: every second layer", CONFIG_U32,
     ROW(train, recompute_every, FREE), .min = 2, .max = 1 << 16, .initial = "2",
     .when_path = "train.recompute", .when_mask = 1 << SPEC_RECOMPUTE_EVERY},
    {"train.logits_bytes_max", "logits in memory at a time; 1 GiB with tf32 or bf16, unless set",
     CONFIG_U64,
     ROW(train, logits_bytes_max, DIGEST), .min = 4096, .max = UINT64_C(1) << 40,
     .initial = "67108864"},
    {"train.skip_max", "non-finite steps in a row before the run stops; 0: any; async leaves out "
     "what is not finite and goes on, whatever this says", CONFIG_U32,
     ROW(train, skip_max, FREE), .max = STEPS_MAX, .initial = "10"},
    {"train.audit", "share of tickets that a second worker computes as well, to find a worker that "
     "computes wrongly", CONFIG_REAL,
     ROW(train, audit, FREE), .real_max = 1, .initial = "0"},
    {"train.audit_rewind", "when a worker computes wrongly, back to a checkpoint before what it "
     "brought since an audit of it agreed", CONFIG_BOOL,
     ROW(train, audit_rewind, FREE), .initial = "false"},

    {"activations.offload", "activations wait in the host's memory for their backward: on a GPU they "
     "leave the device", CONFIG_BOOL,
     ROW(train, offload, FREE), .initial = "false", .late = true},
    {"residency.weights", "resident: a worker keeps all weights of a step; streamed: it holds those of "
     "the layers that it computes next, and pulls them again for each use; gradients too, until they "
     "are acknowledged, where train.node_slots is 1 and the order unit", CONFIG_NAME,
     ROW(train, residency.weights, FREE), .names = residencies, .initial = "resident", .late = true},
    {"residency.keep_after_forward", "from a layer's forward to its backward", CONFIG_BOOL,
     ROW(train, residency.keep_after_forward, FREE), .initial = "false", STREAMED},
    {"residency.order", "unit: all microbatches of a slot through a layer, then the next one: fewer "
     "pulls, more activations; microbatch: one after another", CONFIG_NAME,
     ROW(train, residency.order, FREE), .names = orders, .initial = "unit", STREAMED},
    {"residency.prefetch", "layers that are asked for ahead, and as many whose gradients may be on "
     "their way to the servers", CONFIG_U32,
     ROW(train, residency.prefetch, FREE), .max = 1 << 10, .initial = "1", STREAMED},

    {"mesh.stage", "workers that share a ticket, each with the weights of a run of layers of its own",
     CONFIG_U32, ROW(mesh, stages, FREE), .min = 1, .max = SPEC_STAGES_MAX, .initial = "1", .late = true,
     .called = "pipeline_parallel_size pipeline_model_parallel_size"},
    {"mesh.tensor", "workers that share each of these places, each with the weights of some of the "
     "pieces: a power of two that divides train.pieces",
     CONFIG_U32, ROW(mesh, ranks, FREE), .min = 1, .max = SPEC_STAGES_MAX, .initial = "1", .late = true,
     .called = "tensor_parallel_size tensor_model_parallel_size"},
    {"mesh.schedule", "who computes which microbatch when (docs/schedules.md)", CONFIG_NAME,
     ROW(mesh, schedule, FREE), .names = pipelines, .initial = "1f1b", .late = true},
    {"mesh.units", "runs of layers that each of them has; more than 1: interleaved", CONFIG_U32,
     ROW(mesh, runs, FREE), .min = 1, .max = 8, .initial = "1", .late = true},
    {"mesh.memory", "bytes of weights and gradients, 8 a weight, that none of these places exceeds: "
     "layers are cut so; 0: where they take equally long", CONFIG_U64,
     ROW(mesh, memory, FREE), .max = UINT64_C(1) << 50, .initial = "0", .late = true},
    {"mesh.program", "instead of a schedule: a file with a line of acts for each of them "
     "(docs/schedules.md), relative like data.path", CONFIG_TEXT,
     ROW(mesh, program, FREE), .min = 1, .max = SPEC_PATH_BYTES - 1, .late = true},
    {"mesh.rows", "its acts, which roost reads from the file when the run starts; where they are "
     "set, the file is not read", CONFIG_TEXT,
     ROW(mesh, rows, FREE), .min = 1, .max = SPEC_ROWS_BYTES - 1, .late = true},

    {"optimizer.kind", "how weights follow gradients", CONFIG_NAME,
     ROW(optimizer, kind, REFUSED), .names = optimizer_kinds, .initial = "adamw"},
    {"optimizer.lr", "learning rate; for the spiral set 0.02 unless set", CONFIG_REAL,
     ROW(optimizer, lr, DIGEST), .real_max = 1000, .initial = "0.001", ADAMW},
    {"optimizer.lr", "learning rate", CONFIG_REAL,
     ROW(optimizer, lr, DIGEST), .real_max = 1000, .initial = "0.1", NOT_ADAMW},
    {"optimizer.betas", "decay of the two moments", CONFIG_REALS,
     ROW(optimizer, betas, DIGEST), .real_max = 1, .real_below = true, .count_min = 2,
     .count_max = 2, .initial = "[0.9, 0.95]", ADAMW},
    {"optimizer.eps", "added to the root of the second moment", CONFIG_REAL,
     ROW(optimizer, eps, DIGEST), .real_min = 1e-30, .real_max = 1, .initial = "1e-8", ADAMW,
     .called = "epsilon"},
    {"optimizer.momentum", "decay of the momentum", CONFIG_REAL,
     ROW(optimizer, momentum, DIGEST), .real_max = 1, .real_below = true, .initial = "0.9",
     MOMENTUM},
    {"optimizer.nesterov", "Nesterov's momentum", CONFIG_BOOL,
     ROW(optimizer, nesterov, DIGEST), .initial = "false", MOMENTUM},
    {"optimizer.weight_decay", "of matrices", CONFIG_REAL,
     ROW(optimizer, weight_decay, DIGEST), .real_max = 100, .initial = "0.1", ADAMW,
     .called = "wd"},
    {"optimizer.weight_decay", "of matrices", CONFIG_REAL,
     ROW(optimizer, weight_decay, DIGEST), .real_max = 100, .initial = "0", NOT_ADAMW,
     .called = "wd"},
    {"optimizer.clip_norm", "largest norm of the whole gradient; 0: any", CONFIG_REAL,
     ROW(optimizer, clip_norm, DIGEST), .real_max = 1e12, .initial = "1", ADAMW,
     .called = "grad_clip max_grad_norm gradient_clipping"},
    {"optimizer.clip_norm", "largest norm of the whole gradient; 0: any", CONFIG_REAL,
     ROW(optimizer, clip_norm, DIGEST), .real_max = 1e12, .initial = "0", NOT_ADAMW,
     .called = "grad_clip max_grad_norm gradient_clipping"},
    {"optimizer.schedule", "learning rate after the warm-up", CONFIG_NAME,
     ROW(optimizer, schedule, DIGEST), .names = schedules, .initial = "cosine", ADAMW},
    {"optimizer.schedule", "learning rate after the warm-up", CONFIG_NAME,
     ROW(optimizer, schedule, DIGEST), .names = schedules, .initial = "constant", NOT_ADAMW},
    {"optimizer.warmup_samples", "samples over which the rate rises from 0", CONFIG_U64,
     ROW(optimizer, warmup_samples, DIGEST), .max = SPEC_SAMPLES_MAX, .initial = "0"},
    {"optimizer.decay_samples", "samples after which lr_min is reached; the run's end unless set",
     CONFIG_U64, ROW(optimizer, decay_samples, DIGEST), .min = 1, .max = SPEC_SAMPLES_MAX, FALLING},
    {"optimizer.lr_min", "learning rate at the end; lr / 10 unless set", CONFIG_REAL,
     ROW(optimizer, lr_min, DIGEST), .real_max = 1000, FALLING, .called = "min_lr"},

    {"consistency.kind", "which version a gradient uses and when it is applied", CONFIG_NAME,
     ROW(consistency, kind, REFUSED), .names = consistency_kinds, .initial = "sync"},
    {"consistency.delay", "a ticket of step t uses the weights of version t - delay; 0 is sync",
     CONFIG_U32, ROW(consistency, delay, REFUSED), .max = STALENESS_MAX, .initial = "1",
     IS(DELAY)},
    {"consistency.staleness", "a ticket of step t uses a version from t - staleness to t; 0 is sync",
     CONFIG_U32, ROW(consistency, staleness, DIGEST), .max = STALENESS_MAX, .initial = "2",
     IS(SSP)},
    {"consistency.staleness_max", "a ticket whose weights are more versions behind is computed again",
     CONFIG_U32, ROW(consistency, staleness_max, DIGEST), .max = WINDOW_MAX, .initial = "16",
     IS(ASYNC)},
    {"consistency.window", "tickets that may be granted at a time, of whole steps from the oldest "
     "unfinished one's on: rounded down to a multiple of train.slots, and one step's at least; four "
     "steps' unless set", CONFIG_U32,
     ROW(consistency, window, REFUSED), .min = 1, .max = WINDOW_MAX, IS(ASYNC)},
    {"consistency.local_steps", "optimizer steps of slot_samples each that a worker makes between "
     "pull and push", CONFIG_U32,
     ROW(consistency, local_steps, DIGEST), .min = 1, .max = LOCAL_STEPS_MAX, .initial = "8",
     IS(LOCAL)},
    {"consistency.inner_state", "the optimizer's state begins anew with each ticket",
     CONFIG_RETIRED, .tag = SPEC_RESUME_REFUSED, .names = retired_inner_states, IS(LOCAL)},
    {"consistency.outer.kind", "how servers apply the mean difference of a step's slots",
     CONFIG_NAME, ROW(consistency, outer.kind, REFUSED), .names = outer_kinds,
     .initial = "average", IS(LOCAL)},
    {"consistency.outer.lr", "share of the mean difference that is applied", CONFIG_REAL,
     ROW(consistency, outer.lr, DIGEST), .real_max = 1000, .initial = "1", AVERAGE},
    {"consistency.outer.lr", "learning rate of the outer momentum (DiLoCo: 0.7)", CONFIG_REAL,
     ROW(consistency, outer.lr, DIGEST), .real_max = 1000, .initial = "0.7", NESTEROV},
    {"consistency.outer.momentum", "decay of the outer momentum", CONFIG_REAL,
     ROW(consistency, outer.momentum, DIGEST), .real_max = 1, .real_below = true,
     .initial = "0.9", NESTEROV},

    {"checkpoint.every_steps", "steps between checkpoints; 0: only first and last", CONFIG_U64,
     ROW(checkpoint, every_steps, FREE), .max = STEPS_MAX, .initial = "100",
     .called = "save_steps save_interval"},
    {"checkpoint.keep", "newest checkpoints kept", CONFIG_U32,
     ROW(checkpoint, keep, FREE), .min = 1, .max = 10000, .initial = "3",
     .called = "save_total_limit"},
    {"checkpoint.memory_bytes", "of each server, for copies of chunks on their way to a checkpoint: "
     "steps go on beside it as far as this reaches, and wait for the disk beyond", CONFIG_U64,
     ROW(checkpoint, memory_bytes, FREE), .min = 1 << 20, .max = UINT64_C(1) << 40,
     .initial = "4294967296"},
    {"checkpoint.durability", "cut: what came after the newest checkpoint may be lost; logged: nothing "
     "that was acknowledged is", CONFIG_NAME,
     ROW(checkpoint, durability, FREE), .names = durabilities, .initial = "cut", IS(ASYNC)},

    {"numerics", "exact: workers that compute other bits are refused", CONFIG_NAME,
     .offset = offsetof(struct spec, numerics), .tag = SPEC_RESUME_DIGEST, .names = numerics,
     .initial = "exact"},
};
/* clang-format on */

_Static_assert(COUNT(fields) <= CONFIG_FIELDS_MAX, "the table fits");

static const struct config_table table = {fields, COUNT(fields), sizeof(struct spec)};

static void complete(struct draft *draft);

enum err spec_parse(struct slice text, const char *file, const struct config_overrides *overrides,
                    struct spec *ret_spec, struct reason *reason)
{
    struct spec spec;
    struct draft draft = {.table = &table, .spec = &spec, .reason = reason};
    TRY(config_parse(&table, text, file, overrides, &spec, &draft.places, reason));
    complete(&draft);
    TRY(spec_rules(&draft));
    *ret_spec = spec;
    return ERR_OK;
}

enum err spec_print(const struct spec *spec, struct buf *buf)
{
    return config_print(&table, spec, buf);
}

enum err spec_print_reference(struct buf *buf)
{
    return config_print_reference(&table, buf);
}

const struct config_table *spec_table(void)
{
    return &table;
}

/* ---- defaults that depend on other settings ---- */

/* The setting exists, and no source sets it. */
static bool is_open(const struct draft *draft, const char *path)
{
    size_t row = config_find(&table, draft->spec, path);
    return row < COUNT(fields) && draft->places.places[row].source == CONFIG_DEFAULT;
}

static uint32_t largest_divisor(uint32_t number, uint32_t most)
{
    uint32_t divisor = most < number ? most : number;
    while (number % divisor != 0)
        divisor--;
    return divisor;
}

/* The hidden width of Llama's own code: 2/3 of GPT-2's, so that three matrices cost what two did.
 */
static uint32_t usual_hidden(uint32_t width)
{
    uint32_t two_thirds = 8 * width / 3;
    return (two_thirds + HIDDEN_MULTIPLE - 1) / HIDDEN_MULTIPLE * HIDDEN_MULTIPLE;
}

static void complete_model(struct draft *draft)
{
    struct spec *spec = draft->spec;
    if (is_open(draft, "model.vocabulary"))
        spec->model.vocabulary = spec->data.kind == SPEC_TOKENS ? 50257 : 256;
    if (is_open(draft, "model.kv_heads"))
        spec->model.kv_heads = spec->model.heads;
    if (is_open(draft, "model.hidden"))
        spec->model.hidden = usual_hidden(spec->model.width);
    if (spec->model.kind == SPEC_MLP && is_open(draft, "model.layers")) {
        uint32_t classes = spec->data.kind == SPEC_SPIRAL ? spec->data.classes : 3;
        memcpy(spec->model.sizes, (const uint32_t[]){2, 100, classes}, 3 * sizeof(uint32_t));
        spec->model.sizes_count = 3;
    }
}

/* With bf16 the rounding of sums is part of the run, async takes slots one by one; and a worker that
 * has not the memory for all weights has none for sums of their gradients. */
static bool sums_no_slots(const struct spec *spec)
{
    return spec->train.precision == SPEC_BF16 || spec->consistency.kind == SPEC_ASYNC ||
           (spec->train.residency.weights == SPEC_STREAMED && spec->mesh.stages <= 1);
}

/* GPUs alone compute in tf32 and bf16: what they do at once is large, but fits ordinary ones. The mesh
 * has no say, because another one must not change the bits. */
static uint32_t usual_microbatch(const struct spec *spec)
{
    const struct spec_model *model = &spec->model;
    bool tokens = model->kind != SPEC_MLP;
    uint64_t most = GPU_TOKENS, sample = tokens ? model->context : 1;
    if (spec->train.compute == SPEC_COMPUTE_FP32)
        return MICROBATCH_DEFAULT;
    uint64_t token_bytes = (uint64_t)BF16_TOKEN_BYTES * model->layers * model->width;
    if (spec->train.compute == SPEC_COMPUTE_TF32)
        token_bytes *= 2;
    if (tokens && GPU_ACTIVATION_BYTES / token_bytes < most)
        most = GPU_ACTIVATION_BYTES / token_bytes;
    return most > sample ? (uint32_t)(most / sample) : 1;
}

uint32_t spec_program_lines(const char *rows)
{
    uint32_t lines = 0;
    while (*(rows += strspn(rows, ";, \t")) != 0) {
        rows += strcspn(rows, ";");
        lines++;
    }
    return lines;
}

/* One setting was set by a higher source than another one. */
static bool is_over(const struct draft *draft, const char *path, const char *other)
{
    size_t row = config_find(&table, draft->spec, path);
    size_t other_row = config_find(&table, draft->spec, other);
    return draft->places.places[row].source > draft->places.places[other_row].source;
}

/* Rows belong to the program that the same source or a lower one names; what is about stages to the
 * mesh.stage that does: `--set mesh.stage=1` runs any spec in one. */
static void complete_mesh(struct draft *draft)
{
    struct spec_mesh *mesh = &draft->spec->mesh;
    if (is_over(draft, "mesh.program", "mesh.rows"))
        memset(mesh->rows, 0, sizeof mesh->rows);
    if (mesh->rows[0] != 0 && is_open(draft, "mesh.stage"))
        mesh->stages = spec_program_lines(mesh->rows);
    if (mesh->stages > 1)
        return;
    if (is_over(draft, "mesh.stage", "mesh.schedule"))
        mesh->schedule = SCHEDULE_1F1B;
    if (is_over(draft, "mesh.stage", "mesh.units"))
        mesh->runs = 1;
    if (is_over(draft, "mesh.stage", "mesh.memory"))
        mesh->memory = 0;
    if (is_over(draft, "mesh.stage", "mesh.program"))
        memset(mesh->program, 0, sizeof mesh->program);
    if (is_over(draft, "mesh.stage", "mesh.rows"))
        memset(mesh->rows, 0, sizeof mesh->rows);
}

static void complete(struct draft *draft)
{
    struct spec *spec = draft->spec;
    complete_model(draft);
    complete_mesh(draft);
    if (is_open(draft, "optimizer.lr") && spec->optimizer.kind == SPEC_ADAMW &&
        spec->data.kind == SPEC_SPIRAL)
        spec->optimizer.lr = LR_SPIRAL; /* 300 steps then reach an accuracy of 0.99 */
    if (spec->train.recompute >= SPEC_RECOMPUTE_COUNT)
        spec->train.recompute -= SPEC_RECOMPUTE_COUNT;
    if (is_open(draft, "train.microbatch"))
        spec->train.microbatch = largest_divisor(spec->train.slot_samples, usual_microbatch(spec));
    if (is_open(draft, "train.logits_bytes_max") && spec->train.compute != SPEC_COMPUTE_FP32)
        spec->train.logits_bytes_max = GPU_LOGITS_BYTES;
    if (is_open(draft, "train.node_slots"))
        spec->train.node_slots = sums_no_slots(spec);
    if (is_open(draft, "consistency.window"))
        spec->consistency.window = WINDOW_STEPS * spec->train.slots < WINDOW_MAX
                                       ? WINDOW_STEPS * spec->train.slots
                                       : WINDOW_MAX;
    if (is_open(draft, "optimizer.decay_samples"))
        spec->optimizer.decay_samples = spec_run_samples(spec);
    if (is_open(draft, "optimizer.lr_min"))
        spec->optimizer.lr_min = spec->optimizer.lr / 10;
}

const char *schedule_name(enum schedule_kind schedule)
{
    check(schedule < SCHEDULE_COUNT);
    return pipelines[schedule];
}

/* ---- resume ---- */

/* What decides how many slots a push sums. */
static bool sizes_pushes(const struct config_field *field)
{
    return field->offset == offsetof(struct spec, train.node_slots) ||
           field->offset == offsetof(struct spec, mesh.stages) ||
           field->offset == offsetof(struct spec, mesh.schedule);
}

/* The bits do not depend on who sums slots as long as nothing is rounded on the way (P4). */
static bool rounds_other_sums(const struct spec *stored, const struct spec *wanted)
{
    return wanted->train.precision != SPEC_FP32 &&
           spec_push_slots(stored) != spec_push_slots(wanted);
}

/* Where the learning rate follows from a step's or a chunk's number, and not from counted samples
 * (worker/local.h, seal_ticket()): with this setting it would jump along its schedule. */
static bool moves_along_schedule(const struct config_field *field, const struct spec *wanted)
{
    bool local = wanted->consistency.kind == SPEC_LOCAL;
    bool counts = field->offset == offsetof(struct spec, train.slot_samples)
                      ? local || wanted->consistency.kind == SPEC_ASYNC
                      : local && (field->offset == offsetof(struct spec, train.slots) ||
                                  field->offset == offsetof(struct spec, consistency.local_steps));
    return counts &&
           (wanted->optimizer.schedule != SPEC_CONSTANT || wanted->optimizer.warmup_samples > 0);
}

static enum spec_resume verdict_of(const struct config_field *field, const struct spec *stored,
                                   const struct spec *wanted)
{
    if (sizes_pushes(field))
        return rounds_other_sums(stored, wanted) ? SPEC_RESUME_DIGEST : SPEC_RESUME_FREE;
    /* Chunks remember which tickets they took, and a ticket's number counts slots. */
    if (field->offset == offsetof(struct spec, train.slots) &&
        wanted->consistency.kind == SPEC_ASYNC)
        return SPEC_RESUME_REFUSED;
    if (moves_along_schedule(field, wanted))
        return SPEC_RESUME_REFUSED;
    return (enum spec_resume)field->tag;
}

static enum err print_row(size_t row, const struct spec *spec, struct buf *buf)
{
    return row == COUNT(fields) ? buf_printf(buf, "unset")
                                : config_print_value(&fields[row], spec, buf);
}

/* Adds the change of one setting, if any. */
static enum err compare_row(size_t stored_row, const struct spec *stored, size_t wanted_row,
                            const struct spec *wanted, struct spec_changes *changes)
{
    scoped(buf_release) struct buf before = {0};
    scoped(buf_release) struct buf after = {0};
    TRY(print_row(stored_row, stored, &before));
    TRY(print_row(wanted_row, wanted, &after));
    if (strcmp((const char *)before.data, (const char *)after.data) == 0)
        return ERR_OK;
    const struct config_field *field =
        &fields[wanted_row < COUNT(fields) ? wanted_row : stored_row];
    struct spec_change *change = &changes->changes[changes->count++];
    *change = (struct spec_change){
        .path = field->path, .verdict = verdict_of(field, stored, wanted), .why = ""};
    snprintf(change->text, sizeof change->text, "%s: %.64s -> %.64s", field->path,
             (const char *)before.data, (const char *)after.data);
    if (moves_along_schedule(field, wanted))
        change->why = " (the schedule counts by it: only with optimizer.schedule: constant and "
                      "warmup_samples: 0)";
    return ERR_OK;
}

static enum err say_refused(const struct spec_changes *changes, struct reason *reason)
{
    char list[400] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < changes->count; i++) {
        const struct spec_change *change = &changes->changes[i];
        if (change->verdict != SPEC_RESUME_REFUSED || used >= sizeof list)
            continue;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s%s", used == 0 ? "" : "; ",
                                 change->text, change->why);
    }
    if (used == 0)
        return ERR_OK;
    return reason_set(reason, ERR_SPEC_DIFFERS, "the stored run cannot be continued with %s", list);
}

enum err spec_compare_for_resume(const struct spec *stored, const struct spec *wanted,
                                 struct spec_changes *ret_changes, struct reason *reason)
{
    *ret_changes = (struct spec_changes){0};
    for (size_t row = 0; row < COUNT(fields); row++) {
        const char *path = fields[row].path;
        size_t stored_row = config_find(&table, stored, path);
        size_t wanted_row = config_find(&table, wanted, path);
        /* A path is judged at the row that the wanted spec has, else at the stored one's; what came
         * or went with a refused kind is not worth a line. */
        size_t at = wanted_row < COUNT(fields) ? wanted_row : stored_row;
        bool one_sided = (stored_row == COUNT(fields)) != (wanted_row == COUNT(fields));
        if (at != row || (one_sided && fields[row].tag == SPEC_RESUME_REFUSED))
            continue;
        TRY(compare_row(stored_row, stored, wanted_row, wanted, ret_changes));
    }
    return say_refused(ret_changes, reason);
}

/* ---- what servers apply ---- */

struct spec_optimizer spec_server_optimizer(const struct spec *spec)
{
    if (spec->consistency.kind != SPEC_LOCAL)
        return spec->optimizer;
    const struct spec_outer *outer = &spec->consistency.outer;
    bool nesterov = outer->kind == SPEC_NESTEROV;
    return (struct spec_optimizer){.kind = nesterov ? SPEC_MOMENTUM : SPEC_SGD,
                                   .lr = outer->lr,
                                   .momentum = outer->momentum,
                                   .nesterov = nesterov,
                                   .schedule = SPEC_CONSTANT};
}
