"""Gloo's collectives through torch.distributed, timed as all contestants are: gloo_collectives.py BUDGET CASE…, a case being OPERATION:BYTES.

Started by torchrun. See README.md; the rules of cases.h stand here in Python.
"""

import sys
import time

import torch
import torch.distributed as dist


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    budget = float(sys.argv[1])

    def timed(call, calls):
        """The slowest rank's mean."""
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        own = torch.tensor([(time.perf_counter() - begin) / calls], dtype=torch.float64)
        dist.all_reduce(own, op=dist.ReduceOp.MAX)
        return own.item()

    for case in sys.argv[2:]:
        op, size = case.split(":")
        size = int(size)
        whole_only = op in ("all_reduce", "broadcast")
        count = max(1, size // 4 // (1 if whole_only else ranks))
        part = torch.full((count,), 1e-9)
        whole = torch.full((count * ranks,), 1e-9) if not whole_only else None
        other = torch.full((count * ranks,), 1e-9) if op == "all_to_all" else None
        call = {
            "all_reduce": lambda: dist.all_reduce(part),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "broadcast": lambda: dist.broadcast(part, 0),
            "all_to_all": lambda: dist.all_to_all_single(other, whole),
        }[op]
        large = size >= 16 << 20
        for _ in range(1 if large else 5):
            call()
        guess = timed(call, 1 if large else 3)
        calls = int(min(20000, max(3, budget / guess)))
        seconds = timed(call, calls)
        if rank == 0:
            print(op, size, f"{seconds:.9g}", flush=True)
    dist.destroy_process_group()


main()
