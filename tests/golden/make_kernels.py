#!/usr/bin/python3
"""Makes tests/golden/kernels.bin: what PyTorch computes for the kernels' parity test.

Made with Debian 12's python3-torch 1.13.1 (apt-get install python3-torch) in fp32 on one thread:

    /usr/bin/python3 tests/golden/make_kernels.py

Inputs are not stored: both sides make them from integers (hash_float in tests/unit/test_kernels.h).
A record: name (48 bytes, padded with zeros), count of values and of stored ones (uint32), norm of
all values (float64), then the stored values (float32): all of them, or those at the positions
hash_bits(99, i) % count. Names are OPERATION.OUTPUT/CASE; tests/parity/test_kernels.c has for each
OPERATION.OUTPUT its tolerance, and for each case its shapes."""
import math
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F

STORED_MAX = 1200
torch.set_num_threads(1)
records = []


def hash_bits(seed, count):
    with np.errstate(over='ignore'):
        x = np.arange(count, dtype=np.uint32) * np.uint32(0x9e3779b9)
        x = x + np.uint32(seed * 0x85ebca6b % 2**32)
        x = (x ^ x >> np.uint32(16)) * np.uint32(0x7feb352d)
        x = (x ^ x >> np.uint32(15)) * np.uint32(0x846ca68b)
        return x ^ x >> np.uint32(16)


def floats(seed, shape, scale=1.0):
    x = (hash_bits(seed, math.prod(shape)) >> np.uint32(8)).astype(np.int64) - 2**23
    x = np.float32(scale) * (x.astype(np.float32) / np.float32(2**23))
    return torch.from_numpy(x.reshape(shape)).requires_grad_()


def integers(seed, shape, below):
    x = hash_bits(seed, math.prod(shape)) % np.uint32(below)
    return torch.from_numpy(x.astype(np.int64).reshape(shape))


def record(name, tensor):
    x = tensor.detach().numpy().astype(np.float32).ravel()
    stored = x
    if len(x) > STORED_MAX:
        stored = x[hash_bits(99, STORED_MAX).astype(np.int64) % len(x)]
    norm = float(np.linalg.norm(x.astype(np.float64)))
    records.append(struct.pack('<48sIId', name.encode(), len(x), len(stored), norm) +
                   stored.astype('<f4').tobytes())


def linear():
    for case, N, I, O in ('small', 1, 1, 1), ('odd', 37, 99, 65), ('deep', 8, 3072, 96):
        inp, weight, bias = floats(1, (N, I)), floats(2, (O, I)), floats(3, (O,))
        out = F.linear(inp, weight, bias)
        out.backward(floats(4, (N, O)))
        record(f'linear.out/{case}', out)
        record(f'linear.dinp/{case}', inp.grad)
        record(f'linear.dweight/{case}', weight.grad)
        record(f'linear.dbias/{case}', bias.grad)


def embedding():
    for T in 1, 63, 65:
        B, C, V = 2, 33, 29
        tokens, wte, wpe = integers(5, (B, T), V), floats(6, (V, C)), floats(7, (T, C))
        out = F.embedding(tokens, wte) + wpe
        out.backward(floats(8, (B, T, C)))
        record(f'embedding.out/T{T}', out)
        record(f'embedding.dwte/T{T}', wte.grad)
        record(f'embedding.dwpe/T{T}', wpe.grad)


def layernorm():
    for C in 5, 33, 768:
        N = 19
        inp, gamma, beta = floats(9, (N, C), 3), floats(10, (C,)), floats(11, (C,))
        out = F.layer_norm(inp, (C,), gamma, beta, 1e-5)
        out.backward(floats(12, (N, C)))
        record(f'layernorm.out/C{C}', out)
        record(f'layernorm.dinp/C{C}', inp.grad)
        record(f'layernorm.dgamma/C{C}', gamma.grad)
        record(f'layernorm.dbeta/C{C}', beta.grad)


def rmsnorm():
    for C in 5, 33, 768:
        N = 19
        inp, gamma = floats(31, (N, C), 3), floats(32, (C,))
        out = inp * torch.rsqrt((inp * inp).mean(1, keepdim=True) + 1e-5) * gamma
        out.backward(floats(33, (N, C)))
        record(f'rmsnorm.out/C{C}', out)
        record(f'rmsnorm.dinp/C{C}', inp.grad)
        record(f'rmsnorm.dgamma/C{C}', gamma.grad)


