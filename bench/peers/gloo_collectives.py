"""Gloo's collectives through torch.distributed, timed as all contestants are: gloo_collectives.py BUDGET CASE…, a case being
OPERATION:BYTES[:DTYPE].

Started by torchrun. See README.md; the rules of cases.h stand here in Python. Across hosts each line ends with what every rank saw its host
send in a call, in bytes.
"""

import os
import sys
import time

import torch
import torch.distributed as dist


def sent_by_host():
    """Bytes that this host's interfaces have sent, but for the loopback."""
    with open("/proc/self/net/dev", encoding="ascii") as file:
        rows = [line.split(":") for line in file.readlines()[2:]]
    return sum(int(row[1].split()[8]) for row in rows if row[0].strip() != "lo")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    across_hosts = int(os.environ.get("LOCAL_WORLD_SIZE", ranks)) < ranks
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
        op, size, *dtype = case.split(":")
        size = int(size)
        dtype = getattr(torch, dtype[0]) if dtype else torch.float32
        whole_only = op in ("all_reduce", "broadcast")
        count = max(1, size // 4 // (1 if whole_only else ranks)) * 4 // dtype.itemsize
        part = torch.full((count,), 1e-9, dtype=dtype)
        whole = torch.full((count * ranks,), 1e-9, dtype=dtype) if not whole_only else None
        other = torch.full((count * ranks,), 1e-9, dtype=dtype) if op == "all_to_all" else None
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
        before = sent_by_host()
        seconds = timed(call, calls)
        sent = []
        if across_hosts:
            sent = [torch.zeros(1, dtype=torch.float64) for _ in range(ranks)]
            dist.all_gather(sent, torch.tensor([(sent_by_host() - before) / calls], dtype=torch.float64))
        if rank == 0:
            print(op, size, f"{seconds:.9g}", *(f"{value.item():.0f}" for value in sent), flush=True)
    dist.destroy_process_group()


main()
