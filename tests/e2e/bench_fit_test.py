"""`wirewise bench --fit` on two hosts: network namespaces joined by a veth pair that is shaped, two ranks each. Needs root."""
import json
import pathlib
import subprocess
import tempfile
import tomllib
import unittest

from namespaces import join, make_space, need_namespaces, shape, switch_on, wait_until_all_up
from support import PROGRAM, EndToEnd

PORT = 29541
RATE = 100  # Mbit/s, of frames on the wire
# A frame holds 1448 bytes of data of 1514 that the shaper counts (no offload is taken as whole frames: it counts each segment's headers or one header
# for many, so data gets between 1448/1514 and all of the rate).
LEAST, MOST = RATE * 1448 / 1514 / 8e3, RATE / 8e3  # GB/s
SPARE = 0.1  # of the fit: it is of relative errors, and the machine has other work


class BenchFit(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        need_namespaces()
        cls.hosts = [make_space(cls, f"f{host}") for host in range(2)]
        join(cls.hosts, "wire0")
        for number, space in enumerate(cls.hosts):
            switch_on(space, "wire0", f"10.213.10.{number + 1}")
            shape(space, "wire0", RATE)
        wait_until_all_up(cls.hosts, "wire0")
        folder = tempfile.TemporaryDirectory(prefix="wirewise-fit-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder_of_files = pathlib.Path(folder.name)

    def fit(self, file, ranks=2):
        started = [self.start(["ip", "netns", "exec", space, PROGRAM, "launch", "--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", str(ranks),
                               "--master", f"10.213.10.1:{PORT}", "--", PROGRAM, "bench", "--fit", str(file), "--sizes", "8,1K,64K,256K,1M,4M", "--json"]) for number, space in enumerate(self.hosts)]
        return [each.finish() for each in started]

    def wirewise(self, *arguments):
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=60).stdout

    def stated(self):
        """What the interface calls its speed, in Mbit/s."""
        return int(subprocess.run(["ip", "netns", "exec", self.hosts[0], "cat", "/sys/class/net/wire0/speed"], capture_output=True, text=True, check=True).stdout)

    def assert_shaped_rate(self, gbyte):
        self.assertGreater(gbyte, LEAST * (1 - SPARE))
        self.assertLess(gbyte, MOST * (1 + SPARE))

    def test_a_new_description_has_both_classes_and_the_shaped_rate(self):
        file = self.folder_of_files / "new.toml"
        finished = self.fit(file)
        self.assertEqual([each.code for each in finished], [0, 0], f"{finished[0]}\n{finished[1]}")
        of_class = {event["class"]: event for event in finished[0].events}
        network = {10000: "10 GbE", 1000: "1 GbE"}.get(self.stated(), "1 GbE")  # of a veth, 10,000
        self.assertEqual(list(of_class), ["shared memory", network])
        self.assertEqual([(each["from"], each["to"]) for each in of_class.values()], [(0, 1), (0, 2)])
        self.assert_shaped_rate(of_class[network]["beta_GBps"])
        self.assertGreater(of_class["shared memory"]["beta_GBps"], of_class[network]["beta_GBps"])
        # The file says the same, and topo and place use it.
        tables = {table["class"]: table for table in tomllib.loads(file.read_text())["measured"]}
        self.assertEqual(list(tables), ["shared memory", network])
        self.assert_shaped_rate(tables[network]["beta_GBps"])
        self.assertEqual(tables[network]["source"], "wirewise bench --fit")
        links = json.loads(self.wirewise("topo", "--from", file, "--json"))["links"]
        self.assertEqual({link["provenance"] for link in links}, {"measured"})
        ports = [link for link in links if link["kind"] == "ethernet"]
        self.assertEqual(len(ports), 4)
        for link in ports:
            self.assert_shaped_rate(link["bandwidth_GBps"])
        placed = json.loads(self.wirewise("place", "--cluster", file, "--mesh", "dp=2,tp=2", "--traffic", "tp=10G,dp=1G", "--json"))
        self.assertEqual(len(placed["ranks"]), 4)
        # The heavier traffic, between ranks 0 and 1 and ranks 2 and 3, stays in a host's memory.
        self.assertEqual(len({rank["host"] for rank in placed["ranks"][:2]}), 1)

    def test_an_old_description_keeps_all_but_the_figures(self):
        file = self.folder_of_files / "old.toml"
        before = ('# Ours\n[[host]]\ntemplate = "workstation-10gbe"  # GPUs\nnames = ["left", "right"]\n\n[network]\nlink = "10 GbE"\n\n'
                  '[[measured]]\nclass = "10 GbE"\nbeta_GBps = 1.0 # by hand\n# the end\n')
        file.write_text(before)
        file.chmod(0o640)
        link = self.folder_of_files / "linked.toml"
        link.symlink_to(file)
        finished = self.fit(link)
        self.assertEqual([each.code for each in finished], [0, 0], f"{finished[0]}\n{finished[1]}")
        saved = {event["class"]: event["saved"] for event in finished[0].events}
        # What cores get from each other says nothing about a description of GPUs.
        self.assertEqual(saved, {"shared memory": False, "10 GbE": True})
        after = file.read_text()
        self.assertTrue(link.is_symlink())
        self.assertEqual(file.stat().st_mode & 0o777, 0o640)
        added = [line for line in after.splitlines() if line not in before.splitlines()]
        self.assertEqual([line.split(" ")[0] for line in added], ["beta_GBps", "alpha_us", "source", "between", "date", "sizes", "residual_percent"])
        self.assertTrue(added[0].endswith(" # by hand"))
        self.assert_shaped_rate(tomllib.loads(after)["measured"][0]["beta_GBps"])
        self.assertEqual(sorted(each.name for each in self.folder_of_files.iterdir() if "part" in each.name), [])

    def test_a_refusal_leaves_the_file_and_ends_all_ranks(self):
        file = self.folder_of_files / "several.toml"
        before = '[[host]]\ntemplate = "dgx-a100"\nnames = ["left", "right"]\n[[override]]\nhosts = "right"\nlink = "InfiniBand EDR"\n'
        file.write_text(before)
        finished = self.fit(file)
        self.assertEqual([each.code for each in finished], [2, 2], f"{finished[0]}\n{finished[1]}")
        self.assertIn("isn't in the description, whose hosts have several kinds of ports", finished[0].errors)
        self.assertEqual(file.read_text(), before)


if __name__ == "__main__":
    unittest.main()
