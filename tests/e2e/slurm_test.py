"""A real Slurm of one node on loopback: a job that its time limit stops saves, is requeued, and ends with an uninterrupted run's bits."""
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import socket
import subprocess
import time

from support import DEADLINE, EndToEnd, PIPE_BYTES, adopt_orphans, environment, need_root, reap_orphans

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
STEPS = {"train__steps": 60, "strategy__param_dtype": "bfloat16"}
WAIT = 300.0  # Slurm looks at time limits every 30 s, and starts a requeued job again once its credential has expired

CONFIGURATION = """
ClusterName=wirewise
SlurmctldHost={host}(127.0.0.1)
SlurmctldParameters=enable_configless
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldDebug=debug
SlurmdDebug=debug
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

# What docs/slurm.md shows, with the steps' lines in a named pipe for the test to read.
SCRIPT = """#!/bin/bash
#SBATCH --ntasks=2 --time=2 --signal=USR1@115 --requeue --open-mode=append
srun {redirect} {command}
code=$?
if [ $code -eq 143 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Slurm(EndToEnd):
    def daemon(self, *command, ready):
        """Starts a daemon in the foreground; ends it by its own pid with the test. Returns when `ready` holds."""
        with open(self.folder / f"{pathlib.Path(command[0]).name}.out", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.variables)
        self.addCleanup(self.end, process)
        self.wait_until(ready, lambda: f"{command[0]} (exit code {process.poll()}): {(self.folder / log.name).read_text()[-2000:]}")
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait_until(self, holds, what):
        end = time.monotonic() + WAIT
        while not (result := holds()):
            if time.monotonic() > end:
                self.fail(f"deadline: {what()}")
            time.sleep(0.1)
        return result

    def call(self, *command):
        return subprocess.run(command, capture_output=True, text=True, env=self.variables, timeout=DEADLINE, check=False)

    def log(self, name):
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    def start_slurm(self):
        need_root()
        adopt_orphans()
        self.addCleanup(reap_orphans)
        missing = [name for name in PROGRAMS if not shutil.which(name)]
        if missing:
            self.skipTest(f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)")
        controller_port, node_port = free_ports(2)
        configuration = self.folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(host=socket.gethostname().split(".")[0], folder=self.folder,
                                                      controller_port=controller_port, node_port=node_port))
        self.variables = environment({"SLURM_CONF": configuration})
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        os.chmod(self.folder, 0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        os.chmod(key, 0o400)
        self.daemon("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", f"--key-file={key}",
                    f"--pid-file={self.folder}/munge.pid", f"--seed-file={self.folder}/munge.seed", f"--log-file={self.folder}/munge.log",
                    ready=(self.folder / "munge.socket").exists)
        self.daemon("slurmctld", "-D", ready=lambda: self.call("scontrol", "ping").returncode == 0)
        self.daemon("slurmd", "-D", "-N", "n1",
                    ready=lambda: re.search(r"State=(IDLE|ALLOCATED|MIXED)\s", self.call("scontrol", "show", "node", "n1").stdout))

    def read_lines(self, reader, enough):
        """JSON lines from the named pipe up to one that is enough."""
        end = time.monotonic() + WAIT
        lines = []
        while True:
            while b"\n" in self.text:
                line, self.text = self.text.split(b"\n", 1)
                lines.append(json.loads(line))
                if enough(lines[-1]):
                    return lines
            if not select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
                self.fail(f"no line in time after {lines[-1:]}\n{self.log('job.out')}\n{self.log('slurmctld.log')[-3000:]}")
            self.text += os.read(reader, 1 << 16)

    def test_a_job_stopped_by_its_time_limit_is_requeued_and_goes_on(self):
        self.start_slurm()
        reference = self.train("--strategy", "zero3", **STEPS)
        pipe = self.folder / "lines"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        writer = os.open(pipe, os.O_WRONLY)  # so that the pipe does not end between the job's two starts
        self.addCleanup(os.close, writer)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.text = b""
        redirect = self.folder / "redirect"
        redirect.write_text(f'#!/bin/sh\nexec "$@" > {pipe}\n')
        redirect.chmod(0o755)
        out = self.out()
        script = self.folder / "job.sh"
        script.write_text(SCRIPT.format(redirect=redirect, command=" ".join(self.command("--strategy", "zero3", ranks=None, out=out, **STEPS))))
        submitted = self.call("sbatch", "--parsable", f"--output={self.folder}/job.out", f"--chdir={self.folder}", str(script))
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        job = submitted.stdout.strip()
        self.addCleanup(self.call, "scancel", job)

        first = self.read_lines(reader, lambda event: event.get("step") == 3)
        # Nobody reads the lines now, so the run stands still until Slurm has sent its signal.
        self.wait_until(lambda: re.search(r"[Ss]ent signal 10 to StepId", self.log("slurmd.log")),
                        lambda: f"no signal from Slurm: {self.log('slurmctld.log')[-3000:]}")
        first += self.read_lines(reader, lambda event: event.get("event") in ("stopped", "done", "failed"))
        self.assertEqual(first[-1]["event"], "stopped", first[-1])
        stopped_at = max(event["step"] for event in first if "step" in event)
        self.assertLess(stopped_at, 60)
        rest = self.read_lines(reader, lambda event: event.get("event") in ("stopped", "done", "failed"))
        self.assertEqual(rest[-1]["event"], "done", self.log("job.out"))
        self.assertEqual([event["step"] for event in rest if "event" not in event], list(range(stopped_at + 1, 61)))
        self.assertEqual(rest[-1]["weights_sha256"], reference.weights)
        shown = self.wait_until(lambda: re.search(r"JobState=COMPLETED.*\n(?:.*\n)*?.*Restarts=1 ", self.call("scontrol", "show", "job", job).stdout),
                                lambda: self.call("scontrol", "show", "job", job).stdout)
        self.assertTrue(shown)
