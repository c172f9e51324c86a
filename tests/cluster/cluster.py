"""Real processes for tests: specs, `roost up`, daemons and workers by hand, TAP."""
import concurrent.futures
import contextlib
import errno
import glob
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

import stacks

# Whoever starts a suite in a script's background has it ignore SIGINT, and programs under test must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

BUILD = os.environ.get("TEST_BUILD", os.path.abspath("build"))
SCRATCH = os.environ.get("TEST_DIR") or tempfile.mkdtemp(prefix="roost-test-")
QUICK = bool(os.environ.get("TEST_QUICK"))
JOBS = int(os.environ.get("TEST_JOBS") or 2)
ROOST = f"{BUILD}/deploy/roost/roost"
ROOSTD = f"{BUILD}/server/roostd"
WORKER = f"{BUILD}/worker/roost-worker"
WRONG_WORKER = f"{BUILD}/tests/cluster/wrong-worker"
DYING_WORKER = f"{BUILD}/tests/cluster/dying-worker"
REFERENCE = f"{BUILD}/tests/reference/reference"

MLP = """
model:     {kind: mlp, layers: [2, 32, 3], activation: tanh}
data:      {kind: spiral, validation: 0.2}
train:     {steps: 12, slots: 8, slot_samples: 4, microbatch: 2, seed: 5, validate_every: 4}
optimizer: {kind: adamw, lr: 1.0e-2, clip_norm: 1.0, schedule: cosine, warmup_samples: 64}
checkpoint: {every_steps: 4, keep: 2}
"""

GPT = """
model:     {kind: gpt, layers: 2, heads: 2, width: 32, context: 16, vocabulary: 256, tensor_max: 8}
data:      {kind: text, path: CORPUS, validation: 0.1}
train:     {steps: 8, slots: 8, slot_samples: 2, microbatch: 1, seed: 3, validate_every: 4, validation_samples: 16}
optimizer: {kind: adamw, lr: 1.0e-3, clip_norm: 1.0, schedule: cosine, warmup_samples: 32}
checkpoint: {every_steps: 4, keep: 2}
"""

LLAMA = GPT.replace("kind: gpt, layers: 2, heads: 2,", "kind: llama, layers: 2, heads: 4, kv_heads: 2, hidden: 48,")


class Failed(Exception):
    """A check that did not hold; its text says what was seen."""


def check(condition, text):
    if not condition:
        raise Failed(text)


def check_equal(seen, wanted, what):
    check(seen == wanted, f"{what}: {seen!r}, wanted {wanted!r}")


def corpus():
    """Some real text, the same on every machine of a release."""
    path = f"{SCRATCH}/corpus.txt"
    if not os.path.exists(path):
        with open("/usr/share/common-licenses/GPL-3", "rb") as source:
            text = source.read()
        with open(path, "wb") as out:
            out.write(text)
    return path


def write_spec(name, text):
    path = f"{SCRATCH}/{name}.yaml"
    with open(path, "w", encoding="utf-8") as out:
        out.write(text.replace("CORPUS", corpus()))
    return path


def fresh(name):
    path = f"{SCRATCH}/{name}"
    shutil.rmtree(path, ignore_errors=True)
    return path


def run(*command, timeout=120, ok=True, env=None):
    """Runs to its end; with `ok` its exit code must be 0."""
    words = [str(part) for part in command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})}) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            where = stacks.stacks(process.pid)
            stacks.kill_family(process.pid)
            out, err = process.communicate()
            raise Failed(f"{' '.join(words)} did not end in {timeout} s\n{out}{err}{where}") from None
    if ok and process.returncode != 0:
        raise Failed(f"{' '.join(words)} ended with {process.returncode}\n{out}{err}")
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def check_full_disk(*command):
    """What a program prints into a full disk is not lost in silence."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([str(part) for part in command], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=120, check=False)
    check(done.returncode == 75 and "cannot write the standard output: No space left" in done.stderr,
          f"{command} ended with {done.returncode}\n{done.stderr}")


# Signals of a process that ended by an error of its own: what else went wrong follows from that.
CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}


def check_nobody_crashed(directory, said):
    """`roost up` starts again whoever ends by a signal, and the run ends well all the same."""
    crashed = "|".join(str(128 + number) for number in CRASHES)
    check(not re.search(rf"ended with code ({crashed}) ", said), said)
    for path in glob.glob(f"{directory}/logs/*.log"):
        with open(path, encoding="utf-8", errors="replace") as file:
            log = file.read()
        check(not re.search("check failed: |Sanitizer: |runtime error: ", log), f"{path}\n{log[-4000:]}")


def up(spec, *arguments, timeout=120, directory=None, env=None):
    """`roost up --json`; the summary."""
    directory = directory or fresh("up")
    done = run(ROOST, "up", spec, "--json", "--dir", directory, *arguments, timeout=timeout, env=env)
    check_nobody_crashed(directory, done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def reference(spec, *arguments):
    """The digest of the single process."""
    done = run(REFERENCE, spec, "--json", *arguments)
    return json.loads(done.stdout.strip().splitlines()[-1])["digest"]


def tensors(path):
    """Of a safetensors file: lists of floats by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        buffer = file.read()
    return {name: struct.unpack(f"<{(about['data_offsets'][1] - about['data_offsets'][0]) // 4}f",
                                buffer[slice(*about["data_offsets"])])
            for name, about in header.items() if name != "__metadata__"}


