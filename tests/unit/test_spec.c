/* The run's settings: defaults, every refusal with its place, printing, resume. */
#include "tests/unit/unit.h"

#include "common/settings/spec.h"
#include "kernels/kernels.h"

static enum err parse(const char *text, const char *flag, struct spec *ret_spec,
                      struct reason *reason)
{
    struct config_overrides overrides = {&flag, flag != NULL, NULL};
    return spec_parse(slice_of(text), "run.yaml", &overrides, ret_spec, reason);
}

static struct spec parsed(const char *text)
{
    struct spec spec;
    struct reason reason = {{0}};
    if (parse(text, NULL, &spec, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    return spec;
}

static void expect_reason(const char *text, const char *flag, const char *wanted)
{
    struct spec spec;
    struct reason reason = {{0}};
    assert_int_equal(parse(text, flag, &spec, &reason), ERR_INVALID);
    assert_string_equal(reason.text, wanted);
}

#define GPT "model: {kind: gpt, layers: 2, heads: 4, width: 128, context: 64}\n"
#define TEXT "data: {kind: text, path: corpus.txt}\n"
#define MLP "model: {kind: mlp, layers: [2, 100, 3]}\n"
#define SPIRAL "data: {kind: spiral}\n"

static const char full[] =
    "model:       {kind: gpt, layers: 4, heads: 4, width: 128, context: 128, vocabulary: 256}\n"
    "data:        {kind: text, path: corpus.txt, validation: 0.1}\n"
    "train:       {steps: 300, slots: 16, slot_samples: 4, microbatch: 2, seed: 1, "
    "precision: fp32, threads: 1}\n"
    "optimizer:   {kind: adamw, lr: 1.0e-3, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1, "
    "clip_norm: 1.0, schedule: cosine, warmup_samples: 1280}\n"
    "consistency: {kind: sync}\n"
    "checkpoint:  {every_steps: 100, keep: 3}\n"
    "numerics:    exact\n";

TEST(the_documented_example_is_read_as_written)
{
    struct spec spec = parsed(full);
    assert_int_equal(spec.model.kind, SPEC_GPT);
    assert_int_equal(spec.model.layers, 4);
    assert_int_equal(spec.model.heads, 4);
    assert_int_equal(spec.model.width, 128);
    assert_int_equal(spec.model.context, 128);
    assert_int_equal(spec.model.vocabulary, 256);
    assert_int_equal(spec.model.tensor_max, 0);
    assert_int_equal(spec_tensor_max(&spec.model), 1);
    assert_int_equal(spec.data.kind, SPEC_TEXT);
    assert_string_equal(spec.data.path, "corpus.txt");
    assert_true(spec.data.validation == 0.1);
    assert_int_equal(spec.train.steps, 300);
    assert_int_equal(spec.train.slots, 16);
    assert_int_equal(spec.train.slot_samples, 4);
    assert_int_equal(spec.train.microbatch, 2);
    assert_int_equal(spec.train.seed, 1);
    assert_int_equal(spec.train.precision, SPEC_FP32);
    assert_int_equal(spec.train.threads, 1);
    assert_int_equal(spec.train.node_slots, 0);
    assert_string_equal(spec.train.gemm_core, "auto");
    assert_int_equal(spec.optimizer.kind, SPEC_ADAMW);
    assert_true(spec.optimizer.lr == 1e-3);
    assert_true(spec.optimizer.betas[0] == 0.9 && spec.optimizer.betas[1] == 0.95);
    assert_true(spec.optimizer.eps == 1e-8);
    assert_true(spec.optimizer.weight_decay == 0.1);
    assert_true(spec.optimizer.clip_norm == 1);
    assert_int_equal(spec.optimizer.schedule, SPEC_COSINE);
    assert_int_equal(spec.optimizer.warmup_samples, 1280);
    assert_int_equal(spec.consistency.kind, SPEC_SYNC);
    assert_int_equal(spec.checkpoint.every_steps, 100);
    assert_int_equal(spec.checkpoint.keep, 3);
    assert_int_equal(spec.numerics, SPEC_EXACT);
}

TEST(a_path_is_all_that_must_be_said)
{
    struct spec spec = parsed("data: {path: corpus.txt}");
    assert_int_equal(spec.model.vocabulary, 256);
    assert_int_equal(spec.train.microbatch, 4);
    assert_int_equal(spec.optimizer.decay_samples, 300 * 16 * 4);
    assert_true(spec.optimizer.lr_min == 1e-4);
    assert_int_equal(spec_step_samples(&spec), 64);
    assert_int_equal(spec_run_samples(&spec), 19200);
}

TEST(defaults_follow_what_they_depend_on)
{
    assert_int_equal(parsed("data: {kind: tokens, path: '*.bin'}").model.vocabulary, 50257);
    assert_int_equal(parsed(TEXT "train: {precision: bf16}").train.node_slots, 1);
    assert_int_equal(parsed(TEXT "residency: {weights: streamed}").train.node_slots, 1);
    assert_int_equal(parsed(TEXT "train: {slot_samples: 30}").train.microbatch, 6);
    assert_int_equal(parsed(TEXT "train: {slot_samples: 7}").train.microbatch, 7);
    assert_int_equal(parsed(TEXT "train: {slot_samples: 11}").train.microbatch, 1);
    assert_int_equal(parsed(TEXT).train.logits_bytes_max, 64 << 20);
}

TEST(what_a_gpu_computes_at_once_is_large_unless_it_is_said)
{
#define GPT2 "model: {layers: 12, heads: 12, width: 768, context: 1024}\n"
    struct spec spec = parsed(GPT2 TEXT "train: {slot_samples: 64, compute: bf16}");
    assert_int_equal(spec.train.microbatch, 32); /* 32,768 tokens */
    assert_int_equal(spec.train.logits_bytes_max, 1 << 30);
    spec = parsed(GPT2 TEXT "train: {slot_samples: 64, compute: tf32}");
    assert_int_equal(spec.train.microbatch, 16); /* 12 GiB of 68 · 12 · 768 bytes a token, 20 */
    spec = parsed(GPT2 TEXT "train: {slot_samples: 64, compute: tf32, microbatch: 4, "
                            "logits_bytes_max: 9999999}");
    assert_int_equal(spec.train.microbatch, 4);
    assert_int_equal(spec.train.logits_bytes_max, 9999999);
    /* 12 GiB of 34 · 48 · 1600 bytes a token */
    spec = parsed("model: {layers: 48, heads: 25, width: 1600, context: 1024}\n" TEXT
                  "train: {slot_samples: 64, compute: bf16}");
    assert_int_equal(spec.train.microbatch, 4);
    spec = parsed("model: {kind: llama, layers: 32, heads: 32, width: 4096, context: 8192}\n" TEXT
                  "train: {slot_samples: 64, compute: bf16}");
    assert_int_equal(spec.train.microbatch, 1);
    spec = parsed(GPT2 TEXT "train: {slot_samples: 64, compute: bf16}\nmesh: {stage: 2}");
    assert_int_equal(spec.train.microbatch, 32);
    spec = parsed("model: {kind: mlp}\n" SPIRAL "train: {slot_samples: 96, compute: tf32}");
    assert_int_equal(spec.train.microbatch, 96);
    struct spec mlp = parsed("model: {kind: mlp}\ndata: {kind: spiral, classes: 5}\n"
                             "optimizer: {kind: sgd, lr: 1}");
    assert_int_equal(mlp.model.sizes_count, 3);
    assert_int_equal(mlp.model.sizes[2], 5);
    assert_true(mlp.data.validation == 0);
    assert_true(parsed("model: {kind: mlp}\ndata: {kind: spiral}").optimizer.lr == 0.02);
    assert_int_equal(mlp.optimizer.schedule, SPEC_CONSTANT);
    assert_true(mlp.optimizer.clip_norm == 0 && mlp.optimizer.weight_decay == 0);
}

TEST(a_llama_has_the_hidden_width_of_llamas_code)
{
    struct spec usual = parsed("model: {kind: llama}\n" TEXT);
    assert_int_equal(usual.model.kind, SPEC_LLAMA);
    assert_int_equal(usual.model.kv_heads, 4);
    assert_int_equal(usual.model.hidden, 512); /* 2/3 of 512, rounded up to a multiple of 256 */
    struct spec large = parsed("model: {kind: llama, width: 4096, heads: 32}\n" TEXT);
    assert_int_equal(large.model.hidden, 11008); /* of Llama 2 7B */
    struct spec said = parsed("model: {kind: llama, kv_heads: 1, hidden: 300}\n" TEXT);
    assert_int_equal(said.model.kv_heads, 1);
    assert_int_equal(said.model.hidden, 300);
    assert_int_equal(parsed(TEXT).model.hidden, 0);
}

TEST(local_steps_have_an_outer_optimizer)
{
    struct spec spec = parsed(TEXT "consistency: {kind: local}");
    assert_int_equal(spec.consistency.local_steps, 8);
    assert_int_equal(spec.consistency.outer.kind, SPEC_AVERAGE);
    assert_true(spec.consistency.outer.lr == 1);
    assert_int_equal(spec.optimizer.kind, SPEC_ADAMW); /* the workers' */
    assert_int_equal(spec.optimizer.decay_samples, 300 * 16 * 4 * 8);
    spec = parsed(TEXT "consistency: {kind: local, outer: {kind: nesterov}}");
    assert_true(spec.consistency.outer.lr == 0.7 && spec.consistency.outer.momentum == 0.9);
    spec = parsed(TEXT "consistency: {kind: ssp}");
    assert_int_equal(spec.consistency.staleness, 2);
    assert_int_equal(spec.consistency.local_steps, 0);
}

TEST(a_delay_is_how_far_weights_may_be_behind)
{
    struct spec spec = parsed(TEXT "consistency: {kind: delay, delay: 3}");
    assert_int_equal(spec_staleness(&spec), 3);
    spec = parsed(TEXT "consistency: {kind: delay}");
    assert_int_equal(spec_staleness(&spec), 1);
    spec = parsed(TEXT);
    assert_int_equal(spec_staleness(&spec), 0);
}

TEST(fields_of_another_kind_are_zero)
{
    struct spec spec = parsed(MLP SPIRAL "optimizer: {kind: momentum, nesterov: true}");
    assert_int_equal(spec.model.width, 0);
    assert_int_equal(spec.model.vocabulary, 0);
    assert_true(spec.optimizer.betas[0] == 0);
    assert_true(spec.optimizer.momentum == 0.9);
    assert_true(spec.optimizer.nesterov);
    assert_int_equal(spec.optimizer.decay_samples, 0);
    spec = parsed(full);
    assert_int_equal(spec.model.sizes_count, 0);
    assert_int_equal(spec.data.points, 0);
}

TEST(every_refusal_names_the_place)
{
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"", "run.yaml:1: data.path is required"},
        {GPT "\ndata:\n  validation: 0.2", "run.yaml:3: data.path is required"},
        {GPT TEXT "train:\n  step: 3",
         "run.yaml:4: unknown key train.step (did you mean train.steps?)"},
        {GPT TEXT "train:\n  steps: 3\n  steps: 4",
         "run.yaml:5: train.steps is already set in line 4"},
        {"model: {kind: lama}",
         "run.yaml:1: model.kind must be one of gpt, mlp, llama, not \"lama\""},
        {"model: {layers: [2, 3]}\n" TEXT,
         "run.yaml:1: model.layers must be an integer from 1 to 1024, not a list"},
        {"model: {kind: mlp, layers: 4}\n" SPIRAL,
         "run.yaml:1: model.layers must be a list of 2 to 64 integers from 1 to 1048576, "
         "not \"4\""},
        {"model: {kind: mlp, heads: 4}\n" SPIRAL,
         "run.yaml:1: model.heads is no setting when model.kind is mlp"},
        {GPT "data: {kind: text, path: a, noise: 1}",
         "run.yaml:2: data.noise is no setting when data.kind is text"},
        {MLP "data: {kind: spiral, path: a}",
         "run.yaml:2: data.path is no setting when data.kind is spiral"},
        {"model:\n  heads: 3\n  width: 128\n" TEXT,
         "run.yaml:2: model.heads (3) must divide model.width (128)"},
        {"model:\n  width: 130\n" TEXT,
         "run.yaml:2: model.heads (4) must divide model.width (130)"},
        {"model: {width: 131073}\n" TEXT,
         "run.yaml:1: model.width must be an integer from 1 to 131072, not \"131073\""},
        {"model: {context: 0}\n" TEXT,
         "run.yaml:1: model.context must be an integer from 1 to 1048576, not \"0\""},
        {"model: {kv_heads: 2}\n" TEXT,
         "run.yaml:1: model.kv_heads is no setting when model.kind is gpt"},
        {"model: {kind: llama, kv_heads: 3}\n" TEXT,
         "run.yaml:1: model.kv_heads (3) must divide model.heads (4)"},
        {"model: {kind: llama, heads: 128}\n" TEXT,
         "run.yaml:1: a head has 1 channel (model.width / model.heads); rotary positions need an "
         "even number of them, at most 256"},
        {"model: {kind: llama, heads: 1, width: 512}\n" TEXT,
         "run.yaml:1: a head has 512 channels (model.width / model.heads); rotary positions need "
         "an even number of them, at most 256"},
        {"model: {width: 1024}\n" TEXT "train: {compute: bf16}",
         "run.yaml:3: a head has 256 channels (model.width / model.heads); with train.compute: "
         "bf16 at most 128 are possible"},
        {"model: {width: 2048}\n" TEXT "train: {compute: tf32}",
         "run.yaml:3: a head has 512 channels (model.width / model.heads); with train.compute: "
         "tf32 at most 256 are possible"},
        {"model: {context: 1048576}\n" TEXT
         "train: {compute: bf16, slot_samples: 2, microbatch: 2}",
         "run.yaml:3: train.microbatch x model.heads x model.context are 8388608 queries at a "
         "time; with train.compute: bf16 at most 4194304 are possible"},
        {"model: {tensor_max: 6}\n" TEXT, "run.yaml:1: model.tensor_max must be a power of two"},
        {"model: {heads: 6, width: 96}\n" TEXT "train: {pieces: 4}",
         "run.yaml:3: train.pieces (4) must be a power of two that divides model.heads; 2 works"},
        {"model: {heads: 8}\n" TEXT "train: {pieces: 3}",
         "run.yaml:3: train.pieces (3) must be a power of two that divides model.heads; 4 works"},
        {"model: {kind: llama, heads: 8, kv_heads: 2}\n" TEXT "train: {pieces: 8}",
         "run.yaml:3: train.pieces (8) must be a power of two that divides model.kv_heads and "
         "model.hidden; 2 works"},
        {"model: {kind: mlp, layers: [2, 1000, 1002, 3]}\n" SPIRAL "train: {pieces: 16}",
         "run.yaml:3: train.pieces (16) must be a power of two that divides what model.layers "
         "split; 8 works"},
        {"model: {heads: 16, width: 64, tensor_max: 8}\n" TEXT
         "train: {pieces: 16}\nmesh: {tensor: 16}",
         "run.yaml:3: train.pieces (16) must be a power of two that divides model.heads, at most "
         "model.tensor_max (8); 8 works"},
        {"model: {context: 30}\n" TEXT "train: {pieces: 4, tensor_norms: split}",
         "run.yaml:3: train.tensor_norms split needs a model.context (30) that train.pieces (4) "
         "divides; 32 works"},
        {"model: {context: 1}\n" TEXT "train: {pieces: 4, tensor_norms: split}",
         "run.yaml:3: train.tensor_norms split needs a model.context (1) that train.pieces (4) "
         "divides; 4 works"},
        {TEXT "train: {tensor_norms: split}",
         "run.yaml:2: train.tensor_norms split needs train.pieces (1) of 2 or more"},
        {MLP SPIRAL "train: {tensor_norms: split}",
         "run.yaml:3: train.tensor_norms is no setting when model.kind is mlp"},
        {"model:\n  layers: 1024\n  width: 4096\n" TEXT,
         "run.yaml:3: the model has 206214537216 weights; at most 68719476736 are possible"},
        {"model: {kind: mlp, layers: [2, 1000000, 1000000, 3]}\n" SPIRAL,
         "run.yaml:1: the model has 1000007000003 weights; at most 68719476736 are possible"},
        {"model: {vocabulary: 100}\n" TEXT,
         "run.yaml:1: model.vocabulary (100) must be at least 256 for text, which is bytes"},
        {GPT SPIRAL,
         "run.yaml:2: data.kind spiral does not fit model.kind gpt (gpt, llama: text or "
         "tokens; mlp: spiral)"},
        {GPT "train: {slot_samples: 16257}\ndata: {kind: text, path: x, serve: true}",
         "run.yaml:3: data.serve needs train.slot_samples (16257) of at most 16256 with a "
         "model.context of 64: a slot's samples come in one message"},
        {MLP TEXT, "run.yaml:2: data.kind text does not fit model.kind mlp (gpt, llama: text or "
                   "tokens; mlp: spiral)"},
        {"model:\n  kind: mlp\ndata: {path: a}",
         "run.yaml:2: data.kind text does not fit model.kind mlp (gpt, llama: text or "
         "tokens; mlp: spiral)"},
        {"model: {kind: mlp, layers: [3, 3]}\n" SPIRAL,
         "run.yaml:1: model.layers must begin with 2, the spiral's coordinates, not 3"},
        {MLP "data: {kind: spiral, classes: 4}",
         "run.yaml:1: model.layers must end with data.classes (4), not 3"},
        {GPT "data: {path: ~/a.txt}",
         "run.yaml:2: data.path is \"~/a.txt\", but ~ is not expanded here: write the whole path"},
        {GPT "data: {path: a, validation: 0.6}",
         "run.yaml:2: data.validation must be a number from 0 to 0.5, not \"0.6\""},
        {GPT TEXT "train:\n  slot_samples: 4\n  microbatch: 3",
         "run.yaml:5: train.microbatch (3) must divide train.slot_samples (4)"},
        {GPT TEXT "train:\n  microbatch: 8",
         "run.yaml:4: train.microbatch (8) must divide train.slot_samples (4)"},
        {"data: {kind: tokens, path: a}\ntrain: {logits_bytes_max: 4096}",
         "run.yaml:2: train.logits_bytes_max (4096) must hold one row of logits (201216)"},
        {"model: {context: 1048576}\n" TEXT
         "train: {steps: 1073741824, slots: 65536, slot_samples: 65536}",
         "run.yaml:3: steps x slots x slot_samples x context is more than 2^62 tokens"},
        {GPT TEXT "train: {steps: 1073741824, slots: 65536, slot_samples: 65536}\n"
                  "consistency: {kind: local}",
         "run.yaml:3: steps x slots x slot_samples x local_steps is more than 2^62"},
        {GPT TEXT "consistency: {kind: async}\ntrain: {node_slots: 2}",
         "run.yaml:4: train.node_slots (2) must be 1 when consistency.kind is async"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_reason(rows[i].text, NULL, rows[i].reason);
}

/* What stands behind GPT and TEXT, in the third line of the file. */
TEST(every_refusal_of_a_setting_names_it)
{
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"trian: {}", "unknown key trian (did you mean train?)"},
        {"train: {steps: 0}", "train.steps must be an integer from 1 to 1073741824, not \"0\""},
        {"train: {slots: 65537}", "train.slots must be an integer from 1 to 65536, not \"65537\""},
        {"train: {node_slots: 3}", "train.node_slots (3) must be a power of two, or 0"},
        {"train: {slots: 6, node_slots: 8}",
         "train.node_slots (8) must be at most train.slots (6)"},
        {"train: {precision: bf16, node_slots: 0}",
         "train.node_slots must be set with bf16: where sums are rounded is part of the run; 1 "
         "would do"},
        {"activations: {offload: true}\ntrain: {recompute: all}",
         "activations are offloaded or computed again, not both: train.recompute: false would do"},
        {"activations: {offload: true}\nconsistency: {kind: local}",
         "local steps keep their activations where they are; train.recompute makes them fewer"},
        {"residency: {weights: streamed}\nconsistency: {kind: local}",
         "streamed weights are pulled again with the version that the step began with, which async "
         "and local do not keep; sync, delay and ssp do"},
        {"train: {audit: 0.01, node_slots: 1}\nconsistency: {kind: async}",
         "train.audit (0.01) must be 0 when consistency.kind is async: two workers compute a "
         "ticket on different weights"},
        {"train: {audit_rewind: true, node_slots: 1}\nconsistency: {kind: async}",
         "train.audit_rewind must be false when consistency.kind is async: nobody is convicted of "
         "other bits there"},
        {"train: {audit_rewind: true}\nnumerics: any",
         "train.audit_rewind must be false with numerics any: workers may bring different bits"},
        {"train: {audit: 0.01, slots: 1025}",
         "train.audit (0.01) must be 0 with more than 1024 train.slots (1025): servers remember no "
         "more nodes of a step"},
        {"train: {audit: 0.01}\nmesh: {program: my.csv, stage: 2, rows: \"0F0;1F0\"}",
         "train.audit (0.01) must be 0 with mesh.program, where a place may push parts of its "
         "ticket"},
        {"train: {audit: 0.01}\nnumerics: any",
         "train.audit (0.01) must be 0 with numerics any: workers may bring different bits"},
        {"train: {products: fastest}",
         "train.products must be heuristic, timed or what a run keeps of timed ones, not "
         "\"fastest\""},
        {"train: {recompute: {every: 1}}",
         "train.recompute_every must be an integer from 2 to 65536, not \"1\""},
        {"train: {recompute: {each: 2}}",
         "train.recompute must be one of false, true, every, none, all, not a mapping"},
        {"train: {recompute: {every: 2}, recompute_every: 3}",
         "train.recompute must be one of false, true, every, none, all, not a mapping"},
        {"train: {recompute: {}}",
         "train.recompute must be one of false, true, every, none, all, not a mapping"},
        {"train: {precision: {half: 2}}",
         "train.precision must be one of fp32, bf16, not a mapping"},
        {"train: {precision: fp16}", "train.precision must be one of fp32, bf16, not \"fp16\""},
        {"train: {gemm_core: skylakex}",
         "train.gemm_core must be auto or a core type of OpenBLAS (SkylakeX, Cooperlake, Haswell, "
         "Zen, Sandybridge, Nehalem, Prescott), not \"skylakex\""},
        {"optimizer: {kind: lion}",
         "optimizer.kind must be one of sgd, momentum, adamw, not \"lion\""},
        {"optimizer: {kind: sgd, betas: [0.9, 0.95]}",
         "optimizer.betas is no setting when optimizer.kind is sgd"},
        {"optimizer: {betas: [0.9, 1]}",
         "optimizer.betas must be a list of 2 numbers from 0 to below 1, not \"1\""},
        {"optimizer: {eps: 0}", "optimizer.eps must be a number from 1e-30 to 1, not \"0\""},
        {"optimizer: {eps: 1e-50}", /* 0 as a float: 0 / 0 where a weight has no gradient */
         "optimizer.eps must be a number from 1e-30 to 1, not \"1e-50\""},
        {"optimizer: {lr: -1}", "optimizer.lr must be a number from 0 to 1000, not \"-1\""},
        {"optimizer: {schedule: constant, lr_min: 0}",
         "optimizer.lr_min is no setting when optimizer.schedule is constant"},
        {"optimizer: {lr_min: 0.1}", "optimizer.lr_min must be at most optimizer.lr"},
        {"optimizer: {warmup_samples: 19200}",
         "optimizer.warmup_samples (19200) must be less than the decay's samples (19200)"},
        {"mesh: {rows: 0F0}", "mesh.rows is no setting without mesh.program"},
        {"mesh: {memory: 4096}",
         "mesh.memory (4096) must be 0 when mesh.stage is 1: nothing is cut"},
        {"mesh: {schedule: gpipe}", "mesh.schedule (gpipe) must be 1f1b when mesh.stage is 1: "
                                    "nothing is cut; mesh.stage: 2 or "
                                    "more would use it"},
        {"mesh: {stage: 1, schedule: interleaved, units: 2}",
         "mesh.schedule (interleaved) must be 1f1b when mesh.stage is 1: nothing is cut; "
         "mesh.stage: 2 or more would use it"},
        {"mesh: {units: 2}",
         "mesh.units (2) must be 1 with mesh.schedule 1f1b; interleaved has more"},
        {"mesh: {program: my.csv, schedule: gpipe}",
         "mesh.program says who computes what when: without mesh.schedule and mesh.units it would "
         "do"},
        {"mesh: {program: my.csv, rows: 0F0}",
         "my.csv has 1 line; a program has one for each of 2 to 64 stages"},
        {"mesh: {program: my.csv, stage: 3, rows: \"0F0;1F0\"}",
         "mesh.stage (3) must be the number of lines of my.csv, which has 2"},
        {"consistency: {kind: async}\nmesh: {program: my.csv, rows: \"0F0;1F0\"}",
         "mesh.stage (2) must be 1 when consistency.kind is async, which needs the norm of a "
         "slot's "
         "whole gradient in one worker; sync, delay and ssp do not"},
        {"mesh: {tensor: 3}\ntrain: {pieces: 4}",
         "mesh.tensor (3) must be a power of two that divides train.pieces (4)"},
        {"mesh: {tensor: 4}\ntrain: {pieces: 2}",
         "mesh.tensor (4) must be a power of two that divides train.pieces (2)"},
        {"mesh: {tensor: 4, stage: 32}\ntrain: {pieces: 4}",
         "mesh.stage x mesh.tensor (128) must be at most 64 workers"},
        {"mesh: {tensor: 2}\ntrain: {pieces: 2}\nconsistency: {kind: async}",
         "mesh.tensor (2) must be 1 when consistency.kind is async, which needs the norm of a "
         "slot's whole gradient in one worker; sync, delay and ssp do not"},
        {"mesh: {tensor: 2}\ntrain: {pieces: 2}\nnumerics: any",
         "mesh.tensor (2) must be 1 with numerics any: the workers of a place hold the same "
         "activations, bit for bit"},
        {"mesh: {tensor: 2}\ntrain: {pieces: 2, audit: 0.1}",
         "mesh.tensor (2) must be 1 with train.audit: which worker of a place computes wrongly "
         "nobody can tell"},
        {"consistency: {kind: bsp}",
         "consistency.kind must be one of sync, delay, ssp, async, local, not \"bsp\""},
        {"consistency: {delay: 1}",
         "consistency.delay is no setting when consistency.kind is sync"},
        {"consistency: {kind: delay, delay: 33}",
         "consistency.delay must be an integer from 0 to 32, not \"33\""},
        {"consistency: {kind: delay, staleness: 1}",
         "consistency.staleness is no setting when consistency.kind is delay"},
        {"consistency: {kind: ssp, staleness: -1}",
         "consistency.staleness must be an integer from 0 to 32, not \"-1\""},
        {"consistency: {kind: async, window: 0}",
         "consistency.window must be an integer from 1 to 65536, not \"0\""},
        {"train: {compute: bf16}\nconsistency: {kind: local}",
         "local steps update the weights that are computed on, which bf16 is too coarse for: "
         "train.compute must be fp32 or tf32"},
        {"consistency: {kind: local, local_steps: 0}",
         "consistency.local_steps must be an integer from 1 to 65536, not \"0\""},
        {"consistency: {kind: local, outer: {momentum: 0.9}}",
         "consistency.outer.momentum is no setting when consistency.outer.kind is average"},
        {"consistency: {kind: delay, outer: {kind: nesterov}}",
         "consistency.outer.kind is no setting when consistency.kind is delay"},
        {"checkpoint: {durability: logged}",
         "checkpoint.durability is no setting when consistency.kind is sync"},
        {"checkpoint: {keep: 0}", "checkpoint.keep must be an integer from 1 to 10000, not \"0\""},
        {"numerics: some", "numerics must be one of exact, any, not \"some\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[400], reason[400];
        snprintf(text, sizeof text, GPT TEXT "%s", rows[i].text);
        snprintf(reason, sizeof reason, "run.yaml:3: %s", rows[i].reason);
        expect_reason(text, NULL, reason);
    }
}

TEST(a_flag_that_breaks_a_rule_is_named)
{
    expect_reason(full, "train.slot_samples=5",
                  "--set train.slot_samples=5: train.microbatch (2) must divide "
                  "train.slot_samples (5)");
    expect_reason(full, "model.kind=mlp",
                  "run.yaml:1: model.layers must be a list of 2 to 64 "
                  "integers from 1 to 1048576, not \"4\"");
}

TEST(a_program_s_rows_say_how_many_stages_there_are)
{
    static const char text[] =
        GPT TEXT "mesh: {program: my.csv, rows: \"0F0,0B0;1F0,1B0;2F0,2B0\"}";
    struct spec spec = parsed(text);
    assert_int_equal(spec.mesh.stages, 3);
    assert_int_equal(parse(text, "mesh.program=other.csv", &spec, NULL), ERR_OK);
    assert_int_equal(spec.mesh.rows[0], 0); /* they were the other file's */
    assert_int_equal(spec.mesh.stages, 1);
}

TEST(what_is_about_stages_belongs_to_the_same_source_s_or_a_lower_one_s)
{
    static const char staged[] =
        GPT TEXT "mesh: {stage: 4, schedule: interleaved, units: 2, memory: 4096}";
    struct spec spec;
    assert_int_equal(parse(staged, "mesh.stage=1", &spec, NULL), ERR_OK);
    assert_int_equal(spec.mesh.schedule, SCHEDULE_1F1B);
    assert_int_equal(spec.mesh.runs, 1);
    assert_int_equal(spec.mesh.memory, 0);
    assert_int_equal(parse(staged, "mesh.stage=2", &spec, NULL), ERR_OK);
    assert_int_equal(spec.mesh.schedule, SCHEDULE_INTERLEAVED);
    assert_int_equal(spec.mesh.runs, 2);
    static const char written[] = GPT TEXT "mesh: {stage: 2, program: my.csv}";
    static const char read[] =
        GPT TEXT "mesh: {stage: 2, program: my.csv, rows: \"0F0,0B0;1F0,1B0\"}";
    for (int i = 0; i < 2; i++) {
        assert_int_equal(parse(i == 0 ? written : read, "mesh.stage=1", &spec, NULL), ERR_OK);
        assert_int_equal(spec.mesh.program[0], 0);
        assert_int_equal(spec.mesh.rows[0], 0);
    }
    expect_reason(
        GPT TEXT "mesh: {stage: 1}", "mesh.schedule=gpipe",
        "--set mesh.schedule=gpipe: mesh.schedule (gpipe) must be 1f1b when mesh.stage is "
        "1: nothing is cut; mesh.stage: 2 or more would use it");
}

/* Whether kernels know the core type, on whatever CPU. */
static bool is_known_core(const char *core)
{
    const struct kernels_options options = {.gemm_core = core};
    const struct kernels *kernels = NULL;
    char reason[256] = "";
    bool opens = kernels_new(&options, &kernels, reason, sizeof reason);
    kernels_free(kernels);
    return opens || strstr(reason, "unknown OpenBLAS core type") == NULL;
}

/* All that OpenBLAS has for x86-64 and Arm, and a word that it does not know. */
TEST(a_core_type_is_one_that_the_kernels_know)
{
    static const char *const cores[] = {
        "auto",       "Katmai",     "Coppermine", "Northwood",      "Prescott",    "Banias",
        "Atom",       "Core2",      "Penryn",     "Dunnington",     "Nehalem",     "Sandybridge",
        "Haswell",    "SkylakeX",   "Cooperlake", "SapphireRapids", "Athlon",      "Opteron",
        "Barcelona",  "Bobcat",     "Bulldozer",  "Piledriver",     "Steamroller", "Excavator",
        "Zen",        "Nano",       "ARMV8",      "CORTEXA53",      "CORTEXA57",   "NEOVERSEN1",
        "NEOVERSEV1", "NEOVERSEN2", "Pentium"};
    uint32_t known = 0;
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++) {
        char flag[64];
        struct spec spec;
        snprintf(flag, sizeof flag, "train.gemm_core=%s", cores[i]);
        bool taken = parse(GPT TEXT, flag, &spec, NULL) == ERR_OK;
        if (taken != is_known_core(cores[i]))
            fail_msg("%s: the spec and the kernels disagree", cores[i]);
        known += taken;
    }
    assert_int_equal(known, 8);
}

