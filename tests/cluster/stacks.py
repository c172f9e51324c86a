"""Where the threads of a process and of all that it started stand: for what does not end in a test."""
import os
import re
import signal
import subprocess


def children_of(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as file:
            found += [int(child) for child in file.read().split()]
    return found


def family_of(pid):
    """The process and its descendants; who ends meanwhile has none."""
    family = [pid]
    for member in family:
        try:
            family += children_of(member)
        except OSError:
            pass
    return family


def field(pid, name):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return re.search(rf"^{name}:\s*(.*)$", file.read(), re.M)[1]


def threads_of(pid):
    """A line for each thread that we started: its name, and the functions that it is in, the innermost first."""
    seen = subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set print frame-arguments none",
                           "-ex", "thread apply all backtrace"],
                          capture_output=True, text=True, timeout=60, check=False)
    lines = []
    for thread in seen.stdout.split("\nThread ")[1:]:
        name = re.search(r'"(.*?)"', thread)
        calls = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?([A-Za-z]\w*) ", thread, re.M)
        if {"main", "thread_main"} & set(calls):
            lines.append(f"{name[1] if name else '?'}: {' < '.join(calls)}")
    return sorted(lines) or seen.stderr.strip().splitlines()[-1:]


def lines_of(pid):
    """A tracer is a sanitizer's search for leaks: while it is there nobody else can look."""
    lines = [f"{field(pid, 'Name')} {pid}: {field(pid, 'State')}, traced by {field(pid, 'TracerPid')}"]
    return lines + [f"  {line}" for line in threads_of(pid)]


def stacks(pid):
    """Of the process and its descendants, as text."""
    lines = []
    for member in family_of(pid):
        try:
            lines += lines_of(member)
        except (OSError, subprocess.SubprocessError) as gone:
            lines.append(f"{member}: {gone}")
    return "\n".join(lines)


def kill_family(pid):
    for member in reversed(family_of(pid)):
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass
