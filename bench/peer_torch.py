"""A step of the 162.5 M GPT under PyTorch or DeepSpeed on CPU ranks: the peers that wirewise is measured against.

torchrun --nproc-per-node 2 bench/peer_torch.py ddp|zero1|fsdp2|deepspeed1|deepspeed3     (alone: python bench/peer_torch.py single)

bf16 compute, fused AdamW, 2 x 256 tokens a rank, no gradient clipping. Prints one JSON line: mode, step_s (median, first left out), tokens_per_s.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WIDTH, LAYERS, HEADS, VOCAB, SEQUENCE, BATCH = 768, 12, 12, 50304, 256, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.attention(self.norm1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(SEQUENCE, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).float().view(-1, VOCAB), targets.view(-1))


def batch(step, rank):
    g = torch.Generator().manual_seed(1000 * step + rank)
    return tuple(torch.randint(VOCAB, (BATCH, SEQUENCE), generator=g) for _ in range(2))


def build(mode, model):
    """(forward, backward, step) of one training step."""
    if mode.startswith("deepspeed"):
        import deepspeed

        config = {
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_accumulation_steps": 1,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": int(mode[-1])},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
            "steps_per_print": 10**9,
        }
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
        return engine, engine.backward, engine.step
    autocast = mode != "fsdp2"
    if mode in ("ddp", "zero1"):
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if mode == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    if mode == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-4, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def forward(ids, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            return model(ids, targets)

    def step():
        optimizer.step()
        optimizer.zero_grad()

    return forward, lambda loss: loss.backward(), step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["single", "ddp", "zero1", "fsdp2", "deepspeed1", "deepspeed3"])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--local_rank", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, ranks = 0, 1
    if args.mode != "single":
        if args.mode.startswith("deepspeed"):
            import deepspeed

            deepspeed.init_distributed(dist_backend="gloo")
        else:
            dist.init_process_group("gloo")
        rank, ranks = dist.get_rank(), dist.get_world_size()
    forward, backward, update = build(args.mode, Gpt())
    seconds = []
    for step in range(args.steps):
        ids, targets = batch(step, rank)
        start = time.perf_counter()
        loss = forward(ids, targets)
        backward(loss)
        update()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        median = statistics.median(seconds[1:])
        print(json.dumps({"mode": args.mode, "step_s": median, "tokens_per_s": ranks * BATCH * SEQUENCE / median, "loss": loss.item()}), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    main()
