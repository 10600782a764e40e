"""A run that stopped half-way and went on ends with the bits of one that never stopped."""
import shutil

from support import EndToEnd

HALF = {"train__steps": 10, "checkpoint__every": 5, "checkpoint__keep": 0}


class Resume(EndToEnd):
    def five_and_five(self, *arguments, **changes):
        """Ten steps, and the last five of them again from the checkpoint of the fifth. Returns both runs."""
        out = self.out()
        whole = self.train(*arguments, out=out, **HALF, **changes)
        self.assertEqual(sorted(path.name for path in (out / "checkpoints").iterdir()), ["step-000005", "step-000010"])
        shutil.rmtree(out / "checkpoints/step-000010")
        rest = self.train(*arguments, "--resume", out=out, **HALF, **changes)
        self.assertEqual(sorted(rest.losses), [6, 7, 8, 9, 10], "the data goes on where it stood")
        self.assert_same_losses(whole, rest, range(6, 11))
        self.assertEqual(whole.weights, rest.weights)
        return whole, rest

    def test_ddp_in_bfloat16(self):
        self.five_and_five("--strategy", "ddp", strategy__param_dtype="bfloat16")

    def test_zero3_in_bfloat16_with_accumulation(self):
        self.five_and_five("--strategy", "zero3", strategy__param_dtype="bfloat16", train__micro_batch=1, train__accumulation=2)

    def test_zero2_with_sgd(self):
        self.five_and_five("--strategy", "zero2", train__optimizer="sgd")

    def test_one_rank(self):
        self.five_and_five(ranks=1)

    def test_float16_keeps_its_loss_scale(self):
        # A first scale that overflows, and a window that doubles it again: both halves see it change. A minute model, since float16 is slow.
        whole, rest = self.five_and_five(
            "--strategy", "zero3", strategy__param_dtype="float16", train__loss_scale=2.0**22, train__loss_scale_window=2, model__layers=1,
            model__width=32, model__heads=2, model__context=16, train__sequence=16, train__global_batch=2)
        self.assertTrue(any(event.get("skipped") for event in whole.events), "no step overflowed")
        scale = lambda run: {step: run.steps[step]["loss_scale"] for step in range(6, 11)}
        self.assertEqual(scale(whole), scale(rest))
        self.assertGreater(len(set(scale(whole).values())), 1, "the scale never changed after the save")

    def test_another_strategy_reads_it(self):
        # The weights of step 5 are the same tensors whatever wrote them.
        out = self.out()
        whole = self.train("--strategy", "ddp", out=out, **HALF)
        shutil.rmtree(out / "checkpoints/step-000010")
        rest = self.train("--strategy", "zero3", "--resume", out=out, **HALF)
        self.assertEqual(whole.weights, rest.weights)

    def test_shared_parameters_are_read_by_ranks_that_gather_and_back(self):
        for first, then in (("on", "off"), ("off", "on"), ("on", "on")):
            out = self.out()
            keys = {"strategy__param_dtype": "float32" if first == then else "bfloat16"}
            whole = self.train("--strategy", "zero3", out=out, strategy__alias=first, **keys, **HALF)
            shutil.rmtree(out / "checkpoints/step-000010")
            rest = self.train("--strategy", "zero3", "--resume", out=out, strategy__alias=then, **keys, **HALF)
            self.assertEqual(whole.weights, rest.weights, f"{first}, then {then}")
