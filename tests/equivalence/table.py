"""The table of docs/equivalence.md: a run in the single process, cut into places in every way there is.

Each row is trained by `reference`, where the places are played in turn by the executors that workers have, against
the shard core that servers have, and planned by `roost program`. A row holds when its digest is the one of the
same run in one place, and when every byte that was measured is the one that was predicted."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cluster"))
import cluster as c  # noqa: E402  pylint: disable=wrong-import-position

STEPS = 2
GPT = "{kind: gpt, layers: 6, heads: 4, width: 64, context: 32, vocabulary: 256}"
LLAMA = "{kind: llama, layers: 6, heads: 4, kv_heads: 2, width: 64, context: 32, vocabulary: 256}"
MLP = "{kind: mlp, layers: [2, 32, 24, 16, 16, 12, 3], activation: tanh}"
WIDE_MLP = "{kind: mlp, layers: [2, 128, 256, 128, 128, 128, 3], activation: tanh}"  # so wide that members can share it
TEXT = "{kind: text, path: CORPUS, validation: 0}"
SPIRAL = "{kind: spiral, validation: 0}"

# Technique, model, level of nodes, words of both commands, settings of the run.
ROWS = (
    ("one worker", GPT, 0, (), {}),
    ("accumulation over a node of 4 slots", GPT, 2, (), {}),
    ("naive model parallelism, 4 stages", GPT, 0, ("--stages", 4, "--schedule", "naive"), {}),
    ("GPipe, 2 stages", GPT, 0, ("--stages", 2, "--schedule", "gpipe"), {}),
    ("GPipe, 4 stages", GPT, 0, ("--stages", 4, "--schedule", "gpipe"), {}),
    ("GPipe, 4 stages, nodes of 4 slots", GPT, 2, ("--stages", 4, "--schedule", "gpipe"), {}),
    ("1F1B, 3 stages", GPT, 0, ("--stages", 3), {}),
    ("1F1B, 4 stages", GPT, 0, ("--stages", 4), {}),
    ("1F1B, 4 stages, nodes of 4 slots", GPT, 2, ("--stages", 4), {}),
    ("1F1B, 4 stages, 6 slots in nodes of 4 and 2", GPT, 2, ("--stages", 4), {"train.slots": 6}),
    ("interleaved, 2 stages of 2 runs", GPT, 0, ("--stages", 2, "--schedule", "interleaved", "--units", 2), {}),
    ("interleaved, 4 stages of 2 runs", GPT, 0, ("--stages", 4, "--schedule", "interleaved", "--units", 2), {}),
    ("zero bubble (ZB-H1), 4 stages", GPT, 0, ("--stages", 4, "--schedule", "zb-h1"), {}),
    ("Chimera, 4 stages, nodes of 2 slots", GPT, 1, ("--stages", 4, "--schedule", "chimera"), {}),
    ("Chimera, 4 stages, 6 slots in nodes of 4 and 2", GPT, 2, ("--stages", 4, "--schedule", "chimera"),
     {"train.slots": 6}),
    ("Chimera, 2 stages, nodes of 4 slots", GPT, 2, ("--stages", 2, "--schedule", "chimera"), {}),
    ("activation checkpointing", GPT, 0, (), {"train.recompute": "all"}),
    ("activation checkpointing of every second layer", GPT, 0, (), {"train.recompute": "every"}),
    ("activation checkpointing, 1F1B, 4 stages", GPT, 0, ("--stages", 4), {"train.recompute": "all"}),
    ("activation checkpointing, ZB-H1, 4 stages", GPT, 0, ("--stages", 4, "--schedule", "zb-h1"),
     {"train.recompute": "all"}),
    ("ZeRO-3, FSDP: weights streamed unit by unit, one ahead", GPT, 0,
     ("--stages", 1, "--schedule", "gpipe", "--stream", "unit", "--prefetch", 1), {}),
    ("SHARD_GRAD_OP: kept from forward to backward", GPT, 0,
     ("--stages", 1, "--schedule", "gpipe", "--stream", "unit", "--prefetch", 1, "--keep-after-forward"), {}),
    ("weights streamed for each microbatch, one unit ahead", GPT, 0,
     ("--stages", 1, "--stream", "microbatch", "--prefetch", 1), {}),
    ("weights streamed for each microbatch, none ahead", GPT, 0, ("--stages", 1, "--stream", "microbatch"), {}),
    ("weights streamed, GPipe, 2 stages, activation checkpointing", GPT, 0,
     ("--stages", 2, "--schedule", "gpipe", "--stream", "unit", "--prefetch", 1), {"train.recompute": "all"}),
    ("weights streamed, Chimera, 4 stages, nodes of 2 slots", GPT, 1,
     ("--stages", 4, "--schedule", "chimera", "--stream", "unit", "--prefetch", 1), {}),
    ("llama, weights streamed, ZB-H1, 4 stages, two ahead", LLAMA, 0,
     ("--stages", 4, "--schedule", "zb-h1", "--stream", "unit", "--prefetch", 2), {}),
    ("mlp, weights streamed for each microbatch, 9 ahead", MLP, 0,
     ("--stages", 1, "--stream", "microbatch", "--prefetch", 9), {}),
    ("activation offload", GPT, 0, (), {"activations.offload": "true"}),
    ("activation offload, GPipe, 4 stages", GPT, 0, ("--stages", 4, "--schedule", "gpipe", "--offload"), {}),
    ("4 pieces alone", GPT, 0, (), {"train.pieces": 4}),
    ("4 pieces, 1F1B, 2 stages", GPT, 0, ("--stages", 2), {"train.pieces": 4}),
    ("4 pieces, ZB-H1, 4 stages, bf16 on the wire", GPT, 0, ("--stages", 4, "--schedule", "zb-h1"),
     {"train.pieces": 4, "train.precision": "bf16"}),
    ("4 pieces, weights streamed, GPipe, 2 stages, activation checkpointing", GPT, 0,
     ("--stages", 2, "--schedule", "gpipe", "--stream", "unit", "--prefetch", 1),
     {"train.pieces": 4, "train.recompute": "all"}),
    ("llama, 2 pieces, 1F1B, 3 stages", LLAMA, 0, ("--stages", 3), {"train.pieces": 2}),
    ("bf16 on the wire, 1F1B, 4 stages", GPT, 0, ("--stages", 4), {"train.precision": "bf16"}),
    ("llama, 1F1B, 4 stages", LLAMA, 0, ("--stages", 4), {}),
    ("llama, ZB-H1, 3 stages, nodes of 2 slots", LLAMA, 1, ("--stages", 3, "--schedule", "zb-h1"), {}),
    ("llama, Chimera, 4 stages, nodes of 2 slots", LLAMA, 1, ("--stages", 4, "--schedule", "chimera"), {}),
    ("mlp, 1F1B, 4 stages", MLP, 0, ("--stages", 4), {}),
    ("mlp, ZB-H1, 6 stages", MLP, 0, ("--stages", 6, "--schedule", "zb-h1"), {}),
    ("mlp, interleaved, 2 stages of 3 runs", MLP, 0, ("--stages", 2, "--schedule", "interleaved", "--units", 3), {}),
)
QUICK = ("pieces, ZB-H1", "1F1B, 4 stages, 6", "ZB-H1, 4 stages", "Chimera, 4", "offload, GPipe", "mlp, ZB-H1", "FSDP", "streamed, Chimera")


def spec_of(model):
    kind = "spiral" if "mlp" in model else "text"
    text = f"""
