"""What `wirewise place` emits, taken by the real launchers: a Slurm of four pretend nodes."""
import json
import os
import shutil
import socket
import subprocess

from slurm_test import CONFIGURATION, Slurm, free_ports
from support import DEADLINE, EndToEnd, PROGRAM, adopt_orphans, environment, need_root, reap_orphans

NODES = 4
# Two leaves of two hosts, four GPUs each; the file lists them so that neighbours lie on different leaves.
TREE = """SwitchName=leaf0 Nodes=n1,n3
SwitchName=leaf1 Nodes=n2,n4
SwitchName=spine Switches=leaf[0-1]
"""


def cluster(names_and_leaves, gpus):
    """The graph as wirewise writes and reads it."""
    devices, links = [], []

    def device(name, kind, host=-1, level=0):
        devices.append({"name": name, "kind": kind, "host_index": host if host >= 0 else None, "host": None, "numa": None, "pci": None, "level": level})
        return len(devices) - 1

    def link(a, b, kind, gbyte):
        for start, end in ((a, b), (b, a)):
            links.append({"from": start, "to": end, "kind": kind, "bandwidth_GBps": gbyte, "latency_us": 1, "provenance": "spec", "source": "", "lanes": 1,
                          "generation": 0, "spec_GBps": gbyte})

    spine = device("spine", "switch", level=1)
    leaves = {leaf: device(f"leaf{leaf}", "switch") for leaf in sorted({leaf for _, leaf in names_and_leaves})}
    for leaf in leaves.values():
        link(leaf, spine, "ethernet", 1)
    for number, (name, leaf) in enumerate(names_and_leaves):
        host = device(name, "host", number)
        nic = device("eth0", "nic", number)
        link(host, nic, "pcie", 20)
        link(nic, leaves[leaf], "ethernet", 10)
        for gpu in range(gpus):
            link(host, device(f"GPU{gpu}", "gpu", number), "pcie", 20)
    return devices, links


class PlaceSlurm(EndToEnd):
    daemon, wait_until, call, log, end = Slurm.daemon, Slurm.wait_until, Slurm.call, Slurm.log, staticmethod(Slurm.end)

    def start_nodes(self):
        need_root()
        adopt_orphans()
        self.addCleanup(reap_orphans)
        missing = [name for name in ("munged", "slurmctld", "slurmd", "srun", "sinfo") if not shutil.which(name)]
        if missing:
            self.skipTest(f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)")
        self.variables = environment()
        controller, *ports = free_ports(NODES + 1)
        host = socket.gethostname().split(".")[0]
        text = CONFIGURATION.format(host=host, folder=self.folder, controller_port=controller, node_port=ports[0])
        lines = [line for line in text.splitlines() if not line.startswith(("NodeName=", "SlurmdPort=", "SlurmdSpoolDir=", "SlurmdPidFile=", "SlurmdLogFile="))]
        lines += [f"SlurmdSpoolDir={self.folder}/spool-%n", f"SlurmdPidFile={self.folder}/%n.pid", f"SlurmdLogFile={self.folder}/%n.log", "TopologyPlugin=topology/tree"]
        lines += [f"NodeName=n{i + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4" for i, port in enumerate(ports)]
        configuration = self.folder / "slurm.conf"
        configuration.write_text("\n".join(sorted(lines, key=lambda line: line.startswith("PartitionName="))) + "\n")
        (self.folder / "topology.conf").write_text(TREE)
        for name in ("state", *(f"spool-n{i + 1}" for i in range(NODES))):
            (self.folder / name).mkdir()
        self.variables["SLURM_CONF"] = str(configuration)
        os.chmod(self.folder, 0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        os.chmod(key, 0o400)
        self.daemon("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", f"--key-file={key}", f"--pid-file={self.folder}/munge.pid",
                    f"--seed-file={self.folder}/munge.seed", f"--log-file={self.folder}/munge.log", ready=(self.folder / "munge.socket").exists)
        self.daemon("slurmctld", "-D", "-f", configuration, ready=lambda: self.call("scontrol", "ping").returncode == 0)
        for i in range(NODES):
            self.daemon("slurmd", "-D", "-f", configuration, "-N", f"n{i + 1}", ready=lambda name=f"n{i + 1}": self.idle(name))

    def idle(self, name):
        return self.call("sinfo", "-h", "-N", "-n", name, "-o", "%T").stdout.strip().rstrip("*") == "idle"

    def test_srun_puts_each_rank_on_the_host_of_the_placement(self):
        self.start_nodes()
        placement, script = self.place()
        hosts = {rank["rank"]: rank["host"] for rank in placement["ranks"]}
        # Data-parallel pairs of hosts lie under one leaf: n1 with n3, n2 with n4.
        self.assertEqual({frozenset(hosts[rank] for rank in range(first, first + 8)) for first in (0, 8)}, {frozenset({"n1", "n3"}), frozenset({"n2", "n4"})})
        self.assertIn("--switches=2", script.read_text())
        ran = subprocess.run(["sh", str(script), "sh", "-c", 'echo "$SLURM_PROCID $SLURMD_NODENAME $MASTER_ADDR"'], capture_output=True, text=True, env=self.variables,
                             timeout=DEADLINE, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr + self.log("slurmctld.log")[-3000:])
        self.assertEqual({int(line.split()[0]): line.split()[1] for line in ran.stdout.splitlines()}, hosts)
        self.assertEqual({line.split()[2] for line in ran.stdout.splitlines()}, {hosts[0]})
        self.meet_by_host_file()

    def meet_by_host_file(self):
        """Ranks of any host file meet where rank 0 is, or say why they can't know."""
        order = self.folder / "order"
        order.write_text("n4\nn2\n")  # the step's node list is n[2,4]
        told = self.folder / "told"
        for file, named in ((order, "n4"), (self.folder / "gone", "MASTER_ADDR")):
            # What each rank is to use is in the error of a rank that can't reach it: these names are known to Slurm alone.
            script = f'mkdir -p {told}; "$@" > {told}/$SLURM_PROCID 2>&1; true'
            command = ["srun", "--distribution=arbitrary", "-N2", "-n2", "env", f"SLURM_HOSTFILE={file}", "sh", "-c", script, "sh", PROGRAM, "doctor", "cluster"]
            ran = subprocess.run(command, capture_output=True, text=True, env=self.variables | {"SLURM_HOSTFILE": str(order)}, timeout=DEADLINE, check=False)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            for rank in range(2):
                said = (told / str(rank)).read_text()
                self.assertIn(named, said)
                self.assertNotIn("'n2'", said)

    def place(self):
        description = self.folder / "cluster.json"
        devices, links = cluster([("n1", 0), ("n2", 1), ("n3", 0), ("n4", 1)], 4)
        description.write_text(json.dumps({"format": "wirewise JSON", "devices": devices, "pairs": [], "links": links, "facts": [], "notes": [], "partial": False}))
        words = [PROGRAM, "place", "--from", str(description), "--mesh", "pp=2,dp=2,tp=4", "--traffic", "tp=100G,dp=10G,pp=1M"]
        answer = subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=DEADLINE, check=False)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        script = self.folder / "srun.sh"
        script.write_text(subprocess.run([*words, "--emit", "slurm"], capture_output=True, text=True, timeout=DEADLINE, check=True).stdout)
        return json.loads(answer.stdout), script
