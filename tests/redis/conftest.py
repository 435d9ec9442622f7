"""What the behaviour tests share: a namespace on each server in turn, whose accounts must balance after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamdq import Queue
from streamdq.config import Settings
from streamdq.times.clock import ManualClock
from tests.redis.harness import SETTINGS, Seen, Space, opened
from tests.servers import Cluster, Server
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from tests.redis.dumping import Setting


@pytest.fixture(autouse=True)
def _short_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst looks sooner whether anything is left; hundreds of tests wait for that."""
    monkeypatch.setattr("streamdq.worker.serving._BURST_WAIT_S", 0.02)


@pytest.fixture
def space(redis_server: Server) -> Iterator[Space]:
    """A namespace on one server, with its own clock. After the test the accounts must balance."""
    with opened(redis_server.url) as space:
        yield space


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


@pytest.fixture
def stepped(redis_server: Server, clock: ManualClock) -> Iterator[Space]:
    """The same with a clock that the test moves."""
    with opened(redis_server.url, clock) as space:
        yield space


@pytest.fixture
def spread(redis_cluster: Cluster) -> Iterator[Space]:
    """A namespace on a cluster of three masters."""
    with opened(redis_cluster.url) as space:
        yield space


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """With these, a call waits but a moment for replicas, and as long as it takes for Redis."""
    monkeypatch.setattr("streamdq.store.durability._TO_ANSWER", 1.0)
    monkeypatch.setattr("streamdq.store.durability._MOST_TO_ANSWER_S", HANG_S - 0.2)
    return SETTINGS.model_copy(update={"call_timeout_s": HANG_S})


@pytest.fixture
def no_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is slow to end an attempt whose TTR has passed still ends it itself."""
    monkeypatch.setattr("streamdq.mover.reclaim._TICK_S", 2 * HANG_S)


@pytest.fixture
def only_wakeups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks now and then, in case a wakeup was lost: what is found came with a wakeup."""
    monkeypatch.setattr("streamdq.mover.node_mover._QUIET_S", 2 * HANG_S)


@pytest.fixture
def here(redis_server: Server, tmp_path: Path) -> Iterator[Setting]:
    from tests.redis.dumping import Setting  # which loads Arrow

    with Queue(redis_server.url) as queue, redis_server.client() as client:
        queue.configure("t", create=True)
        yield Setting(redis_server, tmp_path / "dump", queue, client)
