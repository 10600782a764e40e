#!/usr/bin/env python3
"""What a machine with one NVIDIA device or more shows of Wirewise: a line a check, then "N passed, N failed".

usage: gpu_check.py WIREWISE | --self-test

Exit: 0 all passed, 1 some failed, 2 there is no device. ./run gpu-check builds first and then runs this.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

BUDGET_S = 300  # of all checks together
LOSS_TOLERANCE = {"float32": 2e-3, "bfloat16": 3e-2}  # relative, at every step
MEMORY_TOLERANCE = 0.25
LEAST_MFU = 0.15
SMALL = ["model.layers=4", "model.width=256", "model.heads=4", "model.vocab=256", "train.sequence=256", "train.micro_batch=4", "train.steps=8",
         "train.threads=1", "train.seed=7"]
LARGE = ["model.layers=12", "model.width=1024", "model.heads=16", "model.vocab=256", "train.sequence=1024", "train.micro_batch=8", "train.steps=8",
         "strategy.param_dtype=bfloat16"]
LONG = ["model.layers=2", "model.width=512", "model.heads=8", "model.vocab=256", "train.sequence=16384", "train.micro_batch=1", "train.steps=2",
        "model.context=16384", "strategy.param_dtype=bfloat16"]


class Failed(Exception):
    """A check that did not hold, with what was seen instead."""


def driver_devices():
    """Devices by the driver's own tool, as lines; empty where there is no driver or no device."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in listing.stdout.splitlines() if line.startswith("GPU ")] if listing.returncode == 0 else []