model:     {model}
data:      {SPIRAL if kind == "spiral" else TEXT}
train:     {{steps: {STEPS}, slots: 4, slot_samples: 8, microbatch: 1, seed: 1}}
optimizer: {{kind: adamw, lr: 1.0e-3, weight_decay: 0.1, clip_norm: 1.0}}
"""
    return c.write_spec(f"table-{kind}-{len(model)}", text)


def last_object(done):
    return json.loads(done.stdout.strip().splitlines()[-1])


_alone = {}  # digests of runs in one place, by model and what the digest depends on
NO_BIT = ("recompute", "offload", "mesh.")  # parts of settings that change none


def digest_alone(spec, sets):
    key = (spec, tuple(word for word in sets if not any(part in word for part in NO_BIT)))
    if key not in _alone:
        _alone[key] = c.reference(spec, *sets)
    return _alone[key]


def nodes_of_step(slots, level):
    return [min(1 << level, slots - first) for first in range(0, slots, 1 << level)]


def plan_of(spec, node, words, sets):
    return last_object(c.run(c.ROOST, "program", spec, "--json", "--uniform", "--node-slots", node, *words, *sets))


def predicted(spec, level, words, sets, slots):
    """Of a step, from `roost program` for each of its nodes; the memory is that of the largest."""
    step = {"pushed": 0, "peer": 0, "pulled": 0}
    for node in nodes_of_step(slots, level):
        plan = plan_of(spec, node, words, sets)
        step["pushed"] += plan["pushed_bytes"]
        step["peer"] += plan["peer_bytes"]
        step["pulled"] = plan["pulled_bytes"] + (step["pulled"] if "--stream" in words else 0)
        if node == max(nodes_of_step(slots, level)):
            step.update(plan["peak_bytes"])
    return step


def measured(spec, level, words, sets):
    seen = last_object(c.run(c.REFERENCE, spec, "--json", "--level", level, *words, *sets))
    return seen["digest"], {"pulled": seen["pulled_bytes"] // STEPS, "pushed": seen["pushed_bytes"] // STEPS,
                            "peer": seen["peer_bytes"] // STEPS, "device": seen["device_bytes"],
                            "weights": seen["weights_bytes"], "host": seen["hosted_bytes"]}


def listed(numbers):
    return " ".join(f"{number:,}" for number in numbers)


def kept_for_others(spec, level, words, sets, slots):
    """What `host` is of without activations that are offloaded; in one process nobody keeps it."""
    words = [word for word in words if word != "--offload"]
    sets = [word.replace("offload=true", "offload=false") for word in sets]
    return predicted(spec, level, words, sets, slots)["host"]


def cells_of(row):
    """What the row prints; Failed where it does not hold."""
    technique, model, level, words, settings = row
    spec = spec_of(model)
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    digest, seen = measured(spec, level, words, sets)
    c.check_equal(digest, digest_alone(spec, sets), f"{technique}: digest")
    slots = settings.get("train.slots", 4)
    wanted = predicted(spec, level, words, sets, slots)
    wanted["host"] = [host - kept for host, kept in zip(wanted["host"], kept_for_others(spec, level, words, sets, slots))]
    c.check_equal(seen, {key: wanted[key] for key in seen}, f"{technique}: bytes")
    return [technique, *(f"{seen[key]:,}" for key in ("pulled", "pushed", "peer")),
            listed(seen["device"]), listed(seen["weights"]) if "--stream" in words else "all",
            listed(seen["host"]) if any(seen["host"]) else ""]


def line_of(cells):
    return "| " + " | ".join(cells) + " |"
