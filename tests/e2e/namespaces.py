"""Network namespaces as hosts: made for a class of tests, gone with it. Every test here needs root and the commands ip and tc."""
import os
import shutil
import subprocess
import unittest

from support import need_root, wait_until_up


def need_namespaces():
    need_root()
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            raise unittest.SkipTest(f"no {tool} command (Debian: iproute2)")


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise unittest.SkipTest(f"no network namespaces here: ip {' '.join(words)}: {done.stderr.strip()}")


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
    done = subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", verb, "dev", interface, "root", "tbf", "rate", f"{megabits}mbit",
                           "burst", "64kb", "latency", "50ms"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise unittest.SkipTest(f"no tbf here: {done.stderr.strip()}")


def wait_until_all_up(spaces, interface):
    for space in spaces:
        wait_until_up(space, interface)
