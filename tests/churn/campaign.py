"""Real daemons and workers under faults from a seed, and what must hold whatever they are.

A run of steps without an end is trained while a plan of faults (faults.py) is carried out; then it
is stopped. Its version is wherever the machine's speed and the faults let it come to, so the quiet
run that its digest is compared with is made afterwards, of exactly so many steps (the learning
rate does not depend on the run's length). Everybody's calls are in their logs at debug, with how
long they were waited for and their deadlines."""
import collections
import contextlib
import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
import cluster as c  # noqa: E402  pylint: disable=wrong-import-position
import faults as f  # noqa: E402  pylint: disable=wrong-import-position
import network as n  # noqa: E402  pylint: disable=wrong-import-position

LEASE_S = 1.0
MOVES_ON_S = 90      # a run that does not move for so long after a fault hangs; machines may be slow
CUT_S = 20           # a cut comes at least so often
SLACK_MS = 2000      # of a loaded machine, beyond a deadline, and as long as this process stood still
PAUSE_S = 0.01
ROWS_BYTES = 65536   # of the step log's end are looked at

SPECS = {
    "mlp": """
model:      {kind: mlp, layers: [2, 96, 96, 3], activation: tanh}
data:       {kind: spiral, points: 500, validation: 0.1}
train:      {steps: 1000000, slots: 8, slot_samples: 64, microbatch: 16, seed: 5, validate_every: 25}
optimizer:  {kind: adamw, lr: 1.0e-3, clip_norm: 1.0, schedule: constant}
checkpoint: {every_steps: 10, keep: 2}
""",
    "gpt": """
model:      {kind: gpt, layers: 2, heads: 2, width: 32, context: 16, vocabulary: 256}
data:       {kind: text, path: CORPUS, validation: 0.1}
train:      {steps: 1000000, slots: 8, slot_samples: 2, microbatch: 1, seed: 3, validate_every: 25, validation_samples: 16}
optimizer:  {kind: adamw, lr: 1.0e-3, clip_norm: 1.0, schedule: constant}
checkpoint: {every_steps: 10, keep: 2}
""",
}


