"""Which process gets which fault, and when: a function of a seed, and of nothing else.

A plan is made before anything runs, so a seed names the same faults on every machine; what a
machine's speed decides is only at which step of the training each of them lands."""
import dataclasses
import random

KILL, STOP, KILL_IN_CUT, SPLIT = "kill", "stop", "kill in a cut", "split"
WORKER, SERVER, COORDINATOR = "worker", "server", "coordinator"
BOTH, IN, OUT = "both ways", "nothing arrives", "nothing leaves"

# How often each of them comes, of a hundred. SPLIT: a network partition.
KINDS = ((KILL, 45), (STOP, 20), (KILL_IN_CUT, 15), (SPLIT, 20))
TARGETS = ((WORKER, 60), (SERVER, 25), (COORDINATOR, 15))
WAYS = ((BOTH, 60), (IN, 20), (OUT, 20))
TOGETHER = 0.25  # the share of faults that do not wait until the run has recovered from the last


@dataclasses.dataclass(frozen=True)
class Fault:
    kind: str
    target: str
    number: int      # of the worker or server; the coordinator's is server 0
    lasts: float     # leases: until it is continued, joined again or started again
    way: str         # of a split
    together: bool   # with the one before: does not wait for the run to move on
    after: float     # leases to wait before, at most one

    def __str__(self):
        way = f" ({self.way})" if self.kind == SPLIT else ""
        return f"{self.kind} {self.name}{way} for {self.lasts:.2f} leases"

    @property
    def name(self):
        return f"worker-{self.number}" if self.target == WORKER else f"server-{self.number}"


def weighted(rand, table):
    return rand.choices([value for value, _ in table], [weight for _, weight in table])[0]


def duration(rand, kind):
    """A process that is killed is started again within a lease; the others are away shorter or
    longer than the lease, mostly longer."""
    return rand.uniform(0, 1) if kind in (KILL, KILL_IN_CUT) else rand.uniform(0.3, 3)


def plan(seed, count, workers, servers, splits=True):
    """`count` faults for a cluster of so many workers and servers (the coordinator's included)."""
    rand = random.Random(f"faults {seed}")
    faults = []
    for _ in range(count):
        kind = weighted(rand, KINDS)
        target = weighted(rand, TARGETS)
        if target == SERVER and servers == 1:
            target = COORDINATOR
        number = rand.randrange(workers) if target == WORKER else 0
        if target == SERVER:
            number = rand.randrange(1, servers)
        lasts, way = duration(rand, kind), weighted(rand, WAYS)
        together, after = rand.random() < TOGETHER, rand.random()
        if kind == SPLIT and not splits:
            continue
        faults.append(Fault(kind, target, number, lasts, way, together, after))
    return faults
