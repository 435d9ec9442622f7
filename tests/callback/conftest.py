"""A callback worker, with the same namespace and the same checks of the accounts as the other tests on Redis."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from streamdq.callback import CallbackSettings, CallbackWorker
from streamdq.times.clock import ManualClock
from tests.callback.receiver import Receiver, receiving
from tests.redis.harness import NAMESPACE, Space, opened
from tests.servers import Server

Caller = Callable[..., CallbackWorker]


@pytest.fixture(autouse=True)
def _short_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst looks sooner whether anything is left."""
    monkeypatch.setattr("streamdq.worker.serving._BURST_WAIT_S", 0.02)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the machine's own settings."""
    for name in CallbackSettings.model_fields:
        monkeypatch.delenv(f"STREAMDQ_CALLBACK_{name.upper()}", raising=False)


@pytest.fixture(autouse=True)
def _no_certificates_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """No receiver here has one of them, and each worker takes 25 to 50 ms to load them all."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    monkeypatch.setenv("SSL_CERT_DIR", os.devnull)


@pytest.fixture
def space(redis_server: Server) -> Iterator[Space]:
    with opened(redis_server.url) as space:
        yield space


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stepped(redis_server: Server, clock: ManualClock) -> Iterator[Space]:
    """A namespace with a clock that the test moves."""
    with opened(redis_server.url, clock) as space:
        yield space


def caller(
    space: Space, *topics: str, group: str = "default", concurrency: int = 50, **settings: Any
) -> CallbackWorker:
    """A callback worker that may call loopback, unless ``allow`` says something else. No topic: every topic."""
    settings.setdefault("allow", "127.0.0.0/8")
    return CallbackWorker(
        space.url, NAMESPACE, group, concurrency,
        topics=topics or None, callback=CallbackSettings(**settings), settings=space.settings, clock=space.clock,
    )  # fmt: skip


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found