def rope():
    for S in 2, 34, 64:
        B, T, H, G = 2, 70, 4, 2
        qkv = floats(34, (B, T, H + 2 * G, S))
        circles = torch.arange(T).double()[:, None] * 10000 ** (torch.arange(0, S, 2).double() / -S)
        cos, sin = circles.cos().float()[:, None], circles.sin().float()[:, None]
        turned, values = qkv[:, :, :H + G], qkv[:, :, H + G:]
        left, right = turned.chunk(2, 3)
        turned = torch.cat((left * cos - right * sin, right * cos + left * sin), 3)
        out = torch.cat((turned, values), 2)
        out.backward(floats(35, (B, T, H + 2 * G, S)))
        record(f'rope.out/S{S}', out)
        record(f'rope.dqkv/S{S}', qkv.grad)


def swiglu():
    gate, up = floats(36, (1001,), 6), floats(37, (1001,), 2)
    out = F.silu(gate) * up
    out.backward(floats(38, (1001,)))
    record('swiglu.out/', out)
    record('swiglu.dgate/', gate.grad)
    record('swiglu.dup/', up.grad)


def attention():
    for causal, T, H, size in ((True, 1, 3, 16), (True, 63, 3, 16), (True, 65, 3, 16),
                               (True, 130, 2, 64), (False, 65, 3, 16)):
        B, C = 2, H * size
        qkv = floats(13, (B, T, 3 * C), 2)
        q, k, v = (x.view(B, T, H, size).transpose(1, 2) for x in qkv.split(C, 2))
        scores = q @ k.transpose(2, 3) * (1 / math.sqrt(size))
        if causal:
            scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        out = (F.softmax(scores, 3) @ v).transpose(1, 2).reshape(B, T, C)
        out.backward(floats(14, (B, T, C)))
        case = f'{"causal" if causal else "all"}{T}'
        record(f'attention.out/{case}', out)
        record(f'attention.lse/{case}', torch.logsumexp(scores, 3))
        record(f'attention.dqkv/{case}', qkv.grad)


def activations():
    for name, function in (('gelu', lambda x: F.gelu(x, approximate='tanh')), ('relu', F.relu),
                           ('tanh', torch.tanh)):
        inp = floats(15, (1001,), 6)
        out = function(inp)
        out.backward(floats(16, (1001,)))
        record(f'{name}.out/', out)
        record(f'{name}.dinp/', inp.grad)


def classifier():
    for N, V in (5, 3), (2, 50257):
        logits, targets = floats(17, (N, V + 47), 10), integers(18, (N,), V)
        losses = F.cross_entropy(logits[:, :V], targets, reduction='none')
        losses.sum().backward()
        record(f'classifier.losses/V{V}', losses)
        record(f'classifier.dlogits/V{V}', logits.grad)


def bf16():
    record('bf16.value/', floats(19, (1000,), 1e4).bfloat16().float())


def optimizers():
    n, decay = 513, 0.1
    makers = {
        'sgd': lambda w: torch.optim.SGD(w, lr=0.1, weight_decay=decay),
        'momentum': lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9, weight_decay=decay),
        'nesterov': lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9, weight_decay=decay,
                                              nesterov=True),
        'adamw': lambda w: torch.optim.AdamW(w, lr=0.01, betas=(0.9, 0.95), eps=1e-8,
                                             weight_decay=decay),
    }
    for name, make in makers.items():
        w = floats(20, (n,))
        optimizer = make([w])
        for step in range(5):
            w.grad = 0.5 * floats(21 + step, (n,), 0.1).detach()
            optimizer.step()
        record(f'{name}.w/', w)
        state = optimizer.state[w]
        for key, output in ('momentum_buffer', 'm'), ('exp_avg', 'm'), ('exp_avg_sq', 'v'):
            if state.get(key) is not None:
                record(f'{name}.{output}/', state[key])


for make in (linear, embedding, layernorm, attention, activations, classifier, bf16, optimizers,
             rmsnorm, rope, swiglu):
    make()
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'kernels.bin'), 'wb') as file:
    file.write(b''.join(records))
