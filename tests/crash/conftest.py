"""Worker processes on each server in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.worker_processes import WorkerProcesses
from tests.servers import Server


@pytest.fixture
def processes(redis_server: Server, tmp_path: Path) -> Iterator[WorkerProcesses]:
    with WorkerProcesses(redis_server, tmp_path) as processes:
        yield processes