class Faulted:
    """A cluster whose processes are killed, stopped and cut off, and started again as systemd would."""

    def __init__(self, name, servers, workers, network=None, settings=(), worker=(c.WORKER,), lease_s=LEASE_S):
        self.name, self.network = name, network
        self.directory = c.fresh(name)
        self.certs = f"{self.directory}/certs"
        self.counts = {"server": servers, "worker": workers}
        self.settings = settings
        self.worker = worker  # its program and words
        self.lease_s = lease_s
        self.again = {75}  # exit codes of who is started again
        self.processes, self.addresses = {}, {}
        self.starts = collections.Counter()
        self.away = {}      # name: how it is brought back, and when
        self.stopped_ms = collections.Counter()  # log: how long its process was stopped
        self.logs = []
        self.carried_out = 0     # faults
        self.cuts_hit = 0        # of them, kills inside a cut
        self.longest = collections.Counter()     # path of a call: milliseconds
        self.late = []
        self.stood_ms = 0   # the longest time that a pause took too long
        self.over = False   # the run was told to stop: workers end

    # ---- processes ----

    def place(self, name, number):
        address = self.network.add(name, number) if self.network else "127.0.0.1"
        self.addresses[name] = f"{address}:{7400 if self.network else c.free_port()}"

    def start(self, name):
        kind, number = name.split("-")
        self.starts[name] += 1
        command = [*((c.ROOSTD,) if kind == "server" else self.worker), "--name", name, "--certs", self.certs, "--log-level", "debug"]
        if kind == "server":
            command += ["--address", self.addresses[name], "--dir", f"{self.directory}/{name}", "--run-dir", f"{self.directory}/run",
                        "--heartbeat-ms", int(self.lease_s * 200), "--lease-ms", int(self.lease_s * 1000)]
        else:
            command += ["--address", f"{self.addresses[name].split(':')[0]}:0"]  # for other places
        if name != "server-0":
            command += ["--coordinator", self.addresses["server-0"]]
        if self.network:
            command = [*self.network.inside(name), *command]
        process = c.Process(f"{self.name}-{name}.{self.starts[name]}", *command)
        self.logs.append(process)
        self.processes[name] = process

    def __enter__(self):
        os.makedirs(self.directory)
        names = [f"{kind}-{number}" for kind in ("server", "worker") for number in range(self.counts[kind])]
        for number, name in enumerate(names, 10):
            self.place(name, number)
        hosts = [word for address in self.addresses.values() for word in ("--host", address.split(":")[0])]
        c.run(c.ROOST, "cert", "--dir", self.certs, *hosts[:2 * self.counts["server"]])
        for name in names:
            self.start(name)
        c.wait_for(lambda: self.roost("status").returncode in (0, 3), "the coordinator's answer", MOVES_ON_S)
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.__exit__()

    def roost(self, command, *arguments, ok=False):
        inside = self.network.inside() if self.network else []
        return c.run(*inside, c.ROOST, command, "--cluster", self.addresses["server-0"], "--certs", self.certs, *arguments,
                     ok=ok, timeout=120)

    # ---- faults ----

    def kill(self, fault):
        self.processes[fault.name].kill()
        self.processes[fault.name].wait()
        return lambda: self.start(fault.name)

    def kill_in_cut(self, fault):
        """Kills as soon as a cut's folder is there and the cut is not recorded."""
        folder = f"{self.directory}/run/checkpoints"
        seen = set(os.listdir(folder))
        begun = time.monotonic()
        while time.monotonic() < begun + CUT_S:
            fresh = [name for name in os.listdir(folder) if name not in seen]
            if fresh and not os.path.exists(f"{folder}/{fresh[-1]}/cut.json"):
                self.cuts_hit += 1
                break
            seen |= set(fresh)
            if not fresh:
                self.tick(0.0005)
        return self.kill(fault)

    def stop(self, fault):
        return self.stop_process(fault.name)

    def stop_process(self, name):
        self.processes[name].kill(signal.SIGSTOP)
        return self.lets_go_on(name)

    def lets_go_on(self, name):
        """For a process that was stopped just now."""
        process, begun = self.processes[name], time.monotonic()

        def again():
            process.kill(signal.SIGCONT)
            self.stopped_ms[process.name] += int(1000 * (time.monotonic() - begun))
        return again

    def split(self, fault):
        self.network.split(fault.name, fault.way != f.OUT, fault.way != f.IN)
        return lambda: self.network.join(fault.name)

    def apply(self, fault):
        self.wait(lambda: fault.name not in self.away, f"{fault.name} is back")
        back = {f.KILL: self.kill, f.KILL_IN_CUT: self.kill_in_cut, f.STOP: self.stop, f.SPLIT: self.split}[fault.kind](fault)
        self.away[fault.name] = (time.monotonic() + fault.lasts * LEASE_S, back)
        self.carried_out += 1

    # ---- time ----

    def tick(self, pause=PAUSE_S):
        """Brings back who is due, and starts again who ended by itself and said that it should be."""
        for name, (due, back) in list(self.away.items()):
            if time.monotonic() >= due:
                del self.away[name]
                back()
        for name, process in list(self.processes.items()):
            if not self.over and name not in self.away and process.popen.poll() is not None:
                c.check(process.popen.returncode in self.again, f"{name} ended by itself with {process.popen.returncode}\n{process.log()[-2000:]}")
                self.start(name)
        begun = time.monotonic()
        time.sleep(pause)  # between two looks of a wait for an event; how much longer it took is how long the machine stood
        self.stood_ms = max(self.stood_ms, int(1000 * (time.monotonic() - begun - pause)))

    def wait(self, condition, what, seconds=MOVES_ON_S):
        """Waits for an event, and meanwhile brings back who is due."""
        return c.wait_for(condition, what, seconds, pause=self.tick, state=self.state)

    def rows(self):
        """The newest rows of the step log."""
        try:
            with open(f"{self.directory}/run/steps.jsonl", "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - ROWS_BYTES))
                lines = log.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.startswith(b'{"step"')]

    def moved_since(self, moment):
        rows = self.rows()
        return bool(rows) and rows[-1]["time"] > moment

    def state(self):
        """For the report of a hang."""
        tails = [f"--- {process.name}\n{tail_without_debug(process.log())}" for process in self.processes.values()]
        return self.roost("status").stdout + "\n".join(tails)

    # ---- what must hold ----

    def measure(self):
        """The longest wait of every call, and those that were longer than their deadline."""
        for process in self.logs:
            slack = SLACK_MS + self.stood_ms + self.stopped_ms[process.name]
            for path, waited, deadline in re.findall(r"call ended +path=\S*/(\S+) waited_ms=(\d+) deadline_ms=(\d+)", process.log()):
                self.longest[path] = max(self.longest[path], int(waited) - self.stopped_ms[process.name])
                if int(waited) > int(deadline) + slack:
                    self.late.append(f"{process.name}: {path} {waited} ms of {deadline}")
            for held in re.findall(r"ticket done +.*held_ms=(\d+)", process.log()):  # its pulls and pushes included
                self.longest["a ticket"] = max(self.longest["a ticket"], int(held) - self.stopped_ms[process.name])
        for path in [process.log_path for process in self.logs if process not in self.processes.values()]:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def tail_without_debug(text):
    return "\n".join([line for line in text.splitlines() if " debug " not in line][-12:])


