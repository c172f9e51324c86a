"""What PyTorch makes of the same GPU: its limits, operations and GPT-2 124M, with bf16, torch.compile,
SDPA and fused AdamW.

    pytorch.py limits                   `limit NAME FIGURE`, of a copy and of large products
    pytorch.py operations B T C H V     limits first; then `NAME: MICROSECONDS` of operations, by the
                                        names that bench.c gives them, in bf16
    pytorch.py model ATTENTION T LAYERS H C V BATCH…
                                        a line a batch: `BATCH COMPUTE_S STEP_S` and four times MiB;
                                        compute is forward and backward, step also the update, both
                                        the median of ten; the memory is the most that was allocated
                                        for each, then what the device says is taken
    pytorch.py attention ATTENTION B T H S   that alone: a line forward, a line backward

ATTENTION is flash or cudnn, whose kernels scaled_dot_product_attention then has to take.
Without a GPU all of it runs on the CPU, which says only that it does."""
import contextlib
import gc
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
WARM, TIMED, CALLS = 3, 10, 4
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def wait():
    if CUDA:
        torch.cuda.synchronize()


def compiled(function):
    return torch.compile(function, dynamic=False) if CUDA else function


def attention_by(name):
    return sdpa_kernel(BACKENDS[name]) if CUDA else contextlib.nullcontext()


def median_s(call, warm=WARM, timed=TIMED, calls=1):
    """Of one call; `calls` of them between two waits."""
    times = []
    for i in range(warm + timed):
        wait()
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        if i >= warm:
            times.append((time.perf_counter() - begun) / calls)
    return statistics.median(times)


# ---- limits and operations ----


def print_limits():
    n, side = (1 << 28, 8192) if CUDA else (1 << 16, 64)
    source = torch.rand(n, device=DEVICE)
    target = torch.empty_like(source)
    print(f"limit copy {2 * 4 * n / median_s(lambda: target.copy_(source), calls=CALLS) * 1e-9:.0f}")
    for name, dtype, precision in (("fp32", torch.float32, "highest"), ("tf32", torch.float32, "high"), ("bf16", torch.bfloat16, "high")):
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.rand(side, side, device=DEVICE).sub_(0.5).to(dtype) for _ in range(2))
        print(f"limit {name} {2 * side**3 / median_s(lambda a=a, b=b: a @ b) * 1e-12:.1f}", flush=True)


def rope_turn(qk, cos, sin):
    a, b = qk.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def swiglu(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def operations(b, t, c, h, v):
    """(name, call) of operations; what is not one kernel of PyTorch's is compiled."""
    n, vp, size = b * t, (v + 127) // 128 * 128, c // h

    def elements(*shape, grad=False):
        return torch.rand(shape, device=DEVICE).sub_(0.5).bfloat16().requires_grad_(grad)

    x, wide, other = elements(n, c), elements(n, 4 * c), elements(n, 4 * c)
    fc, fc_bias, proj, proj_bias = elements(4 * c, c), elements(4 * c), elements(c, 4 * c), elements(c)
    head, gamma, beta = elements(vp, c), elements(c, grad=True), elements(c, grad=True)
    tokens, targets = torch.randint(v, (2, n), device=DEVICE)

    def backward_of(forward, *inputs, dout=None):
        """A call of the backward alone; the graph stays."""
        out = forward()
        grad = torch.rand_like(out) if dout is None else dout
        return lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)

    yield "linear forward", lambda: F.linear(x, fc, fc_bias)
    yield "linear add forward", compiled(lambda: x + F.linear(wide, proj, proj_bias))
    yield "linear gelu forward", compiled(lambda: F.gelu(F.linear(x, fc, fc_bias), approximate="tanh"))
    yield "linear backward input", lambda: wide @ fc
    yield "linear backward weight", lambda: wide.t() @ x
    for name, groups in (("attention", h), ("grouped attention", h // 4 if h % 4 == 0 else 1)):
        q = elements(b, h, t, size, grad=True)
        keys, values = (elements(b, groups, t, size, grad=True) for _ in range(2))

        def attend(q=q, keys=keys, values=values, groups=groups):
            return F.scaled_dot_product_attention(q, keys, values, is_causal=True, enable_gqa=groups != h)

        yield f"{name} forward", attend
        yield f"{name} backward", backward_of(attend, q, keys, values)
    y = elements(n, c, grad=True)

    def layernorm():
        return F.layer_norm(y, (c,), gamma, beta)

    def rmsnorm():
        return F.rms_norm(y, (c,), gamma, 1e-5)

    yield "layernorm forward", layernorm
    yield "layernorm backward", backward_of(layernorm, y, gamma, beta)
    norm = compiled(rmsnorm)
    yield "rmsnorm forward", norm
    yield "rmsnorm backward", backward_of(norm, y, gamma)
    angles = torch.outer(torch.arange(t, device=DEVICE), 1e4 ** (-torch.arange(0, size, 2, device=DEVICE) / size))
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    qk = elements(b, 2 * h, t, size, grad=True)
    turn = compiled(lambda: rope_turn(qk, cos, sin))
    yield "rope forward", turn
    yield "rope backward", backward_of(turn, qk)
    gate = elements(n, 4 * c, grad=True)
    product = compiled(lambda: swiglu(gate))
    yield "swiglu forward", product
    yield "swiglu backward", backward_of(product, gate)
    for name, function in (("gelu", lambda: F.gelu(gate, approximate="tanh")), ("relu", lambda: F.relu(gate)), ("tanh", lambda: torch.tanh(gate))):
        yield f"{name} forward", function
        yield f"{name} backward", backward_of(function, gate)
    table = elements(vp, c, grad=True)
    yield "embedding forward", lambda: F.embedding(tokens, table)
    yield "embedding backward", backward_of(lambda: F.embedding(tokens, table), table)
    yield "head forward", lambda: x @ head.t()
    logits = (x @ head.t()).detach().requires_grad_(True)
    yield "head backward input", lambda: logits @ head
    yield "head backward weight", lambda: logits.t() @ x

    entropy = compiled(lambda: F.cross_entropy(logits.float(), targets))

    def classify():
        return torch.autograd.grad(entropy(), logits)

    yield "classifier forward backward", classify
    w, g = (torch.rand(vp, c, device=DEVICE) for _ in range(2))
    yield "add", lambda: w + g
    yield "subtract", lambda: w - g
    yield "sum of squares, finite check", lambda: torch.linalg.vector_norm(w).item()
    parameter = nn.Parameter(w)
    parameter.grad = g
    optimizer = torch.optim.AdamW([parameter], lr=1e-6, fused=CUDA)
    yield "adamw and bf16 weights", lambda: (optimizer.step(), parameter.bfloat16())


def print_operations(b, t, c, h, v):
    print_limits()
    for name, call in operations(b, t, c, h, v):
        try:
            print(f"{name}: {median_s(call, calls=CALLS) * 1e6:.1f}", flush=True)
        except RuntimeError as error:  # one that this PyTorch has not
            print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)


# ---- the model ----


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, context, layers, heads, width, vocabulary):
        super().__init__()
        self.vocabulary = vocabulary
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, self.vocabulary), targets.view(-1))