PORTS = range(10000, 20000)  # below those of outgoing connections, and not those that `roost up` takes
_next_port = itertools.count(random.SystemRandom().randrange(len(PORTS)))


def free_port():
    """Free, and not given before."""
    for _ in PORTS:
        port = PORTS[next(_next_port) % len(PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError as taken:
                if taken.errno != errno.EADDRINUSE:
                    raise
    raise Failed("no free port on 127.0.0.1")


def wait_for(condition, what, seconds=60, pause=lambda: time.sleep(0.02), state=lambda: ""):
    """Waits for an event of other processes, never a fixed time; what the condition gave in the end. `pause` comes
    between two looks, `state` is asked for the report of a hang."""
    deadline = time.monotonic() + seconds
    while not (seen := condition()):
        if time.monotonic() >= deadline:
            raise Failed(f"{what} did not happen within {seconds} s\n{state()}".rstrip())
        pause()
    return seen


class Process:
    """A daemon or worker with its log; ended with the test."""

    def __init__(self, name, *command):
        self.name = name
        self.log_path = f"{SCRATCH}/{name}.log"
        with open(self.log_path, "wb") as log:
            self.popen = subprocess.Popen([str(part) for part in command], stdout=log,
                                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def kill(self, number=signal.SIGKILL):
        if self.popen.poll() is None:
            self.popen.send_signal(number)

    def forget_peak(self):
        """From now on peak() is the most that was resident since."""
        with open(f"/proc/{self.popen.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def peak(self):
        """The most bytes that were resident."""
        with open(f"/proc/{self.popen.pid}/status", encoding="utf-8") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))

    def wait(self, timeout=120):
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired as slow:
            raise Failed(f"{self.name} did not end\n{self.log()}") from slow

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ended = self.popen.poll()
        self.kill()
        self.popen.wait()
        check(ended is None or -ended not in CRASHES, f"{self.name} crashed with {ended}\n{self.log()[-4000:]}")


class MemoryLimit:
    """A control group for one process; where the machine lets nobody make one, the worker is told by --memory."""

    HIERARCHIES = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))
    numbers = itertools.count()

    def __init__(self, limit):
        self.limit, self.folder = limit, None
        name = f"roost-test-{os.getpid()}-{next(self.numbers)}"
        for base, file in self.HIERARCHIES:
            if self.folder is None and os.path.exists(f"{base}/cgroup.procs"):
                self.make(f"{base}/{name}", file)

    def make(self, folder, file):
        try:
            os.mkdir(folder)
        except OSError:
            return
        try:
            with open(f"{folder}/{file}", "r+", encoding="ascii") as limit:
                limit.write(str(self.limit))
            self.folder = folder
        except OSError:
            os.rmdir(folder)

    def command(self, *words):
        if self.folder is None:
            return [*words, "--memory", self.limit]
        return ["sh", "-c", 'echo $$ >"$0" && exec "$@"', f"{self.folder}/cgroup.procs", *words]

    def lacks(self):
        """Why only the worker's own ledger refuses, if that is so."""
        return "SKIP no control groups here: held with --memory" if self.folder is None else None

    def release(self):
        """Its process has ended."""
        if self.folder is not None:
            os.rmdir(self.folder)


