"""Collectives on one host against peers in one run: `./run bench collectives`.

Every round runs each contestant once, in turn, so that all see the same machine; a case's figure is the median over rounds of the slowest rank's
mean. Contestants: Wirewise's C++ interface, Gloo, Open MPI, MPICH, Intel MPI (bench/peers/README.md). float32; sizes are the larger of a rank's
input and output. Ranks 2; 4 (on a machine of 2 cores: more than it has); 16, where finishing is what counts.

bench/collectives.py WIREWISE WIREWISE_COLLECTIVES [--quick] [--ranks N,…] [--ops OP,…] [--sizes BYTES,…] [--rounds N] [--only CONTESTANT,…]
                     [--save FILE] [--report FILE] [--json]

--save appends every measurement to a file, --report prints the tables of such a file and measures nothing: so a run can be made in pieces.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import measurements

HERE = pathlib.Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "peers"
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
SIZES = [8, 64, 512, "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M"]
QUICK_SIZES = [8, "4K", "64K", "1M", "16M", "64M"]
MANY_RANKS_SIZES = [8, "64K", "1M", "16M"]
LARGE = 16 << 20
OURS = "wirewise"
DEADLINE = 240


def parse_size(text):
    text = str(text)
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(text[:-1] if factor > 1 else text) * factor


def show_size(size):
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):g} {unit}"
    return f"{size} B"


def show_time(seconds):
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-4 else f"{seconds * 1e6:.0f} us" if seconds < 1e-2 else f"{seconds * 1e3:.1f} ms"


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def environment_of(name):
    """A virtual environment with the pinned requirements of peers/NAME.txt, made once."""
    folder, wanted = CACHE / name, HERE / "peers" / f"{name}.txt"
    stamp = folder / "stamp"
    if not (stamp.exists() and stamp.read_text() == wanted.read_text()):
        print(f"setting up {name} in {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        # Intel MPI asks for a network library that one host doesn't need.
        subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(wanted)], check=True)
        stamp.write_text(wanted.read_text())
    return folder


def compiled(name, compiler, environment=None):
    """peers/mpi_collectives.c for one MPI, anew when the sources changed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    program, sources = CACHE / f"{name}_collectives", [HERE / "peers" / "mpi_collectives.c", HERE / "peers" / "cases.h"]
    if not program.exists() or program.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        subprocess.run([compiler, "-O2", "-o", str(program), str(sources[0])], check=True, env={**os.environ, **(environment or {})})
    return str(program)


def ours(args):
    bind = ["--bind"]

    def command(ranks):
        return [args.wirewise, "launch", "--ranks", str(ranks), *(bind if ranks <= os.cpu_count() else []), "--", args.wirewise_collectives], {}
    return command


def gloo():
    subprocess.run([sys.executable, "-c", "import torch.distributed"], check=True)
    return lambda ranks: ([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                           str(HERE / "peers" / "gloo_collectives.py")], {"OMP_NUM_THREADS": "1"})


def open_mpi():
    compiler, start = (shutil.which(f"{name}.openmpi") for name in ("mpicc", "mpirun"))
    if not compiler or not start:
        raise RuntimeError("mpicc.openmpi and mpirun.openmpi are not there: install libopenmpi-dev and openmpi-bin")
    program = compiled("openmpi", compiler)
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return lambda ranks: ([start, *root, "--oversubscribe", "-np", str(ranks), program], {})


def mpich():
    folder = environment_of("mpich")
    program = compiled("mpich", str(folder / "bin" / "mpicc"), {"MPICH_CC": "gcc"})
    # The folder that the program was linked with may have moved since.
    return lambda ranks: ([str(folder / "bin" / "mpiexec"), "-n", str(ranks), program], {"LD_LIBRARY_PATH": str(folder / "lib")})


def intel_mpi():
    """Its library under the program built for MPICH: they share their binary interface."""
    program = compiled("mpich", str(environment_of("mpich") / "bin" / "mpicc"), {"MPICH_CC": "gcc"})
    folder = environment_of("impi")
    variables = {"LD_LIBRARY_PATH": str(folder / "lib"), "I_MPI_ROOT": str(folder), "I_MPI_FABRICS": "shm"}
    return lambda ranks: ([str(folder / "bin" / "mpiexec.hydra"), "-n", str(ranks), program], variables)


