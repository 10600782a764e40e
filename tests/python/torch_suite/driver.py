"""PyTorch's own suite of c10d tests, on the backend that WIREWISE_SUITE_BACKEND names, with 2 ranks: pytest runs this file.

The suite decides what to skip by the backend's name, when it is imported. So it is imported as Gloo's, and runs ours under its own name:
what is asked of Gloo is asked of us.
"""

import os
import tempfile

os.environ["BACKEND"] = "gloo"
os.environ.setdefault("WORLD_SIZE", "2")
if "TEMP_DIR" not in os.environ:
    os.environ["TEMP_DIR"] = tempfile.mkdtemp(prefix="wirewise-suite-", dir=os.environ.get("WIREWISE_SUITE_FOLDER"))
    for name in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(os.environ["TEMP_DIR"], name))

import torch  # noqa: E402
from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402


class AskedAsGloo(str):
    """Our name, which tests that ask for Gloo take as its."""

    def __eq__(self, other):
        return str(self) == other or other == "gloo"

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


NAME = os.environ["WIREWISE_SUITE_BACKEND"]
if NAME != "gloo":
    import wirewise  # noqa: F401 (registers the backend)

    suite.BACKEND = AskedAsGloo(NAME)
    for names in (suite.PROFILING_SUPPORTED_BACKENDS, suite.CUDA_PROFILING_SUPPORTED_BACKENDS, suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        names.append(NAME)


class TestSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        # Forked: torch is imported once, not by two ranks for each test.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
