"""What the end-to-end tests share: a tiny model, data to train it on, and wirewise run as a user runs it.

A started run writes its JSON lines into a pipe that holds about ten of them, and the test reads them one by one: a run whose lines
nobody reads waits. So a test that has read the line of step 5 knows that a run of 60 steps can't have ended, without a sleep.
"""
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.environ.get("WIREWISE", "")
DEADLINE = 120.0  # seconds from one line to the next, on a machine with other work
PIPE_BYTES = 4096  # the least that a pipe can hold: about ten step lines

TINY = {
    "model.family": "gpt2", "model.layers": 2, "model.width": 64, "model.heads": 4, "model.vocab": 256, "model.context": 64,
    "train.sequence": 64, "train.global_batch": 4, "train.steps": 10, "train.warmup": 2, "train.lr": 1e-3, "train.threads": 1,
    "data.validation": 0,
}
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_", "OMPI_", "TORCHELASTIC_",
                  "GROUP_RANK", "WIREWISE_STORE", "WIREWISE_RESTART", "OMP_NUM_THREADS")


def environment(changes=None):
    """This process's variables without those by which launchers number ranks, then the changes (None removes)."""
    result = {name: value for name, value in os.environ.items() if not name.startswith(RANK_VARIABLES)}
    for name, value in (changes or {}).items():
        result.pop(name, None)
        if value is not None:
            result[name] = str(value)
    return result


def settings(changes):
    """--set arguments; a value of None leaves the key out."""
    return [word for name, value in changes.items() if value is not None for word in ("--set", f"{name}={value}")]


def write_text(path, size=60_000, seed=1):
    """Words that a model can learn something of."""
    rng = random.Random(seed)
    words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 8))) for _ in range(200)]
    text = b" ".join(rng.choices(words, k=size // 3))[:size]
    path.write_bytes(text)
    return path


def children(pid):
    with contextlib.suppress(FileNotFoundError):
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def variables_of(pid):
    text = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def wait_gone(pids, deadline=DEADLINE):
    """Returns once none of the processes lives any more."""
    descriptors = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(pid))
    end = time.monotonic() + deadline
    try:
        for descriptor in descriptors:
            if not select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
                raise AssertionError(f"processes {pids} still live after {deadline:.0f} s")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class Finished:
    """A run that has ended: its exit code, its JSON lines, and what it said on standard error."""

    def __init__(self, code, events, errors):
        self.code, self.events, self.errors = code, events, errors
        self.steps = {event["step"]: event for event in events if "step" in event and "event" not in event and not event.get("skipped")}
        self.last = events[-1] if events else {}

    @property
    def losses(self):
        return {step: event["loss"] for step, event in self.steps.items()}

    @property
    def weights(self):
        return self.last.get("weights_sha256")

    def __str__(self):
        return f"exit {self.code}, last line {self.last}, standard error:\n{self.errors}"


class Running:
    """A process under a deadline, ended with the test that started it."""

    def __init__(self, command, variables=None, **options):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writer, stderr=self.stderr, env=environment(variables), **options)
        os.close(writer)
        self.pid = self.process.pid
        self.reader = reader
        self.text = b""
        self.events = []
        self.end = time.monotonic() + DEADLINE

    def line(self):
        """The next JSON line; None at the end of the output."""
        while b"\n" not in self.text:
            if not select.select([self.reader], [], [], max(0.0, self.end - time.monotonic()))[0]:
                raise AssertionError(f"no line within the deadline after {self.events[-1:]}; standard error:\n{self.errors()}")
            part = os.read(self.reader, 1 << 16)
            if not part:
                return None
            self.text += part
        text, self.text = self.text.split(b"\n", 1)
        self.events.append(json.loads(text))
        self.end = time.monotonic() + DEADLINE
        return self.events[-1]

    def until_step(self, step):
        """Reads up to the line of a step."""
        while (event := self.line()) is not None:
            if event.get("step", -1) >= step:
                return event
        raise AssertionError(f"the run ended before step {step}; {self.finish()}")

    def ranks(self):
        """Process ids of the ranks that it started, by rank."""
        found = {}
        for pid in children(self.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                variables = variables_of(pid)
                if "RANK" in variables:
                    found[int(variables["RANK"])] = pid
        return found

    def signal(self, number):
        os.kill(self.pid, number)

    def errors(self):
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace")

    def finish(self):
        while self.line() is not None:
            pass
        code = self.process.wait(timeout=max(1.0, self.end - time.monotonic()))
        return Finished(code, self.events, self.errors())

    def close(self):
        if self.process.poll() is None:
            gone = [self.pid, *children(self.pid)]
            self.process.kill()  # its ranks die with it
            self.process.wait()
            wait_gone(gone[1:])
        os.close(self.reader)
        self.stderr.close()


class EndToEnd(unittest.TestCase):
    """A folder for each test, and wirewise to run in it."""

    maxDiff = None
    longMessage = True

    @classmethod
    def setUpClass(cls):
        if not PROGRAM:
            raise unittest.SkipTest("WIREWISE does not name the program")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="wirewise-e2e-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.data = write_text(cls.folder / "data.txt")
        cls.outs = 0
        cls.references = {}

    def out(self):
        """A new name for an output folder."""
        type(self).outs += 1
        return self.folder / f"out-{self.outs}"

    def command(self, *arguments, ranks=2, out=None, data=None, **changes):
        """The command line of a tiny run; `changes` are keys with __ for the dot."""
        keys = TINY | {name.replace("__", "."): value for name, value in changes.items()}
        command = [PROGRAM, "train", "--json", *arguments, "--data", str(data or self.data), *settings(keys)]
        if ranks is not None:
            command += ["--ranks", str(ranks)]
        if out is not None:
            command += ["--out", str(out)]
        return command

    def start(self, command, variables=None, **options):
        # Whoever kills a launcher leaves the folder in which its ranks met: it goes with the test's.
        running = Running(command, {"TMPDIR": self.folder} | (variables or {}), **options)
        self.addCleanup(running.close)
        return running

    def run_command(self, command, variables=None, **options):
        return self.start(command, variables, **options).finish()

    def train(self, *arguments, variables=None, **changes):
        """Trains to the end and expects it to be reached."""
        finished = self.run_command(self.command(*arguments, **changes), variables)
        self.assert_done(finished)
        return finished

    def reference(self, *arguments, **changes):
        """The run of these settings that nothing disturbs; trained once for all tests of the class."""
        key = repr((arguments, sorted(changes.items())))
        if key not in self.references:
            self.references[key] = self.train(*arguments, **changes)
        return self.references[key]

    def assert_done(self, finished):
        self.assertEqual((finished.code, finished.last.get("event")), (0, "done"), finished)
        self.assertRegex(finished.weights, "^[0-9a-f]{64}$")

    def assert_same_losses(self, first, second, steps):
        self.assertEqual({step: first.losses.get(step) for step in steps}, {step: second.losses.get(step) for step in steps})

    def checkpoint_info(self, folder):
        """What `wirewise ckpt info` finds there."""
        info = subprocess.run([PROGRAM, "ckpt", "info", "--json", str(folder)], capture_output=True, text=True, timeout=DEADLINE, check=False,
                              env=environment())
        self.assertEqual(info.returncode, 0, info.stderr)
        return json.loads(info.stdout)

    def assert_nothing_left(self, out):
        """No half-written checkpoint beside the complete ones."""
        self.assertEqual([entry.name for entry in (out / "checkpoints").iterdir() if not entry.name.startswith("step-")], [])


CLONE_NEWNS = 0x00020000
MS_REMOUNT, MS_REC, MS_PRIVATE, MNT_DETACH = 32, 16384, 1 << 18, 2
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result, what):
    if result != 0:
        raise unittest.SkipTest(f"{what}: {os.strerror(ctypes.get_errno())}")


