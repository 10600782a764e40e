"""A backend of torch.distributed that moves nothing: what a training step costs when communication is free.

`import no_operation` registers it as "none". A rank's own part is still copied where it belongs, as with one rank; other ranks' parts keep
whatever the memory holds, so results mean nothing. For measuring only.
"""

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future


def _done(value):
    future = torch.futures.Future()
    future.set_result(value)
    return _create_work_from_future(future)


class NoOperation(dist.ProcessGroup):
    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._rank, self._size = rank, size

    def getBackendName(self):
        return "none"

    @property
    def group_name(self):
        """FSDP2's device mesh asks for it; a group without C++ backends has none of its own."""
        return dist.distributed_c10d._world.pg_names[self]

    def size(self):
        return self._size

    def rank(self):
        return self._rank

    def _own(self, full, part):
        return full.view(-1)[self._rank * part.numel():(self._rank + 1) * part.numel()]

    def allreduce(self, tensors, options=None):
        return _done(tensors)

    def allreduce_coalesced(self, tensors, options=None):
        return _done(tensors)

    def broadcast(self, tensors, options=None):
        return _done(tensors)

    def barrier(self, options=None):
        return _done([])

    def allgather(self, outputs, inputs, options=None):
        for output in outputs[0]:  # of sizes that programs rely on
            output.copy_(inputs[0])
        return _done(outputs[0])

    def _allgather_base(self, output, source, options=None):
        own = self._own(output, source)
        if own.data_ptr() != source.data_ptr():
            own.copy_(source.view(-1))
        return _done([output])

    def _reduce_scatter_base(self, output, source, options=None):
        own = self._own(source, output)
        if own.data_ptr() != output.data_ptr():
            output.view(-1).copy_(own)
        return _done([output])

    def allgather_into_tensor_coalesced(self, outputs, inputs, options=None):
        for pair in zip(outputs, inputs):
            self._allgather_base(*pair)
        return _done(outputs)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, options=None):
        for pair in zip(outputs, inputs):
            self._reduce_scatter_base(*pair)
        return _done(outputs)


dist.Backend.register_backend("none", NoOperation, devices=["cpu"])
