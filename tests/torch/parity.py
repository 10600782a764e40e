"""Repeats a run of parity_run with PyTorch's autograd and AdamW in float32 and compares losses, gradient norms and weights.

parity.py PARITY_RUN FAMILY RANKS ZERO ACCUMULATION STEPS TIED
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F


def load(folder, tensors):
    return {name: torch.from_numpy(np.fromfile(folder / f"{name}.bin", dtype=np.float32).reshape(t["shape"])) for name, t in tensors.items()}


def rotate(x, theta):
    """Llama's rotary embedding: pair (i, i + d/2) of each head turns by position * theta^(-2i/d)."""
    t, d = x.shape[-2], x.shape[-1]
    angle = torch.outer(torch.arange(t, dtype=torch.float64), theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d))
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def attend(q, k, v):
    groups = q.shape[1] // k.shape[1]
    y = F.scaled_dot_product_attention(q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), is_causal=True)
    return y.transpose(1, 2).flatten(2)


def gpt2(w, c, tokens):
    b, t = tokens.shape
    width, eps = c["width"], c["epsilon"]
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:t]
    for i in range(c["layers"]):
        p = f"transformer.h.{i}."
        y = F.layer_norm(x, (width,), w[p + "ln_1.weight"], w[p + "ln_1.bias"], eps)
        qkv = F.linear(y, w[p + "attn.c_attn.weight"], w[p + "attn.c_attn.bias"])
        q, k, v = (z.view(b, t, c["heads"], -1).transpose(1, 2) for z in qkv.split(width, dim=2))
        x = x + F.linear(attend(q, k, v), w[p + "attn.c_proj.weight"], w[p + "attn.c_proj.bias"])
        y = F.layer_norm(x, (width,), w[p + "ln_2.weight"], w[p + "ln_2.bias"], eps)
        y = F.gelu(F.linear(y, w[p + "mlp.c_fc.weight"], w[p + "mlp.c_fc.bias"]), approximate="tanh")
        x = x + F.linear(y, w[p + "mlp.c_proj.weight"], w[p + "mlp.c_proj.bias"])
    x = F.layer_norm(x, (width,), w["transformer.ln_f.weight"], w["transformer.ln_f.bias"], eps)
    return F.linear(x, w["transformer.wte.weight" if c["tied"] else "lm_head.weight"])


def llama(w, c, tokens):
    b, t = tokens.shape
    norm = lambda x, weight: F.rms_norm(x, (c["width"],), weight, c["epsilon"])
    heads = lambda y, weight, n: F.linear(y, weight).view(b, t, n, -1).transpose(1, 2)
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["layers"]):
        p = f"model.layers.{i}."
        y = norm(x, w[p + "input_layernorm.weight"])
        q = rotate(heads(y, w[p + "self_attn.q_proj.weight"], c["heads"]), c["theta"])
        k = rotate(heads(y, w[p + "self_attn.k_proj.weight"], c["kv_heads"]), c["theta"])
        v = heads(y, w[p + "self_attn.v_proj.weight"], c["kv_heads"])
        x = x + F.linear(attend(q, k, v), w[p + "self_attn.o_proj.weight"])
        y = norm(x, w[p + "post_attention_layernorm.weight"])
        y = F.silu(F.linear(y, w[p + "mlp.gate_proj.weight"])) * F.linear(y, w[p + "mlp.up_proj.weight"])
        x = x + F.linear(y, w[p + "mlp.down_proj.weight"])
    return F.linear(norm(x, w["model.norm.weight"]), w["model.embed_tokens.weight" if c["tied"] else "lm_head.weight"])


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.argv[1], name, *sys.argv[2:]], check=True, timeout=240)
        run = json.loads((folder / "run.json").read_text())
        initial, final = load(folder / "initial", run["tensors"]), load(folder / "final", run["tensors"])
    config, o = run["config"], run["optimizer"]
    weights = {n: torch.nn.Parameter(t.clone()) for n, t in initial.items()}
    groups = [
        {"params": [weights[n] for n, t in run["tensors"].items() if t["decay"]], "weight_decay": o["weight_decay"]},
        {"params": [weights[n] for n, t in run["tensors"].items() if not t["decay"]], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["epsilon"])
    forward = llama if config["family"] == "llama" else gpt2
    failures = []
    for number, step in enumerate(run["steps"], 1):
        losses, count = [], 0
        for batch in step["batches"]:
            shape = (batch["samples"], batch["sequence"])
            tokens, targets = torch.tensor(batch["tokens"]).view(shape), torch.tensor(batch["targets"])
            logits = forward(weights, config, tokens)
            losses.append(F.cross_entropy(logits.view(-1, logits.shape[-1]), targets, ignore_index=-100, reduction="sum"))
            count += int((targets >= 0).sum())
        loss = sum(losses) / count
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), o["clip"])
        optimizer.step()
        if abs(loss.item() - step["loss"]) > 1e-5:
            failures.append(f"step {number}: loss {step['loss']:.9g}, PyTorch {loss.item():.9g}")
        if abs(norm.item() - step["grad_norm"]) > 1e-4 * norm.item():
            failures.append(f"step {number}: gradient norm {step['grad_norm']:.9g}, PyTorch {norm.item():.9g}")
    # The gradient of attention's key bias is zero in exact arithmetic; what is computed is noise, and Adam blows noise up to full steps.
    width = config["width"]
    total = torch.sqrt(sum((w.detach() ** 2).sum() for w in weights.values()))
    for name, theirs in weights.items():
        a, b = final[name], theirs.detach()
        if name.endswith("attn.c_attn.bias"):
            a, b = torch.cat([a[:width], a[2 * width :]]), torch.cat([b[:width], b[2 * width :]])
        error, scale = (a - b).norm(), torch.maximum(b.norm(), 1e-3 * total)
        moved = (b - (torch.cat([initial[name][:width], initial[name][2 * width :]]) if name.endswith("attn.c_attn.bias") else initial[name])).norm()
        if moved == 0:
            failures.append(f"{name} never moved")
        if error > 2e-4 * scale:
            failures.append(f"{name}: weights differ by {error / scale:.3g} of their norm")
    for failure in failures:
        print(failure)
    print(f"{' '.join(sys.argv[2:])}: last loss {run['steps'][-1]['loss']:.6f}, {len(failures)} differences")
    return 1 if failures else 0


sys.exit(main())
