"""Where the threads of a process and of all that it started stand: for what does not end in a test."""
import glob
import os
import re
import signal
import subprocess


def text_of(path):
    """Of a file of /proc; nothing when its process or thread has ended."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def children_of(pid):
    """Of a process that has ended there are none."""
    return [int(child) for path in glob.glob(f"/proc/{pid}/task/*/children") for child in text_of(path).split()]


def command_of(pid):
    """The words of its command line."""
    return text_of(f"/proc/{pid}/cmdline").split("\0")[:-1]


def family_of(pid):
    """The process and its descendants."""
    family = [pid]
    for member in family:
        family += children_of(member)
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
