"""Ranks for tests: processes that import torch once and then run one function after another, each in a new process group."""

import contextlib
import multiprocessing
import os
import pathlib
import tempfile
import traceback
from datetime import timedelta

DEADLINE = 240.0  # seconds for one function, on a machine with other work


def _serve(rank, size, folder, connection):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), OMP_NUM_THREADS="1")
    import torch
    import torch.distributed as dist

    import wirewise  # noqa: F401 (registers the backend)

    torch.set_num_threads(1)
    while (job := connection.recv()) is not None:
        number, function, backend, arguments = job
        try:
            torch.manual_seed(0)
            if backend is not None:
                dist.init_process_group(backend, init_method=f"file://{folder}/store{number}", rank=rank, world_size=size, timeout=timedelta(seconds=60))
            result = (True, function(rank, *arguments))
        except BaseException:  # noqa: BLE001 (whatever it is belongs into the test's message)
            result = (False, traceback.format_exc())
        connection.send(result)
        if dist.is_initialized():
            with contextlib.suppress(Exception):
                dist.destroy_process_group()


class Ranks:
    """`size` rank processes. After a failure they are ended and made anew for the next function."""

    def __init__(self, size):
        self.size = size
        self.processes = []
        self.connections = []
        self.folder = tempfile.TemporaryDirectory(prefix="wirewise-ranks-")
        self.number = 0

    def _start(self):
        context = multiprocessing.get_context("spawn")
        for rank in range(self.size):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self.size, self.folder.name, there), daemon=True)
            process.start()
            there.close()
            self.processes.append(process)
            self.connections.append(here)

    def run(self, function, *arguments, backend="wirewise"):
        """The results of function(rank, *arguments), by rank. `backend` None: the function makes its own process group."""
        if not self.processes:
            self._start()
        self.number += 1
        results, failures = [], []
        for rank, connection in enumerate(self.connections):
            try:
                connection.send((self.number, function, backend, arguments))
            except OSError:
                failures.append(f"rank {rank} had died before the function began")
        for rank, connection in enumerate(self.connections):
            if not connection.poll(DEADLINE if not failures else 20.0):
                failures.append(f"rank {rank} did not end within the deadline")
                continue
            try:
                fine, value = connection.recv()
            except (EOFError, OSError):
                failures.append(f"rank {rank} died")
                continue
            results.append(value)
            if not fine:
                failures.append(f"rank {rank}: {value}")
        if failures:
            self.end()
            raise AssertionError("\n".join(failures))
        return results

    def end(self):
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.send(None)
            connection.close()
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        self.processes, self.connections = [], []

    def close(self):
        self.end()
        self.folder.cleanup()


def shared_folder():
    """The folder of measurements and peers' scripts beside the repository."""
    return pathlib.Path(os.environ.get("WIREWISE_SOURCE_DIR", pathlib.Path(__file__).parents[2])).parent / "shared"


def python_path():
    """PYTHONPATH of child programs: where this process found wirewise."""
    import wirewise

    return os.pathsep.join([str(pathlib.Path(wirewise.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])