class Check:
    """Runs wirewise; `run` is replaced in the self-test."""

    def __init__(self, wirewise, devices, run=None):
        self.wirewise = wirewise
        self.devices = len(devices)
        self.first = devices[0]
        self.end = time.monotonic() + BUDGET_S
        self.run = run or self.run_command
        self.results = {}

    def run_command(self, arguments, visible):
        """The JSON lines that a command prints."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise Failed(f"no time left of the {BUDGET_S} s of all checks")
        environment = dict(os.environ)
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        command = [self.wirewise, *arguments]
        if arguments[0] == "ddp":  # a program of PyTorch, over the Python package that was built beside the program
            command = [sys.executable, str(pathlib.Path(__file__).with_name("gpu_ddp.py")), *arguments[1:]]
            environment["PYTHONPATH"] = str(pathlib.Path(self.wirewise).resolve().parent / "python")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False, env=environment)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done when the {BUDGET_S} s of all checks were over") from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise Failed(f"exit {done.returncode}: {lines[-1] if lines else 'no output'}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def train(self, device, ranks, settings, *, comm=None, strategy="zero3", visible=None):
        """The JSON lines of a training run; equal runs are made once."""
        arguments = ["train", "--json", "--data", "random", "--device", device, "--ranks", str(ranks), "--strategy", strategy]
        if comm:
            arguments += ["--comm", comm]
        for setting in settings:
            arguments += ["--set", setting]
        key = (tuple(arguments), visible)
        if key not in self.results:
            self.results[key] = self.run(arguments, visible)
        return self.results[key]

    def bench(self, comm, ranks, visible=None):
        cases = self.run(["bench", "--json", "--device", "cuda", "--comm", comm, "--ranks", str(ranks), "--op", "all", "--sizes", "8,1M,64M",
                          "--iters", "20"], visible)
        wrong = [f"{case['op']} of {case['size']} B" for case in cases if case["wrong"] != 0]
        if not cases or wrong:
            raise Failed("wrong data: " + ", ".join(wrong) if wrong else "no case was run")
        best = max((case["busbw_GBps"] for case in cases if case["op"] == "all_reduce"), default=0)
        return f"{len(cases)} cases right, all_reduce up to {best:.1f} GB/s"

    @staticmethod
    def steps(lines):
        steps = [line for line in lines if "loss" in line and "step" in line and "event" not in line]
        if not steps:
            raise Failed("no step was reported")
        return steps

    def equal_losses(self, ranks, comm, dtype, visible=None):
        settings = SMALL + [f"strategy.param_dtype={dtype}"]
        cpu = self.steps(self.train("cpu", ranks, settings))
        return self.compare(cpu, self.steps(self.train("cuda", ranks, settings, comm=comm, visible=visible)), LOSS_TOLERANCE[dtype])

    @staticmethod
    def compare(cpu, cuda, tolerance):
        if len(cpu) != len(cuda):
            raise Failed(f"{len(cuda)} steps, but {len(cpu)} on the CPU")
        worst = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(cpu, cuda))
        text = f"losses differ from the CPU's by at most {worst:.1e}"
        if not worst <= tolerance:
            raise Failed(f"{text}, more than {tolerance:.0e}")
        return text

    def nccl_all(self):
        return self.bench("nccl", self.devices)

    def staged_pair(self):
        return self.bench("staged", 2, self.first)

    def losses_nccl(self):
        return self.equal_losses(self.devices, "nccl", "float32")

    def losses_nccl_half(self):
        return self.equal_losses(self.devices, "nccl", "bfloat16")

    def losses_staged(self):
        return self.equal_losses(2, "staged", "float32", self.first)

    def ddp_staged(self):
        cpu = self.steps(self.run(["ddp", "cpu"], None))
        return self.compare(cpu, self.steps(self.run(["ddp", "cuda"], self.first)), LOSS_TOLERANCE["float32"])

    def memory(self):
        last = self.steps(self.train("cuda", 1, LARGE, comm="nccl", visible=self.first))[-1]
        predicted, measured = last["memory_predicted_bytes"], last["memory_measured_bytes"]
        text = f"predicted {predicted / 2**20:.0f} MiB, allocated {measured / 2**20:.0f} MiB"
        if measured <= 0 or abs(predicted - measured) > MEMORY_TOLERANCE * measured:
            raise Failed(f"{text}: more than {MEMORY_TOLERANCE:.0%} apart")
        return text

    def mfu(self):
        mfu = max(step["mfu"] for step in self.steps(self.train("cuda", 1, LARGE, comm="nccl", visible=self.first))[2:])
        text = f"{mfu:.1%} of the matrix-multiplication rate measured in the same run"
        if not mfu >= LEAST_MFU:
            raise Failed(f"{text}, less than {LEAST_MFU:.0%}")
        return text

    def attention(self):
        peak = self.steps(self.train("cuda", 1, LONG, comm="nccl", visible=self.first))[-1]["memory_measured_bytes"]
        scores = 16384 * 16384 * 8 * 2  # what one layer's scores would take, had they been kept whole
        text = f"peak {peak / 2**20:.0f} MiB at sequence 16384, where one layer's scores are {scores / 2**20:.0f} MiB"
        if not 0 < peak < scores:
            raise Failed(text)
        return text

    CHECKS = [("collectives by NCCL on all devices", nccl_all), ("two staged ranks on one device", staged_pair),
              ("training by NCCL on all devices, float32", losses_nccl), ("training by NCCL on all devices, bfloat16", losses_nccl_half),
              ("training, two staged ranks on one device", losses_staged),
              ("PyTorch's DDP on the backend, two ranks on one device", ddp_staged), ("predicted and allocated memory", memory),
              ("model FLOPs utilisation", mfu), ("fused attention in use", attention)]

    def all(self, show=print):
        """Runs every check; the number that failed."""
        failed = 0
        for name, check in self.CHECKS:
            try:
                show(f"pass  {name}: {check(self)}")
            except (Failed, KeyError, ValueError, IndexError) as reason:
                failed += 1
                show(f"FAIL  {name}: {reason}")
        show(f"{len(self.CHECKS) - failed} passed, {failed} failed")
        return failed


def self_test():
    """Each check passes on what it should see, and fails on what it should not."""
    def fake(faults):
        def run(arguments, _visible):
            cuda = "cuda" in arguments
            if arguments[0] == "bench":
                wrong = 1 if f"wrong {arguments[arguments.index('--comm') + 1]}" in faults else 0
                return [{"op": "all_reduce", "size": 8, "wrong": wrong, "busbw_GBps": 10.0}]
            if arguments[0] == "ddp":
                return [{"step": i, "loss": 2.5 if cuda and "loss ddp" in faults else 2.0} for i in range(8)]
            long = "train.sequence=16384" in arguments
            comm = arguments[arguments.index("--comm") + 1] if cuda else ""
            loss = 5.0 if not (cuda and f"loss {comm}" in faults) else 5.5
            measured = 6 << 30 if long and "attention" in faults else 1 << 30
            predicted = 1 << 29 if "memory" in faults else 1 << 30
            return [{"step": i, "loss": loss, "mfu": 0.01 if "mfu" in faults else 0.4, "memory_measured_bytes": measured,
                     "memory_predicted_bytes": predicted} for i in range(8)]
        return run

    for faults, expected in [((), 0), (("wrong nccl",), 1), (("wrong staged",), 1), (("loss nccl",), 2), (("loss staged",), 1), (("loss ddp",), 1), (("memory",), 1),
                             (("mfu",), 1), (("attention",), 1)]:
        lines = []
        failed = Check("", ["0"], fake(faults)).all(lines.append)
        if failed != expected:
            return f"self-test: with {faults or 'no fault'} {failed} failed, not {expected}:\n" + "\n".join(lines)
    # A command that fails is a failed check with its last line.
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "wirewise"
        program.write_text("#!/bin/sh\necho 'error: no device' >&2\nexit 2\n")
        program.chmod(0o755)
        lines = []
        if Check(str(program), ["0"]).all(lines.append) != len(Check.CHECKS) or "exit 2: error: no device" not in lines[0]:
            return "self-test: a failing command is not told:\n" + "\n".join(lines)
    return None


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    devices = driver_devices()
    if not devices:
        print("gpu-check: no NVIDIA device on this machine (nvidia-smi lists none), so nothing was checked.", file=sys.stderr)
        sys.exit(2)
    print("\n".join(devices))
    visible = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    sys.exit(1 if Check(sys.argv[1], visible or [str(i) for i in range(len(devices))]).all(lambda line: print(line, flush=True)) else 0)


if __name__ == "__main__":
    main()