def peak_mib():
    return torch.cuda.max_memory_allocated() / 2**20 if CUDA else 0


def device_mib():
    free, total = torch.cuda.mem_get_info() if CUDA else (0, 0)
    return (total - free) / 2**20


def print_attention(attention, b, t, h, size):
    flops = 2 * b * h * t * t * size  # of one product, half of which is masked, twice
    q, k, v = (torch.rand(b, h, t, size, device=DEVICE).sub_(0.5).bfloat16().requires_grad_(True) for _ in range(3))

    def attend():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    with attention_by(attention):
        out = attend()
        dout = torch.rand_like(out)
        forward = median_s(attend, calls=CALLS)
        backward = median_s(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True), calls=CALLS)
    print(f"attention forward {forward * 1e6:.1f} us, {flops / forward * 1e-12:.0f} TFLOP/s")
    print(f"attention backward {backward * 1e6:.1f} us, {2.5 * flops / backward * 1e-12:.0f} TFLOP/s", flush=True)


def measure_model(context, layers, heads, width, vocabulary, batch):
    torch.manual_seed(1)
    padded = (vocabulary + 127) // 128 * 128  # as nanoGPT and llm.c do
    model = Gpt(context, layers, heads, width, padded).to(DEVICE)
    fast = compiled(model)
    tokens, targets = ((vocabulary - 1) * torch.rand(2, batch, context, device=DEVICE) ** 4).long()  # about 1/rank, as in text

    def compute():
        model.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = fast(tokens, targets)
        loss.backward()

    seconds = [median_s(compute)]
    peaks, taken = [peak_mib()], [device_mib()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=CUDA)
    seconds.append(median_s(lambda: (compute(), optimizer.step())))
    return seconds, peaks + [peak_mib()] + taken + [device_mib()]


def print_model(attention, context, layers, heads, width, vocabulary, batches):
    torch.set_float32_matmul_precision("high")
    for batch in batches:
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        try:
            with attention_by(attention):
                seconds, peaks = measure_model(context, layers, heads, width, vocabulary, batch)
            print(batch, *(f"{s:.5f}" for s in seconds), *(f"{p:.0f}" for p in peaks), flush=True)
        except torch.cuda.OutOfMemoryError:
            print(f"batch {batch}: does not fit", file=sys.stderr)
        torch.compiler.reset()
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()


def main():
    what, *words = sys.argv[1:]
    numbers = [int(word) for word in words if word not in BACKENDS]
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if CUDA else 'no GPU'}", file=sys.stderr)
    if what == "limits":
        print_limits()
    elif what == "operations":
        print_operations(*numbers)
    elif what == "attention":
        print_attention(words[0], *numbers)
    else:
        print_model(words[0], *numbers[:5], numbers[5:])


main()