TEST(an_unknown_key_is_followed_by_the_one_that_was_meant)
{
    static const struct {
        const char *written, *meant;
    } rows[] = {
        {"train.step", "train.steps"},
        {"steps", "train.steps"},
        {"model.layer", "model.layers"},
        {"modle.width", "model.width"},
        {"learning_rate", "optimizer.lr"},
        {"train.lr", "optimizer.lr"},
        {"warmup_steps", "optimizer.warmup_samples"},
        {"consistency.outer.momntum", "consistency.outer.momentum"},
        {"optimiser", "optimizer"},
        {"outr", "consistency.outer"},
        {"optimizer.learningrate", "optimizer.lr"},
        {"optimizer.learningRate", "optimizer.lr"},
        {"optimizer.weightdecay", "optimizer.weight_decay"},
        {"checkpoint.every", "checkpoint.every_steps"},
        {"model.vocab", "model.vocabulary"},
        {"train.max_steps", "train.steps"},
        {"model.layers_count", "model.layers"},
        {"model.n_layer", "model.layers"},
        {"num_hidden_layers", "model.layers"},
        {"model.n_embd", "model.width"},
        {"model.intermediate_size", "model.hidden"},
        {"train.batch_size", "train.slot_samples"},
        {"optimizer.min_lr", "optimizer.lr_min"},
        {"batch", NULL},
        {"train", NULL},
        {"ev", NULL},
        {"model.embd", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char flag[64], wanted[160], guess[64] = "";
        snprintf(flag, sizeof flag, "%s=1", rows[i].written);
        if (rows[i].meant != NULL)
            snprintf(guess, sizeof guess, " (did you mean %s?)", rows[i].meant);
        snprintf(wanted, sizeof wanted, "--set %s: unknown key %s%s", flag, rows[i].written, guess);
        expect_reason(full, flag, wanted);
    }
}

static const char *const specs[] = {
    full,
    MLP SPIRAL "optimizer: {kind: momentum, momentum: 0.5, nesterov: true, schedule: linear}",
    MLP "data: {kind: spiral, noise: 0.3, validation: 0.25}\noptimizer: {kind: sgd}",
    "data: {kind: tokens, path: 'data/*.bin', serve: true}\n"
    "train: {precision: bf16, node_slots: 4, recompute: true, seed: 18446744073709551615}\n"
    "numerics: any",
    "model: {kind: mlp, layers: [2, 7, 5, 3], activation: tanh}\n" SPIRAL,
    TEXT "train: {recompute: every, recompute_every: 3}",
    TEXT "activations: {offload: true}",
    TEXT "mesh: {stage: 2, program: my.csv, rows: \"0F0,0B0;1F0,1B0\"}",
    TEXT "residency: {weights: streamed, keep_after_forward: true, order: microbatch, prefetch: 3}",
    TEXT "consistency: {kind: delay, delay: 3}",
    TEXT "consistency: {kind: ssp, staleness: 4}",
    TEXT "consistency: {kind: local, local_steps: 5, outer: {kind: nesterov, lr: 0.5}}",
};

TEST(what_is_printed_is_the_same_spec)
{
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct spec spec = parsed(specs[i]);
        scoped(buf_release) struct buf text = {0};
        scoped(buf_release) struct buf again = {0};
        assert_int_equal(spec_print(&spec, &text), ERR_OK);
        struct spec same = parsed((const char *)text.data);
        assert_memory_equal(&spec, &same, sizeof spec);
        assert_int_equal(spec_print(&same, &again), ERR_OK);
        assert_string_equal((const char *)text.data, (const char *)again.data);
    }
}

