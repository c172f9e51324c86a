"""Hugging Face's side of the interchange: tests/python tests/interchange/hub.py

Answers questions, one JSON object a line, until standard input ends; the first line it prints says
that it is ready. Each question names a function below and its arguments."""
import json
import os
import sys

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()


def random_model(settings):
    """Every weight, bias and gain away from its initial value."""
    torch.manual_seed(7)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def mask(context):
    return torch.ones(context, context).tril().view(1, 1, context, context)


def make(folder, settings):
    """The same weights in every form that a file of GPT-2 may have; what is wrong with the others."""
    model = random_model(settings)
    model.save_pretrained(f"{folder}/head")  # as transformers has it now
    model.transformer.save_pretrained(f"{folder}/bare")
    plain = {name: value.clone() for name, value in model.transformer.state_dict().items()}
    forms = {"masks": dict(plain), "bf16": {}, "f16": {}}
    for layer in range(settings["n_layer"]):  # as the Hub's gpt2 has it
        forms["masks"][f"h.{layer}.attn.bias"] = mask(settings["n_positions"])
        forms["masks"][f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    forms["masks"]["lm_head.weight"] = plain["wte.weight"].clone()
    forms["bf16"] = {name: value.bfloat16() for name, value in plain.items()}
    forms["f16"] = {name: value.half() for name, value in plain.items()}
    forms["missing"] = {name: value for name, value in plain.items() if name != "h.1.mlp.c_fc.bias"}
    forms["shape"] = {**plain, "h.0.attn.c_attn.weight": plain["h.0.attn.c_attn.weight"].t().contiguous()}
    forms["integers"] = {**plain, "wpe.weight": plain["wpe.weight"].to(torch.int64)}
    forms["deeper"] = {**plain, **{name.replace("h.1.", "h.2."): value.clone()
                                   for name, value in plain.items() if name.startswith("h.1.")}}
    forms["untied"] = {**plain, "lm_head.weight": plain["wte.weight"] + 1}
    for name, tensors in forms.items():
        save_file(tensors, f"{folder}/{name}.safetensors", {"format": "pt"})
    whole = os.path.getsize(f"{folder}/masks.safetensors")
    with open(f"{folder}/masks.safetensors", "rb") as file, open(f"{folder}/truncated.safetensors", "wb") as out:
        out.write(file.read(whole - 10))
    return {"loss": None}


def tokens_of(data, width):
    with open(data, "rb") as file:
        raw = file.read()
    return torch.frombuffer(bytearray(raw), dtype={1: torch.uint8, 2: torch.int16}[width]).long() & (1 << 8 * width) - 1


def held_out_loss(model, data, width, validation_samples):
    """The mean over the first of the last tenth of the samples."""
    tokens, context = tokens_of(data, width), model.config.n_positions
    samples = (len(tokens) - 1) // context
    first = samples - -(-samples // 10)
    count = min(validation_samples, samples - first)
    rows = torch.stack([tokens[i * context:(i + 1) * context + 1] for i in range(first, first + count)])
    with torch.no_grad():
        logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), rows[:, 1:].flatten()).item()


def load(folder, data, width, validation_samples):
    """from_pretrained() of a folder: what it misses, and its loss on what our validation uses."""
    model, about = transformers.GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    prompt = tokens_of(data, width)[1000:1008]
    text = model.generate(prompt[None], max_new_tokens=8, do_sample=False, pad_token_id=0)
    return {"missing": about["missing_keys"], "unexpected": about["unexpected_keys"],
            "mismatched": about["mismatched_keys"], "text": text[0].tolist(),
            "vocabulary": list(model.transformer.wte.weight.shape), "end": model.config.eos_token_id,
            "dropout": [model.config.resid_pdrop, model.config.embd_pdrop, model.config.attn_pdrop],
            "loss": held_out_loss(model, data, width, validation_samples)}


def read_weights(path):
    return {name.removeprefix("transformer."): value for name, value in load_file(path).items()
            if not name.endswith((".attn.bias", ".attn.masked_bias", "lm_head.weight"))}


def compare(ours, theirs):
    """Bit for bit; `theirs` may have prefixes, masks, a tied head and shorter numbers."""
    left, right = read_weights(ours), read_weights(theirs)
    differing = [name for name in sorted(left.keys() | right.keys())
                 if name not in left or name not in right or left[name].dtype != torch.float32
                 or not torch.equal(left[name], right[name].float())]
    with safe_open(ours, "pt") as file:
        return {"differing": differing, "tensors": len(left), "metadata": file.metadata()}


QUESTIONS = {"make": make, "load": load, "compare": compare}

print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps(QUESTIONS[question.pop("do")](**question)), flush=True)
