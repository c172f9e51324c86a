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


MODELS = {"gpt2": transformers.GPT2LMHeadModel, "llama": transformers.LlamaForCausalLM}


def random_model(kind, settings):
    """Every weight, bias and gain away from its initial value."""
    torch.manual_seed(7)
    model = MODELS[kind](MODELS[kind].config_class(**settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def mask(context):
    return torch.ones(context, context).tril().view(1, 1, context, context)


def make(folder, settings):
    """The same weights in every form that a file of GPT-2 may have; what is wrong with the others."""
    model = random_model("gpt2", settings)
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


def make_llama(folder, settings):
    """The same weights as transformers has them now, and as older files hold them, in bf16."""
    model = random_model("llama", settings)
    model.save_pretrained(f"{folder}/now")
    old = {name: value.bfloat16() for name, value in model.state_dict().items()}
    for layer in range(settings["num_hidden_layers"]):
        old[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(old, f"{folder}/old.safetensors", {"format": "pt"})
    tied = {name: value for name, value in model.state_dict().items() if name != "lm_head.weight"}
    save_file(tied, f"{folder}/tied.safetensors", {"format": "pt"})
    return {"loss": None}


def tokens_of(data, width):
    with open(data, "rb") as file:
        raw = file.read()
    return torch.frombuffer(bytearray(raw), dtype={1: torch.uint8, 2: torch.int16}[width]).long() & (1 << 8 * width) - 1


def held_out_loss(model, data, width, validation_samples):
    """The mean over the first of the last tenth of the samples."""
    tokens, context = tokens_of(data, width), model.config.max_position_embeddings
    samples = (len(tokens) - 1) // context
    first = samples - -(-samples // 10)
    count = min(validation_samples, samples - first)
    rows = torch.stack([tokens[i * context:(i + 1) * context + 1] for i in range(first, first + count)])
    with torch.no_grad():
        logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), rows[:, 1:].flatten()).item()


def load(folder, data, width, validation_samples, kind="gpt2"):
    """from_pretrained() of a folder: what it misses, and its loss on what our validation uses."""
    model, about = MODELS[kind].from_pretrained(folder, output_loading_info=True)
    prompt = tokens_of(data, width)[1000:1008]
    text = model.generate(prompt[None], max_new_tokens=8, do_sample=False, pad_token_id=0)
    return {"missing": about["missing_keys"], "unexpected": about["unexpected_keys"],
            "mismatched": about["mismatched_keys"], "text": text[0].tolist(),
            "vocabulary": list(model.get_input_embeddings().weight.shape), "end": model.config.eos_token_id,
            "dropout": [getattr(model.config, name, 0) for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop")],
            "loss": held_out_loss(model, data, width, validation_samples)}


def read_weights(path):
    left_out = [".attn.bias", ".attn.masked_bias", ".inv_freq"]
    tensors = {name.removeprefix("transformer."): value for name, value in load_file(path).items()}
    if "wte.weight" in tensors:
        left_out.append("lm_head.weight")  # a gpt2's is the token embedding
    return {name: value for name, value in tensors.items() if not name.endswith(tuple(left_out))}


def compare(ours, theirs):
    """Bit for bit; `theirs` may have prefixes, masks, a tied head and shorter numbers."""
    left, right = read_weights(ours), read_weights(theirs)
    differing = [name for name in sorted(left.keys() | right.keys())
                 if name not in left or name not in right or left[name].dtype != torch.float32
                 or not torch.equal(left[name], right[name].float())]
    with safe_open(ours, "pt") as file:
        return {"differing": differing, "tensors": len(left), "metadata": file.metadata()}


QUESTIONS = {"make": make, "make_llama": make_llama, "load": load, "compare": compare}

print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps(QUESTIONS[question.pop("do")](**question)), flush=True)
