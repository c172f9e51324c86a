#!/usr/bin/env python3
"""One digest for workers 1, 2, 3, 5 × servers 1, 2, 4 × ten fault seeds × mlp, gpt × consistency.

Each point is `roost up --churn --churn-servers` of a short run, compared with the single process:
tests/churn/table.py [--jobs 2] runs all of them; the suite runs a few that touch every value once."""
import argparse
import collections
import concurrent.futures
import itertools
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
import cluster as c  # noqa: E402  pylint: disable=wrong-import-position

WORKERS, SERVERS, SEEDS = (1, 2, 3, 5), (1, 2, 4), range(10)
CONSISTENCIES = ("{kind: sync}", "{kind: delay, delay: 1}")
RATE = 0.4  # faults a second: a few in each run, and time to recover between them
SPECS = {
    "mlp": c.MLP.replace("steps: 12", "steps: 1200").replace("every_steps: 4", "every_steps: 100").replace("validate_every: 4", "validate_every: 300"),
    "gpt": c.GPT.replace("steps: 8", "steps: 150").replace("every_steps: 4", "every_steps: 20").replace("validate_every: 4", "validate_every: 50"),
}
Point = collections.namedtuple("Point", "kind consistency workers servers seed")


def whole():
    """In an order of which every beginning is a fair sample."""
    points = [Point(*values) for values in itertools.product(SPECS, CONSISTENCIES, WORKERS, SERVERS, SEEDS)]
    random.Random(0).shuffle(points)
    return points


def reduced():
    """Every value of every axis once or more, and both kinds of model under each consistency."""
    shapes = [(1, 4), (2, 1), (3, 2), (5, 1)]
    kinds = list(itertools.product(SPECS, CONSISTENCIES))
    return [Point(*kind, *shape, seed) for seed, (kind, shape) in enumerate(zip(kinds, shapes))]


def one(point, digests, say):
    name = "-".join(str(value) for value in (point.kind, CONSISTENCIES.index(point.consistency), point.workers, point.servers, point.seed))
    spec = c.write_spec(f"table-{name}", SPECS[point.kind] + f"consistency: {point.consistency}\n")
    summary = c.up(spec, "--workers", point.workers, "--servers", point.servers, "--churn", RATE, "--churn-servers",
                   "--churn-seed", point.seed, timeout=400, directory=c.fresh(f"table-{name}.run"))
    c.check_equal(summary["state"], "ended", f"{point}: state")
    c.check_equal(summary["digest"], digests[point.kind, point.consistency], f"{point}: digest")
    if say:
        say(f"{name}: {summary['workers_lost']} workers lost, {summary['tickets_redone']} tickets redone, digest equal")
    return summary["workers_lost"]


def run(points, jobs, say=None):
    """All of them; a sentence, or a c.Failed. `say` gets a line a point."""
    digests = {}
    for kind, consistency in {(point.kind, point.consistency) for point in points}:
        spec = c.write_spec("table-reference", SPECS[kind] + f"consistency: {consistency}\n")
        digests[kind, consistency] = c.reference(spec)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        seen = list(pool.map(lambda point: one(point, digests, say), points))
    c.check(sum(seen) > 0, "no worker was lost in any run")
    return f"{len(points)} runs, each in its quiet run's digest; {sum(seen)} workers lost in them"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kind", choices=list(SPECS))
    parser.add_argument("--consistency", choices=("sync", "delay"))
    chosen = parser.parse_args()
    print(run([point for point in whole() if chosen.kind in (None, point.kind)
               and (chosen.consistency or "") in point.consistency], chosen.jobs, lambda line: print(line, flush=True)))
