"""The limit of GPT-2 124M on this GPU: PyTorch's bf16, torch.compile, SDPA and fused AdamW.

    pytorch.py compute|step BATCH CONTEXT     prints the median seconds of ten

`compute` is forward and backward, `step` also the update. Prints peak memory to stderr, and nothing
but that when the batch does not fit."""
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, HEADS, WIDTH, VOCABULARY = 12, 12, 768, 50304  # padded, as nanoGPT and llm.c do
WARM, TIMED = 5, 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in self.c_attn(x).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(context, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def main():
    what, batch, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt(context).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(model)
    tokens, targets = torch.randint(50257, (2, batch, context), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(tokens, targets)
        loss.backward()
        if what == "step":
            optimizer.step()

    times = []
    try:
        for i in range(WARM + TIMED):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            step()
            torch.cuda.synchronize()
            if i >= WARM:
                times.append(time.perf_counter() - begun)
    except torch.cuda.OutOfMemoryError:
        print(f"PyTorch, {what}, batch {batch}: does not fit", file=sys.stderr)
        return
    peak = torch.cuda.max_memory_allocated() / 2**20
    print(f"PyTorch {torch.__version__}, {what}, batch {batch}: peak {peak:.0f} MiB", file=sys.stderr)
    print(f"{statistics.median(times):.5f}")


main()
