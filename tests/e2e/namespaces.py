"""Network namespaces as hosts: made for a class of tests, gone with it. Every test here needs root and the commands ip and tc."""
import os
import shutil
import subprocess
import unittest

from support import need_root, wait_until_up


def need_namespaces():
    """Skips where no namespaces with cables, bridges and shaped links can be made. Where they can, what fails later is a fault."""
    need_root()
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            raise unittest.SkipTest(f"no {tool} command (Debian: iproute2)")
    space = f"ww-{os.getpid()}-tried"
    for words in (["netns", "add", space], ["-n", space, "link", "add", "one", "type", "veth", "peer", "name", "other"],
                  ["-n", space, "link", "add", "bridge0", "type", "bridge"], ["netns", "exec", space, *shaping("one", 1, "add")]):
        done = run_ip(*words)
        if done.returncode != 0:
            run_ip("netns", "del", space)
            raise unittest.SkipTest(f"not to be had here: ip {' '.join(words)}: {done.stderr.strip()}")
    ip("netns", "del", space)


def run_ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def ip(*words):
    done = run_ip(*words)
    if done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def make_space(case, name):
    """A namespace of this process's; gone with the class `case`."""
    space = f"ww-{os.getpid() % 100000}-{name}"
    ip("netns", "add", space)
    case.addClassCleanup(subprocess.run, ["ip", "netns", "del", space], check=False)
    ip("-n", space, "link", "set", "lo", "up")
    return space


def make_bridge(case, name):
    """A namespace with a bridge `bridge0`."""
    space = make_space(case, name)
    ip("-n", space, "link", "add", "bridge0", "type", "bridge")
    ip("-n", space, "link", "set", "bridge0", "up")
    return space


def plug(space, interface, bridge, port):
    """A cable from a host's interface to the bridge of another namespace."""
    ip("link", "add", interface, "netns", space, "type", "veth", "peer", "name", port, "netns", bridge)
    enslave(bridge, port)


def enslave(bridge, port):
    ip("-n", bridge, "link", "set", port, "master", "bridge0", "up")


def join(spaces, interface):
    """One cable between two namespaces."""
    ip("link", "add", interface, "netns", spaces[0], "type", "veth", "peer", "name", interface, "netns", spaces[1])


def switch_on(space, interface, address=None):
    if address:
        ip("-n", space, "addr", "add", f"{address}/24", "dev", interface)
    ip("-n", space, "link", "set", interface, "up")


def shape(space, interface, megabits, verb="add"):
    """What leaves the interface: Mbit/s of frames on the wire."""
    ip("netns", "exec", space, *shaping(interface, megabits, verb))


def shaping(interface, megabits, verb):
    return ["tc", "qdisc", verb, "dev", interface, "root", "tbf", "rate", f"{megabits}mbit", "burst", "64kb", "latency", "50ms"]


def wait_until_all_up(spaces, interface):
    for space in spaces:
        wait_until_up(space, interface)
