"""Machines that give less: a /dev/shm of 64 MB, no right to read other processes' memory, an unprivileged user."""
import os
import pathlib
import pwd
import subprocess
import sys

from support import EndToEnd, PROGRAM, environment, mount_tmpfs, need_root, private_mounts


class Confined(EndToEnd):
    def test_a_small_shared_memory_folder(self):
        private_mounts()
        mount_tmpfs("/dev/shm", "64m")
        # More is gathered and reduced than the folder could hold: 2 x 20 MB of parameters alone, and as much for gradients.
        self.train("--strategy", "zero3", model__width=512, model__layers=6, model__heads=8, train__steps=2, train__warmup=1,
                   strategy__param_dtype="float32")
        self.assertEqual(os.listdir("/dev/shm"), [])

    def test_nothing_fits_in_the_shared_memory_folder(self):
        private_mounts()
        mount_tmpfs("/dev/shm", "4k")
        self.assertEqual(self.train("--strategy", "zero3").weights, self.reference("--strategy", "zero3").weights)

    def test_an_unprivileged_user_without_ptrace(self):
        need_root()
        nobody = pwd.getpwnam("nobody")
        home = self.folder / "home"
        home.mkdir()
        os.chmod(self.folder, 0o711)
        os.chmod(self.data, 0o644)
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        become = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
        # Where the program lies in a folder that only its owner may enter, nobody gets the right to read it, and no other right.
        reading = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search"]
        works = [PROGRAM, "--version"]
        usable = [extra for extra in ([], reading)
                  if subprocess.run([*become, *extra, *works], capture_output=True, check=False, env=environment()).returncode == 0]
        if not usable:
            self.skipTest("nobody can run the program")
        out = home / "run"
        finished = self.run_command([*become, *usable[0], *self.command("--strategy", "zero3", out=out)],
                                    {"TMPDIR": str(home), "HOME": str(home)})
        self.assert_done(finished)
        self.assertEqual(finished.weights, self.reference("--strategy", "zero3").weights)
        self.assertEqual((out / "checkpoints").stat().st_uid, nobody.pw_uid)

    def test_without_the_right_to_read_others_memory(self):
        blocked = pathlib.Path(__file__).parent / "without_ptrace.py"
        finished = self.run_command([sys.executable, str(blocked), *self.command("--strategy", "zero3")])
        self.assert_done(finished)
        self.assertEqual(finished.weights, self.reference("--strategy", "zero3").weights)
