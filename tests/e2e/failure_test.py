"""Ranks that die, saves that are cut short, disks that are full: the run ends soon and says why, and a complete checkpoint stays."""
import os
import signal
import time

from support import EndToEnd, PROGRAM, mount_tmpfs, private_mounts, seeded, unmount, wait_gone

LONG = {"train__steps": 60, "strategy__param_dtype": "bfloat16"}


class DeadRank(EndToEnd):
    def start_and_kill(self, rank, *arguments, command=None, **changes):
        """Kills a rank after step 8; returns the ended run and what was killed."""
        running = self.start(command or self.command("--strategy", "zero3", *arguments, **LONG, **changes))
        running.until_step(8)
        pid = running.ranks()[rank]
        others = [other for other in running.ranks().values() if other != pid]
        os.kill(pid, signal.SIGKILL)
        return running, pid, others

    def test_the_run_ends_and_names_rank_pid_and_signal(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                running, pid, others = self.start_and_kill(rank)
                finished = running.finish()
                self.assertEqual(finished.code, 137, finished)
                self.assertRegex(finished.errors, rf"error: rank {rank} \(pid {pid} on [^)]+\) was killed by signal 9 \(SIGKILL\)")
                self.assertRegex(finished.errors, rf"rank {rank} \([^)]*{pid}[^)]*\)[^\n]*(ended|lost|died|gone)", "the survivor named it")
                wait_gone(others)
                self.assertEqual(finished.last, {"event": "failed", "weights_sha256": None, "checkpoint": None})

    def test_a_restart_goes_on_from_the_newest_checkpoint(self):
        reference = self.train("--strategy", "zero3", **LONG)
        out = self.out()
        running, pid, _ = self.start_and_kill(1, "--max-restarts", "1", out=out, checkpoint__every=5)
        finished = running.finish()
        self.assert_done(finished)
        self.assertIn("starting all ranks again (restart 1 of 1)", finished.errors)
        self.assertEqual(finished.weights, reference.weights)
        order = [event["step"] for event in finished.events if "event" not in event]
        again = next(i for i in range(1, len(order)) if order[i] <= order[i - 1])
        self.assertEqual(order[again] % 5, 1, "it went on after a multiple of checkpoint.every")
        self.assertGreaterEqual(order[again], 6)

    def test_under_launch_too(self):
        out = self.out()
        command = [PROGRAM, "launch", "--ranks", "2", "--max-restarts", "1", "--",
                   *self.command("--strategy", "zero3", ranks=None, out=out, checkpoint__every=5, **LONG)]
        running, pid, _ = self.start_and_kill(0, command=command)
        finished = running.finish()
        self.assert_done(finished)
        self.assertEqual(self.checkpoint_info(out)["step"], 60)

    def test_restarts_run_out(self):
        running, pid, _ = self.start_and_kill(1, "--max-restarts", "0")
        finished = running.finish()
        self.assertEqual(finished.code, 137, finished)
        self.assertNotIn("starting all ranks again", finished.errors)


class KilledSave(EndToEnd):
    def test_a_complete_checkpoint_stays_whenever_the_run_is_killed(self):
        rng = seeded()
        steps = {"train__steps": 200, "checkpoint__every": 1, "checkpoint__keep": 2, "strategy__param_dtype": "bfloat16"}
        reference = self.train("--strategy", "zero3", **(steps | {"checkpoint__every": 0}))
        out = self.out()
        reached = 0
        for attempt in range(5):
            running = self.start(self.command("--strategy", "zero3", *(["--resume"] if attempt else []), out=out, **steps))
            running.until_step(reached + rng.randint(2, 8))
            ranks = running.ranks()
            # A moment within the next few saves: chosen, not waited for.
            end = time.monotonic() + rng.uniform(0, 0.05)
            while time.monotonic() < end:
                pass
            victims = [running.pid, *ranks.values()]
            rng.shuffle(victims)
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # ended by the death of the one before
            wait_gone(ranks.values())
            printed = max(event.get("step", 0) for event in running.events)
            reached = self.checkpoint_info(out)["step"]
            self.assertGreaterEqual(reached, printed - 1, "the checkpoint of the last step but one was complete")
        # The last part ends the run; the lines say that it did not start over.
        rest = self.train("--strategy", "zero3", "--resume", out=out, **(steps | {"checkpoint__every": 50}))
        self.assertEqual(min(rest.losses), reached + 1)
        self.assertEqual(rest.weights, reference.weights)
        self.assert_nothing_left(out)


class FullDisk(EndToEnd):
    def test_a_full_disk_is_named_and_the_older_checkpoint_stays(self):
        private_mounts()
        disk = self.folder / "disk"
        disk.mkdir()
        self.addCleanup(unmount, disk)
        mount_tmpfs(disk, "4m")  # two checkpoints of this model, not three
        steps = {"train__steps": 20, "checkpoint__every": 2, "checkpoint__keep": 0}
        out = disk / "run"
        full = self.run_command(self.command("--strategy", "zero3", out=out, **steps))
        self.assertEqual(full.code, 1, full)
        self.assertIn("No space left on device", full.errors)
        self.assertIn(str(out), full.errors)
        self.assertIn("error:", full.errors)
        step = self.checkpoint_info(out)["step"]
        self.assertGreaterEqual(step, 2)
        self.assert_nothing_left(out)
        config = (out / "config.toml").read_text()
        with open(out / "filler", "wb", buffering=0) as filler, self.assertRaises(OSError):
            while True:
                filler.write(bytes(4096))
        again = self.run_command(self.command("--strategy", "zero3", "--resume", out=out, **(steps | {"checkpoint__every": 3})))
        self.assertEqual(again.code, 1, again)
        self.assertIn("No space left on device", again.errors)
        self.assertEqual((out / "config.toml").read_text(), config)
        (out / "filler").unlink()
        mount_tmpfs(disk, "64m", remount=True)
        rest = self.train("--strategy", "zero3", "--resume", out=out, **steps)
        self.assertEqual(min(rest.losses), step + 1)
        self.assertEqual(rest.weights, self.train("--strategy", "zero3", train__steps=20).weights)


class FlippedBit(EndToEnd):
    def test_a_flipped_bit_is_named_by_tensor(self):
        out = self.out()
        self.train("--strategy", "zero3", out=out, train__steps=10)
        path = out / "checkpoints/step-000010/rank-00001.safetensors"
        content = bytearray(path.read_bytes())
        header = int.from_bytes(content[:8], "little")
        content[8 + header + 4096] ^= 1
        path.write_bytes(content)
        damaged = self.run_command(self.command("--strategy", "zero3", "--resume", out=out, train__steps=20))
        self.assertEqual(damaged.code, 1, damaged)
        self.assertRegex(damaged.errors, r"error: [^\n]*(model|exp_avg|exp_avg_sq)/transformer\.\S+[^\n]*rank-00001\.safetensors")
        self.assertEqual(damaged.events, [{"event": "failed", "weights_sha256": None, "checkpoint": str(path.parent)}])
        self.assertEqual(bytes(content), path.read_bytes())
