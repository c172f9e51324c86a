"""The rival of tests/bench/one_machine: a training loop as one writes it in PyTorch, with nanoGPT's model.

    one_machine.py gpt2|quickstart STEPS      prints the seconds and processor seconds of a step"""
import statistics
import sys
import time

import torch

from nanogpt import Gpt


# shape, samples of a step, threads: None is all cores
CASES = {"gpt2": ((12, 12, 768, 64, 50257), 4, 1), "quickstart": ((2, 4, 128, 64, 256), 64, None)}


def main():
    shape, batch, threads = CASES[sys.argv[1]]
    steps = int(sys.argv[2])
    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Gpt(*shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)
    context, vocabulary = shape[3], shape[4]
    wall, cpu = [], []
    for step in range(steps + 2):  # two warm up
        tokens = torch.randint(vocabulary, (batch, context + 1))
        begun, begun_cpu = time.monotonic(), time.process_time()
        loss = model(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if step >= 2:
            wall.append(time.monotonic() - begun)
            cpu.append(time.process_time() - begun_cpu)
    print(statistics.median(wall), statistics.median(cpu))


main()