/* What differs, when the run may go on so. */
static struct spec_changes changed(const struct spec *stored, const struct spec *wanted)
{
    struct spec_changes changes;
    assert_int_equal(spec_compare_for_resume(stored, wanted, &changes, NULL), ERR_OK);
    return changes;
}

/* inner_state was a setting with one value: stored runs and files still have it. */
TEST(a_key_of_older_specs_is_read_and_dropped)
{
    struct spec old = parsed(TEXT "consistency: {kind: local, inner_state: reset}");
    struct spec now = parsed(TEXT "consistency: {kind: local}");
    struct spec_changes changes;
    scoped(buf_release) struct buf text = {0};
    assert_memory_equal(&old, &now, sizeof old);
    assert_int_equal(spec_print(&old, &text), ERR_OK);
    assert_null(strstr((const char *)text.data, "inner_state"));
    assert_int_equal(spec_compare_for_resume(&old, &now, &changes, NULL), ERR_OK);
    assert_int_equal(changes.count, 0);
    struct spec sync = parsed(TEXT); /* nor is it named among the changes */
    struct reason reason = {{0}};
    assert_int_equal(spec_compare_for_resume(&old, &sync, &changes, &reason), ERR_SPEC_DIFFERS);
    assert_null(strstr(reason.text, "inner_state"));
    expect_reason(TEXT "consistency:\n  kind: local\n  inner_state: kept", NULL,
                  "run.yaml:4: consistency.inner_state must be reset, not \"kept\"");
    expect_reason(
        TEXT "consistency: {kind: sync, inner_state: reset}", NULL,
        "run.yaml:2: consistency.inner_state is no setting when consistency.kind is sync");
    expect_reason(TEXT "consistency: {kind: local, inner_stat: reset}", NULL,
                  "run.yaml:2: unknown key consistency.inner_stat");
}