def set_up(args):
    makers = {OURS: lambda: ours(args), "gloo": gloo, "open mpi": open_mpi, "mpich": mpich, "intel mpi": intel_mpi}
    wanted = args.only.split(",") if args.only else list(makers)
    contestants = {}
    for name in wanted:
        if name not in makers:
            raise SystemExit(f"error: unknown contestant {name}. There are: {', '.join(makers)}.")
        try:
            contestants[name] = makers[name]()
        except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
            print(f"{name} can't be set up and is left out: {error}", file=sys.stderr)
    return contestants


def measure(name, command, ranks, cases, budget):
    """Runs a contestant once; yields (op, bytes, seconds, least seconds or None)."""
    line, variables = command(ranks)
    # Ranks of a launcher around this script are none of the contestants'.
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "PMI", "OMPI_", "MPI_"))}
    done = subprocess.run([*line, str(budget), *cases], capture_output=True, text=True, timeout=DEADLINE, env={**clean, **variables})
    if done.returncode != 0:
        raise RuntimeError(f"{name} exited with {done.returncode}: {done.stderr[-1500:]}")
    rows = []
    for text in done.stdout.splitlines():
        words = text.split()
        if len(words) >= 3 and words[0] in OPS:
            rows.append({"op": words[0], "bytes": int(words[1]), "seconds": float(words[2]), "least": float(words[3]) if len(words) > 3 else None})
    if len(rows) != len(cases):
        raise RuntimeError(f"{name} finished {len(rows)} of {len(cases)} cases: {done.stderr[-1500:]}")
    return rows


def run(args, contestants):
    """All rounds of all rank counts; returns the measurements."""
    rows = []
    for ranks in args.ranks:
        many = ranks > 2 * (os.cpu_count() or 1)
        sizes = [parse_size(size) for size in (args.sizes.split(",") if args.sizes else MANY_RANKS_SIZES if many else QUICK_SIZES if args.quick else SIZES)]
        cases = [f"{op}:{size}" for op in args.ops for size in sizes]
        budget = args.budget * (1 if ranks <= os.cpu_count() else 2)
        # With far more ranks than cores the question is whether it finishes: ours alone, once.
        taking_part = {OURS: contestants[OURS]} if many and OURS in contestants else dict(contestants)
        names = list(taking_part)
        for number in range(1 if many else args.rounds):
            order = names[number % len(names):] + names[:number % len(names)] if names else []
            for name in order:
                if name not in taking_part:
                    continue
                begin = time.monotonic()
                try:
                    got = measure(name, taking_part[name], ranks, cases, budget)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(f"{name} with {ranks} ranks failed and is left out: {error}", file=sys.stderr)
                    del taking_part[name]
                    continue
                got = [{"ranks": ranks, "contestant": name, **row} for row in got]
                rows += got
                measurements.append(args.save, got)
                print(f"{ranks} ranks, round {number + 1}: {name:<10} {time.monotonic() - begin:6.1f} s", file=sys.stderr, flush=True)
    return rows


def summarise(rows):
    """{ranks: [{op, bytes, ours, least, peers: {name: seconds}, best, ratio, rounds}]}, medians over rounds."""
    samples = collections.defaultdict(list)
    least = collections.defaultdict(list)
    for row in rows:
        samples[row["ranks"], row["op"], row["bytes"], row["contestant"]].append(row["seconds"])
        if row["least"] is not None:
            least[row["ranks"], row["op"], row["bytes"]].append(row["least"])
    medians = {key: statistics.median(values) for key, values in samples.items()}
    tables = collections.defaultdict(list)
    for ranks, op, size in sorted({key[:3] for key in medians}, key=lambda key: (key[0], OPS.index(key[1]), key[2])):
        mine = medians.get((ranks, op, size, OURS))
        peers = {key[3]: value for key, value in medians.items() if key[:3] == (ranks, op, size) and key[3] != OURS}
        best = min(peers, key=peers.get) if peers else None
        tables[ranks].append({
            "op": op, "bytes": size, "ours": mine, "peers": peers, "best": best,
            "ratio": peers[best] / mine if mine and best else None,
            "limit_fraction": statistics.median(least[ranks, op, size]) / mine if mine and least[ranks, op, size] else None,
            "rounds": {key[3]: len(values) for key, values in samples.items() if key[:3] == (ranks, op, size)},
        })
    return dict(tables)