def wait_until_up(space, interface, deadline=10.0):
    """The kernel tells of a carrier a moment after both ends of a cable are up; until then the interface can't be chosen."""
    end = time.monotonic() + deadline
    while True:
        shown = subprocess.run(["ip", "-n", space, "link", "show", interface], capture_output=True, text=True, check=False).stdout
        if "LOWER_UP" in shown and "state UP" in shown:
            return
        if time.monotonic() > end:
            raise AssertionError(f"{interface} in {space} doesn't come up: {shown}")
        time.sleep(0.01)


def need_root():
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root")


def private_mounts():
    """From here on mounts of this process are seen by it and its children alone, and end with them."""
    need_root()
    _checked(_libc.unshare(CLONE_NEWNS), "no mount namespace")
    _checked(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mounts can't be made private")


def unmount(path):
    _libc.umount2(str(path).encode(), MNT_DETACH)


def mount_tmpfs(path, size, remount=False):
    done = _libc.mount(b"tmpfs", str(path).encode(), b"tmpfs", MS_REMOUNT if remount else 0, f"size={size}".encode())
    if remount and done != 0:
        raise AssertionError(f"no other size of {path}: {os.strerror(ctypes.get_errno())}")
    _checked(done, f"no tmpfs at {path}")


def adopt_orphans():
    """Children whose parents end become this process's, which can then wait for them."""
    _checked(_libc.prctl(36, 1, 0, 0, 0), "no subreaper")


def reap_orphans(deadline=30.0):
    """Waits for the adopted ones; fails when one lives on."""
    end = time.monotonic() + deadline
    wait_gone(children(os.getpid()), max(0.0, end - time.monotonic()))
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def seeded():
    """A random generator whose seed stands in the test's output; WIREWISE_SEED repeats one."""
    seed = int(os.environ.get("WIREWISE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
    print(f"WIREWISE_SEED={seed}", file=sys.stderr)
    return random.Random(seed)


SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 143}
