#!/usr/bin/env python3
"""Writes a trace with the statistics of spot machines: make_trace.py > spot.csv

Eight nodes for four hours; losses come in groups of one to six nodes at a time, because a zone's
price takes several, as many that a node is lost 0.6 times an hour; each comes back after some
minutes. (What recorded traces show: losses of 0.2 to 1 a node and hour on 8 to 64 nodes, mostly in
bulk.) Lines `milliseconds,add|remove,node`. The same seed is the same trace."""
import random

NODES, HOURS, LOSSES_AN_HOUR, GROUP_MAX, BACK_S, SEED = 8, 4, 0.6, 6, 240, 26
GROUP_WEIGHTS = (40, 25, 15, 10, 6, 4)  # of groups of 1, 2, … nodes


def trace(seed=SEED):
    rand = random.Random(seed)
    mean_group = sum(size * weight for size, weight in enumerate(GROUP_WEIGHTS, 1)) / sum(GROUP_WEIGHTS)
    groups_a_second = LOSSES_AN_HOUR * NODES / mean_group / 3600
    back = {node: 0.0 for node in range(NODES)}  # when those that are away come
    events = [(0.0, "add", node) for node in back]
    now = rand.expovariate(groups_a_second)
    while now < HOURS * 3600:
        up = [node for node in back if back[node] <= now]
        size = min(rand.choices(range(1, GROUP_MAX + 1), GROUP_WEIGHTS)[0], len(up))
        for node in rand.sample(up, size):
            back[node] = now + rand.expovariate(1 / BACK_S)
            events += [(now, "remove", node), (back[node], "add", node)]
        now += rand.expovariate(groups_a_second)
    return sorted((round(1000 * moment), what, node) for moment, what, node in events)


def text(seed=SEED):
    rows = [f"{moment},{what},spot-{node}" for moment, what, node in trace(seed)]
    return "# tests/churn/make_trace.py: eight nodes for four hours\n" + "\n".join(rows) + "\n"


def statistics(rows):
    """Losses a node and hour that it was up, and the groups' sizes."""
    up_since, up_ms, losses = {}, 0, {}
    for moment, what, node in rows:
        if what == "add":
            up_since[node] = moment
        else:
            up_ms += moment - up_since.pop(node)
            losses[moment] = losses.get(moment, 0) + 1
    up_ms += sum(HOURS * 3600000 - since for since in up_since.values())
    return sum(losses.values()) / (up_ms / 3600000), sorted(losses.values())


if __name__ == "__main__":
    print(text(), end="")
