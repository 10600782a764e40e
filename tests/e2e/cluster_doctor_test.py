"""`wirewise doctor cluster` on four hosts: network namespaces on one bridge, a rank each, every link shaped alike. Needs root."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import unittest

from support import PROGRAM, EndToEnd, need_root, wait_until_up

PORT = 29531
HOSTS = 4
RATE, SLOW = 400, 120  # Mbit/s: a slow link has 30 %
CLEAN_RUNS = 20 if os.environ.get("WIREWISE_FULL") else 2


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise unittest.SkipTest(f"no network namespaces here: ip {' '.join(words)}: {done.stderr.strip()}")


class ClusterDoctor(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        need_root()
        for tool in ("ip", "tc"):
            if not shutil.which(tool):
                raise unittest.SkipTest(f"no {tool} command (Debian: iproute2)")
        tag = os.getpid() % 100000
        middle = f"ww-{tag}-dm"
        cls.hosts = [f"ww-{tag}-d{host}" for host in range(HOSTS)]
        for space in [middle, *cls.hosts]:
            ip("netns", "add", space)
            cls.addClassCleanup(subprocess.run, ["ip", "netns", "del", space], check=False)
        ip("-n", middle, "link", "add", "bridge0", "type", "bridge")
        ip("-n", middle, "link", "set", "bridge0", "up")
        for host, space in enumerate(cls.hosts):
            ip("link", "add", "wire0", "netns", space, "type", "veth", "peer", "name", f"port{host}", "netns", middle)
            ip("-n", middle, "link", "set", f"port{host}", "master", "bridge0")
            ip("-n", middle, "link", "set", f"port{host}", "up")
            ip("-n", space, "addr", "add", f"10.213.9.{host + 1}/24", "dev", "wire0")
            ip("-n", space, "link", "set", "wire0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            cls.shape("add", space, RATE)
        for space in cls.hosts:
            wait_until_up(space, "wire0")

    @staticmethod
    def shape(verb, space, megabits):
        done = subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", verb, "dev", "wire0", "root", "tbf", "rate", f"{megabits}mbit",
                               "burst", "128kb", "latency", "50ms"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise unittest.SkipTest(f"no tbf here: {done.stderr.strip()}")

    def examine(self, outside=lambda host: [], inside=lambda host: [], ranks=1):
        """The exit codes by host, and what rank 0 said: measurements, then findings."""
        started = [self.start([*outside(host), "ip", "netns", "exec", space, *inside(host), PROGRAM, "launch", "--nnodes", str(HOSTS), "--node-rank", str(host),
                               "--nproc-per-node", str(ranks), "--master", f"10.213.9.1:{PORT}", "--", PROGRAM, "doctor", "cluster", "--json"])
                   for host, space in enumerate(self.hosts)]
        finished = [each.finish() for each in started]
        self.assertEqual(len(finished[0].events), 2, finished[0])
        return [each.code for each in finished], *finished[0].events

    @contextlib.contextmanager
    def half_a_core(self):
        """A control group that gets half of one core, of version 2 or 1; yields the commands that enter it, and that show it where
        `ip netns exec` has mounted an empty /sys."""
        for root, quota in (("/sys/fs/cgroup", None), ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us")):
            group = pathlib.Path(root) / f"wirewise-test-{os.getpid()}"
            handed_down = pathlib.Path(root) / "cgroup.subtree_control"  # of version 2
            if quota is None and not (handed_down.exists() and "cpu" in handed_down.read_text().split()):
                continue
            try:
                group.mkdir()
            except OSError:
                continue
            try:
                if quota is None:
                    (group / "cpu.max").write_text("50000 100000")
                else:
                    (group / "cpu.cfs_period_us").write_text("100000")
                    (group / quota).write_text("50000")
                show = "mount -t cgroup2 none /sys/fs/cgroup" if quota is None else (
                    "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/cpu && mount -t cgroup -o cpu none /sys/fs/cgroup/cpu")
                yield [["sh", "-c", f'{what} && exec "$@"', "sh"] for what in (f"echo $$ > {group}/cgroup.procs", show)]
            finally:
                group.rmdir()
            return
        raise unittest.SkipTest("no control group for CPU time can be made here")

    def test_a_slow_link_and_a_slow_core_are_named_together(self):
        self.shape("change", self.hosts[1], SLOW)
        self.addCleanup(self.shape, "change", self.hosts[1], RATE)
        with self.half_a_core() as (enter, show):
            codes, measured, found = self.examine(lambda host: enter if host == 2 else [], lambda host: show if host == 2 else [])
        titles = [finding["title"] for finding in found["findings"] if finding["severity"] == "error"]
        # How slow that makes it depends on what else the machine does; that it may not use a whole core doesn't.
        self.assertTrue(any(title.startswith("Rank 2 ") for title in titles), (titles, measured))
        self.assertTrue(any("(rank 1) sends slowly" in title for title in titles), (titles, measured))
        self.assertFalse([title for title in titles if "rank 0" in title.lower() or "rank 3" in title.lower()], (titles, measured))
        self.assertEqual(codes, [0, 1, 1, 0])

    def test_data_is_compared_between_all_ranks_and_not_between_hosts_alone(self):
        codes, measured, found = self.examine(ranks=2)
        ranks = 2 * HOSTS
        self.assertEqual(measured["pairs"], {"verified": ranks * (ranks - 1) // 2, "possible": ranks * (ranks - 1) // 2, "wrong": []})
        self.assertEqual(len(measured["links"]), HOSTS * (HOSTS - 1))
        self.assertFalse([finding["title"] for finding in found["findings"] if "wrong" in finding["title"]])

    def test_clean_runs_are_silent(self):
        for run in range(CLEAN_RUNS):
            with self.subTest(run=run):
                codes, measured, found = self.examine()
                self.assertEqual(found["findings"], [], measured)
                self.assertEqual(codes, [0] * HOSTS)
                self.assertEqual(len(measured["links"]), HOSTS * (HOSTS - 1))
                self.assertEqual({link["wrong"] for link in measured["links"]}, {0})


if __name__ == "__main__":
    unittest.main()
