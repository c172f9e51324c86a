"""The rows of docs/equivalence.md that real workers train: servers and workers are processes, as `roost up` starts them.

A row holds when its digest is the one of the same run in one place, also of a run whose workers are killed, and when every byte that
workers and servers counted is the one that `roost program` predicted. The idle share is measured in a run of its own, whose acts are made so
long that the time of places is theirs, not the processors': it is printed beside the prediction, and not judged."""
import json
import math
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
import table  # noqa: E402  pylint: disable=wrong-import-position
from table import c  # noqa: E402  pylint: disable=wrong-import-position

TRIES = 5  # of a run until every worker has said its last figures
RESIDENT_BYTES = 64 << 20  # that a worker may have beside its device's memory
LONG_MS, SHORT_MS = 320, 160  # of a place's forward: where a node takes up to LONG_FORWARDS of them, and more
LONG_FORWARDS = 40
SMALL_SHARE, SMALL_MS = 0.05, 640  # of such an idle share less is noise

# Rows of the other table, by what it calls them.
ROWS = (
    "one worker",
    "naive model parallelism, 4 stages",
    "GPipe, 4 stages",
    "1F1B, 3 stages",
    "1F1B, 4 stages",
    "1F1B, 4 stages, nodes of 4 slots",
    "interleaved, 4 stages of 2 runs",
    "zero bubble (ZB-H1), 4 stages",
    "Chimera, 4 stages, nodes of 2 slots",
    "activation checkpointing",
    "activation checkpointing, 1F1B, 4 stages",
    "ZeRO-3, FSDP: weights streamed unit by unit, one ahead",
    "SHARD_GRAD_OP: kept from forward to backward",
    "weights streamed, GPipe, 2 stages, activation checkpointing",
    "activation offload, GPipe, 4 stages",
    "bf16 on the wire, 1F1B, 4 stages",
    "4 pieces, 1F1B, 2 stages",
    "llama, 1F1B, 4 stages",
    "mlp, 1F1B, 4 stages",
    "PipeDream-2BW: a delay of 1, 4 stages",
    "PipeDream with vertical sync: a delay of 3, 4 stages",
)
# Several members a place, which one process does not play. Each of them has its part of the pieces.
TENSOR = (
    ("tensor parallelism, 2 members", table.GPT, 0, (), {"train.pieces": 4, "mesh.tensor": 2}),
    ("tensor parallelism, 4 members", table.GPT, 0, (), {"train.pieces": 4, "mesh.tensor": 4}),
    ("tensor 2, 1F1B, 2 stages", table.GPT, 0, ("--stages", 2), {"train.pieces": 4, "mesh.tensor": 2}),
    ("tensor 4, 1F1B, 2 stages", table.GPT, 0, ("--stages", 2), {"train.pieces": 4, "mesh.tensor": 4}),
    ("tensor 4, 1F1B, 2 stages, nodes of 4 slots", table.GPT, 2, ("--stages", 2), {"train.pieces": 4, "mesh.tensor": 4}),
    ("tensor 2, 1F1B, 4 stages", table.GPT, 0, ("--stages", 4), {"train.pieces": 4, "mesh.tensor": 2}),
    ("tensor 4, ZB-H1, 4 stages", table.GPT, 0, ("--stages", 4, "--schedule", "zb-h1"), {"train.pieces": 4, "mesh.tensor": 4}),
    ("tensor 2, Chimera, 2 stages, nodes of 2 slots", table.GPT, 1, ("--stages", 2, "--schedule", "chimera"),
     {"train.pieces": 2, "mesh.tensor": 2}),
    ("data 2, tensor 2", table.GPT, 0, (), {"train.pieces": 4, "mesh.tensor": 2}),
    ("data 2, tensor 2, 1F1B, 2 stages", table.GPT, 0, ("--stages", 2), {"train.pieces": 4, "mesh.tensor": 2}),
    ("tensor 2, activation checkpointing", table.GPT, 0, (), {"train.pieces": 4, "mesh.tensor": 2, "train.recompute": "all"}),
    ("tensor 4, activation checkpointing, 1F1B, 2 stages", table.GPT, 0, ("--stages", 2),
     {"train.pieces": 4, "mesh.tensor": 4, "train.recompute": "all"}),
    ("tensor 2, activation offload", table.GPT, 0, (), {"train.pieces": 4, "mesh.tensor": 2, "activations.offload": "true"}),
    ("tensor 2, weights streamed unit by unit, one ahead", table.GPT, 0,
     ("--stages", 1, "--schedule", "gpipe", "--stream", "unit", "--prefetch", 1), {"train.pieces": 4, "mesh.tensor": 2}),
    ("tensor 4, weights streamed, GPipe, 2 stages, activation checkpointing", table.GPT, 0,
     ("--stages", 2, "--schedule", "gpipe", "--stream", "unit", "--prefetch", 1),
     {"train.pieces": 4, "mesh.tensor": 4, "train.recompute": "all"}),
    ("tensor 2, bf16 on the wire, 1F1B, 2 stages", table.GPT, 0, ("--stages", 2),
     {"train.pieces": 2, "mesh.tensor": 2, "train.precision": "bf16"}),
    ("llama, tensor 2", table.LLAMA, 0, (), {"train.pieces": 2, "mesh.tensor": 2}),
    ("llama, tensor 2, bf16 on the wire, 1F1B, 4 stages", table.LLAMA, 0, ("--stages", 4),
     {"train.pieces": 2, "mesh.tensor": 2, "train.precision": "bf16"}),
    ("llama, tensor 2, weights streamed unit by unit, one ahead", table.LLAMA, 0,
     ("--stages", 1, "--schedule", "gpipe", "--stream", "unit", "--prefetch", 1), {"train.pieces": 2, "mesh.tensor": 2}),
    ("wide mlp, tensor 2", table.WIDE_MLP, 0, (), {"train.pieces": 2, "mesh.tensor": 2}),
    ("wide mlp, tensor 2, 1F1B, 2 stages", table.WIDE_MLP, 0, ("--stages", 2), {"train.pieces": 2, "mesh.tensor": 2}),
)
# Without a flush: workers compute several leases at a time, which one process does not.
NO_FLUSH = (
    ("PipeDream-2BW: a delay of 1, 4 stages", table.GPT, 0, ("--stages", 4), {"consistency.kind": "delay", "consistency.delay": 1}),
    ("PipeDream with vertical sync: a delay of 3, 4 stages", table.GPT, 0, ("--stages", 4),
     {"consistency.kind": "delay", "consistency.delay": 3}),
    ("a delay of 1, tensor 2", table.GPT, 0, (),
     {"train.pieces": 4, "mesh.tensor": 2, "consistency.kind": "delay", "consistency.delay": 1}),
    ("a delay of 1, tensor 2, 1F1B, 2 stages", table.GPT, 0, ("--stages", 2),
     {"train.pieces": 4, "mesh.tensor": 2, "consistency.kind": "delay", "consistency.delay": 1}),
)
# Who computes on which version is known afterwards: `roost replay` repeats the run in one process, from its log.
REPLAYED = (
    ("a staleness of at most 2, tensor 2", table.GPT, 0, (),
     {"train.pieces": 4, "mesh.tensor": 2, "consistency.kind": "ssp", "consistency.staleness": 2}),
    ("a staleness of at most 2, 1F1B, 2 stages", table.GPT, 0, ("--stages", 2), {"consistency.kind": "ssp", "consistency.staleness": 2}),
)
ROWS += tuple(row[0] for row in TENSOR + NO_FLUSH[2:] + REPLAYED)
# Several leases at a time, where a place has always something to do: the share of one lease says nothing.
NO_IDLE = tuple(row[0] for row in NO_FLUSH + REPLAYED)
DATA = "data 2"  # twice as many gangs, which share a step's slots: each pulls what it computes with
QUICK = ("tensor 2, 1F1B, 2 stages", "one worker", "interleaved, 4", "ZeRO-3", "mlp", "PipeDream-2BW")
CHURN_STEPS, CHURN_SPARE, CHURN_ACT_MS = 4, 2, 5
CHURN_RATE = 1.0
# Where a place has several members, all of them begin again when one is lost: it comes back soon, and the next one has its turn.
KILLS, KILL_MS, BACK_MS = 100, 1000, 300

