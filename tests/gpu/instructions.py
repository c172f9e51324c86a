"""What the CUDA kernels cost in machine code: tests/gpu/instructions.py FOLDER [--all]

FOLDER has the objects that nvcc made (build/kernels/cuda). Compares the code for sm_90, or for sm_90a where there is some, with the ceilings of
instructions.txt beside this file, prints a line for each of its kernels (--all: for every kernel), and a line for
each that breaks a rule. No GPU is needed: cuobjdump, nvdisasm and c++filt read the objects.

A kernel's loops are its strongly connected instructions, wherever the compiler put them; a loop within another is
part of it. What is counted is what they have together, or the whole kernel's where there is no loop.

Exit 1: a ceiling or a rule is broken. 77: a tool is missing, or nvcc made nothing there."""
import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig

ARCHITECTURES = ("sm_90a", "sm_90")  # of an object the first that it has
CEILINGS = os.path.join(os.path.dirname(__file__), "instructions.txt")

# What no kernel has in what is counted, and what those of the table have not; by the word that allows it there.
RULES_FOR_ALL = {
    "rounds": r"\bV?(IADD3?|LEA)\b.*0x7fff\b",  # to bf16, with integers
    "memory": r"\b(LDL|STL)\b",  # spills, and arrays that are no registers
}
RULES = {
    "compares": r"ISETP\S*\.EX\b",  # 64-bit integers
    "calls": r"\bCALL\b",  # divisions of 64-bit integers, and the rare cases of divisions and roots
}
TENSOR_CORES = r"\bHG?MMA\b"


def missing(what):
    print(f"instructions: {what}", file=sys.stderr)
    sys.exit(77)


def find_tools():
    """Those of the toolkit, or those of NVIDIA's packages for Python; cuobjdump finds nvdisasm by its path."""
    folders = glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/bin") + ["/usr/local/cuda/bin"]
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *folders])
    for tool in ("cuobjdump", "nvdisasm", "c++filt"):
        if not shutil.which(tool):
            missing(f"no {tool} here")


def said(*command, given=None):
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True, text=True).stdout


def short_names(mangled):
    """forward<bf16,8> of each; mangled name -> short name"""
    lines = said("c++filt", given="\n".join(mangled)).splitlines()
    return {name: re.sub(r"^void |\(.*| ", "", line) for name, line in zip(mangled, lines)}


def read_functions(path, architecture):
    """Mangled name -> [(address, instruction)]"""
    functions, code = {}, None
    for line in said("cuobjdump", "-sass", "-arch", architecture, path).splitlines():
        found = re.match(r"\s*Function : (\S+)", line)
        if found:
            code = functions.setdefault(found[1], [])
        found = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)
        if found:
            code.append((int(found[1], 16), found[2]))
    return functions


def read_registers(path, architecture):
    """Mangled name -> registers of a thread"""
    text = said("cuobjdump", "-res-usage", "-arch", architecture, path)
    return {name: int(count) for name, count in re.findall(r"Function (\S+):\s+REG:(\d+)", text)}


def successors(code):
    """For each instruction the places in `code` of those that may come next."""
    places = {address: place for place, (address, _) in enumerate(code)}
    after = []
    for place, (_, text) in enumerate(code):
        conditional = text.startswith("@")
        operation = text.split()[1 if conditional else 0]
        there = []
        if operation.startswith("BRA"):
            target = int(re.search(r"0x([0-9a-f]+)$", text)[1], 16)
            there.append(places[target])
            conditional = conditional or not re.fullmatch(r"BRA 0x[0-9a-f]+", text)
        if conditional or not operation.startswith(("BRA", "EXIT", "RET")):
            there.append(place + 1)
        after.append([next_place for next_place in there if next_place < len(code)])
    return after


def reached(start, after):
    """All that can come after `start`; start itself only when a path leads back."""
    seen, work = set(), list(after[start])
    while work:
        place = work.pop()
        if place not in seen:
            seen.add(place)
            work.extend(after[place])
    return seen


