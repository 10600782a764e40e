"""Runs the installed example on two ranks under every strategy: the loss falls, and all end with the same weights.

custom_model.py WIREWISE PROGRAM
"""
import re
import subprocess
import sys


def main():
    wirewise, program = sys.argv[1:]
    hashes = {}
    for strategy in ("ddp", "zero1", "zero2", "zero3"):
        run = subprocess.run([wirewise, "launch", "--ranks", "2", "--", program, strategy], capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, f"{strategy} returned {run.returncode}:\n{run.stdout}{run.stderr}"
        losses = [float(loss) for loss in re.findall(r"loss (\S+)", run.stdout)]
        assert len(losses) >= 2 and losses[-1] < 0.1 * losses[0], f"{strategy}: the loss does not fall:\n{run.stdout}"
        name, ranks, weights = re.search(r"(\w+) on (\d+) ranks, weights (\w+)", run.stdout).groups()
        assert (name, ranks) == (strategy, "2"), run.stdout
        predicted, measured = map(float, re.search(r"memory (\S+) MB predicted, (\S+) MB measured", run.stdout).groups())
        assert abs(predicted / measured - 1) < 0.03, f"{strategy}: {predicted} MB predicted, {measured} MB measured"
        hashes[strategy] = weights
    assert len(set(hashes.values())) == 1, f"weights differ: {hashes}"
    bad = subprocess.run([program, "zero9"], capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2 and "zero9" in bad.stderr, (bad.returncode, bad.stderr)


main()
