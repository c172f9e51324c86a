#!/usr/bin/python3
"""Twenty training steps in PyTorch, as the yardstick of tests/parity/test_train.c.

    tests/python tests/golden/make_train.py [BUILD]         (default: build)

Takes a spec train20_NAME.yaml, the initial weights and samples that the reference writes for it
(`reference --dump`), trains with torch.nn, clip_grad_norm_ and torch.optim.AdamW, and writes the
loss and the gradient's norm of every step to train20_NAME.txt. In float64, so that what differs is
our own rounding; how far float32 is from it is printed. The llama is transformers' own
LlamaForCausalLM (its RMSNorm and rotary angles are float32 even then).
"""
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as functional
import transformers
import yaml

HERE = pathlib.Path(__file__).resolve().parent


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = torch.nn.LayerNorm(width)
        self.attn = torch.nn.ModuleDict(
            {'c_attn': torch.nn.Linear(width, 3 * width), 'c_proj': torch.nn.Linear(width, width)})
        self.ln_2 = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.ModuleDict(
            {'c_fc': torch.nn.Linear(width, 4 * width), 'c_proj': torch.nn.Linear(4 * width, width)})

    def attention(self, x):
        batch, time, width = x.shape
        q, k, v = (part.view(batch, time, self.heads, -1).transpose(1, 2)
                   for part in self.attn['c_attn'](x).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(torch.ones(time, time).triu(1).bool(), -math.inf)
        mixed = functional.softmax(scores, dim=-1) @ v
        return self.attn['c_proj'](mixed.transpose(1, 2).reshape(batch, time, width))

    @staticmethod
    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp['c_proj'](self.gelu(self.mlp['c_fc'](self.ln_2(x))))


class Gpt(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.wte = torch.nn.Embedding(settings['vocabulary'], settings['width'])
        self.wpe = torch.nn.Embedding(settings['context'], settings['width'])
        self.h = torch.nn.ModuleList(
            Block(settings['width'], settings['heads']) for _ in range(settings['layers']))
        self.ln_f = torch.nn.LayerNorm(settings['width'])

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


class Mlp(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        sizes = settings['layers']
        self.activation = {'tanh': torch.tanh, 'relu': torch.relu}[settings['activation']]
        self.linears = len(sizes) - 1
        for i in range(self.linears):
            self.add_module(f'fc{i + 1}', torch.nn.Linear(sizes[i], sizes[i + 1]))

    def forward(self, x):
        for i in range(self.linears):
            x = getattr(self, f'fc{i + 1}')(x)
            if i + 1 < self.linears:
                x = self.activation(x)
        return x


class Llama(torch.nn.Module):
    """transformers' model, by the names of its own parameters."""

    def __init__(self, settings):
        super().__init__()
        self.hub = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=settings['vocabulary'], hidden_size=settings['width'],
            intermediate_size=settings['hidden'], num_hidden_layers=settings['layers'],
            num_attention_heads=settings['heads'], num_key_value_heads=settings['kv_heads'],
            max_position_embeddings=settings['context'], rms_norm_eps=1e-5, rope_theta=10000.0,
            tie_word_embeddings=False, use_cache=False))

    def named_parameters(self, *words, **more):
        return self.hub.named_parameters(*words, **more)

    def forward(self, tokens):
        return self.hub(tokens).logits


# Tensors that are rows of one stored parameter, in this order.
FUSED = {'qkv_proj': ('q_proj', 'k_proj', 'v_proj'), 'gate_up_proj': ('gate_proj', 'up_proj')}


def stored_rows(name, parameters):
    """The stored parameter that has the tensor `name`, and the first of its rows there."""
    path, layer, kind = name.rsplit('.', 2) if name.count('.') > 1 else ('', '', name)
    for fused, parts in FUSED.items():
        if layer in parts:
            before = parts[:parts.index(layer)]
            return f'{path}.{fused}.{kind}', sum(parameters[f'{path}.{part}.{kind}'].shape[0] for part in before)
    return name, 0


def rate(optimizer, samples, step_samples, run_samples):
    """The learning rate of the step that begins after `samples` (server/coordinator/schedule.h)."""
    lr, lr_min = optimizer['lr'], optimizer.get('lr_min', 0)
    warmup = optimizer['warmup_samples']
    if samples < warmup:
        return lr * min(1, (samples + step_samples) / warmup)
    progress = (samples - warmup) / (run_samples - warmup)
    return {'cosine': lr_min + (lr - lr_min) * 0.5 * (1 + math.cos(math.pi * progress)),
            'linear': lr_min + (lr - lr_min) * (1 - progress)}[optimizer['schedule']]


def load(model, folder):
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        file, row = stored_rows(name, parameters)
        stored = numpy.fromfile(folder / f'{file}.f32', numpy.float32)[row * parameter[0].numel():]
        # Rows that only pad the vocabulary are left out.
        parameter.data = torch.from_numpy(stored[:parameter.numel()].reshape(parameter.shape).copy())


def train(spec, folder, dtype):
    """[(loss, norm)] of every step."""
    kind = spec['model']['kind']
    tokens = kind != 'mlp'
    model = {'gpt': Gpt, 'mlp': Mlp, 'llama': Llama}[kind](spec['model'])
    load(model, folder)
    model.to(dtype)
    inputs = torch.from_numpy(numpy.fromfile(folder / ('inputs.i32' if tokens else 'inputs.f32'),
                                             numpy.int32 if tokens else numpy.float32))
    targets = torch.from_numpy(numpy.fromfile(folder / 'targets.i32', numpy.int32)).long()
    batch = spec['train']['slots'] * spec['train']['slot_samples']
    steps = spec['train']['steps']
    inputs = inputs.view(steps, batch, -1)
    inputs = inputs.long() if tokens else inputs.to(dtype)
    targets = targets.view(steps, -1)

    settings = spec['optimizer']
    groups = [{'params': [p for p in model.parameters() if p.dim() == 2],
               'weight_decay': settings['weight_decay']},
              {'params': [p for p in model.parameters() if p.dim() != 2], 'weight_decay': 0}]
    optimizer = torch.optim.AdamW(groups, betas=settings['betas'], eps=settings['eps'])
    result = []
    for step in range(steps):
        logits = model(inputs[step])
        loss = functional.cross_entropy(logits.reshape(targets.shape[1], -1), targets[step])
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings['clip_norm'])
        for group in optimizer.param_groups:
            group['lr'] = rate(settings, step * batch, batch, steps * batch)
        optimizer.step()
        result.append((loss.item(), norm.item()))
    return result


def make(name, reference):
    spec_path = HERE / f'train20_{name}.yaml'
    spec = yaml.safe_load(spec_path.read_text())
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([reference, spec_path, '--dump', folder], check=True)
        exact = train(spec, pathlib.Path(folder), torch.float64)
        single = train(spec, pathlib.Path(folder), torch.float32)
    worst = max(abs(a[0] - b[0]) / a[0] for a, b in zip(exact, single))
    print(f'{name}: loss {exact[0][0]:.6f} to {exact[-1][0]:.6f}; '
          f'PyTorch in float32 is at most {worst:.1e} away')
    with open(HERE / f'train20_{name}.txt', 'w') as out:
        out.write(f'# loss and norm of each step, PyTorch {torch.__version__} in float64; '
                  'make_train.py\n')
        for loss, norm in exact:
            out.write(f'{loss:.12g} {norm:.12g}\n')


if __name__ == '__main__':
    torch.set_num_threads(1)
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / 'build')
    for name in ('gpt', 'mlp', 'llama'):
        make(name, build / 'tests' / 'reference' / 'reference')