def stopped(cluster):
    done = cluster.roost("status", "--json")
    status = json.loads(done.stdout or "{}")
    c.check(status.get("state") != "failed", f"the run failed: {status.get('reason')}")
    return status if status.get("state") == "stopped" else None


def stop(cluster):
    """Stops the run; its last status."""
    cluster.over = True

    def told():
        cluster.roost("stop")
        return stopped(cluster)
    return cluster.wait(told, "the run's stop")


def campaign(name, text, seed, count, workers, servers, settings=(), say=None):
    """`count` faults; what happened, or a c.Failed. `say` gets a line a fault."""
    spec = c.write_spec(name, text)
    why = n.missing()
    plan = f.plan(seed, count, workers, servers, splits=why is None)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(n.Network(name)) if why is None else None
        cluster = stack.enter_context(Faulted(name, servers, workers, network))
        cluster.roost("run", spec, *settings, "--servers", servers, "--detach", ok=True)
        cluster.wait(cluster.rows, "the first step")
        recoveries = carry_out(cluster, plan, say)
        status = finish(cluster)
    train = {key: int(re.search(rf"\b{key}: (\d+)", text)[1]) for key in ("slots", "slot_samples")}
    c.check_equal(status["samples"], status["step"] * train["slots"] * train["slot_samples"], "samples counted")
    version, digest = check_quiet_digest(cluster, spec, settings)
    c.check_equal(cluster.carried_out, len(plan), "faults")
    return {"faults": cluster.carried_out, "cuts_hit": cluster.cuts_hit, "version": version, "digest": digest, "longest": dict(cluster.longest),
            "recoveries": recoveries, "generation": status["generation"], "no_splits": why}


def finish(cluster):
    """Stops the run and ends all processes; its last status."""
    cluster.wait(lambda: not cluster.away, "all are back")
    status = stop(cluster)
    for kind in ("worker", "server"):
        ended = [process for process_name, process in cluster.processes.items() if process_name.startswith(kind)]
        for process in ended:
            process.kill(signal.SIGTERM)
        c.check_equal([process.wait(60) for process in ended], [0] * len(ended), f"{kind}s' exit codes")
    cluster.measure()
    c.check(cluster.longest, "no call was measured")
    c.check_equal(cluster.late, [], "calls beyond their deadline")
    return status


def check_quiet_digest(cluster, spec, settings):
    """The version that the run came to, and its digest, which is the quiet run's of exactly so many steps."""
    seen, checkpoint = c.run(c.ROOST, "digest", f"{cluster.directory}/run").stdout.split()
    version = int(checkpoint.split("-v")[1])  # a server that was lost as the run stopped took the steps since the last cut along
    wanted = c.reference(spec, *settings, "--set", f"train.steps={version}")
    c.check_equal(seen, wanted, f"digest of version {version}")
    return version, seen


def carry_out(cluster, plan, say):
    """All faults of the plan; how long each kind took until the run moved again, in seconds."""
    recoveries = collections.defaultdict(list)
    for number, fault in enumerate(plan):
        due = time.monotonic() + fault.after * LEASE_S
        cluster.wait(lambda due=due: time.monotonic() >= due, "the pause's end")
        if say:
            say(f"{number + 1:4d} {fault}  at step {(cluster.rows() or [{}])[-1].get('step')}")
        cluster.apply(fault)
        begun = time.time()
        if number + 1 < len(plan) and plan[number + 1].together:
            continue
        cluster.wait(lambda begun=begun: not cluster.away and cluster.moved_since(begun), f"a step after: {fault}")
        recoveries[f"{fault.kind} {fault.target}"].append(cluster.rows()[-1]["time"] - begun)
    return recoveries
