"""What placement by measured wiring is worth: `./run bench placement`. Needs root, and the commands ip and tc.

Four network namespaces with a rank each stand for four hosts in two racks: a bridge a rack, hosts at 1 Gbit/s, and one uplink between the bridges
that holds less. Hosts are numbered across the racks, as a scheduler may hand them out. `wirewise doctor cluster` measures every pair; pairs that are
slow lie in different racks, and what is measured becomes a description of the cluster; `wirewise place` orders the ranks by it. Then an all-reduce and
a training step are timed in every order of the hosts that differs, each round all of them.

bench/placement.py WIREWISE [--uplink MBIT] [--size BYTES] [--rounds N] [--json]
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from hosts import ip, wait_until_up

HOSTS = 4
RACKS = [[0, 2], [1, 3]]
LINK = 1000  # Mbit/s
DEADLINE = 300
ORDERS = [[0, 1, 2, 3], [0, 2, 1, 3], [0, 3, 1, 2]]  # who is next to whom: all that differs between four alike ranks
MESH = "dp_replicate=2,dp_shard=2"  # most of what is sent stays within pairs
MODEL = {
    "model.family": "gpt2", "model.layers": 2, "model.width": 256, "model.heads": 4, "model.vocab": 8192, "model.context": 128,
    "train.sequence": 128, "train.micro_batch": 1, "train.steps": 4, "train.lr": 1e-4, "train.min_lr": 1e-4, "data.validation": 0, "train.threads": 1,
}


class Racks:
    """Namespaces `wwp-PID-…`; gone when left, whatever happened."""

    def __init__(self, uplink):
        self.uplink, self.port = uplink, 29600
        self.hosts = [f"wwp-{os.getpid()}-{host}" for host in range(HOSTS)]
        self.racks = [f"wwp-{os.getpid()}-rack{rack}" for rack in range(len(RACKS))]

    def __enter__(self):
        try:
            for space in [*self.hosts, *self.racks]:
                ip("netns", "add", space)
            for rack, members in zip(self.racks, RACKS):
                ip("-n", rack, "link", "add", "bridge0", "type", "bridge")
                ip("-n", rack, "link", "set", "bridge0", "up")
                for host in members:
                    space = self.hosts[host]
                    ip("link", "add", "wire0", "netns", space, "type", "veth", "peer", "name", f"port{host}", "netns", rack)
                    ip("-n", rack, "link", "set", f"port{host}", "master", "bridge0", "up")
                    self.shape(rack, f"port{host}", LINK)
                    ip("-n", space, "addr", "add", f"10.214.11.{host + 1}/24", "dev", "wire0")
                    ip("-n", space, "link", "set", "lo", "up")
                    ip("-n", space, "link", "set", "wire0", "up")
                    self.shape(space, "wire0", LINK)
            ip("link", "add", "uplink0", "netns", self.racks[0], "type", "veth", "peer", "name", "uplink0", "netns", self.racks[1])
            for rack in self.racks:
                ip("-n", rack, "link", "set", "uplink0", "master", "bridge0", "up")
                self.shape(rack, "uplink0", self.uplink)
            for space in self.hosts:
                wait_until_up(space, "wire0")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for space in [*self.hosts, *self.racks]:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    @staticmethod
    def shape(space, interface, megabits):
        subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", f"{megabits}mbit", "burst", "128kb",
                        "latency", "50ms"], check=True, capture_output=True, text=True)

    def run(self, order, command):
        """Rank i on host order[i]; rank 0's lines of JSON."""
        self.port += 1
        ranks = []
        try:
            with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
                for rank, host in enumerate(order):
                    variables = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(HOSTS), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                                 "MASTER_ADDR": f"10.214.11.{order[0] + 1}", "MASTER_PORT": str(self.port), "OMP_NUM_THREADS": "1", "WIREWISE_NET": "wire0"}
                    ranks.append(subprocess.Popen(["ip", "netns", "exec", self.hosts[host], *command], env=variables,
                                                  stdout=output if rank == 0 else subprocess.DEVNULL, stderr=errors))
                end = time.monotonic() + DEADLINE
                codes = [process.wait(max(0.1, end - time.monotonic())) for process in ranks]
                output.seek(0)
                errors.seek(0)
                lines = [json.loads(line) for line in output.read().splitlines() if line.startswith("{")]
                if not lines:
                    raise RuntimeError(f"ranks exited with {codes}: {errors.read()[-1500:]}")
                return lines
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def racks_of(links):
    """Hosts whose pairs reach at least half of the best, together; and the slowest of the pairs between racks."""
    best = max(link["bandwidth_GBps"] for link in links)
    racks = []
    for host in range(HOSTS):
        near = {link["to"] for link in links if link["from"] == host and link["bandwidth_GBps"] >= best / 2}
        rack = next((rack for rack in racks if near & set(rack)), None)
        if rack is None:
            racks.append([host])
        else:
            rack.append(host)
    across = [link["bandwidth_GBps"] for link in links if not any(link["from"] in rack and link["to"] in rack for rack in racks)]
    return racks, best, min(across, default=best)


