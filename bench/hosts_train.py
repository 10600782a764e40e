"""Training across two hosts over a slow link, predicted and measured: `./run bench hosts-train`.

Two network namespaces with 2 ranks each, joined by a virtual cable that tbf shapes in both directions, stand for two hosts on Ethernet. Each run
measures its ops and its link before it trains, prints what the simulator makes of that, and then what the steps took. Needs root, ip and tc.

bench/hosts_train.py WIREWISE [--rate 1gbit|none] [--only CASE,…] [--steps N] [--rounds N] [--json]
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys

from hosts import wait_until_up

ADDRESSES = ("10.213.6.1", "10.213.6.2")
MODEL = {
    "model.family": "gpt2", "model.layers": 6, "model.width": 384, "model.heads": 6, "model.vocab": 8192, "model.context": 256,
    "train.sequence": 256, "train.micro_batch": 1, "train.lr": 1e-4, "train.min_lr": 1e-4, "data.validation": 0, "train.threads": 1,
}
CASES = [(strategy, dtype) for strategy in ("zero3", "ddp") for dtype in ("bfloat16", "float32")]
GOAL = 15.0  # per cent


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, capture_output=True)


@contextlib.contextmanager
def two_hosts(rate):
    tag = os.getpid() % 100000
    hosts, cards = [f"ww-{tag}-b{c}" for c in "ab"], [f"vb{tag}{c}" for c in "ab"]
    try:
        for host in hosts:
            ip("netns", "add", host)
        ip("link", "add", cards[0], "netns", hosts[0], "type", "veth", "peer", "name", cards[1], "netns", hosts[1])
        for host, card, address in zip(hosts, cards, ADDRESSES):
            ip("-n", host, "addr", "add", f"{address}/24", "dev", card)
            ip("-n", host, "link", "set", card, "up")
            ip("-n", host, "link", "set", "lo", "up")
            if rate != "none":
                subprocess.run(["ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", card, "root", "tbf", "rate", rate, "burst", "128kb", "latency",
                                "50ms"], check=True)
        for host, card in zip(hosts, cards):
            wait_until_up(host, card)
        yield hosts
    finally:
        for host in hosts:
            ip("netns", "del", host, check=False)


def train(binary, hosts, strategy, dtype, steps):
    """The report of a run: what was predicted, what was measured."""
    command = [binary, "train", "--data", "random", "--json", "--strategy", strategy, "--set", f"train.steps={steps}",
               "--set", f"strategy.param_dtype={dtype}"]
    for key, value in MODEL.items():
        command += ["--set", f"{key}={value}"]
    ranks = [subprocess.Popen(["ip", "netns", "exec", host, binary, "launch", "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "2",
                               "--master", ADDRESSES[0], "--", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
             for node, host in enumerate(hosts)]
    try:
        output = [each.communicate(timeout=600) for each in ranks]
    finally:
        for each in ranks:
            each.terminate()  # those that run still: a launcher ends its ranks
            each.wait()
    if any(each.returncode for each in ranks):
        raise SystemExit(f"{strategy} {dtype} failed:\n{output[0][1][-3000:]}\n{output[1][1][-3000:]}")
    return next(line for line in map(json.loads, output[0][0].splitlines()) if line.get("event") == "report")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wirewise")
    parser.add_argument("--rate", default="1gbit", help="of the link, as tc takes it; none leaves it unshaped")
    parser.add_argument("--only", default="", help="zero3-bfloat16,…")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("error: network namespaces need root.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the namespaces go, too
    cases = [case for case in CASES if not args.only or "-".join(case) in args.only.split(",")]
    reports = {case: [] for case in cases}
    with two_hosts(args.rate) as hosts:
        for number in range(args.rounds):
            for case in cases:
                reports[case].append(train(args.wirewise, hosts, *case, args.steps))
                step = reports[case][-1]["time"]["step"]
                print(f"round {number + 1}/{args.rounds}: {'-'.join(case):<16} predicted {step['predicted_s']:.3f} s, measured {step['measured_s']:.3f} s",
                      file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"-".join(case): each for case, each in reports.items()}))
        return
    print(f"2 hosts x 2 ranks, link {args.rate} each way; medians of {args.rounds} rounds")
    print(f"{'case':<17}{'link Gbit/s':>12}{'sent MB':>9}{'predicted s':>13}{'measured s':>12}{'error %':>9}{'goal':>7}")
    for case, runs in reports.items():
        error = statistics.median(100 * (run["time"]["step"]["predicted_s"] / run["time"]["step"]["measured_s"] - 1) for run in runs)
        middle = lambda key: statistics.median(run["time"]["step"][key] for run in runs)
        rate = statistics.median(run["network"]["Gbit_per_s"] for run in runs)
        print(f"{'-'.join(case):<17}{rate:>12.2f}{runs[0]['network']['sent_bytes_a_step'] / 1e6:>9.1f}{middle('predicted_s'):>13.3f}"
              f"{middle('measured_s'):>12.3f}{error:>+9.1f}{GOAL:>7.0f}")


if __name__ == "__main__":
    main()
