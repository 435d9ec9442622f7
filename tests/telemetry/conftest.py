"""A namespace, and providers that keep spans in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from streamdq.times.clock import ManualClock
from tests.redis.harness import Space, opened
from tests.servers import Server


@pytest.fixture(autouse=True)
def _short_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst looks sooner whether anything is left."""
    monkeypatch.setattr("streamdq.worker.serving._BURST_WAIT_S", 0.02)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def space(redis_server: Server, clock: ManualClock) -> Iterator[Space]:
    """With a clock that the test moves."""
    with opened(redis_server.url, clock) as space:
        yield space


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    yield provider
    provider.shutdown()
