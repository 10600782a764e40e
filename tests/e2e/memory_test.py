"""Memory predicted before it is spent: parameters, gradients and optimizer states to the byte, the peak within 3 %."""
from support import EndToEnd

# Large enough that scratch which depends on the processor is small beside tensors.
MODEL = {
    "model__layers": 3, "model__width": 256, "model__vocab": 2000, "model__context": 128, "train__sequence": 128, "train__global_batch": None,
    "train__micro_batch": 4, "train__steps": 3, "train__warmup": 0, "strategy__param_dtype": "bfloat16",
}


class Memory(EndToEnd):
    def check(self, *arguments, ranks=2, **changes):
        run = self.train(*arguments, ranks=ranks, data="random", **{**MODEL, **changes})
        memory = next(event for event in run.events if event.get("event") == "report")["memory"]
        for category in ("params", "grads", "optimizer"):
            self.assertEqual(memory[category]["predicted_bytes"], memory[category]["measured_bytes"], f"{category} {arguments} {changes}")
            self.assertGreater(memory[category]["measured_bytes"], 0)
        peak = memory["peak"]
        self.assertLess(abs(peak["predicted_bytes"] / peak["measured_bytes"] - 1), 0.03, f"peak {peak} {arguments} {changes}")
        return memory

    def test_every_strategy(self):
        for strategy in ("ddp", "zero1", "zero2", "zero3"):
            self.check("--strategy", strategy)

    def test_dtypes_recompute_accumulation_and_prefetch(self):
        self.check("--strategy", "zero3", strategy__param_dtype="float32")
        self.check("--strategy", "zero3", strategy__param_dtype="float32", strategy__alias="off")
        self.check("--strategy", "zero1", strategy__param_dtype="float32")
        self.check("--strategy", "zero3", strategy__recompute="full", strategy__prefetch=2)
        self.check("--strategy", "zero2", train__accumulation=3)
        self.check("--strategy", "ddp", train__accumulation=2, strategy__accumulation_policy="reduce_each", strategy__bucket=1000000)
        self.check("--strategy", "zero3", strategy__reduce_dtype="bfloat16", strategy__keep_after_forward="true")
        self.check("--strategy", "ddp", ranks=1)
        self.check("--strategy", "zero3", model__family="llama", model__kv_heads=2, model__ffn=704)

    def test_sharding_takes_less(self):
        by_stage = [self.check("--strategy", s) for s in ("ddp", "zero1", "zero2", "zero3")]  # zero3 shares its parameters here
        optimizer = [memory["optimizer"]["measured_bytes"] for memory in by_stage]
        params = [memory["params"]["measured_bytes"] for memory in by_stage]
        self.assertEqual(optimizer[1] * 2, optimizer[0])
        self.assertEqual(optimizer[1], optimizer[3])
        self.assertEqual(params[3] * 2, params[2])

    def test_shared_parameters_count_once_over_the_ranks(self):
        gathering = self.check("--strategy", "zero3", strategy__alias="off")
        shared = self.check("--strategy", "zero3", strategy__alias="on")
        for category in ("params", "grads", "optimizer"):
            self.assertEqual(shared[category]["measured_bytes"], gathering[category]["measured_bytes"])
        self.assertLess(shared["peak"]["measured_bytes"], gathering["peak"]["measured_bytes"])
