"""The exceptions that operations on a wirewise process group raise: a class for each kind of failure.

All are torch.distributed.DistBackendError, hence RuntimeError, as programs written for other backends expect. Each message is a sentence
that names the operation and the ranks (with host and process id), and what to do.
"""

import builtins

from torch.distributed import DistBackendError, DistStoreError


class Error(DistBackendError):
    """Any failure of a wirewise process group."""


class BadInputError(Error, ValueError):
    """The arguments of a call can't work: the call was not started."""


class FailedError(Error):
    """Something broke that a retry won't mend."""


class MismatchError(Error):
    """Ranks called different operations, or the same with other sizes or types; the message names both sides."""


class PeerLostError(Error):
    """A rank died or left; the message names it."""


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001 (its kind's name)
    """A deadline passed; the message names the ranks that did not come."""


class StoreError(Error, DistStoreError):
    """The store in which ranks meet can't be reached."""


class AbortedError(Error):
    """The process group was aborted or shut down."""


for _kind in (Error, BadInputError, FailedError, MismatchError, PeerLostError, TimeoutError, StoreError, AbortedError):
    _kind.__module__ = "wirewise"  # where users find it
