"""`wirewise doctor cluster` on four hosts: network namespaces on one bridge, a rank each, every link shaped alike. Needs root."""
import contextlib
import os
import pathlib
import unittest

from namespaces import make_bridge, make_space, need_namespaces, plug, shape, switch_on, wait_until_all_up
from support import PROGRAM, EndToEnd

PORT = 29531
HOSTS = 4
RATE, SLOW = 400, 120  # Mbit/s: a slow link has 30 %
CLEAN_RUNS = 20 if os.environ.get("WIREWISE_FULL") else 2


class ClusterDoctor(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        need_namespaces()
        middle = make_bridge(cls, "dm")
        cls.hosts = [make_space(cls, f"d{host}") for host in range(HOSTS)]
        for host, space in enumerate(cls.hosts):
            plug(space, "wire0", middle, f"port{host}")
            switch_on(space, "wire0", f"10.213.9.{host + 1}")
            shape(space, "wire0", RATE)
        wait_until_all_up(cls.hosts, "wire0")

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
        shape(self.hosts[1], "wire0", SLOW, "change")
        self.addCleanup(shape, self.hosts[1], "wire0", RATE, "change")
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
