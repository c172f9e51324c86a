#!/usr/bin/env python3
"""Every mesh of a small model: stages × tensor × gangs × residency of weights × recomputation.

For each number of pieces all that it admits are trained by real workers, and end in the digest of the single process. Without --full
it trains those of cover(), which the suite `equivalence` does too."""
import collections
import concurrent.futures
import itertools
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import table  # noqa: E402  pylint: disable=wrong-import-position
from table import c  # noqa: E402  pylint: disable=wrong-import-position

MODELS = {"gpt": "{kind: gpt, layers: 2, heads: 4, width: 64, context: 16, vocabulary: 256}",
          "llama": "{kind: llama, layers: 2, heads: 8, kv_heads: 4, width: 64, context: 16, vocabulary: 256}",
          "mlp": "{kind: mlp, layers: [2, 128, 256, 128, 128, 3], activation: tanh}"}  # two of its layers are shared
PIECES = {"gpt": (1, 2, 4), "llama": (1, 2, 4), "mlp": (1, 2)}
Mesh = collections.namedtuple("Mesh", "stages tensor gangs residency recompute")
AXES = Mesh((1, 2, 3, 4), (1, 2, 4), (1, 2), ("resident", "streamed"), ("none", "all"))
QUICK = (Mesh(2, 2, 2, "resident", "all"),)


def meshes_of(pieces):
    return [mesh for mesh in map(Mesh._make, itertools.product(*AXES)) if mesh.tensor <= pieces]


def workers_of(mesh):
    return mesh.stages * mesh.tensor * mesh.gangs


def pairs_of(model, mesh):
    return set(itertools.combinations(enumerate((model, *mesh)), 2))


def cover():
    """Few meshes, and small ones, of which each value of each axis meets each value of each other: (model, mesh)."""
    rows = [(model, mesh) for model in MODELS for mesh in meshes_of(max(PIECES[model]))]
    missing, chosen = set().union(*(pairs_of(*row) for row in rows)), []
    while missing:
        chosen.append(max(rows, key=lambda row: len(pairs_of(*row) & missing) / (4 + workers_of(row[1]))))
        missing -= pairs_of(*chosen[-1])
    return chosen


def spec_of(model):
    return c.write_spec(f"matrix-{model}", f"""
model:     {MODELS[model]}
data:      {table.SPIRAL if model == "mlp" else table.TEXT}
train:     {{steps: 2, slots: 4, slot_samples: 2, microbatch: 1, node_slots: 1, seed: 1}}
optimizer: {{kind: adamw, lr: 1.0e-3, weight_decay: 0.1, clip_norm: 1.0, schedule: constant}}
""")


def settings_of(pieces, mesh):
    return ["--set", f"train.pieces={pieces}", "--set", f"mesh.stage={mesh.stages}", "--set", f"mesh.tensor={mesh.tensor}",
            "--set", f"residency.weights={mesh.residency}", "--set", f"train.recompute={mesh.recompute}"]


def train(spec, pieces, mesh, *words, directory=None):
    """The digest that the mesh's workers end in, who were as many places and handed each other values."""
    directory = directory or c.fresh("matrix-" + "-".join(map(str, mesh)))
    summary = c.up(spec, "--workers", workers_of(mesh), *settings_of(pieces, mesh), *words, directory=directory)
    c.check_equal(len(summary["peak_bytes"]["device"]), mesh.stages, f"places of {mesh}")
    c.check_equal(summary["peer_bytes"] > 0, mesh.stages * mesh.tensor > 1, f"{mesh}: values between workers")
    return summary["digest"]


def check_digest(model, pieces, meshes, jobs):
    """All these meshes end in one, that of the single process."""
    spec = spec_of(model)
    wanted = c.reference(spec, "--set", f"train.pieces={pieces}")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for mesh, digest in zip(meshes, pool.map(lambda mesh: train(spec, pieces, mesh), meshes)):
            c.check_equal(digest, wanted, f"{model}, {pieces} pieces, {mesh}: digest")


def check_cover(model):
    """Meshes of one member a place have one piece, as if there were none."""
    meshes = [mesh for name, mesh in cover() if name == model]
    check_digest(model, 1, [mesh for mesh in meshes if mesh.tensor == 1], 1)
    check_digest(model, max(PIECES[model]), [mesh for mesh in meshes if mesh.tensor > 1], 1)
    return f"{len(meshes)} meshes"


def counted(model, pieces):
    return [model, str(pieces), str(len(meshes_of(pieces))), "1"]


def cells_of(model, pieces):
    check_digest(model, pieces, meshes_of(pieces), c.JOBS)
    return counted(model, pieces)


def goes_on():
    """A run is continued with another mesh, and again, and alone."""
    spec, directory = spec_of("gpt"), c.fresh("goes-on")
    meshes = (Mesh(1, 4, 1, "resident", "none"), Mesh(2, 2, 1, "streamed", "all"), Mesh(4, 1, 1, "resident", "all"),
              Mesh(1, 1, 1, "resident", "none"))
    for number, mesh in enumerate(meshes, 1):
        steps = ("--set", f"train.steps={2 * number}")
        digest = train(spec, 4, mesh, *steps, *(["--resume"] if number > 1 else []), directory=directory)
        c.check_equal(digest, c.reference(spec, "--set", "train.pieces=4", *steps), f"digest of {2 * number} steps, the last with {mesh}")


ROWS = [(model, pieces) for model in MODELS for pieces in PIECES[model]]


def main():
    for row in ROWS if "--full" in sys.argv[1:] else ():
        print(table.line_of(cells_of(*row)), flush=True)
    for model in MODELS if "--full" not in sys.argv[1:] else ():
        print(f"{model}: {check_cover(model)}", flush=True)


if __name__ == "__main__":
    main()