def in_loops(code):
    """The instructions that can come again, but for the endless branch that fills up a function's end."""
    after = successors(code)
    heads = [place for place, there in enumerate(after) if any(other < place for other in there)]
    looping = set()
    for place in heads:
        for head in after[place]:
            body = reached(head, after)
            if head < place and place in body and head not in looping:
                before = [[] for _ in after]
                for one, there in enumerate(after):
                    for other in there:
                        before[other].append(one)
                looping |= body & reached(head, before)
    return [code[place][1] for place in sorted(looping)]


def matches(pattern, texts):
    return sum(1 for text in texts if re.search(pattern, text))


class Kernel:
    def __init__(self, name, registers, code):
        self.name, self.registers = name, registers
        self.counted = in_loops(code) or [text for _, text in code if not re.match(r"NOP|BRA 0x", text)]
        self.tensor_cores = matches(TENSOR_CORES, self.counted)
        self.broken = {word: matches(pattern, self.counted) for word, pattern in {**RULES_FOR_ALL, **RULES}.items()}

    def line(self):
        broken = " ".join(f"{word}:{count}" for word, count in self.broken.items() if count)
        return f"{self.name:<42} {self.registers:>9} {len(self.counted):>12} {self.tensor_cores:>12}  {broken}".rstrip()


def read_kernels(folder):
    """'FILE.cu KERNEL' -> Kernel"""
    kernels = {}
    objects = sorted(glob.glob(os.path.join(folder, "*.cu.o")))
    if not objects:
        missing(f"no objects of nvcc in {folder}")
    for path in objects:
        architecture = architecture_of(path)
        if architecture is None:
            continue
        functions, registers = read_functions(path, architecture), read_registers(path, architecture)
        names = short_names(list(functions))
        for mangled, code in functions.items():
            name = f"{os.path.basename(path)[:-len('.cu.o')]} {names[mangled]}"
            kernels[name] = Kernel(name, registers[mangled], code)
    return kernels


def architecture_of(path):
    """None: there are no kernels in it."""
    there = re.findall(r"\bsm_\w+", said("cuobjdump", "-lelf", path))
    return next((architecture for architecture in ARCHITECTURES if architecture in there), None)


def broken_rules(kernel, rules, allowed):
    for word in rules:
        if kernel.broken[word] and word not in allowed:
            yield f"{word}: {kernel.broken[word]} instructions"


def broken_ceilings(kernel, registers, instructions, tensor_cores):
    if kernel.registers > registers:
        yield f"{kernel.registers} registers, at most {registers}"
    if len(kernel.counted) > instructions:
        yield f"{len(kernel.counted)} instructions, at most {instructions}"
    if kernel.tensor_cores != tensor_cores:
        yield f"{kernel.tensor_cores} on tensor cores, not {tensor_cores}"


def read_ceilings():
    """'FILE KERNEL' -> registers, instructions, those on tensor cores, and the rules that it may break"""
    ceilings = {}
    with open(CEILINGS, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                name, kernel, *numbers = line.split()
                ceilings[f"{name} {kernel}"] = (list(map(int, numbers[:3])), numbers[3:])
    return ceilings


def judged(kernels, ceilings):
    """Name of each kernel -> what is wrong with it"""
    wrong = {name: ["there is no such kernel"] for name in ceilings if name not in kernels}
    for name, kernel in kernels.items():
        numbers, allowed = ceilings.get(name, ([], []))
        wrong[name] = list(broken_rules(kernel, RULES_FOR_ALL, allowed))
        if numbers:
            wrong[name] += [*broken_ceilings(kernel, *numbers), *broken_rules(kernel, RULES, allowed)]
    return wrong


def main():
    find_tools()
    kernels, ceilings = read_kernels(sys.argv[1]), read_ceilings()
    wrong = judged(kernels, ceilings)
    print(f"{'file, kernel':<42} {'registers':>9} {'instructions':>12} {'tensor cores':>12}")
    for name, complaints in wrong.items():
        if name in kernels and (complaints or name in ceilings or "--all" in sys.argv):
            print(kernels[name].line())
        for complaint in complaints:
            print(f"    {name}: {complaint}")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
