"""The backend that moves nothing, which ./run bench torch compares with, serves the programs that are measured."""

import pathlib

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def nothing_moves(monkeypatch):
    """One of two ranks; the other doesn't exist, and nobody waits for it."""
    monkeypatch.syspath_prepend(str(BENCH))
    import no_operation  # noqa: F401 (registers "none")

    dist.init_process_group("none", store=dist.HashStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def test_fsdp2_and_ddp_step_where_nothing_moves(nothing_moves):
    from torch.distributed.fsdp import fully_shard

    for wrap in (fully_shard, nn.parallel.DistributedDataParallel):
        model = wrap(nn.Linear(8, 4))
        model(torch.ones(2, 8)).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_measurements_come_back_as_they_were_saved(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCH))
    import measurements

    rows = [{"case": "ddp gloo", "step_s": [0.1, 2 / 3]}, {"case": "ddp free", "step_s": []}]
    measurements.append(tmp_path / "file", rows[:1])
    measurements.append(tmp_path / "file", rows[1:])
    measurements.append("", rows)
    assert measurements.load(tmp_path / "file") == rows
