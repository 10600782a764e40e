"""The emitted rankfile taken by a real Open MPI: every rank runs on the CPUs that the placement gave it."""
import json
import os
import shutil
import subprocess

from support import DEADLINE, EndToEnd, PROGRAM, environment


class Rankfile(EndToEnd):
    def place(self, cpus):
        """Two GPUs, each near a NUMA node of its own; the first one's CPU is the last of this machine."""
        devices = [{"name": "localhost", "kind": "host", "host_index": 0}]
        links = []

        def link(a, b, kind, gbyte):
            for start, end in ((a, b), (b, a)):
                links.append({"from": start, "to": end, "kind": kind, "bandwidth_GBps": gbyte, "latency_us": 1, "provenance": "spec", "source": "", "lanes": 1, "generation": 0, "spec_GBps": gbyte})

        for node, cpu in enumerate(cpus):
            devices.append({"name": f"numa{node}", "kind": "numa", "host_index": 0, "numa": node, "cpus": cpu})
            link(0, len(devices) - 1, "sockets", 10)
            devices.append({"name": f"GPU{node}", "kind": "gpu", "host_index": 0, "numa": node})
            link(len(devices) - 2, len(devices) - 1, "pcie", 20)
        for device in devices:
            device.update({key: device.get(key) for key in ("host", "numa", "pci")} | {"level": 0})
        description = self.folder / "machine.json"
        description.write_text(json.dumps({"format": "wirewise JSON", "devices": devices, "pairs": [], "links": links, "facts": [], "notes": [], "partial": False}))
        words = [PROGRAM, "place", "--from", str(description), "--mesh", f"dp={len(cpus)}"]
        answers = [subprocess.run([*words, *more], capture_output=True, text=True, timeout=DEADLINE, check=False) for more in (["--emit", "rankfile"], ["--json"])]
        for answer in answers:
            self.assertEqual(answer.returncode, 0, answer.stderr)
        file = self.folder / "rankfile"
        file.write_text(answers[0].stdout)
        return file, {rank["rank"]: rank["cpus"] for rank in json.loads(answers[1].stdout)["ranks"]}

    def mpirun(self, file, *more):
        script = 'echo "$OMPI_COMM_WORLD_RANK $(sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)"'
        return subprocess.run(["mpirun", "--allow-run-as-root", "--rankfile", str(file), "--mca", "rmaps_rank_file_physical", "1", *more, "sh", "-c", script], capture_output=True,
                              text=True, env=environment(), timeout=DEADLINE, check=False)

    def test_each_rank_runs_where_the_placement_put_it(self):
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun (Debian: openmpi-bin)")
        version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=DEADLINE, check=False).stdout.splitlines()
        if not version or "Open MPI" not in version[0]:
            self.skipTest(f"another mpirun than Open MPI's: {version[:1]}")
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            self.skipTest("one CPU: nothing to choose from")
        cpus = [str(usable[-1]), str(usable[0])]
        file, asked = self.place(cpus)
        self.assertEqual(set(asked.values()), set(cpus))
        ran = self.mpirun(file)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual({int(line.split()[0]): line.split()[1] for line in ran.stdout.splitlines()}, asked)
        # A file that asks for what this machine hasn't is refused by it: so it does read the CPUs.
        file.write_text(file.read_text().replace(f"slot={asked[0]}", f"slot={usable[-1] + 4096}"))
        self.assertNotEqual(self.mpirun(file).returncode, 0)
