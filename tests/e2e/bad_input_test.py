"""What a user can get wrong: one line that says it and the remedy, exit code 2, and nothing created or overwritten."""
import hashlib
import shutil
import socket
import struct

from support import EndToEnd, PROGRAM, write_text


def contents(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
            for path in sorted(folder.rglob("*"))}


class Refusals:
    def refused(self, finished, *words):
        self.assertEqual((finished.code, finished.events), (2, []), finished)
        lines = finished.errors.splitlines()
        self.assertEqual(len(lines), 1, finished)
        self.assertRegex(lines[0], r"^error: .+\. .+\.$", "a sentence and a remedy")
        for word in words:
            self.assertIn(word, lines[0])

    def refuse(self, *words, arguments=(), variables=None, data=None, ranks=2, **changes):
        """A run that must be refused, with an output folder that must not appear."""
        out = self.out()
        self.refused(self.run_command(self.command(*arguments, out=out, data=data, ranks=ranks, **changes), variables), *words)
        self.assertFalse(out.exists(), "the output folder was created")


class BadConfiguration(Refusals, EndToEnd):
    def test_keys_and_values(self):
        cases = {
            "unknown key": (("train.micro_batc", "nearest", "train.micro_batch"), {"train__micro_batc": 2}),
            "unknown section": (("trian.steps", "train.steps"), {"trian__steps": 2}),
            "word for a number": (("train.steps", "many", "integer"), {"train__steps": "many"}),
            "number for a word": (("strategy.recompute", "none, selective, full"), {"strategy__recompute": 3}),
            "out of range": (("train.clip", "at least 0"), {"train__clip": -1}),
            "not implemented": (("moe", "not implemented"), {"model__family": "moe"}),
            "offload": (("offload",), {"strategy__offload": "true"}),
            "tensor parallel": (("tp",), {"strategy__tp": 2}),
            "heads": (("model.heads 5", "model.width 64", "1, 2, 4"), {"model__heads": 5}),
            "sequence above context": (("train.sequence 128", "model.context 64"), {"train__sequence": 128}),
            "ranks are not the mesh": (("3 ranks", "dp_shard 3", "2 were started"), {"strategy__dp_shard": 3}),
        }
        for name, (words, changes) in cases.items():
            with self.subTest(name):
                self.refuse(*words, **changes)

    def test_batch_arithmetic(self):
        cases = [
            # global batch, micro-batch, accumulation: as people have met them, and the values that would do.
            (("256", "micro_batch 2", "Legal", "252 or 266"), 7, {"global_batch": 256, "micro_batch": 2}),
            (("256", "micro_batch 4 x accumulation 8 x 1", "train.global_batch 32", "data ranks 8"), 1,
             {"global_batch": 256, "micro_batch": 4, "accumulation": 8}),
            (("8 differs", "micro_batch 2 x accumulation 1 x 2", "train.accumulation 2"), 2,
             {"global_batch": 8, "micro_batch": 2, "accumulation": 1}),
            (("micro_batch 16 is larger than train.global_batch 8", "Legal", "1, 2 or 4"), 2, {"global_batch": 8, "micro_batch": 16}),
            (("global_batch 9", "accumulation 2"), 3, {"global_batch": 9, "accumulation": 2}),
        ]
        for words, ranks, batch in cases:
            # Sharded over nothing, so that seven ranks need no seven shards of a tiny model.
            with self.subTest(batch=batch, ranks=ranks):
                self.refuse(*words, ranks=ranks, arguments=("--strategy", "ddp"),
                            **{f"train__{name}": value for name, value in batch.items()})

    def test_any_two_of_the_batch_give_the_third(self):
        for batch in ({"global_batch": 8, "micro_batch": 2, "accumulation": None}, {"global_batch": None, "micro_batch": 2, "accumulation": 2},
                      {"global_batch": 8, "micro_batch": None, "accumulation": 2}):
            with self.subTest(batch):
                finished = self.train(**{f"train__{name}": value for name, value in batch.items()}, train__steps=1, train__warmup=0)
                self.assertEqual(finished.steps[1]["tokens"], 8 * 64)

    def test_command_line(self):
        self.refuse("--rank", "--ranks", arguments=("--rank", "2"))
        self.refuse("--device cuda", arguments=("--device", "cuda"))
        self.refuse("100.00 KiB", "more than the limit", "micro_batch", arguments=("--memory-limit", "100K"))
        self.refuse("no-such.toml", "does not exist", arguments=("--config", str(self.folder / "no-such.toml")))

    def test_existing_output(self):
        out = self.out()
        out.mkdir()
        (out / "notes.txt").write_text("mine")
        before = contents(out)
        self.refused(self.run_command(self.command(out=out)), str(out), "exists", "--resume")
        self.refused(self.run_command(self.command("--resume", out=out)), "no complete checkpoint")
        self.assertEqual(contents(out), before)
        for place, why in ((out / "notes.txt", "is no folder"), (out / "notes.txt" / "run", "is no folder"), (out / ("x" * 300), "too long")):
            self.refused(self.run_command(self.command(out=place, ranks=1)), "output folder", why)
        kernels = self.run_command(self.command(out="/proc/wirewise", ranks=1))  # only trying tells
        self.assertEqual(kernels.code, 2, kernels)
        self.assertIn("output folder /proc/wirewise can't be made", kernels.errors)
        self.assertEqual(contents(out), before)
        launched = self.run_command([PROGRAM, "launch", "--ranks", "2", "--", *self.command(ranks=None, out=out)])
        self.assertEqual(launched.code, 2, launched)
        self.assertEqual(contents(out), before)


