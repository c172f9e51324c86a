"""A network of its own for a cluster: each process in a network namespace, one bridge between them.

Everything lies in namespaces that are named after this process and deleted with the object, so
several may run beside each other. A partition is a set of nftables rules in the namespace of
whoever is cut off: what is sent is dropped without an answer, as when a cable is pulled."""
import functools
import os
import shutil
import subprocess

SUBNET = "10.77.0"
RULES = {
    "input": "chain input { type filter hook input priority 0; policy drop; iif lo accept; }",
    "output": "chain output { type filter hook output priority 0; policy drop; oif lo accept; }",
}


def quiet(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def need(*command):
    done = quiet(*command)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@functools.cache
def missing():
    """Why there can be no such network on this machine; nothing when there can be."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "nft", "nsenter"):
        if shutil.which(tool) is None:
            return f"no program {tool}"
    try:
        with Network("try") as network:
            network.add("a", 10)
            network.split("a", True, True)
    except OSError as problem:
        return str(problem).splitlines()[0]
    return None


class Network:
    def __init__(self, name):
        self.prefix = f"roost-{os.getpid()}-{name}"
        self.middle = f"{self.prefix}-middle"
        self.spaces, self.addresses = {}, {}

    def __enter__(self):
        need("ip", "netns", "add", self.middle)
        try:
            for words in ("link add bridge type bridge", f"addr add {SUBNET}.1/24 dev bridge",
                          "link set bridge up", "link set lo up"):
                need("ip", "-n", self.middle, *words.split())
        except OSError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in [*self.spaces.values(), self.middle]:
            quiet("ip", "netns", "delete", space)
        self.spaces = {}

    def add(self, name, number):
        """A place of its own for `name`; its address."""
        space, port = f"{self.prefix}-{name}", f"p{number}"
        need("ip", "netns", "add", space)
        self.spaces[name] = space
        need("ip", "-n", self.middle, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        for words in (f"link set {port} master bridge", f"link set {port} up"):
            need("ip", "-n", self.middle, *words.split())
        for words in ("link set lo up", f"addr add {SUBNET}.{number}/24 dev eth0", "link set eth0 up"):
            need("ip", "-n", space, *words.split())
        self.addresses[name] = f"{SUBNET}.{number}"
        return self.addresses[name]

    def inside(self, name=None):
        """What stands before a command that runs there; without a name: in the middle, from where
        all are reached."""
        return ["nsenter", f"--net=/run/netns/{self.spaces[name] if name else self.middle}"]

    def rule(self, name, *chains):
        done = subprocess.run([*self.inside(name), "nft", "-f", "-"], input="\n".join(["table inet split {", *chains, "}\n"]),
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"nft: {done.stderr.strip()}")

    def split(self, name, nothing_arrives, nothing_leaves):
        self.rule(name, *(RULES[hook] for hook, wanted in (("input", nothing_arrives), ("output", nothing_leaves)) if wanted))

    def part(self, name, other):
        """Nothing comes from the other one to this one: neither has an answer of the other."""
        self.rule(name, f"chain input {{ type filter hook input priority 0; ip saddr {self.addresses[other]} drop; }}")

    def join(self, name):
        need(*self.inside(name), "nft", "delete", "table", "inet", "split")
