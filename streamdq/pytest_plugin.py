"""Fixtures for pytest: a server in memory, a queue on it, and a worker that runs through days in milliseconds.

pytest loads this module in every project of an environment in which streamdq is installed. So it imports nothing of
streamdq before a fixture is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .queue import Queue
    from .testing import Memory, RunWorker
    from .times.durations import Duration
    from .worker.worker import Worker


@pytest.fixture
def streamdq_server() -> Iterator[Memory]:
    """An empty server in this process, and its clock (``streamdq.testing.memory``)."""
    from .testing import memory

    server = memory()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def streamdq_queue(streamdq_server: Memory) -> Iterator[Queue]:
    """A queue on ``streamdq_server``."""
    with streamdq_server.queue() as queue:
        yield queue


@pytest.fixture
def streamdq_run(streamdq_server: Memory) -> RunWorker:
    """``streamdq_run(worker)`` lets your worker serve on ``streamdq_server``, for 26 hours by its clock, which jumps
    from one due time to the next (``streamdq.testing.drain``); ``streamdq_run(worker, 0)`` runs what is due now.
    """
    import asyncio

    from .errors import InvalidInput
    from .process.loop import running_loop
    from .testing import drain

    def run(worker: Worker, for_: Duration = "26h", *, within_s: float = 30.0) -> None:
        if running_loop() is not None:
            how = "with streamdq_server.bind(worker): await drain(worker, streamdq_server.clock)"
            raise InvalidInput(f"streamdq_run: starts an event loop, and one runs here already; write {how}")
        with streamdq_server.bind(worker):
            asyncio.run(drain(worker, streamdq_server.clock, for_, within_s))

    return run
