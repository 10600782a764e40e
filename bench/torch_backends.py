"""What wirewise takes off PyTorch's own training: `./run bench torch`.

The share of communication that goes away: (Gloo's step - ours) / (Gloo's step - a step whose communication is free), for DDP and FSDP2, all
measured in one run, in turn, by the same two processes. The model is that of bench/peer_torch.py, 2 ranks of one thread.

bench/torch_backends.py BUILD/python [--rounds N] [--steps N] [--only CASE,…] [--save FILE] [--report FILE] [--json]

--save appends every measurement to a file, --report prints the table of such a file and measures nothing: so a run can be made in pieces.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import measurements

HERE = pathlib.Path(__file__).resolve().parent
# case -> (mode, backend, whether FSDP2's buffers come from the backend)
CASES = {
    "ddp gloo": ("ddp", "gloo", False),
    "ddp wirewise": ("ddp", "wirewise", False),
    "ddp free": ("ddp", "none", False),
    "fsdp2 gloo": ("fsdp2", "gloo", False),
    "fsdp2 wirewise": ("fsdp2", "wirewise", False),
    "fsdp2 wirewise own buffers": ("fsdp2", "wirewise", True),
    "fsdp2 free": ("fsdp2", "none", False),
}
GOAL = 0.80
WARM_UP = 2  # the optimizer's state comes with the first step, and memory is laid out anew in the second


def ranks_main(arguments):
    """One of the two ranks: prints what each case took, rank 0 only."""
    import gc

    import no_operation  # noqa: F401 (registers "none")
    import peer_torch
    import torch
    import torch.distributed as dist

    import wirewise  # noqa: F401

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    for number in range(arguments.rounds):
        # The first case of a process pays for memory that the machine has not handed out before: each round starts with another.
        first = number % len(arguments.cases)
        for case in arguments.cases[first:] + arguments.cases[:first]:
            mode, backend, own_buffers = CASES[case]
            dist.init_process_group(backend, store=dist.PrefixStore(f"{number}/{case}", store), rank=rank, world_size=size)
            torch.manual_seed(0)
            model = peer_torch.Gpt()
            forward, backward, update = peer_torch.build(mode, model)
            if own_buffers:
                model.set_allocate_memory_from_process_group_for_comm(True)
            seconds = []
            for step in range(WARM_UP + arguments.steps):
                ids, targets = peer_torch.batch(step, rank)
                meet(store, f"{number}/{case}/{step}", size)
                start = time.perf_counter()
                loss = forward(ids, targets)
                backward(loss)
                update()
                meet(store, f"{number}/{case}/{step}/end", size)  # a step is over when the slower rank's is, also where nothing makes them wait
                seconds.append(time.perf_counter() - start)
            value = loss.item()
            del model, forward, backward, update, loss
            gc.collect()
            dist.destroy_process_group()
            if rank == 0:
                print(json.dumps({"case": case, "round": number, "step_s": seconds[WARM_UP:], "loss": value}), flush=True)


def meet(store, key, size):
    """Ranks start a step together, whatever the backend does."""
    if store.add(key, 1) == size:
        store.set(key + "/all", "")
    store.wait([key + "/all"])


def measure(arguments):
    """Runs the ranks; returns what each case took in each round, or None when a rank failed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([arguments.package, str(HERE)])}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", __file__, *sys.argv[1:]]
    ranks = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    rows = []
    for line in ranks.stdout:
        if line.startswith('{"case"'):
            rows.append(json.loads(line))
            measurements.append(arguments.save, rows[-1:])
            steps = " ".join(f"{value:.3f}" for value in rows[-1]["step_s"])
            print(f"round {rows[-1]['round'] + 1}/{arguments.rounds}: {rows[-1]['case']:<28}{steps} s", file=sys.stderr, flush=True)
    if ranks.wait() != 0:
        print("error: a rank failed; its own lines are above.", file=sys.stderr)
        return None
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("package", help="the folder with the wirewise package")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", default=",".join(CASES))
    measurements.add_arguments(parser)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.cases = arguments.only.split(",")
    if unknown := [case for case in arguments.cases if case not in CASES]:
        print(f"error: unknown case {unknown[0]}. There are: {', '.join(CASES)}.", file=sys.stderr)
        return 2
    if "RANK" in os.environ:
        ranks_main(arguments)
        return 0
    rows = measurements.load(arguments.report) if arguments.report else measure(arguments)
    if rows is None:
        return 1
    seconds, losses = {}, {}
    for row in rows:
        seconds.setdefault(row["case"], []).extend(row["step_s"])
        losses[row["case"]] = row["loss"]
    median = {case: statistics.median(values) for case, values in seconds.items()}
    removed = {}
    for case, (mode, backend, _) in CASES.items():
        gloo, free = median.get(f"{mode} gloo"), median.get(f"{mode} free")
        if backend == "wirewise" and case in median and gloo and free:
            removed[case] = (gloo - median[case]) / (gloo - free)
    if arguments.json:
        print(json.dumps({"step_s": seconds, "removed": removed, "loss": losses}))
        return 0
    print(f"{'case':<28}{'step s':>8}{'min':>8}{'max':>8}{'loss':>9}{'removed':>9}{'goal':>6}")
    for case in filter(seconds.__contains__, CASES):
        share = f"{100 * removed[case]:>8.0f}%{100 * GOAL:>5.0f}%" if case in removed else ""
        print(f"{case:<28}{median[case]:>8.3f}{min(seconds[case]):>8.3f}{max(seconds[case]):>8.3f}{losses[case]:>9.4f}{share}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