MESH = {"--stages": "mesh.stage", "--schedule": "mesh.schedule", "--units": "mesh.units",
        "--stream": "residency.order", "--prefetch": "residency.prefetch"}


def settings_of(words):
    """Settings of a run, from words of `roost program`."""
    settings = {MESH[word]: words[i + 1] for i, word in enumerate(words) if word in MESH}
    if settings.get("mesh.stage") == 1:
        settings.pop("mesh.schedule", None)  # `roost program` alone has one for a single stage
    if "--stream" in words:
        settings["residency.weights"] = "streamed"
    if "--keep-after-forward" in words:
        settings["residency.keep_after_forward"] = "true"
    if "--offload" in words:
        settings["activations.offload"] = "true"
    return settings


def words_of(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def row_of(name):
    return next(row for row in table.ROWS + TENSOR + NO_FLUSH + REPLAYED if row[0] == name)


def idle_of(name):
    """Measured and predicted, of one node."""
    if name in NO_IDLE:
        return ["", ""]
    row = row_of(name)
    _, model, level, words, own = row
    spec, sets, workers = table.spec_of(model), words_of(own), workers_of(row)
    plan = table.plan_of(spec, 1 << level, words, sets)
    act_ms = LONG_MS if plan["time"] <= LONG_FORWARDS else SHORT_MS
    if 0 < plan["idle_share"] < SMALL_SHARE:
        act_ms = SMALL_MS
    settings = {**settings_of(words), "train.node_slots": 1 << level, "train.slots": 1 << level, "train.steps": 1}
    summary = c.up(spec, "--workers", workers, *sets, *words_of(settings), env={"ROOST_ACT_MS": str(act_ms)})
    return [f"{summary['idle_share']:.3f}", f"{plan['idle_share']:.3f}"]


def check_resident(peak, technique):
    beside = peak["resident"] - max(peak["device"])
    c.check(beside <= RESIDENT_BYTES, f"{technique}: a worker has {peak['resident']} bytes, of them {max(peak['device'])} the device's")


def digest_wanted(row, spec, sets, directory):
    """Of the run in one process: alone, or from the log of the one in that directory."""
    if row in REPLAYED:
        return json.loads(c.run(c.ROOST, "replay", directory, "--json").stdout)["digest"]
    return table.digest_alone(spec, sets)


def churn_words(row, workers):
    """At random, or of several members a place one by one, in an order that is drawn once."""
    members = row[4].get("mesh.tensor", 1)
    if members == 1:
        return ["--churn", CHURN_RATE]
    order = random.Random(workers)
    events = [(0, "add", worker) for worker in range(workers)]
    for kill in range(1, KILLS + 1):
        at, worker = kill * KILL_MS * members // 2, order.randrange(workers)
        events += [(at, "remove", worker), (at + BACK_MS, "add", worker)]
    path = f"{c.SCRATCH}/kills-{workers}-{members}.csv"
    with open(path, "w", encoding="utf-8") as trace:
        trace.writelines(f"{at},{what},worker-{worker}\n" for at, what, worker in events)
    return ["--trace", path]


def lost_under_churn(row, spec, sets, settings, workers):
    """How many workers were killed in a run that ended in the digest of one in one place."""
    steps = ("--set", f"train.steps={CHURN_STEPS}")
    lost, act_ms = 0, CHURN_ACT_MS
    while lost == 0:
        directory = c.fresh("churn")
        summary = c.up(spec, "--workers", workers + CHURN_SPARE, *churn_words(row, workers + CHURN_SPARE), *sets, *steps,
                       *words_of(settings), timeout=240, directory=directory, env={"ROOST_ACT_MS": str(act_ms)})
        c.check_equal(summary["digest"], digest_wanted(row, spec, [*sets, *steps], directory), "digest of a run whose workers are killed")
        lost = summary["workers_lost"]
        act_ms *= 2  # where it was over before the first was to die
    return lost


def workers_of(row):
    """Each member of each place of each gang is one."""
    technique, _, _, words, own = row
    stages = words[words.index("--stages") + 1] if "--stages" in words else 1
    return int(stages) * own.get("mesh.tensor", 1) * (2 if technique.startswith(DATA) else 1)


def most_pulled(row, wanted):
    """Bytes a step: the first steps of a row without a flush have the same weights, and gangs share slots by chance."""
    technique, own = row[0], row[4]
    versions = max(1, table.STEPS - own["consistency.delay"]) if row in NO_FLUSH else table.STEPS
    return wanted["pulled"] * versions // table.STEPS * (2 if technique.startswith(DATA) else 1)


def check_bounds(row, seen, wanted):
    """What depends on who is when how far is below the prediction, and what is printed."""
    technique, most = row[0], most_pulled(row, wanted)
    if row in NO_FLUSH + REPLAYED:  # how many leases' values a worker keeps at once
        c.check(all(has <= most for has, most in zip(seen["host"], wanted["host"])), f"{technique}: {seen['host']} bytes kept")
        seen["host"] = wanted["host"] = []
    if technique.startswith(DATA) or row in REPLAYED:  # which gang computes how often
        least = most // (2 if technique.startswith(DATA) else 1) // table.STEPS
        c.check(least <= seen["pulled"] <= most, f"{technique}: {seen['pulled']} bytes pulled, at most {most}")
        seen["pulled"] = most
    wanted["pulled"] = most


def whole_summary(spec, words, directory, peer_bytes, pulled_bytes=math.inf):
    """Of a run whose workers have all said what they took. The run ends when servers have the last gradients; a worker that has pushed
    its own may hear of the end before it has taken its last values, and leaves. And on a loaded machine one that waits for a ticket for
    100 ms gives its weights back and pulls them again. Then the run is repeated, a few times."""
    for left in reversed(range(TRIES)):
        shutil.rmtree(directory, ignore_errors=True)
        summary = c.up(spec, *words, directory=directory)
        if (summary["peer_bytes"] >= peer_bytes and summary["pulled_bytes"] <= pulled_bytes) or left == 0:
            return summary


def cells_of(name, churns=not c.QUICK):
    """What the row prints but for the idle share, and how many workers were lost; Failed where it does not hold."""
    row = row_of(name)
    technique, _, level, words, own = row
    spec, workers, directory = table.spec_of(row[1]), workers_of(row), c.fresh("up")
    sets = words_of(own)
    settings = {"train.node_slots": 1 << level, **settings_of(words)}
    wanted = table.predicted(spec, level, words, sets, own.get("train.slots", 4))
    summary = whole_summary(spec, ["--workers", workers, *sets, *words_of(settings)], directory, wanted["peer"] * table.STEPS,
                            most_pulled(row, wanted) * table.STEPS)
    c.check_equal(summary["digest"], digest_wanted(row, spec, sets, directory), f"{technique}: digest")
    peak = summary["peak_bytes"]
    seen = {"device": peak["device"], "weights": peak["weights"], "host": peak["host"],
            **{key: summary[f"{key}_bytes"] // table.STEPS for key in ("pulled", "pushed", "peer")}}
    check_bounds(row, seen, wanted)
    c.check_equal(seen, wanted, f"{technique}: bytes")
    if not c.QUICK:  # in short it runs under sanitizers too, whose own memory is not ours
        check_resident(peak, technique)
    fixed = [technique, *(f"{seen[key]:,}" for key in ("pulled", "pushed", "peer")), table.listed(seen["device"]),
             table.listed(peak["weights"]) if "--stream" in words else "all", table.listed(seen["host"]) if any(seen["host"]) else "",
             "equal"]  # in short nobody is killed
    lost = lost_under_churn(row, spec, sets, settings, workers) if churns else 0
    return fixed, lost


def written():
    """A run whose program a user wrote, and that goes on without the file."""
    spec, directory = table.spec_of(table.GPT), c.fresh("written")
    path = f"{directory}/mine.csv"
    os.makedirs(directory)
    shutil.copy("docs/programs/eager-1f1b.csv", path)
    rate = words_of({"optimizer.schedule": "constant"})  # which does not depend on the run's length
    settings = words_of({"train.node_slots": 1, "mesh.program": path}) + rate
    plan = table.plan_of(spec, 1, (), words_of({"mesh.program": path}))
    peer_bytes = 4 * table.STEPS * plan["peer_bytes"]  # of as many nodes
    summary = whole_summary(spec, ["--workers", 4, *settings], f"{directory}/run", peer_bytes)
    c.check_equal(summary["digest"], c.reference(spec, *rate), "digest")
    c.check_equal(summary["peer_bytes"], peer_bytes, "bytes between places")
    c.check_equal(summary["peak_bytes"]["device"], plan["peak_bytes"]["device"], "device memory")
    os.remove(path)
    steps = words_of({"train.steps": table.STEPS + 2})
    summary = c.up(spec, "--workers", 4, "--resume", *settings, *steps, directory=f"{directory}/run")
    c.check_equal(summary["digest"], c.reference(spec, *rate, *steps), "digest of the run that went on without the file")
    c.check(summary["peer_bytes"] > 0, "it has places still")