class Cluster:
    """Daemons started by hand, with certificates of their own."""

    def __init__(self, name, servers=1, insecure=False, server_arguments=(), coordinator_arguments=()):
        self.directory = fresh(name)
        self.certs = f"{self.directory}/certs"
        self.insecure = insecure
        os.makedirs(self.directory)
        if not insecure:
            run(ROOST, "cert", "--dir", self.certs)
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(servers)]
        self.name = name
        self.server_arguments = server_arguments
        self.coordinator_arguments = coordinator_arguments
        self.servers = []
        self.workers = []

    def security(self, certs=None):
        return ["--insecure"] if self.insecure else ["--certs", certs or self.certs]

    def start_server(self, number):
        arguments = [ROOSTD, "--name", f"server-{number}", "--address", self.addresses[number],
                     "--dir", f"{self.directory}/server-{number}", "--run-dir",
                     f"{self.directory}/run", *self.security(), *self.server_arguments]
        if number > 0:
            arguments += ["--coordinator", self.addresses[0]]
        else:
            arguments += self.coordinator_arguments
        return Process(f"{self.name}-server-{number}", *arguments)

    def start_worker(self, number, *arguments, certs=None, program=WORKER, limit=None):
        words = [program, "--name", f"worker-{number}", "--coordinator", self.addresses[0], *self.security(certs), *arguments]
        worker = Process(f"{self.name}-worker-{number}", *(limit.command(*words) if limit else words))
        self.workers.append(worker)
        return worker

    def __enter__(self):
        self.servers = [self.start_server(number) for number in range(len(self.addresses))]
        wait_for(lambda: self.roost("status", ok=False).returncode in (0, 3), "the coordinator's answer")
        return self

    def __exit__(self, *_):
        with contextlib.ExitStack() as stack:  # all of them end, whatever is found of one
            for process in self.servers + self.workers:
                stack.push(process)

    def roost(self, command, *arguments, ok=True, certs=None, timeout=120):
        return run(ROOST, command, "--cluster", self.addresses[0], *self.security(certs), *arguments,
                   ok=ok, timeout=timeout)

    def status(self):
        """What the coordinator says of the run; nothing while it is away."""
        return json.loads(self.roost("status", "--json", ok=False).stdout or "{}")


# ---- TAP ----

_apart = []  # tests of a process apart


def carry_out(test):
    """Runs one test; whether it passed, and its lines after "ok N" or "not ok N"."""
    name, begun = test.__name__.replace("_", " "), time.monotonic()
    try:
        note = test()
    except Exception as problem:  # a crash of a test is its failure
        text = str(problem) if isinstance(problem, Failed) else traceback.format_exc()
        return False, [f" - {name}", *(f"# {line}" for line in text.splitlines()[-60:])]
    skip = isinstance(note, str) and note.startswith("SKIP")
    said = [f"# {note}"] if isinstance(note, str) and not skip else []
    return True, [f" - {name}{' # ' + note if skip else ''}", *said, f"# {time.monotonic() - begun:.1f} s"]


def begin_apart(tests):
    """In a process that carries out tests beside others: what they write and which ports they take is its own."""
    global SCRATCH, _next_port, _apart  # pylint: disable=global-statement
    SCRATCH = tempfile.mkdtemp(dir=SCRATCH)
    _next_port = itertools.count(random.SystemRandom().randrange(len(PORTS)))
    _apart = tests


def carry_out_apart(number):
    return carry_out(_apart[number])


def main(tests, jobs=1):
    """Runs the tests as TAP, several at a time each in a process apart; the arguments choose some by a part of their names."""
    chosen = [test for test in tests if not sys.argv[1:] or any(word in test.__name__ for word in sys.argv[1:])]
    print(f"1..{len(chosen)}", flush=True)
    with contextlib.ExitStack() as stack:
        results = map(carry_out, chosen)
        if jobs > 1:
            pool = concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), begin_apart, (chosen,))
            results = stack.enter_context(pool).map(carry_out_apart, range(len(chosen)))
        failed = 0
        for number, (ok, lines) in enumerate(results, 1):
            failed += not ok
            print("\n".join([f"{'ok' if ok else 'not ok'} {number}{lines[0]}", *lines[1:]]), flush=True)
    sys.exit(1 if failed else 0)
