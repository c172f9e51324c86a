"""All-reduce of so many floats among processes over PyTorch's gloo: gloo.py RANKS PASSES ELEMENTS prints the
seconds of one, of the member that takes the longest."""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WARM = 2


def member(rank, ranks, passes, elements, port, seconds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    array = torch.ones(elements)
    for _ in range(WARM):
        dist.all_reduce(array)
    dist.barrier()
    began = time.monotonic()
    for _ in range(passes):
        dist.all_reduce(array)
    seconds[rank] = (time.monotonic() - began) / passes
    dist.barrier()


def main():
    ranks, passes, elements = map(int, sys.argv[1:4])
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    seconds = torch.zeros(ranks, dtype=torch.float64).share_memory_()
    mp.spawn(member, (ranks, passes, elements, port, seconds), nprocs=ranks)
    print(seconds.max().item())


if __name__ == "__main__":
    main()
