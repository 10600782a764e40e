"""Host names that a shell, YAML or a launcher would take for more than names stay data in everything that `wirewise place` emits, or are refused."""
import json
import os
import subprocess

from place_test import cluster
from support import DEADLINE, EndToEnd, PROGRAM, environment

try:
    import yaml
except ImportError:
    yaml = None

NAMES = ["it's", 'say "hi"', "two words", "$(touch pwned)", "`touch pwned`", "a;touch pwned", "a&touch pwned&", "*", "..", "-rf", "a\\", "#no", "a: b", "{{ x }}", "%s", "a\tb",
         "a\nEND OF HOSTS\ntouch pwned", "n[1-2]", "caf\u00e9", "a,b", "a=b"]


class PlaceNames(EndToEnd):
    def emit(self, names, kind):
        devices, links = cluster([(name, 0) for name in names], 2)
        description = self.folder / "cluster.json"
        description.write_text(json.dumps({"format": "wirewise JSON", "devices": devices, "pairs": [], "links": links, "facts": [], "notes": [], "partial": False}))
        return subprocess.run([PROGRAM, "place", "--from", str(description), "--mesh", f"dp={len(names)},tp=2", "--traffic", "tp=100G", "--emit", kind], capture_output=True, text=True,
                              timeout=DEADLINE, check=False)

    def run_script(self, text, variables):
        """Runs a script where launchers, and what they are to start, are programs of ours that print their arguments, one a line."""
        place = self.folder / "run"
        place.mkdir(exist_ok=True)
        programs = ("program", "srun", "taskset", "torchrun")
        for program in programs:
            (place / program).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
            os.chmod(place / program, 0o755)
        (place / "script").write_text(text)
        ran = subprocess.run(["sh", "./script", "program"], cwd=place, capture_output=True, text=True, timeout=DEADLINE, check=False,
                             env=environment() | {"PATH": f"{place}:{os.environ['PATH']}"} | variables)
        self.assertEqual(sorted(path.name for path in place.iterdir()), sorted((*programs, "script")), text)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def test_scripts_and_json_carry_any_name(self):
        emitted = {kind: self.emit(NAMES, kind) for kind in ("json", "torchrun", "env")}
        for kind, answer in emitted.items():
            self.assertEqual(answer.returncode, 0, f"{kind}: {answer.stderr}")
        hosts = {rank["host"]: rank["rank"] for rank in json.loads(emitted["json"].stdout)["ranks"]}
        self.assertEqual(set(hosts), set(NAMES))
        first = next(rank["host"] for rank in json.loads(emitted["json"].stdout)["ranks"] if rank["rank"] == 0)
        for name in NAMES:
            with self.subTest(name=name):
                said = self.run_script(emitted["torchrun"].stdout, {"WIREWISE_NODE": name})
                self.assertIn(f"--node-rank={hosts[name] // 2}\n", said)
                self.assertIn(f"--master-addr={first}\n", said)
                self.run_script(emitted["env"].stdout, {"RANK": str(hosts[name])})

    def test_others_carry_or_refuse_them(self):
        for name in NAMES:
            for kind in ("slurm", "slurm-hostfile", "rankfile", "jobset"):
                with self.subTest(name=name, kind=kind):
                    emitted = self.emit([name, "node2"], kind)
                    if emitted.returncode == 2:
                        self.assertIn("can't name the host", emitted.stderr)
                        self.assertEqual(emitted.stdout, "")
                        continue
                    self.assertEqual(emitted.returncode, 0, emitted.stderr)
                    if kind == "slurm":
                        self.run_script(emitted.stdout, {})
                    if kind == "jobset" and yaml is not None:
                        pod = yaml.safe_load(emitted.stdout)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
                        terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
                        self.assertEqual(terms[0]["matchExpressions"][0]["values"], [name, "node2"])
        self.assertFalse(os.path.exists("pwned"))