TEST(the_same_spec_can_be_resumed_without_a_word)
{
    struct spec spec = parsed(full);
    struct spec_changes changes = changed(&spec, &spec);
    assert_int_equal(changes.count, 0);
}

/* The one change between full and full with `flag`. */
static void expect_change(const char *flag, enum spec_resume verdict, const char *text)
{
    struct spec stored = parsed(full), wanted;
    struct reason reason = {{0}};
    struct spec_changes changes;
    assert_int_equal(parse(full, flag, &wanted, &reason), ERR_OK);
    enum err err = spec_compare_for_resume(&stored, &wanted, &changes, &reason);
    assert_int_equal(err, verdict == SPEC_RESUME_REFUSED ? ERR_SPEC_DIFFERS : ERR_OK);
    assert_true(changes.count >= 1);
    assert_string_equal(changes.changes[0].text, text);
    assert_int_equal(changes.changes[0].verdict, verdict);
    if (verdict == SPEC_RESUME_REFUSED)
        assert_non_null(strstr(reason.text, text));
}

/* Workers of older versions do not know the key. */
TEST(a_late_key_is_printed_only_with_another_value_than_its_default)
{
    scoped(buf_release) struct buf usual = {0}, other = {0};
    struct spec spec = parsed(full);
    assert_int_equal(spec_print(&spec, &usual), ERR_OK);
    spec.train.offload = true;
    assert_int_equal(spec_print(&spec, &other), ERR_OK);
    assert_int_equal(buf_append(&usual, "", 1), ERR_OK);
    assert_int_equal(buf_append(&other, "", 1), ERR_OK);
    assert_null(strstr((const char *)usual.data, "offload"));
    assert_non_null(strstr((const char *)other.data, "activations:\n  offload: true"));
}

