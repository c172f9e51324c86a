"""Every mesh of a small model: stages 1, 2, 4 × tensor 1, 2, 4 × gangs 1, 2 × weights resident, streamed.

For each number of pieces all that it admits are trained by real workers, and end in the digest of the single process."""
import concurrent.futures
import itertools
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from table import c  # noqa: E402  pylint: disable=wrong-import-position

MODELS = {"gpt": "{kind: gpt, layers: 2, heads: 4, width: 64, context: 16, vocabulary: 256}",
          "llama": "{kind: llama, layers: 2, heads: 8, kv_heads: 4, width: 64, context: 16, vocabulary: 256}"}
PIECES = (1, 2, 4)
DEGREES, GANGS, RESIDENCIES = (1, 2, 4), (1, 2), ("resident", "streamed")
# Stages, tensor, gangs, residency: of those that 4 pieces admit.
SOME = ((1, 4, 2, "streamed"), (2, 2, 2, "resident"), (4, 4, 1, "streamed"))


def meshes_of(pieces):
    return [mesh for mesh in itertools.product(DEGREES, DEGREES, GANGS, RESIDENCIES) if mesh[1] <= pieces]


def spec_of(model):
    return c.write_spec(f"matrix-{model}", f"""
model:     {MODELS[model]}
data:      {{kind: text, path: CORPUS, validation: 0}}
train:     {{steps: 2, slots: 4, slot_samples: 2, microbatch: 1, node_slots: 1, seed: 1}}
optimizer: {{kind: adamw, lr: 1.0e-3, weight_decay: 0.1, clip_norm: 1.0, schedule: constant}}
""")


def settings_of(pieces, mesh):
    stages, tensor, _, residency = mesh
    return ["--set", f"train.pieces={pieces}", "--set", f"mesh.stage={stages}", "--set", f"mesh.tensor={tensor}",
            "--set", f"residency.weights={residency}"]


def train(spec, pieces, mesh, *words, directory=None):
    """The digest that the mesh's workers end in."""
    stages, tensor, gangs, residency = mesh
    directory = directory or c.fresh(f"matrix-{stages}-{tensor}-{gangs}-{residency}")
    return c.up(spec, "--workers", stages * tensor * gangs, *settings_of(pieces, mesh), *words, directory=directory)["digest"]


def check_digest(model, pieces, meshes, jobs):
    """All these meshes end in one, that of the single process."""
    spec = spec_of(model)
    wanted = c.reference(spec, "--set", f"train.pieces={pieces}")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for mesh, digest in zip(meshes, pool.map(lambda mesh: train(spec, pieces, mesh), meshes)):
            c.check_equal(digest, wanted, f"{model}, {pieces} pieces, stages, tensor, gangs and residency {mesh}: digest")


def cells_of(model, pieces):
    meshes = meshes_of(pieces)
    check_digest(model, pieces, meshes, c.JOBS)
    return [model, str(pieces), str(len(meshes)), "1"]


def goes_on():
    """A run is continued with another mesh, and again, and alone."""
    spec, directory = spec_of("gpt"), c.fresh("goes-on")
    meshes = ((1, 4, 1, "resident"), (2, 2, 1, "streamed"), (4, 1, 1, "resident"), (1, 1, 1, "resident"))
    for number, mesh in enumerate(meshes, 1):
        steps = ("--set", f"train.steps={2 * number}")
        digest = train(spec, 4, mesh, *steps, *(["--resume"] if number > 1 else []), directory=directory)
        c.check_equal(digest, c.reference(spec, "--set", "train.pieces=4", *steps), f"digest of {2 * number} steps, the last with {mesh}")
