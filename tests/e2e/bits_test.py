"""One set of bits, whatever shards the states; one set of losses, whatever the number of ranks."""
import os
import pathlib
import shutil
import unittest

from support import EndToEnd, PROGRAM


class Bits(EndToEnd):
    def test_strategies_agree_to_the_bit_in_bfloat16(self):
        weights = {}
        for strategy in ("ddp", "zero1", "zero2", "zero3"):
            weights[strategy] = self.train("--strategy", strategy, strategy__param_dtype="bfloat16").weights
        weights["zero3, recompute, no prefetch"] = self.train(
            "--strategy", "zero3", strategy__param_dtype="bfloat16", strategy__recompute="full", strategy__prefetch=0).weights
        weights["zero3, gathering"] = self.train("--strategy", "zero3", strategy__param_dtype="bfloat16", strategy__alias="off").weights
        self.assertEqual(len(set(weights.values())), 1, weights)

    def test_shared_parameters_change_no_bit(self):
        # On one host ZeRO-3 keeps one buffer of whole parameters for all ranks; validation reads it between steps.
        for ranks in (2, 4):
            for dtype in ("float32", "bfloat16"):
                keys = {"strategy__param_dtype": dtype, "train__micro_batch": 1, "train__global_batch": 8, "train__steps": 6, "data__validation": 0.1,
                        "data__validation_batches": 2}
                runs = [self.train("--strategy", "ddp", ranks=ranks, **keys)]
                for changes in ({"strategy__alias": "off"}, {"strategy__alias": "on"},
                                {"strategy__alias": "on", "strategy__prefetch": 2, "strategy__recompute": "full",
                                 "data__validation_every": 2}):
                    runs.append(self.train("--strategy", "zero3", "--sample", "3", ranks=ranks, **keys, **changes))
                self.assertEqual(len({run.weights for run in runs}), 1, f"{ranks} ranks, {dtype}")
                kinds = [set(next(event for event in run.events if event.get("event") == "report")["time"]) for run in runs]
                self.assertEqual([("gather" in k, "barrier" in k) for k in kinds], [(False, False), (True, False), (False, True), (False, True)])

    def test_gradients_travel_in_any_dtype(self):
        # Summed over micro-batches in float32, or computed in another 16-bit type than they are sent in.
        for param, wire in (("bfloat16", "bfloat16"), ("float32", "bfloat16"), ("float16", "bfloat16"), ("bfloat16", "float16")):
            weights = [self.train("--strategy", strategy, train__global_batch=8, train__micro_batch=2, train__steps=3,
                                  strategy__param_dtype=param, strategy__reduce_dtype=wire).weights for strategy in ("ddp", "zero3")]
            self.assertEqual(weights[0], weights[1], f"{param} parameters, {wire} gradients")

    def test_losses_do_not_depend_on_the_number_of_ranks(self):
        one = self.train(ranks=1, train__micro_batch=4, strategy__param_dtype="float32")
        accumulated = self.train(ranks=1, train__micro_batch=1, strategy__param_dtype="float32")
        two = self.train("--strategy", "zero3", train__micro_batch=2, strategy__param_dtype="float32")
        self.assertEqual(sorted(one.losses), list(range(1, 11)))
        for other in (accumulated, two):
            for step, loss in one.losses.items():
                self.assertLess(abs(other.losses[step] - loss), 1e-6, f"step {step}")
        self.assertLess(one.losses[10], one.losses[1], "nothing was learnt")

    def test_training_differs_with_the_seed(self):
        # Equal hashes above would mean nothing if every run gave the same.
        self.assertNotEqual(self.train(ranks=1).weights, self.train(ranks=1, train__seed=7).weights)


class OtherLaunchers(EndToEnd):
    def test_torchrun_starts_the_ranks(self):
        torchrun = os.environ.get("WIREWISE_TORCHRUN") or shutil.which("torchrun")
        if not torchrun or not pathlib.Path(torchrun).exists():
            raise unittest.SkipTest("no torchrun")
        ours = self.train("--strategy", "zero3")
        command = [torchrun, "--standalone", "--nproc-per-node", "2", "--no-python", *self.command("--strategy", "zero3", ranks=None)]
        theirs = self.run_command(command)
        self.assert_done(theirs)
        self.assertEqual(ours.weights, theirs.weights)

    def test_wirewise_launch_starts_the_ranks(self):
        ours = self.train("--strategy", "zero3")
        launched = self.run_command([PROGRAM, "launch", "--ranks", "2", "--", *self.command("--strategy", "zero3", ranks=None)])
        self.assert_done(launched)
        self.assertEqual(ours.weights, launched.weights)