def description(racks, best, across):
    """A cluster.toml of one device a host, with what was measured."""
    text = '[[template]]\nname = "host"\ngpus = { count = 1 }\nnics = { count = 1, link = "1 GbE" }\nnuma = { node = 0 }\nbridge = { numa = 0, gpus = [0], nics = [0] }\n\n'
    for host in range(HOSTS):
        rack = next(number for number, members in enumerate(racks) if host in members)
        text += f'[[host]]\ntemplate = "host"\nnames = ["host{host}"]\nrack = "rack{rack}"\n\n'
    text += '[network]\nlink = "1 GbE"\n\n[[level]]\nby_rack = true\n'
    text += f"oversubscription = {len(racks[0]) * best / across:.3f}\n\n[[level]]\nswitches = 1\n"
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--uplink", type=int, default=200, help="Mbit/s")
    parser.add_argument("--size", default="16M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the hosts go
    program = os.path.abspath(args.program)
    training = [program, "train", "--data", "random", "--json", "--strategy", "ddp"]
    for key, value in MODEL.items():
        training += ["--set", f"{key}={value}"]
    with Racks(args.uplink) as racks, tempfile.TemporaryDirectory(prefix="wirewise-placement-") as folder:
        links = racks.run(ORDERS[0], [program, "doctor", "cluster", "--json"])[0]["links"]
        found, best, across = racks_of(links)
        file = pathlib.Path(folder) / "cluster.toml"
        file.write_text(description(found, best, across))
        placed = json.loads(subprocess.run([program, "place", "--cluster", str(file), "--mesh", MESH, "--json"], check=True, capture_output=True,
                                           text=True).stdout)
        order = [int(rank["host"].removeprefix("host")) for rank in placed["ranks"]]
        print(f"measured: {best * 8:.2f} Gbit/s within racks {found}, {across * 8:.2f} between; placed {order}; modelled {placed['communication_s']:.3f} s, "
              f"linear {placed['linear_s']:.3f} s, random {placed['random_s']:.3f} s", file=sys.stderr)
        pairs = {frozenset(order[:2]), frozenset(order[2:])}
        orders = [order, *(each for each in ORDERS if {frozenset(each[:2]), frozenset(each[2:])} != pairs)]
        times = [{"all_reduce": [], "train": []} for _ in orders]
        for _ in range(args.rounds):
            for each, into in zip(orders, times):
                lines = racks.run(each, [program, "bench", "--op", "all_reduce", "--sizes", args.size, "--iters", "5", "--json"])
                into["all_reduce"].append(min(line["time_us"] for line in lines if "time_us" in line) / 1e6)
                steps = [line["step_s"] for line in racks.run(each, training) if "step_s" in line and "event" not in line]
                into["train"].append(statistics.median(steps[1:]))
    rows = [{"order": each, **{what: statistics.median(values) for what, values in into.items()}} for each, into in zip(orders, times)]
    for row in rows:
        if args.json:
            print(json.dumps(row))
        else:
            print(f"order {row['order']}: all_reduce of {args.size} {row['all_reduce'] * 1e3:.1f} ms, training step {row['train'] * 1e3:.1f} ms"
                  + (", placed" if row["order"] == order else ""))
    for what in ("all_reduce", "train"):
        worst = max(row[what] for row in rows)
        print(f"{what}: the worst order takes {worst / rows[0][what]:.2f} times the placed one's time", file=sys.stderr if args.json else sys.stdout)


if __name__ == "__main__":
    main()
