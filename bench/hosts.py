"""Collectives between hosts against Gloo in one run: `./run bench hosts`. Needs root, and the commands ip and tc.

Hosts are network namespaces of this machine, 2 ranks each: two joined by a virtual cable, four by a bridge in a namespace of its own. They are
made for the run and removed with it. Links are unshaped, or hold 1 Gbit/s in each direction (tbf on both ends of each cable).

Every round runs each contestant once, in turn; a case's time is the median over rounds of the slowest rank's mean. Sizes are the larger of a
rank's input and output. What is printed a case:

busbw   as nccl-tests defines it
link    the least time that the link allows / the time. The least time is the bytes that the busiest host must send or receive by a hierarchical
        algorithm (float32 partial sums for 16-bit types), at 1 Gbit/s, or unshaped at the rate of plain messages between all hosts at once,
        measured in the same run
bytes   bytes counted on all hosts' interfaces in a call / the least that all hosts must send. The counters count what the kernel hands to the
        cable: payload, one set of TCP, IP and Ethernet headers (66 bytes) for each packet of up to 64 KiB (the kernel cuts them to 1,500 bytes
        below the counter, or not at all), and acknowledgements
Gloo    Gloo's time / ours

bench/hosts.py WIREWISE_COLLECTIVES [--hosts N,…] [--links unshaped,1gbit] [--ops OP,…] [--dtypes TYPE,…] [--sizes BYTES,…] [--rounds N]
               [--only CONTESTANT,…] [--quick] [--save FILE] [--report FILE] [--json]

--save appends every measurement to a file, --report prints the tables of such a file and measures nothing: so a run can be made in pieces.
"""

import argparse
import collections
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import measurements

from collectives import HERE, OPS, geometric_mean, parse_size, show_size, show_time

SIZES = [8, "4K", "64K", "1M", "8M", "64M"]
QUICK_SIZES = [8, "64K", "64M"]
DTYPES = {"float32": 4, "bfloat16": 2}
LINKS = {"unshaped": None, "1gbit": 125e6}  # bytes a second
PLACES = 2
OURS = "wirewise"
COUNTED = 1 << 20  # from this size on, greetings and acknowledgements don't hide the payload
LARGE = 64 << 20
DEADLINE = 140


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def wait_until_up(space, interface):
    """The kernel tells of a carrier a moment after both ends are up; until then the interface can't be chosen."""
    end = time.monotonic() + 10
    while "LOWER_UP" not in (shown := ip("-n", space, "link", "show", interface)) or "state UP" not in shown:
        if time.monotonic() > end:
            raise RuntimeError(f"the interface in {space} doesn't come up: {shown}")
        time.sleep(0.01)


