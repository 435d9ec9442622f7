"""Worker processes on each server in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.worker_processes import WorkerProcesses
from tests.servers import Binary, Server


@pytest.fixture
def processes(redis_server: Server, tmp_path: Path) -> Iterator[WorkerProcesses]:
    with WorkerProcesses(redis_server, tmp_path) as processes:
        yield processes


@pytest.fixture
def persistent(binary: Binary, tmp_path: Path) -> Iterator[WorkerProcesses]:
    """Worker processes on a server that has on disk what it has confirmed."""
    with (
        Server(binary, appendonly=True, options={"appendfsync": "always"}) as server,
        WorkerProcesses(server, tmp_path) as processes,
    ):
        yield processes
