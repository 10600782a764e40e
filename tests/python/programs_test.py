"""Programs of PyTorch's own ways to train, unchanged, on two ranks: the losses are those that Gloo gives.

Sums of two numbers have one value, so where both backends do the same arithmetic the losses are equal to the bit; where PyTorch divides
at another place for another backend, they agree within rounding.
"""

import contextlib
import copy
import math
import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def model(width=32, blocks=3):
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, width), *[Block(width) for _ in range(blocks)], nn.Linear(width, 4))


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(16, 8, generator=generator)
    return x, torch.sin(x[:, :4] * 2)


def train(net, optimizer, rank, steps=4, context=contextlib.nullcontext):
    losses = []
    with context():
        for step in range(steps):
            x, y = batch(rank, step)
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def adam(net):
    return torch.optim.AdamW(net.parameters(), lr=1e-2)


def both(ranks, function, *arguments, exact=True, tolerance=1e-5):
    """Runs the program on both backends and compares what its ranks return."""
    ours, gloo = (ranks.run(function, *arguments, backend=backend) for backend in ("wirewise", "gloo"))
    if exact:
        assert ours == gloo
    else:
        for a, b in zip(ours, gloo, strict=True):
            assert a == pytest.approx(b, rel=tolerance)
    assert all(math.isfinite(loss) for losses in ours for loss in losses)
    return ours


# --- data parallel


def _ddp(rank, options, hook):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    # PowerSGD starts operations in callbacks, whose order over several buckets PyTorch leaves open: it gets one.
    net = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=25 if hook == "powersgd" else 0.02, **options)
    if hook == "powersgd":
        net.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    elif hook:
        net.register_comm_hook(None, getattr(default_hooks, hook))
    return train(net, sgd(net), rank)


@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True},
                                     {"broadcast_buffers": False, "gradient_as_bucket_view": True, "static_graph": True}], ids=str)