class Hosts:
    """Namespaces `wwh-PID-N`, each with one interface `wire0` of address 10.214.9.N+1; gone when left, whatever happened."""

    def __init__(self, count, link):
        self.count, self.rate = count, LINKS[link]
        self.spaces = [f"wwh-{os.getpid()}-{host}" for host in range(count)]
        self.bridge = f"wwh-{os.getpid()}-bridge" if count > 2 else None
        self.made = []

    def __enter__(self):
        try:
            for space in [*self.spaces, *([self.bridge] if self.bridge else [])]:
                self.made.append(space)
                ip("netns", "add", space)
            if self.bridge:
                ip("-n", self.bridge, "link", "add", "bridge0", "type", "bridge")
                ip("-n", self.bridge, "link", "set", "bridge0", "up")
                for host, space in enumerate(self.spaces):
                    ip("link", "add", "wire0", "netns", space, "type", "veth", "peer", "name", f"port{host}", "netns", self.bridge)
                    ip("-n", self.bridge, "link", "set", f"port{host}", "master", "bridge0", "up")
                    self.shape(self.bridge, f"port{host}")
            else:
                ip("link", "add", "wire0", "netns", self.spaces[0], "type", "veth", "peer", "name", "wire0", "netns", self.spaces[1])
            for host, space in enumerate(self.spaces):
                ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "wire0")
                ip("-n", space, "link", "set", "lo", "up")
                ip("-n", space, "link", "set", "wire0", "up")
                self.shape(space, "wire0")
            for space in self.spaces:
                wait_until_up(space, "wire0")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in self.made:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
        self.made = []

    def shape(self, space, interface):
        if self.rate:
            subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", f"{self.rate * 8:.0f}bit",
                            "burst", "128kb", "latency", "50ms"], check=True, capture_output=True, text=True)

    @staticmethod
    def address(host):
        return f"10.214.9.{host + 1}"

    def start(self, rank, command, variables, output, errors):
        """One rank of a command, in its host."""
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "PMI", "OMPI_", "MPI_"))},
            "RANK": str(rank), "WORLD_SIZE": str(self.count * PLACES), "LOCAL_RANK": str(rank % PLACES), "LOCAL_WORLD_SIZE": str(PLACES),
            "MASTER_ADDR": self.address(0), "MASTER_PORT": "29571", "OMP_NUM_THREADS": "1", **variables}
        return subprocess.Popen(["ip", "netns", "exec", self.spaces[rank // PLACES], *command], env=environment, stdout=output,
                                stderr=errors)

    def run(self, command, variables):
        """All ranks of a command; rank 0's output. One that fails ends the others."""
        ranks = []
        try:
            with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
                for rank in range(self.count * PLACES):
                    ranks.append(self.start(rank, command, variables, output if rank == 0 else subprocess.DEVNULL, errors))
                end = time.monotonic() + DEADLINE
                while None in (codes := [process.poll() for process in ranks]) and not any(codes):
                    if time.monotonic() > end:
                        raise RuntimeError(f"not done in {DEADLINE} s")
                    time.sleep(0.02)
                if any(codes):
                    errors.seek(0)
                    raise RuntimeError(f"ranks exited with {codes}: {errors.read()[-1500:]}")
                output.seek(0)
                return output.read()
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def contestant(name, program):
    """Its command before the budget and the cases, and the variables of a new run."""
    if name == OURS:
        return [program], lambda folder: {"WIREWISE_STORE": folder + "/store", "WIREWISE_NET": "wire0"}
    return [sys.executable, str(HERE / "peers" / "gloo_collectives.py")], lambda folder: {"GLOO_SOCKET_IFNAME": "wire0"}


def measure(hosts, name, program, cases, budget):
    """Runs a contestant once; returns its rows and the rates of the link (one way, all at once) that it measured, if it does."""
    command, variables = contestant(name, program)
    with tempfile.TemporaryDirectory(prefix="wirewise-hosts-") as folder:
        output = hosts.run([*command, str(budget), *cases], variables(folder))
    rows, link = [], None
    for words in (line.split() for line in output.splitlines()):
        if words and words[0] == "link":
            link = [float(word) for word in words[1:3]]
        elif len(words) > 3 and words[0] in OPS:
            sent = [float(word) for word in words[3:]]
            rows.append({"op": words[0], "bytes": int(words[1]), "seconds": float(words[2]), "sent": sent[::PLACES]})
    if len(rows) != len(cases):
        raise RuntimeError(f"{len(rows)} of {len(cases)} cases finished: {output[-1000:]}")
    for row, case in zip(rows, cases):
        row["dtype"] = case.split(":")[2]
        row["link_measured"] = link
    return rows


def run(args):
    rows = []
    for count in args.hosts:
        for link in args.links:
            failed = set()
            for number in range(args.rounds):
                names = args.only if number % 2 == 0 else args.only[::-1]
                for name in names:
                    if name in failed:
                        continue
                    begin = time.monotonic()
                    cases = [f"{op}:{size}:{dtype}" for op in args.ops for dtype in args.dtypes for size in args.sizes]
                    try:
                        with Hosts(count, link) as hosts:
                            got = measure(hosts, name, args.program, cases, args.budget)
                    except (RuntimeError, subprocess.CalledProcessError) as error:
                        print(f"{name} on {count} hosts, {link}, failed and is left out: {error}", file=sys.stderr)
                        failed.add(name)
                        continue
                    got = [{"hosts": count, "link": link, "contestant": name, **row} for row in got]
                    rows += got
                    measurements.append(args.save, got)
                    print(f"{count} hosts, {link}, round {number + 1}: {name:<9} {time.monotonic() - begin:6.1f} s", file=sys.stderr, flush=True)
    return rows


def least_of_busiest(op, dtype, size, hosts):
    """Bytes that the busiest host must send or receive."""
    elsewhere = (hosts - 1) / hosts
    partials = 2 if dtype == "bfloat16" else 1  # partial sums travel as float32
    return {"all_reduce": elsewhere * (partials + 1), "all_gather": elsewhere, "reduce_scatter": elsewhere * partials, "broadcast": 1,
            "all_to_all": elsewhere * PLACES}[op] * size


def least_of_all(op, dtype, size, hosts):
    """Bytes that all hosts together must send."""
    return (hosts - 1) * size if op == "broadcast" else hosts * least_of_busiest(op, dtype, size, hosts)


def bus_factor(op, ranks):
    return {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1}.get(op, (ranks - 1) / ranks)


def summarise(rows):
    """{"hosts link": [case…]}, medians over rounds."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        key = row["hosts"], row["link"], row["op"], row["dtype"], row["bytes"]
        groups[key][row["contestant"]].append(row)
    tables = collections.defaultdict(list)
    for key in sorted(groups, key=lambda key: (key[0], -list(LINKS).index(key[1]), OPS.index(key[2]), -DTYPES[key[3]], key[4])):
        count, link, op, dtype, size = key
        of = groups[key]
        median = {name: statistics.median(row["seconds"] for row in of[name]) for name in of}
        ours = median.get(OURS)
        rates = [row["link_measured"][0 if op == "broadcast" else 1] for row in of.get(OURS, []) if row["link_measured"]]
        rate = LINKS[link] or (statistics.median(rates) if rates else None)
        least = least_of_busiest(op, dtype, size, count)
        sent = {name: statistics.median(sum(row["sent"]) for row in of[name]) for name in of}
        tables[f"{count} hosts, {link}"].append({
            "hosts": count, "shape": link, "op": op, "dtype": dtype, "bytes": size, "ours": ours, "gloo": median.get("gloo"),
            "busbw": size / ours * bus_factor(op, count * PLACES) if ours else None,
            "link": least / rate / ours if ours and rate else None, "rate": rate, "measured": statistics.median(rates) if rates else None,
            "sent": {name: value / least_of_all(op, dtype, size, count) for name, value in sent.items()},
            "ratio": median["gloo"] / ours if ours and "gloo" in median else None, "rounds": {name: len(of[name]) for name in of}})
    return dict(tables)


def goals(tables):
    lines = []
    for name, table in tables.items():
        for row in table:
            if row["op"] == "all_reduce" and row["bytes"] == LARGE and row["dtype"] == "float32" and row["ours"]:
                lines.append((f"{name}: all_reduce of 64 MiB, share of the link", row["link"], 0.85, row["link"] >= 0.85))
                if row["ratio"]:
                    lines.append((f"{name}: all_reduce of 64 MiB, Gloo's time / ours", row["ratio"], 1.5, row["ratio"] >= 1.5))
        counted = [row["sent"][OURS] for row in table if row["bytes"] >= COUNTED and OURS in row["sent"]]
        if counted:
            worst = max(counted, key=lambda value: abs(value - 1))
            lines.append((f"{name}: bytes sent / least, worst from 1 MiB", worst, 1.05, abs(worst - 1) <= 0.05))
    return [dict(zip(("goal", "figure", "wanted", "reached"), line)) for line in lines]


def print_tables(tables):
    def number(value, digits=2):
        return "-" if value is None else f"{value:.{digits}f}"

    for name, table in tables.items():
        rates = sorted({row["measured"] for row in table if row["measured"]})
        measured = f"; link by plain messages {rates[0] / 1e9:.3f}-{rates[-1] / 1e9:.3f} GB/s" if rates else ""
        print(f"\n{name}, {PLACES} ranks each, {os.cpu_count()} cores{measured}; rounds {max(max(row['rounds'].values()) for row in table)}")
        print(f"{'operation':<16}{'type':<10}{'size':>8}{'ours':>11}{'GB/s bus':>10}{'link':>7}{'bytes':>7}{'Gloo':>11}{'bytes':>7}{'ratio':>7}")
        for row in table:
            times = [show_time(row[key]) if row[key] else "-" for key in ("ours", "gloo")]
            sent = [number(row["sent"].get(key)) if row["bytes"] >= COUNTED else "-" for key in (OURS, "gloo")]
            print(f"{row['op']:<16}{row['dtype']:<10}{show_size(row['bytes']):>8}{times[0]:>11}{number(row['busbw'] and row['busbw'] / 1e9, 3):>10}"
                  f"{number(row['link']):>7}{sent[0]:>7}{times[1]:>11}{sent[1]:>7}{number(row['ratio']):>7}")
        ratios = [row["ratio"] for row in table if row["ratio"]]
        if ratios:
            print(f"Gloo's time / ours: geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    lines = goals(tables)
    if lines:
        print(f"\n{'goal':<66}{'figure':>8}{'wanted':>8}")
        for line in lines:
            print(f"{line['goal']:<66}{line['figure']:>8.2f}{line['wanted']:>8.2f}  {'reached' if line['reached'] else 'NOT reached'}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="wirewise_collectives")
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--links", default="unshaped,1gbit")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--sizes", default="", help="bytes, with K, M or G")
    parser.add_argument("--rounds", type=int, default=0, help="5, or 1 with --quick")
    parser.add_argument("--budget", type=float, default=0.1, help="seconds that a case is timed for, at least 3 calls")
    parser.add_argument("--only", default=f"{OURS},gloo", help="contestants")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, one round")
    measurements.add_arguments(parser)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for key, known in (("links", LINKS), ("ops", OPS), ("dtypes", DTYPES), ("only", [OURS, "gloo"])):
        words = getattr(args, key).split(",")
        setattr(args, key, words)
        if unknown := [word for word in words if word not in known]:
            parser.error(f"--{key}: {unknown[0]} is none of {', '.join(known)}.")
    args.hosts = [int(word) for word in args.hosts.split(",")]
    args.sizes = [parse_size(word) for word in (args.sizes.split(",") if args.sizes else QUICK_SIZES if args.quick else SIZES)]
    args.rounds = args.rounds or (1 if args.quick else 5)
    if args.report:
        rows = measurements.load(args.report)
    else:
        if os.geteuid() != 0:
            raise SystemExit("error: hosts are network namespaces, which only root makes. Run it as root.")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        rows = run(args)
    tables = summarise(rows)
    if args.json:
        print(json.dumps({"tables": tables, "goals": goals(tables)}))
    else:
        print_tables(tables)


if __name__ == "__main__":
    main()