TEST(recompute_has_words_for_none_and_all)
{
    static const struct {
        const char *text;
        uint32_t every;
    } rows[] = {
        {TEXT, 0},
        {TEXT "train: {recompute: none}", 0},
        {TEXT "train: {recompute: true}", 1},
        {TEXT "train: {recompute: all}", 1},
        {TEXT "train: {recompute: every}", 2},
        {TEXT "train: {recompute: every, recompute_every: 3}", 3},
        {TEXT "train: {recompute: {every: 4}, steps: 5}", 4},
        {TEXT "train:\n  recompute:\n    every: 5", 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct spec spec = parsed(rows[i].text);
        assert_int_equal(spec_recompute(&spec.train), rows[i].every);
        assert_true(spec.train.recompute < SPEC_RECOMPUTE_COUNT);
    }
}

TEST(each_change_has_its_verdict)
{
    expect_change("checkpoint.keep=5", SPEC_RESUME_FREE, "checkpoint.keep: 3 -> 5");
    expect_change("train.steps=400", SPEC_RESUME_FREE, "train.steps: 300 -> 400");
    expect_change("data.path=b.txt", SPEC_RESUME_FREE, "data.path: corpus.txt -> b.txt");
    expect_change("train.node_slots=4", SPEC_RESUME_FREE, "train.node_slots: 0 -> 4");
    expect_change("train.recompute=all", SPEC_RESUME_FREE, "train.recompute: false -> true");
    expect_change("activations.offload=true", SPEC_RESUME_FREE,
                  "activations.offload: false -> true");
    expect_change("optimizer.lr=0.002", SPEC_RESUME_DIGEST, "optimizer.lr: 0.001 -> 0.002");
    expect_change("train.slots=8", SPEC_RESUME_DIGEST, "train.slots: 16 -> 8");
    expect_change("train.microbatch=1", SPEC_RESUME_DIGEST, "train.microbatch: 2 -> 1");
    expect_change("train.precision=bf16", SPEC_RESUME_DIGEST, "train.precision: fp32 -> bf16");
    expect_change("numerics=any", SPEC_RESUME_DIGEST, "numerics: exact -> any");
    expect_change("train.seed=2", SPEC_RESUME_REFUSED, "train.seed: 1 -> 2");
    expect_change("model.width=256", SPEC_RESUME_REFUSED, "model.width: 128 -> 256");
    expect_change("data.validation=0.2", SPEC_RESUME_REFUSED, "data.validation: 0.1 -> 0.2");
    expect_change("data.kind=tokens", SPEC_RESUME_REFUSED, "data.kind: text -> tokens");
}

/* As pieces do. */
TEST(split_norms_change_the_bits)
{
    struct spec stored = parsed(TEXT "train: {pieces: 2}");
    struct spec wanted = parsed(TEXT "train: {pieces: 2, tensor_norms: split}");
    struct spec_changes changes = changed(&stored, &wanted);
    assert_int_equal(changes.count, 1);
    assert_int_equal(changes.changes[0].verdict, SPEC_RESUME_DIGEST);
    assert_string_equal(changes.changes[0].text, "train.tensor_norms: whole -> split");
}

TEST(more_steps_move_a_decay_that_ends_with_the_run)
{
    struct spec stored = parsed(full), wanted;
    assert_int_equal(parse(full, "train.steps=400", &wanted, NULL), ERR_OK);
    struct spec_changes changes = changed(&stored, &wanted);
    assert_int_equal(changes.count, 2);
    assert_string_equal(changes.changes[1].text, "optimizer.decay_samples: 19200 -> 25600");
    assert_int_equal(changes.changes[1].verdict, SPEC_RESUME_DIGEST);
}

TEST(node_slots_change_the_bits_of_a_bf16_run)
{
    struct spec stored = parsed(TEXT "train: {precision: bf16}");
    struct spec wanted = parsed(TEXT "train: {precision: bf16, node_slots: 2}");
    struct spec_changes changes = changed(&stored, &wanted);
    assert_int_equal(changes.count, 1);
    assert_int_equal(changes.changes[0].verdict, SPEC_RESUME_DIGEST);
    wanted = parsed(TEXT);
    changes = changed(&stored, &wanted);
    assert_int_equal(changes.count, 2);
    assert_string_equal(changes.changes[1].text, "train.node_slots: 1 -> 0");
    assert_int_equal(changes.changes[1].verdict, SPEC_RESUME_FREE);
}

/* Chimera pushes halves of nodes. */
TEST(who_pushes_halves_changes_the_bits_of_a_bf16_run)
{
    static const char run[] = GPT TEXT "train: {precision: bf16, node_slots: 2}\nmesh: {stage: 2}",
                      halves[] = GPT TEXT "train: {precision: bf16, node_slots: 2}\n"
                                          "mesh: {stage: 2, schedule: chimera}",
                      exact[] = GPT TEXT "train: {node_slots: 2}\nmesh: {stage: 2}";
    static const struct {
        const char *stored, *flag;
        enum spec_resume verdict;
    } rows[] = {
        {run, "mesh.schedule=chimera", SPEC_RESUME_DIGEST},
        {run, "mesh.schedule=gpipe", SPEC_RESUME_FREE},
        {run, "mesh.stage=1", SPEC_RESUME_FREE},
        {halves, "mesh.schedule=1f1b", SPEC_RESUME_DIGEST},
        {halves, "mesh.stage=1", SPEC_RESUME_DIGEST},
        {halves, "mesh.stage=4", SPEC_RESUME_FREE},
        {exact, "mesh.schedule=chimera", SPEC_RESUME_FREE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct spec stored = parsed(rows[i].stored), wanted;
        assert_int_equal(parse(rows[i].stored, rows[i].flag, &wanted, NULL), ERR_OK);
        struct spec_changes changes = changed(&stored, &wanted);
        assert_true(changes.count > 0);
        for (uint32_t k = 0; k < changes.count; k++)
            assert_int_equal(changes.changes[k].verdict, rows[i].verdict);
    }
}

TEST(another_model_is_refused_by_name)
{
    struct spec gpt = parsed(full), mlp = parsed(MLP SPIRAL "optimizer: {kind: sgd}");
    struct spec_changes changes;
    struct reason reason;
    assert_int_equal(spec_compare_for_resume(&gpt, &mlp, &changes, &reason), ERR_SPEC_DIFFERS);
    assert_string_equal(reason.text,
                        "the stored run cannot be continued with model.kind: gpt -> mlp; "
                        "model.layers: 4 -> [2, 100, 3]; data.kind: text -> spiral; "
                        "data.validation: 0.1 -> 0; optimizer.kind: adamw -> sgd");
    for (uint32_t i = 0; i < changes.count; i++)
        assert_null(strstr(changes.changes[i].text, "model.width"));
}

TEST(a_schedule_that_comes_or_goes_is_said)
{
    struct spec cosine = parsed(TEXT), constant = parsed(TEXT "optimizer: {schedule: constant}");
    struct spec_changes changes = changed(&cosine, &constant);
    assert_int_equal(changes.count, 3);
    assert_string_equal(changes.changes[0].text, "optimizer.schedule: cosine -> constant");
    assert_string_equal(changes.changes[1].text, "optimizer.decay_samples: 19200 -> unset");
    assert_string_equal(changes.changes[2].text, "optimizer.lr_min: 0.0001 -> unset");
}

TEST(tickets_of_an_async_run_keep_their_numbers)
{
    struct spec stored = parsed(MLP SPIRAL "train: {slots: 8}\nconsistency: {kind: async}\n");
    struct spec wanted =
        parsed(MLP SPIRAL "train: {slots: 4}\nconsistency: {kind: async, window: 8}\n");
    struct spec_changes changes;
    struct reason reason;
    assert_int_equal(spec_compare_for_resume(&stored, &wanted, &changes, &reason),
                     ERR_SPEC_DIFFERS);
    assert_non_null(strstr(reason.text, "train.slots"));
    assert_non_null(strstr(reason.text, "consistency.window"));
}

#define LOCAL GPT TEXT "consistency: {kind: local, local_steps: 4}\n"
#define CONSTANT "optimizer: {schedule: constant}\n"

/* local and async compute the rate from a step's number. */
TEST(a_resume_does_not_jump_along_the_schedule)
{
    static const char async[] = MLP SPIRAL "consistency: {kind: async}\n",
                      ramp[] = LOCAL "optimizer: {schedule: constant, warmup_samples: 9}\n";
    static const struct {
        const char *stored, *flag;
        bool refused;
    } rows[] = {
        {LOCAL, "train.slots=8", true},
        {LOCAL, "train.slot_samples=8", true},
        {LOCAL, "consistency.local_steps=8", true},
        {LOCAL, "optimizer.lr=0.5", false},
        {ramp, "consistency.local_steps=8", true},
        {LOCAL CONSTANT, "train.slots=8", false},
        {LOCAL CONSTANT, "train.slot_samples=8", false},
        {LOCAL CONSTANT, "consistency.local_steps=8", false},
        {async, "train.slot_samples=8", true},
        {MLP SPIRAL CONSTANT "consistency: {kind: async}\n", "train.slot_samples=8", false},
        {GPT TEXT, "train.slot_samples=8", false}, /* sync counts samples */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct spec stored = parsed(rows[i].stored), wanted;
        struct spec_changes changes;
        struct reason reason = {{0}};
        assert_int_equal(parse(rows[i].stored, rows[i].flag, &wanted, NULL), ERR_OK);
        enum err err = spec_compare_for_resume(&stored, &wanted, &changes, &reason);
        if (err != (rows[i].refused ? ERR_SPEC_DIFFERS : ERR_OK))
            fail_msg("%s: %s", rows[i].flag, reason.text);
        assert_true(rows[i].refused == (strstr(reason.text, "(the schedule counts by it: only with "
                                                            "optimizer.schedule: constant and "
                                                            "warmup_samples: 0)") != NULL));
    }
}

TEST(servers_apply_the_optimizer_or_for_local_the_outer_one)
{
    struct spec spec = parsed(full);
    struct spec_optimizer same = spec_server_optimizer(&spec);
    assert_true(same.kind == SPEC_ADAMW && same.lr == 1e-3 && same.clip_norm == 1);
    spec.consistency = (struct spec_consistency){
        .kind = SPEC_LOCAL, .local_steps = 8, .outer = {SPEC_AVERAGE, .lr = 1}};
    struct spec_optimizer average = spec_server_optimizer(&spec);
    assert_int_equal(average.kind, SPEC_SGD);
    assert_true(average.lr == 1 && average.weight_decay == 0 && average.clip_norm == 0);
    assert_int_equal(average.schedule, SPEC_CONSTANT);
    spec.consistency.outer = (struct spec_outer){SPEC_NESTEROV, .lr = 0.7, .momentum = 0.9};
    struct spec_optimizer nesterov = spec_server_optimizer(&spec);
    assert_int_equal(nesterov.kind, SPEC_MOMENTUM);
    assert_true(nesterov.nesterov && nesterov.lr == 0.7 && nesterov.momentum == 0.9);
    assert_int_equal(spec_slot_samples(&spec), 4 * 8);
    assert_int_equal(spec_step_samples(&spec), 16 * 4 * 8);
}

TEST(the_reference_covers_every_key)
{
    scoped(buf_release) struct buf buf = {0};
    assert_int_equal(spec_print_reference(&buf), ERR_OK);
    static const char *const keys[] = {"model.tensor_max", "data.serve",       "train.node_slots",
                                       "optimizer.betas",  "consistency.kind", "checkpoint.keep",
                                       "numerics"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        assert_non_null(strstr((const char *)buf.data, keys[i]));
    assert_null(strstr((const char *)buf.data, "inner_state")); /* no setting any more */
}
