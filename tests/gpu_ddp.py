#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel on the backend `wirewise`: two ranks on one device, a JSON line with the loss of each step.

usage: gpu_ddp.py cpu|cuda

With cuda both ranks share the first device, and its tensors travel through host memory. Part of gpu_check.py.
"""
import json
import os
import subprocess
import sys
import tempfile

import wirewise  # noqa: F401 (registers the backend)

RANKS, STEPS = 2, 8


def rank_main(device, rank, store):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("wirewise", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    place = torch.device("cuda", 0) if device == "cuda" else torch.device("cpu")
    layers = [torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(place), bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = torch.randn(STEPS, RANKS, 32, 64)
    for step in range(STEPS):
        mine = samples[step, rank].to(place)
        loss = (model(mine) - mine[:, :8]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(json.dumps({"step": step, "loss": mean.item()}), flush=True)
    if device == "cuda":
        dist.barrier(device_ids=[0])
    dist.destroy_process_group()


def main():
    if len(sys.argv) == 4:
        return rank_main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    if len(sys.argv) != 2 or sys.argv[1] not in ("cpu", "cuda"):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="wirewise-ddp-") as folder:
        command = [sys.executable, os.path.abspath(__file__), sys.argv[1]]
        ranks = [subprocess.Popen([*command, str(rank), os.path.join(folder, "store")]) for rank in range(RANKS)]
        try:
            codes = [process.wait(120) for process in ranks]
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    sys.exit(max(abs(code) for code in codes))


if __name__ == "__main__":
    main()
