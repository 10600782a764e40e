"""Training across hosts: two network namespaces joined by a virtual cable stand for two hosts, with two ranks each. Needs root."""
import os
import pathlib
import shutil
import signal
import stat
import unittest

from namespaces import join, make_space, need_namespaces, switch_on, wait_until_all_up
from support import EndToEnd, PROGRAM, children, variables_of, wait_gone

PORT = 29517  # of namespaces that the test made: nobody else listens there


def ranks_of(launcher):
    return {int(variables_of(pid)["RANK"]): pid for pid in children(launcher) if "RANK" in variables_of(pid)}


class TwoHosts:
    """The hosts themselves; gone with the class."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        need_namespaces()
        cls.hosts = [make_space(cls, f"t{letter}") for letter in "ab"]
        cls.addresses = ["10.213.8.1", "10.213.8.2"]
        join(cls.hosts, "wire0")
        for host, address in zip(cls.hosts, cls.addresses):
            switch_on(host, "wire0", address)
        wait_until_all_up(cls.hosts, "wire0")

    def on_host(self, number, command):
        """Of `ip netns exec` the process becomes the command itself: its children are the ranks."""
        return self.start(["ip", "netns", "exec", self.hosts[number], *command])

    def start_launchers(self, command):
        """`wirewise launch` on each host; the first host's reads the lines."""
        return [self.on_host(number, [PROGRAM, "launch", "--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", "2",
                                      "--master", f"{self.addresses[0]}:{PORT}", "--", *command]) for number in (0, 1)]

    def remote_shell(self, apart=False):
        """What takes ssh's place: runs the line on the namespace of that name; `apart` as a process that outlives this one, as sshd's does."""
        script = self.folder / ("rsh-apart" if apart else "rsh")
        run = 'ip netns exec "$host" sh -c "$*"'
        script.write_text("#!/bin/sh\nhost=$1; shift\n" + (f"exec 3<&0\n{run} <&3 3<&- &\nexec 3<&- 0</dev/null\nwait\n" if apart else f"exec {run}\n"))
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        hosts = self.folder / "hosts"
        hosts.write_text("# two of them\n" + "".join(f"{host} slots=2\n" for host in self.hosts))
        return script, hosts

    def launch_from_one_place(self, command, *options, apart=False):
        script, hosts = self.remote_shell(apart)
        return self.start([PROGRAM, "launch", "--hosts", str(hosts), "--master", self.addresses[0], *options, "--", *command],
                          {"WIREWISE_RSH": script})


class AcrossHosts(TwoHosts, EndToEnd):
    CASES = (("zero3", "bfloat16"), ("zero3", "float32"), ("ddp", "bfloat16"), ("ddp", "float32"))

    def settings_of(self, strategy, dtype):
        return ("--strategy", strategy), {"strategy__param_dtype": dtype, "train__steps": 4}

    def test_wirewise_launch_gives_the_bits_of_one_host(self):
        for strategy, dtype in self.CASES:
            with self.subTest(strategy=strategy, dtype=dtype):
                arguments, changes = self.settings_of(strategy, dtype)
                one_host = self.reference(*arguments, ranks=4, **changes)
                first, second = [each.finish() for each in self.start_launchers(self.command(*arguments, ranks=None, **changes))]
                self.assert_done(first)
                self.assertEqual(second.code, 0, second)
                self.assertEqual(first.weights, one_host.weights)
                self.assertEqual(first.losses, one_host.losses)

    def test_torchrun_gives_the_bits_of_one_host(self):
        torchrun = os.environ.get("WIREWISE_TORCHRUN") or shutil.which("torchrun")
        if not torchrun or not pathlib.Path(torchrun).exists():
            raise unittest.SkipTest("no torchrun")
        arguments, changes = self.settings_of("zero3", "bfloat16")
        one_host = self.reference(*arguments, ranks=4, **changes)
        where = {
            "static": lambda number: ["--node-rank", str(number), "--master-addr", self.addresses[0], "--master-port", str(PORT + 1)],
            # Which of them serves the store torchrun reads off host names, which namespaces share: so it is said.
            "c10d": lambda number: ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self.addresses[0]}:{PORT + 2}", "--rdzv-id", "test",
                                    "--rdzv-conf", f"is_host={int(number == 0)}", "--local-addr", self.addresses[number]],
        }
        for name, options in where.items():
            with self.subTest(rendezvous=name):
                started = [self.on_host(number, [torchrun, "--nnodes", "2", "--nproc-per-node", "2", *options(number), "--no-python",
                                                 *self.command(*arguments, ranks=None, **changes)]) for number in (0, 1)]
                finished = [each.finish() for each in started]
                self.assertEqual([each.code for each in finished], [0, 0], f"{finished[0]}\n{finished[1]}")
                weights = [each.weights for each in finished if each.events]  # of whichever host got rank 0
                self.assertEqual(weights, [one_host.weights])

    def test_launched_from_one_place(self):
        arguments, changes = self.settings_of("zero3", "bfloat16")
        one_host = self.reference(*arguments, ranks=4, **changes)
        finished = self.launch_from_one_place(self.command(*arguments, ranks=None, **changes)).finish()
        self.assert_done(finished)
        self.assertEqual(finished.weights, one_host.weights)

    def test_arguments_and_variables_arrive_as_they_were(self):
        words = ["a b", "it's", '"$HOME"', "*", "\\", "", "line\nbreak"]
        script, hosts = self.remote_shell()
        program = "import os, sys; open(sys.argv[1] + os.environ['RANK'], 'w').write(repr((sys.argv[2:], os.getcwd(), os.environ.get('WIREWISE_X'), os.environ.get('Y'))))"
        out = self.folder / "seen"
        done = self.start([PROGRAM, "launch", "--hosts", str(hosts), "--master", self.addresses[0], "-x", "Y", "--", "python3", "-c", program, str(out), *words],
                          {"WIREWISE_RSH": script, "WIREWISE_X": "x y", "Y": "it's"}, cwd=self.folder).finish()
        self.assertEqual(done.code, 0, done)
        for rank in range(4):
            self.assertEqual(pathlib.Path(f"{out}{rank}").read_text(), repr((words, str(self.folder.resolve()), "x y", "it's")))


