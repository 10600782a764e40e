"""The package as a user of torch.distributed meets it: names, groups, operations, errors."""

import os
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import wirewise


def test_importing_the_package_registers_a_backend_of_cpu_and_cuda():
    assert dist.Backend.WIREWISE == "wirewise"
    assert dist.Backend.backend_capability["wirewise"] == ["cpu", "cuda"]
    assert wirewise.__version__.count(".") == 2
    assert set(wirewise.__all__) <= set(dir(wirewise))


def _names(rank):
    assert dist.get_backend() == "wirewise"
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert isinstance(backend, wirewise.WirewiseBackend) and backend.supports_coalescing
    assert backend.rank() == rank and backend.size() == 2
    return os.getpid()


def test_the_group_is_of_our_class(two):
    assert len(set(two.run(_names))) == 2


def _operations(rank):
    ones = torch.ones(3, 2) * (rank + 1)
    work = dist.all_reduce(ones, async_op=True)
    work.wait()
    assert work.is_completed() and torch.equal(ones, torch.full((3, 2), 3.0))
    assert torch.equal(work.get_future().wait()[0], ones)
    for op, expected in ((dist.ReduceOp.AVG, 1.5), (dist.ReduceOp.PRODUCT, 2), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.MAX, 2)):
        value = torch.full((4,), rank + 1.0)
        dist.all_reduce(value, op)
        assert torch.equal(value, torch.full((4,), float(expected)))
    strided = torch.zeros(4, 6)[:, ::2]
    strided += rank
    dist.broadcast(strided, 1)
    assert torch.equal(strided, torch.ones(4, 3))
    lists = [torch.empty(2 + r) for r in range(2)]  # uneven
    dist.all_gather(lists, torch.full((2 + rank,), float(rank)))
    assert [item.tolist() for item in lists] == [[0, 0], [1, 1, 1]]
    full = torch.empty(4, dtype=torch.complex64)
    dist.all_gather_into_tensor(full, torch.full((2,), complex(rank, -1)))
    assert full.tolist() == [-1j, -1j, 1 - 1j, 1 - 1j]
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, torch.arange(4.0), dist._make_nccl_premul_sum(0.5))
    assert part.tolist() == [2 * rank, 2 * rank + 1]
    small = torch.full((3,), 1.5, dtype=torch.float8_e4m3fn)
    group = dist.group.WORLD
    group.allreduce([small]).wait()
    assert small.float().tolist() == [3, 3, 3]
    out = [torch.empty(3 - rank), torch.empty(3 - rank)]
    dist.all_to_all(out, [torch.full((3,), 10.0 * rank), torch.full((2,), 10.0 * rank + 1)])
    assert [item.tolist() for item in out] == [[rank] * (3 - rank), [10 + rank] * (3 - rank)]
    uneven = torch.empty(3)
    dist.all_to_all_single(uneven, torch.arange(3.0) + 10 * rank, output_split_sizes=[1, 2] if rank == 0 else [2, 1],
                           input_split_sizes=[1, 2] if rank == 0 else [2, 1])
    assert uneven.tolist() == ([0, 10, 11] if rank == 0 else [1, 2, 12])
    gathered = [torch.empty(2) for _ in range(2)] if rank == 1 else None
    dist.gather(torch.full((2,), float(rank)), gathered, 1)
    assert gathered is None or [item.tolist() for item in gathered] == [[0, 0], [1, 1]]
    dist.scatter(part, [torch.full((2,), 5.0), torch.full((2,), 6.0)] if rank == 0 else None, 0)
    assert part.tolist() == [5 + rank] * 2
    empty = torch.empty(0)
    dist.all_reduce(empty)
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=60), wait_all_ranks=True)
    sparse = torch.sparse_coo_tensor([[rank]], [1.0], (3,))
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [1, 1, 0]


def test_operations(two):
    two.run(_operations)