def goals(tables):
    """[{ranks, op, goal, figure, wanted, reached}] of what the measured cases can answer."""
    lines = []

    def add(ranks, op, goal, figure, wanted):
        lines.append({"ranks": ranks, "op": op, "goal": goal, "figure": figure, "wanted": wanted, "reached": figure >= wanted})

    for ranks, table in tables.items():
        compared = [row for row in table if row["ratio"]]
        if ranks == 2:
            for op in OPS:
                mine = [row for row in compared if row["op"] == op]
                if mine:
                    add(2, op, "least ratio to the best peer", min(row["ratio"] for row in mine), 0.95)
                    add(2, op, "geometric mean of ratios", geometric_mean([row["ratio"] for row in mine]), 1.3)
                large = [row["ratio"] for row in mine if row["bytes"] >= LARGE]
                if large and op in ("all_reduce", "reduce_scatter"):
                    add(2, op, "least ratio from 16 MiB", min(large), 2)
                for row in table:
                    if row["op"] == op and row["bytes"] == 256 << 20 and row["limit_fraction"]:
                        add(2, op, "share of the memory's limit at 256 MiB", row["limit_fraction"], 0.8)
        elif ranks == 4 and compared:
            for op in OPS:
                mine = [row["ratio"] for row in compared if row["op"] == op]
                if mine:
                    add(4, op, "geometric mean of ratios", geometric_mean(mine), 1.3)
    return lines


def print_tables(tables):
    for ranks, table in tables.items():
        rounds = collections.Counter()
        for row in table:
            for name, count in row["rounds"].items():
                rounds[name] = max(rounds[name], count)
        print(f"\n{ranks} ranks, float32, {os.cpu_count()} cores; rounds: " + ", ".join(f"{name} {count}" for name, count in sorted(rounds.items())))
        print(f"{'operation':<16}{'size':>9}{'ours':>12}{'best peer':>12}  {'':<10}{'ratio':>7}{'limit':>7}")
        for row in table:
            mine = show_time(row["ours"]) if row["ours"] else "-"
            best = show_time(row["peers"][row["best"]]) if row["best"] else "-"
            ratio = f"{row['ratio']:.2f}" if row["ratio"] else "-"
            limit = f"{row['limit_fraction']:.2f}" if row["limit_fraction"] else "-"
            print(f"{row['op']:<16}{show_size(row['bytes']):>9}{mine:>12}{best:>12}  {row['best'] or '':<10}{ratio:>7}{limit:>7}")
        compared = [row["ratio"] for row in table if row["ratio"]]
        if compared:
            large = [row["ratio"] for row in table if row["ratio"] and row["bytes"] >= LARGE]
            print(f"all operations: geometric mean {geometric_mean(compared):.2f}, least {min(compared):.2f}"
                  + (f"; from 16 MiB: geometric mean {geometric_mean(large):.2f}, least {min(large):.2f}" if large else ""))
        elif all(row["ours"] for row in table):
            print(f"all {len(table)} cases finished")
    lines = goals(tables)
    if lines:
        print(f"\n{'goal':<66}{'figure':>8}{'wanted':>8}")
        for line in lines:
            what = f"{line['ranks']} ranks, {line['op']}: {line['goal']}"
            print(f"{what:<66}{line['figure']:>8.2f}{line['wanted']:>8.2f}  {'reached' if line['reached'] else 'NOT reached'}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wirewise")
    parser.add_argument("wirewise_collectives")
    parser.add_argument("--ranks", default="2,4,16")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--sizes", default="", help="bytes, with K, M or G")
    parser.add_argument("--rounds", type=int, default=0, help="7, or 3 with --quick")
    parser.add_argument("--budget", type=float, default=0.02, help="seconds that a case is timed for")
    parser.add_argument("--only", default="", help="contestants: wirewise, gloo, open mpi, mpich, intel mpi")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds")
    measurements.add_arguments(parser)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.ops = args.ops.split(",")
    if unknown := [op for op in args.ops if op not in OPS]:
        parser.error(f"unknown operation {unknown[0]}. There are: {', '.join(OPS)}.")
    args.ranks = [int(word) for word in args.ranks.split(",")]
    args.rounds = args.rounds or (3 if args.quick else 7)
    if args.report:
        rows = measurements.load(args.report)
    else:
        rows = run(args, set_up(args))
    tables = summarise(rows)
    if args.json:
        print(json.dumps({"tables": tables, "goals": goals(tables)}))
    else:
        print_tables(tables)


if __name__ == "__main__":
    main()
