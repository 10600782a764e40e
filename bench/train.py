"""Training speed against peers in one run: `./run bench train`.

Every round runs each case once, in turn, so that all see the same machine; what counts are ratios of medians over rounds. The model is a GPT of
162.5 M parameters (12 layers, 768 wide, vocabulary 50304, untied), 2 ranks of one thread, 2 x 256 tokens each, bf16, fused AdamW, no clipping.

bench/train.py WIREWISE NO_COMMUNICATION [--rounds N] [--only CASE,…] [--deepspeed PYTHON] [--json]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MODEL = {
    "model.family": "gpt2", "model.layers": 12, "model.width": 768, "model.heads": 12, "model.vocab": 50304, "model.context": 256,
    "model.tied": "false", "train.sequence": 256, "train.micro_batch": 2, "train.clip": 0, "train.lr": 1e-4, "train.min_lr": 1e-4,
    "train.weight_decay": 0.01, "train.beta2": 0.999, "data.validation": 0, "train.threads": 1,
}
# wirewise case -> (peer, goal as a ratio of tokens/s)
GOALS = [
    ("zero3", "fsdp2", 1.9), ("zero3", "deepspeed3", 1.8), ("ddp", "peer ddp", 1.2), ("zero1", "peer zero1", 1.25), ("single", "peer single", 1.0),
    ("zero3", "no communication", 0.9),
]


def wirewise(binary, strategy, steps):
    command = [binary, "train", "--data", "random", "--json", "--strategy", strategy if strategy != "single" else "ddp",
               "--ranks", "1" if strategy == "single" else "2", "--set", f"train.steps={steps}"]
    for key, value in MODEL.items():
        command += ["--set", f"{key}={value}"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    lines = [json.loads(line) for line in output.splitlines()]
    seconds = [line["step_s"] for line in lines if "step_s" in line][1:]
    report = next(line for line in lines if line.get("event") == "report")
    return statistics.median(seconds), report


def peer(python, mode, steps):
    script = [str(HERE / "peer_torch.py"), mode, "--steps", str(steps)]
    launch = [] if mode == "single" else ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    output = subprocess.run([python, *launch, *script], check=True, capture_output=True, text=True, timeout=900, env=environment).stdout
    return next(json.loads(line) for line in output.splitlines() if line.startswith('{"mode"'))["step_s"]


def no_communication(binary, steps):
    """Two ranks at once, each with whole weights, its gradients kept local, stepping its shard."""
    ranks = [subprocess.Popen([binary, str(rank), str(steps)], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    return max(float(rank.communicate(timeout=600)[0]) for rank in ranks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wirewise")
    parser.add_argument("no_communication")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--deepspeed", default="", help="a Python that has deepspeed; without it its cases are left out")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    reports = {}

    def ours(strategy):
        seconds, reports[strategy] = wirewise(args.wirewise, strategy, args.steps)
        return seconds

    cases = {
        "fsdp2": lambda: peer(sys.executable, "fsdp2", args.steps), "zero3": lambda: ours("zero3"),
        "no communication": lambda: no_communication(args.no_communication, args.steps),
        "peer ddp": lambda: peer(sys.executable, "ddp", args.steps), "ddp": lambda: ours("ddp"),
        "peer zero1": lambda: peer(sys.executable, "zero1", args.steps), "zero1": lambda: ours("zero1"), "zero2": lambda: ours("zero2"),
        "peer single": lambda: peer(sys.executable, "single", args.steps), "single": lambda: ours("single"),
    }
    if args.deepspeed:
        for stage in (1, 3):
            cases[f"deepspeed{stage}"] = lambda stage=stage: peer(args.deepspeed, f"deepspeed{stage}", args.steps)
    if args.only:
        cases = {name: cases[name] for name in args.only.split(",")}
    seconds = {name: [] for name in cases}
    for number in range(args.rounds):
        for name, run in list(cases.items()):
            try:
                seconds[name].append(run())
            except subprocess.CalledProcessError as error:
                print(f"{name} failed and is left out: {error}\n{(error.stderr or '')[-2000:]}", file=sys.stderr)
                del cases[name], seconds[name]
                continue
            print(f"round {number + 1}/{args.rounds}: {name:<18} {seconds[name][-1]:.3f} s a step", file=sys.stderr, flush=True)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    ranks = lambda name: 1 if name.endswith("single") else 2
    rate = {name: ranks(name) * 512 / value for name, value in median.items()}
    if args.json:
        print(json.dumps({"step_s": seconds, "tokens_per_s": rate, "reports": reports}))
        return
    print(f"{'case':<20}{'step s':>9}{'min':>8}{'max':>8}{'tokens/s':>10}")
    for name in cases:
        print(f"{name:<20}{median[name]:>9.3f}{min(seconds[name]):>8.3f}{max(seconds[name]):>8.3f}{rate[name]:>10.0f}")
    print(f"\n{'wirewise against':<34}{'ratio':>7}{'goal':>7}")
    for mine, theirs, goal in GOALS:
        if mine in rate and theirs in rate:
            print(f"{mine + ' / ' + theirs:<34}{rate[mine] / rate[theirs]:>7.2f}{goal:>7.2f}")
    print(f"\n{'predicted step time':<20}{'predicted':>10}{'measured':>10}")
    for name, report in reports.items():
        step = report["time"]["step"]
        print(f"{name:<20}{step['predicted_s']:>10.3f}{step['measured_s']:>10.3f}")


if __name__ == "__main__":
    main()
