"""The rival of tests/bench/one_machine: a training loop as one writes it in PyTorch, with nanoGPT's model.

    one_machine.py LAYERS,HEADS,WIDTH,CONTEXT,VOCABULARY SAMPLES THREADS STEPS

prints the seconds and processor seconds of a step of so many samples; THREADS 0: all cores."""
import statistics
import sys
import time

import torch

from nanogpt import Gpt


def main():
    shape = [int(number) for number in sys.argv[1].split(",")]
    batch, threads, steps = (int(word) for word in sys.argv[2:])
    if threads > 0:
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