class BadData(Refusals, EndToEnd):
    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def test_files(self):
        self.refuse("nowhere.txt", "does not exist", data=self.folder / "nowhere.txt")
        self.refuse("empty.txt", "is empty", data=self.file("empty.txt", b""))
        self.refuse("train.sequence 64 + 1", "6 tokens", "train.sequence", data=self.file("short.txt", b"hello\n"))
        (self.folder / "nothing").mkdir()
        self.refuse("nothing", "no text", data=self.folder / "nothing")

    def test_token_above_the_vocabulary(self):
        self.refuse("not below model.vocab 100", "data.txt", "at least 123", model__vocab=100)  # z is 122
        other = self.file("other.txt", b"\xf0" * 5000)
        self.refuse("token 240", "other.txt", "at least 241", model__vocab=128, data__validation=other)
        tokens = [5] * 5000
        tokens[3000] = 700
        path = self.file("tokens.bin", struct.pack(f"<{len(tokens)}H", *tokens))
        self.refuse("token 700", "byte 6000", "model.vocab 256", "at least 701", data=path, data__format="nanogpt")


class BadCheckpoint(Refusals, EndToEnd):
    def test_of_another_model_or_torn(self):
        out = self.out()
        self.train(out=out)
        before = contents(out)
        checkpoint = out / "checkpoints/step-000010"
        resume = lambda **changes: self.run_command(self.command("--resume", out=out, **changes))
        self.refused(resume(model__layers=3), "model.layers")
        self.refused(resume(train__seed=7), "train.seed")
        self.refused(resume(data=write_text(self.folder / "other.txt", seed=2)), "data differs")
        self.assertEqual(contents(out), before)
        saved = self.folder / "saved"
        for name, keep in {"rank-00001.safetensors": 1000, "rank-00000.safetensors": 0, "index.json": 500}.items():
            with self.subTest(truncated=name):
                shutil.copytree(checkpoint, saved)
                (checkpoint / name).write_bytes((saved / name).read_bytes()[:keep])
                torn = contents(out)
                self.refused(resume(train__steps=12), "checkpoint")
                self.assertEqual(contents(out), torn)
                shutil.rmtree(checkpoint)
                saved.rename(checkpoint)
        (checkpoint / "rank-00001.safetensors").unlink()
        self.refused(resume(train__steps=12), "rank-00001.safetensors")


class BadRendezvous(Refusals, EndToEnd):
    def test_variables_of_a_rank(self):
        whole = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}
        for name in whole:
            with self.subTest(missing=name):
                self.refuse(name, "not set", ranks=None, variables=whole | {name: None})
        self.refuse("MASTER_PORT=66660", "65535", ranks=None, variables=whole | {"MASTER_PORT": 66660})
        self.refuse("RANK", "WORLD_SIZE", ranks=None, variables=whole | {"RANK": 2})
        self.refuse("--ranks 3", "2 ranks", "torchrun", ranks=3, variables=whole)
        for rank in (0, 1):
            self.refuse("no-such-host.invalid", "MASTER_ADDR", ranks=None, variables=whole | {"MASTER_ADDR": "no-such-host.invalid", "RANK": rank})

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            self.refuse(f"127.0.0.1:{port}", "in use", "MASTER_PORT", "port 0", ranks=None,
                        variables={"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
            launched = self.run_command([PROGRAM, "launch", "--ranks", "2", "--master-port", str(port), "--", "true"])
            self.refused(launched, f"127.0.0.1:{port}", "in use", "--master-port")
