"""torch.distributed.monitored_barrier for wirewise groups.

PyTorch's function refuses every backend but Gloo by name, although backends may have the operation. So it is replaced by one that hands
wirewise groups to their backend, and everything else to PyTorch's own.
"""

import functools
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

_original = dist.monitored_barrier


@functools.wraps(_original)
def monitored_barrier(group=dist.GroupMember.WORLD, timeout=None, wait_all_ranks=False):
    if distributed_c10d._rank_not_in_group(group) or dist.get_backend(group) != "wirewise":
        return _original(group, timeout, wait_all_ranks)
    if timeout is None:
        timeout = distributed_c10d.default_pg_timeout
    elif not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    distributed_c10d._check_valid_timeout(timeout)
    group = group or distributed_c10d._get_default_group()
    return group.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


def install() -> None:
    """Puts the function where programs find PyTorch's."""
    dist.monitored_barrier = monitored_barrier
    distributed_c10d.monitored_barrier = monitored_barrier
