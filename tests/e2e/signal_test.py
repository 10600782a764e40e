"""SIGINT, SIGTERM, SIGUSR1: the ranks agree on a step, save, and leave; the run can go on from there to the same end."""
import os
import signal

from support import EndToEnd, PROGRAM, SIGNALS

STEPS = {"train__steps": 60, "strategy__param_dtype": "bfloat16"}


class Signals(EndToEnd):
    def stop(self, number, out, rank=None):
        """Signals the launcher, or one rank, after step 5."""
        running = self.start(self.command("--strategy", "zero3", out=out, **STEPS))
        running.until_step(5)
        os.kill(running.pid if rank is None else running.ranks()[rank], number)
        return running.finish()

    def goes_on(self, stopped, out):
        step = max(stopped.losses)
        self.assertEqual(stopped.last["event"], "stopped", stopped)
        self.assertEqual(stopped.last["checkpoint"], str(out / f"checkpoints/step-{step:06}"))
        self.assertEqual(self.checkpoint_info(out)["step"], step)
        self.assert_nothing_left(out)
        rest = self.train("--strategy", "zero3", "--resume", out=out, **STEPS)
        self.assertEqual(sorted(rest.losses), list(range(step + 1, 61)))
        self.assertEqual(rest.weights, self.reference("--strategy", "zero3", **STEPS).weights)

    def test_a_signal_to_the_launcher_stops_the_ranks_after_a_save(self):
        for number, code in SIGNALS.items():
            with self.subTest(signal=number.name):
                out = self.out()
                stopped = self.stop(number, out)
                self.assertEqual(stopped.code, code, stopped)
                self.assertLess(max(stopped.losses), 40)
                self.goes_on(stopped, out)

    def test_a_signal_to_one_rank_stops_all(self):
        out = self.out()
        stopped = self.stop(signal.SIGUSR1, out, rank=1)
        self.assertEqual(stopped.code, 143, stopped)
        self.goes_on(stopped, out)

    def test_one_rank_alone(self):
        out = self.out()
        running = self.start(self.command(ranks=1, out=out, **STEPS))
        running.until_step(5)
        running.signal(signal.SIGTERM)
        stopped = running.finish()
        self.assertEqual((stopped.code, stopped.last["event"]), (143, "stopped"), stopped)
        self.assertEqual(self.checkpoint_info(out)["step"], max(stopped.losses))

    def test_under_launch(self):
        out = self.out()
        running = self.start([PROGRAM, "launch", "--ranks", "2", "--", *self.command("--strategy", "zero3", ranks=None, out=out, **STEPS)])
        running.until_step(5)
        running.signal(signal.SIGTERM)
        stopped = running.finish()
        self.assertEqual(stopped.code, 143, stopped)
        self.goes_on(stopped, out)

    def test_a_finished_run_resumes_to_itself(self):
        out = self.out()
        whole = self.train("--strategy", "zero3", out=out)
        again = self.train("--strategy", "zero3", "--resume", out=out)
        self.assertEqual((again.losses, again.weights), ({}, whole.weights))
        self.assert_nothing_left(out)