def _messages(rank):
    peer = 1 - rank
    for size in (3, 200_000):
        out, into = torch.full((size,), float(rank)), torch.empty(size)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, peer), dist.P2POp(dist.irecv, into, peer)])
        assert len(works) == 1
        works[0].wait()
        assert (into == peer).all()
    if rank == 0:
        dist.send(torch.ones(2), 1, tag=3)
    else:
        value = torch.empty(2)
        assert dist.recv(value, tag=3) == 0 and value.tolist() == [1, 1]
    many = [torch.full((3,), float(i + rank)) for i in range(4)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in many:
            dist.all_reduce(tensor)
    manager.wait()
    assert [tensor[0].item() for tensor in many] == [1, 3, 5, 7]


def test_messages_and_coalescing(two):
    two.run(_messages)


def _objects(rank):
    everything = [None, None]
    dist.all_gather_object(everything, {"rank": rank, "list": [rank] * 100})
    assert everything == [{"rank": r, "list": [r] * 100} for r in range(2)]
    one = [f"from {rank}", rank]
    dist.broadcast_object_list(one, 1)
    assert one == ["from 1", 1]
    mine = [None]
    dist.scatter_object_list(mine, ["a", "b"] if rank == 0 else None, 0)
    assert mine == ["ab"[rank]]
    gathered = [None, None] if rank == 0 else None
    dist.gather_object(rank, gathered, 0)
    assert gathered in (None, [0, 1])
    if rank == 0:
        dist.send_object_list(["object", 7], 1)
    else:
        received = [None, None]
        dist.recv_object_list(received, 0)
        assert received == ["object", 7]


def test_objects(two):
    two.run(_objects)


def _groups(rank):
    import torch.distributed._functional_collectives as functional

    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = pairs[rank // 2]
    value = torch.tensor([float(rank)])
    dist.all_reduce(value, group=own)
    assert value.item() == (1 if rank < 2 else 5)
    assert dist.get_group_rank(own, rank) == rank % 2
    # Several groups from several threads at once.
    everyone = [dist.new_group() for _ in range(3)]
    sums = [[] for _ in everyone]

    def use(group, results):
        for i in range(50):
            tensor = torch.full((100,), float(rank + i))
            dist.all_reduce(tensor, group=group)
            results.append(tensor[0].item())

    threads = [threading.Thread(target=use, args=pair) for pair in zip(everyone, sums)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [[6.0 + 4 * i for i in range(50)]] * 3
    dist.destroy_process_group(everyone[0])
    result = functional.all_reduce(torch.ones(2), "sum", own)
    assert result.tolist() == [2, 2]
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    for name, expected in (("a", [0 + 2, 1 + 3]), ("b", [0 + 1, 2 + 3])):
        value = torch.tensor([float(rank)])
        dist.all_reduce(value, group=mesh[name].get_group())
        assert value.item() in expected


def test_groups_threads_and_meshes(four):
    four.run(_groups)


def _again(rank):
    for backend in ("wirewise", "cpu:wirewise,cuda:gloo", "gloo", "wirewise"):
        dist.init_process_group(backend, store=dist.FileStore(os.environ["AGAIN_STORE"], 2), rank=rank, world_size=2)
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2, 2]
        dist.destroy_process_group()


def _again_in(rank, folder):
    os.environ["AGAIN_STORE"] = os.path.join(folder, "store")
    _again(rank)


def test_groups_may_be_made_again_and_share_a_process_with_other_backends(two, tmp_path):
    two.run(_again_in, str(tmp_path), backend=None)


def _raises(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def _mismatch(rank):
    text = _raises(wirewise.MismatchError, lambda: dist.all_reduce(torch.ones(2 + rank)))
    assert "rank 0" in text and "rank 1" in text and "of 2 float32" in text and "of 3 float32" in text
    return text


def test_a_mismatch_names_both_sides_on_both_ranks(two):
    assert len(set(two.run(_mismatch))) == 1


def _until_told():
    """Stays in the group until rank 0 has seen its error."""
    dist.distributed_c10d._get_default_store().wait(["seen"])


def _seen():
    dist.distributed_c10d._get_default_store().set("seen", "")


def _late(rank):
    if rank == 1:
        return _until_told()
    group = dist.group.WORLD
    options = dist.AllreduceOptions()
    options.timeout = timedelta(milliseconds=200)
    text = _raises(TimeoutError, lambda: group.allreduce([torch.ones(2)], options).wait())
    assert "all_reduce of 2 float32" in text and "rank 1" in text and "pid" in text
    assert issubclass(wirewise.TimeoutError, dist.DistBackendError)
    _seen()


def test_a_timeout_names_who_is_missing(two):
    two.run(_late)


def _nobody(rank):
    if rank == 1:
        return _until_told()
    text = _raises(wirewise.TimeoutError, lambda: dist.monitored_barrier(timeout=timedelta(milliseconds=200)))
    assert "Rank 1 failed to pass monitoredBarrier in 200 ms" in text
    _seen()


def test_a_monitored_barrier_names_who_is_missing(two):
    two.run(_nobody)


def _refused(rank):
    assert "complex" in _raises(ValueError, lambda: dist.group.WORLD.allreduce([torch.ones(2, dtype=torch.complex64)], dist.ReduceOp.MAX).wait()).lower()
    assert "root" in _raises(wirewise.BadInputError, lambda: dist.group.WORLD.broadcast([torch.ones(1)], _root(7)))
    dist.barrier()  # what was refused before it started leaves the group alone


def _root(rank):
    options = dist.BroadcastOptions()
    options.rootRank = rank
    return options


def test_what_cannot_work_is_refused_by_name(two):
    two.run(_refused)


def _options(rank, folder):
    for wrong in ({"pg_options": object()}, {"timeout": timedelta(seconds=-1)}):
        with pytest.raises((ValueError, RuntimeError)):
            dist.init_process_group("wirewise", init_method=f"file://{folder}/refused", rank=rank, world_size=2, **wrong)


def test_options_that_do_not_exist_are_refused(two, tmp_path):
    two.run(_options, str(tmp_path), backend=None)


def _callback(rank):
    # The callback needs Python's lock while the main thread waits, and starts another operation.
    results = []

    def then(future):
        tensor = future.value()[0]
        inner = dist.all_reduce(tensor.clone(), async_op=True)
        results.append(inner.get_future().wait()[0].sum().item())
        return results[-1]

    for _ in range(20):
        assert dist.all_reduce(torch.ones(10), async_op=True).get_future().then(then).wait() == 40
    return len(results)


def test_callbacks_are_python_code_that_may_communicate(two):
    assert two.run(_callback) == [20, 20]
