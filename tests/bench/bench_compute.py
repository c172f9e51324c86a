"""The limit of bench_compute: PyTorch's forward and backward of the same gpt, CPU seconds a step.

    bench_compute.py [STEPS]      GPT-2 124M, B 4, T 64, fp32, one thread; nanoGPT's model
"""
import sys
import time

import torch

from nanogpt import Gpt

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, BATCH = 12, 12, 768, 64, 50257, 4


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Gpt(LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY)
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    targets = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    for step in range(steps + 1):  # the first one warms up
        begun = time.process_time()
        model.zero_grad(set_to_none=False)
        model(tokens, targets).backward()
        if step > 0:
            print(f"{time.process_time() - begun:.4f}", flush=True)


main()
