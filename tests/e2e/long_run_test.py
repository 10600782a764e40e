"""A run holds no more at its end than at its first quarter: open files, mappings, memory, shared memory."""
import os
import pathlib

from support import EndToEnd

STEPS = 2000


def holdings(pid):
    """What a process holds now."""
    proc = pathlib.Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    kilobytes = lambda name: int(status[name].split()[0])
    return {"files": len(os.listdir(proc / "fd")), "threads": int(status["Threads"]), "mappings": len((proc / "maps").read_text().splitlines()),
            "anonymous_kB": kilobytes("RssAnon"), "shared_kB": kilobytes("RssShmem")}


class LongRun(EndToEnd):
    def test_files_and_memory_stay_flat(self):
        out = self.out()
        running = self.start(self.command(
            "--strategy", "zero3", out=out, strategy__param_dtype="bfloat16", model__layers=1, model__width=32, model__heads=2, model__context=16,
            train__sequence=16, train__steps=STEPS, checkpoint__every=STEPS // 20, data__validation=0.1, data__validation_every=STEPS // 20,
            data__validation_batches=1, log__tensorboard="true"))
        before, after = {}, {}
        for step, into in ((STEPS // 4, before), (STEPS - STEPS // 20, after)):
            running.until_step(step)
            into.update({rank: holdings(pid) for rank, pid in running.ranks().items()})
        finished = running.finish()
        self.assert_done(finished)
        self.assertEqual(sorted(before), [0, 1])
        for rank in before:
            grown = {name: after[rank][name] - before[rank][name] for name in before[rank]}
            message = f"rank {rank} from {before[rank]} to {after[rank]}"
            # The moments fall anywhere in a step, or in a save with its one open file.
            self.assertLessEqual(abs(grown["files"]), 3, message)
            self.assertLessEqual(abs(grown["threads"]), 0, message)
            self.assertLessEqual(abs(grown["mappings"]), 20, message)
            self.assertLessEqual(grown["anonymous_kB"], 2048, message)
            self.assertLessEqual(grown["shared_kB"], 1024, message)
            print(message)