class HostsFail(TwoHosts, EndToEnd):
    LONG = {"train__steps": 60, "strategy__param_dtype": "bfloat16"}

    def test_a_dead_rank_ends_the_ranks_of_both_hosts(self):
        launchers = self.start_launchers(self.command("--strategy", "zero3", ranks=None, **self.LONG))
        launchers[0].until_step(5)
        ranks = [each.ranks() for each in launchers]
        self.assertEqual([sorted(each) for each in ranks], [[0, 1], [2, 3]])
        dead = ranks[1][3]
        os.kill(dead, signal.SIGKILL)
        first, second = [each.finish() for each in launchers]
        wait_gone([*ranks[0].values(), *ranks[1].values()])
        # The other host lost a peer; this one's own rank was killed.
        self.assertEqual((first.code, second.code), (75, 137), f"{first}\n{second}")
        for finished in (first, second):
            self.assertRegex(finished.errors, rf"rank 3 \([^)]*{dead}[^)]*\)[^\n]*(ended|lost|died|gone)", "survivors name it")
        self.assertRegex(second.errors, rf"error: rank 3 \(pid {dead} on [^)]+\) was killed by signal 9")

    def test_a_dead_rank_ends_a_job_that_was_started_from_one_place(self):
        running = self.launch_from_one_place(self.command("--strategy", "zero3", ranks=None, **self.LONG))
        running.until_step(5)
        launchers = children(running.pid)
        ranks = {rank: pid for launcher in launchers for rank, pid in ranks_of(launcher).items()}
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        os.kill(ranks[2], signal.SIGKILL)
        finished = running.finish()
        wait_gone([*launchers, *ranks.values()])
        self.assertEqual(finished.code, 137, finished)
        self.assertIn(f"error: host {self.hosts[1]} ended with exit code 137.", finished.errors)
        self.assertRegex(finished.errors, rf"error: rank 2 \(pid {ranks[2]} on [^)]+\) was killed by signal 9")

    def test_nothing_is_left_when_the_launcher_is_killed(self):
        running = self.launch_from_one_place(self.command("--strategy", "zero3", ranks=None, **self.LONG), apart=True)
        running.until_step(3)
        launchers = [pid for shell in children(running.pid) for pid in children(shell)]
        ranks = [pid for launcher in launchers for pid in ranks_of(launcher).values()]
        self.assertEqual((len(launchers), len(ranks)), (2, 4))
        os.kill(running.pid, signal.SIGKILL)
        wait_gone([*launchers, *ranks])

    def test_a_stop_saves_and_one_host_and_two_go_on_from_each_other(self):
        changes = {"train__steps": 24, "strategy__param_dtype": "bfloat16"}
        reference = self.train("--strategy", "zero3", ranks=4, **changes)
        out = self.out()
        on_one = self.start(self.command("--strategy", "zero3", ranks=4, out=out, **changes))
        on_one.until_step(2)
        on_one.signal(signal.SIGTERM)
        self.assertEqual(on_one.finish().last["event"], "stopped")
        across = self.launch_from_one_place(self.command("--strategy", "zero3", "--resume", ranks=None, out=out, **changes))
        across.until_step(6)
        across.signal(signal.SIGTERM)
        stopped = across.finish()
        self.assertEqual((stopped.code, stopped.last["event"]), (143, "stopped"), stopped)
        at = self.checkpoint_info(out)["step"]
        self.assertTrue(6 <= at < 24, at)
        rest = self.train("--strategy", "zero3", "--resume", ranks=4, out=out, **changes)
        self.assertEqual(min(rest.losses), at + 1)
        self.assertEqual(rest.weights, reference.weights)
        self.assert_nothing_left(out)
