"""The process that holds torch's store is killed: while wirewise makes its group, and between collectives. Nobody waits for a deadline."""

import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta

import torch.distributed as dist

from ranks import python_path

DEADLINE = 300  # seconds, of everything the programs wait for
HOST = "127.0.0.1"

# Holds the store, as torchrun's agent does.
HOLDER = """
import signal, sys
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False)
signal.pause()
"""

RANK = """
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist
import wirewise

rank, place = int(os.environ["RANK"]), f"127.0.0.1:{os.environ['MASTER_PORT']}"

def lost(call, kind, *parts):
    start = time.monotonic()
    try:
        call()
    except kind as error:
        text = str(error)
    assert time.monotonic() - start < %(deadline)d / 2
    for part in parts:
        assert part in text, text

def join():
    dist.init_process_group("wirewise", timeout=timedelta(seconds=%(deadline)d))

def compute():
    for i in range(10 ** 9):
        dist.all_reduce(torch.ones(3 if i %% 2 else 300_000))
""" % {"deadline": DEADLINE}

JOINS = RANK + """
lost(join, wirewise.StoreError, "Lost the process group's store at " + place)
"""

COMPUTES = RANK + """
join()
store = dist.distributed_c10d._get_default_store()
store.set(f"computing/{rank}", "")
gone = torch.zeros(1)
while not gone.item():
    try:
        store.add("steps", 1)
    except dist.DistError:
        gone.fill_(1)
    dist.all_reduce(gone, dist.ReduceOp.MAX)
for i in range(50):
    data = torch.ones(3 if i % 2 else 300_000)
    dist.all_reduce(data)
    assert data.min() == 2
dist.destroy_process_group()
"""

LOSES_RANK_ZERO = RANK + """
join()
store = dist.distributed_c10d._get_default_store()
store.set(f"pid/{rank}", str(os.getpid()))
pid = store.get("pid/0").decode()
store.set(f"computing/{rank}", "")  # the last word to the store: once all have said it, it may die
lost(compute, wirewise.PeerLostError, "rank 0 (", f"pid {pid}")
dist.destroy_process_group()
"""


class Run:
    """Programs of one run, ended with the block."""

    def __init__(self):
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = probe.getsockname()[1]
        self.environment = os.environ | {"PYTHONPATH": python_path(), "MASTER_ADDR": HOST, "MASTER_PORT": str(self.port), "OMP_NUM_THREADS": "1"}
        self.programs = []

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for program in self.programs:
            program.kill()
            program.wait()
            program.stdout.close()

    def start(self, text, *arguments, **variables):
        program = subprocess.Popen([sys.executable, "-c", text, *arguments], env=self.environment | variables, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.programs.append(program)
        return program

    def ranks(self, text, count, size, agent):
        agents = {"TORCHELASTIC_USE_AGENT_STORE": "True"} if agent else {}
        return [self.start(text, RANK=str(rank), WORLD_SIZE=str(size), **agents) for rank in range(count)]

    def until(self, ready):
        store = dist.TCPStore(HOST, self.port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=120))
        end = time.monotonic() + 120
        while not ready(store):
            assert time.monotonic() < end, "the ranks don't come so far"
            time.sleep(0.001)


def survive(*programs):
    for program in programs:
        output, _ = program.communicate(timeout=DEADLINE / 2)
        assert program.returncode == 0, output


def kill(program):
    program.send_signal(signal.SIGKILL)
    program.wait()


def computing(ranks):
    return lambda store: store.check([f"default_pg/0//computing/{rank}" for rank in range(ranks)]) or store.check(
        [f"computing/{rank}" for rank in range(ranks)])


def test_the_agents_store_dies_while_the_group_is_made():
    with Run() as run:
        agent = run.start(HOLDER, str(run.port))
        ranks = run.ranks(JOINS, 2, 3, agent=True)
        # The third never comes. What the two have set is theirs and torch's: both have claimed their rank and shown their card.
        run.until(lambda store: store.num_keys() >= 8)
        kill(agent)
        survive(*ranks)


def test_the_agents_store_dies_between_collectives():
    with Run() as run:
        agent = run.start(HOLDER, str(run.port))
        ranks = run.ranks(COMPUTES, 2, 2, agent=True)
        run.until(computing(2))
        kill(agent)
        survive(*ranks)


def test_rank_zero_dies_with_its_store_between_collectives():
    with Run() as run:
        ranks = run.ranks(LOSES_RANK_ZERO, 3, 3, agent=False)
        run.until(computing(3))
        kill(ranks[0])
        survive(*ranks[1:])
