"""Wirewise as a backend of torch.distributed.

    import torch.distributed as dist
    import wirewise

    dist.init_process_group("wirewise")                     # tensors of the CPU, and of CUDA devices through host memory
    dist.init_process_group("cpu:wirewise,cuda:nccl")       # GPU tensors by NCCL

Importing the package registers the backend; everything else is torch.distributed's own interface.
"""

from datetime import timedelta
from typing import Any

import torch  # before the extension, which uses its libraries
import torch.distributed as _dist

if not _dist.is_available():
    raise ImportError("wirewise needs a PyTorch with torch.distributed, which this one lacks. Install torch from PyPI.")

from . import _C, _monitored_barrier
from ._C import WirewiseBackend
from ._errors import AbortedError, BadInputError, Error, FailedError, MismatchError, PeerLostError, StoreError, TimeoutError

__version__: str = _C.__version__

__all__ = [
    "AbortedError",
    "BadInputError",
    "Error",
    "FailedError",
    "MismatchError",
    "PeerLostError",
    "StoreError",
    "TimeoutError",
    "WirewiseBackend",
    "__version__",
]


def _create(options: Any, pg_options: Any) -> WirewiseBackend:
    """Makes the backend of one process group; what torch.distributed calls in every rank of it."""
    if pg_options is not None:
        raise BadInputError("init_process_group got pg_options, but the wirewise backend has none. Leave pg_options out; give the timeout as timeout=.")
    timeout = options.timeout
    if timeout <= timedelta(0):
        raise BadInputError(f"The timeout of a process group must be above 0, but is {timeout}.")
    return WirewiseBackend(options.store, options.group_rank, options.group_size, timeout)


_dist.Backend.register_backend("wirewise", _create, extended_api=True, devices=["cpu", "cuda"])
_monitored_barrier.install()
