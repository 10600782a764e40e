from datetime import timedelta

from torch.distributed import Store
from torch._C._distributed_c10d import Backend

__version__: str
built_for_torch: str

class WirewiseBackend(Backend):
    """Collectives of one process group, made by all its ranks together."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta = ...) -> None: ...