def test_ddp(two, options):
    losses = both(two, _ddp, options, None)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize("hook", ["allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "powersgd"])
def test_ddp_communication_hooks(two, hook):
    both(two, _ddp, {}, hook, exact=hook not in ("fp16_compress_hook", "bf16_compress_hook"), tolerance=2e-3)
    if hook == "powersgd":
        two.end()  # its callbacks may be the last to hold Gloo's group, which then ends on its own thread: that aborts the process


def _join(rank):
    from torch.distributed.algorithms.join import Join

    net = nn.parallel.DistributedDataParallel(model())
    optimizer = sgd(net)
    with Join([net]):
        return train(net, optimizer, rank, steps=3 + 2 * rank)  # uneven


def test_ddp_join(two):
    both(two, _join)


def _ddp_sparse(rank):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(32, 1))
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        x = torch.randint(0, 50, (8, 4), generator=torch.Generator().manual_seed(10 * step + rank))
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_ddp_sparse_gradients(two):
    both(two, _ddp_sparse)


def _sync_batch_norm(rank):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.a, self.norm, self.b = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

        def forward(self, x):
            return self.b(F.relu(self.norm(self.a(x))))

    net = nn.parallel.DistributedDataParallel(Net())
    return train(net, sgd(net), rank)


def test_ddp_buffers(two):
    both(two, _sync_batch_norm)


def _zero(rank, overlap):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(model(), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2, parameters_as_bucket_view=overlap)
    losses = train(net, optimizer, rank)
    optimizer.consolidate_state_dict(0)
    return losses + ([float(len(optimizer.state_dict()["state"]))] if rank == 0 else [])


@pytest.mark.parametrize("views", [False, True])
def test_zero_redundancy_optimizer(two, views):
    both(two, _zero, views)


# --- sharded


def _fsdp1(rank, strategy):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    net = FullyShardedDataParallel(model(), auto_wrap_policy=ModuleWrapPolicy({Block}), sharding_strategy=getattr(ShardingStrategy, strategy),
                                   device_id=torch.device("cpu"))
    losses = train(net, adam(net), rank)
    norm = net.clip_grad_norm_(1.0)
    return losses + [float(norm)]


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"])
def test_fsdp1(two, strategy):
    both(two, _fsdp1, strategy, exact=False)


def _fsdp2(rank, mixed, own_buffers, reshard):
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    net = model()
    policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)} if mixed else {}
    for block in net[1:-1]:
        fully_shard(block, reshard_after_forward=reshard, **policy)
    fully_shard(net, **policy)
    assert isinstance(net, FSDPModule)
    if own_buffers and dist.get_backend() == "wirewise":
        net.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = adam(net)
    losses = []
    for step in range(4):
        x, y = batch(rank, step)
        loss = F.mse_loss(net(x).float(), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses += [loss.item(), float(norm.full_tensor())]
    return losses


@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize("own_buffers", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_fsdp2(two, mixed, own_buffers, reshard):
    both(two, _fsdp2, mixed, own_buffers, reshard, exact=False, tolerance=5e-3 if mixed else 1e-5)


def _hsdp(rank):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    net = model()
    for block in net[1:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return train(net, adam(net), rank)


def test_fsdp2_on_a_mesh_of_2_by_2(four):
    both(four, _hsdp, exact=False)


# --- model parallel


def _tensor_parallel(rank):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    mesh = dist.init_device_mesh("cpu", (2,))
    net = model()
    plain = copy.deepcopy(net)
    plan = {}
    for i in range(1, 4):
        plan |= {f"{i}.up": ColwiseParallel(), f"{i}.down": RowwiseParallel()}
    parallelize_module(net, mesh, plan)
    losses = train(net, sgd(net), 0)  # one batch for all ranks
    assert losses == pytest.approx(train(plain, sgd(plain), 0), rel=1e-4)
    assert SequenceParallel is not None
    return losses


def test_tensor_parallel(two):
    both(two, _tensor_parallel, exact=False)


def _dtensor(rank):
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    mesh = dist.init_device_mesh("cpu", (2,))
    whole = torch.arange(35.0).view(7, 5)  # uneven shards
    value = distribute_tensor(whole, mesh, [Shard(0)])
    assert isinstance(value, DTensor) and torch.equal(value.full_tensor(), whole)
    assert torch.equal(value.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    product = torch.mm(value.redistribute(mesh, [Shard(1)]), distribute_tensor(whole.t(), mesh, [Shard(0)]))
    return product.redistribute(mesh, [Replicate()]).to_local().flatten().tolist()


def test_dtensor(two):
    assert both(two, _dtensor)[0][0] == float((torch.arange(5.0) ** 2).sum())


def _pipeline(rank, schedule):
    from torch.distributed import pipelining

    net = model()
    part = net[:2] if rank == 0 else net[2:]
    stage = pipelining.PipelineStage(part, rank, 2, torch.device("cpu"))
    steps = getattr(pipelining, schedule)(stage, n_microbatches=4, loss_fn=F.mse_loss)
    optimizer = sgd(part)
    result = []
    for step in range(3):
        x, y = batch(0, step)
        losses = []
        if rank == 0:
            steps.step(x)
        else:
            steps.step(target=y, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        result += [float(torch.stack(losses).mean())] if losses else []
    return result


@pytest.mark.parametrize("schedule", ["Schedule1F1B", "ScheduleGPipe"])
def test_pipelining(two, schedule):
    both(two, _pipeline, schedule)


# --- checkpoints


def _checkpoint(rank, folder):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def sharded():
        net = model()
        for block in net[1:-1]:
            fully_shard(block)
        return fully_shard(net)

    folder = os.path.join(folder, dist.get_backend())
    net = sharded()
    optimizer = adam(net)
    train(net, optimizer, rank, steps=2)
    weights, state = get_state_dict(net, optimizer)
    checkpoint.save({"weights": weights, "state": state}, checkpoint_id=folder)
    goes_on = train(net, optimizer, rank, steps=2)

    again = sharded()
    other = adam(again)
    weights, state = get_state_dict(again, other)
    loaded = {"weights": weights, "state": state}
    checkpoint.load(loaded, checkpoint_id=folder)
    set_state_dict(again, other, model_state_dict=loaded["weights"], optim_state_dict=loaded["state"])
    assert train(again, other, rank, steps=2) == goes_on
    return goes_on


def test_distributed_checkpoint(two, tmp_path):
    both(two, _checkpoint, str(tmp_path), exact=False)


def _averaging(rank):
    from torch.distributed.algorithms.model_averaging import averagers
    from torch.distributed.algorithms.model_averaging.utils import average_parameters

    net = model()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(rank)
            parameter.grad = torch.zeros_like(parameter)  # only trained ones are averaged
    averager = averagers.PeriodicModelAverager(period=2, warmup_steps=0)
    averager.average_parameters(list(net.parameters()))
    average_parameters(iter(list(net.parameters())), dist.group.WORLD)
    return [float(parameter.sum()) for parameter in net.parameters()]


def test_model_averaging(two):
    both(two, _averaging)


def _rebuilt(rank):
    # A later group of the same ranks has a life of its own.
    losses = []
    for _ in range(2):
        group = dist.new_group(timeout=timedelta(seconds=60))
        net = nn.parallel.DistributedDataParallel(model(), process_group=group)
        losses += train(net, sgd(net), rank, steps=2)
        dist.destroy_process_group(group)
    return losses


def test_ddp_over_groups_made_again(two):
    both(two, _rebuilt)
