"""Serves metrics over HTTP: this process's own, those of several worker processes, and the gauges read from Redis."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from ..config import Settings
from ..errors import InvalidInput, NewerFormat, ServerError
from ..link.connection import Link
from ..link.session import open_session, run
from ..logs import log
from ..metrics import declared
from ..metrics.declared import TopicLabels
from ..store.redis_store import RedisStore
from .gauges import Reader, Readings, read_gauges

_ANSWER_S = 2.0
"""Prometheus waits ten seconds for a scrape, unless it is told otherwise: Redis's absence must be told before."""


class RedisCollector(Collector):
    """Reads the gauges at each scrape. Without Redis ``streamdq_up`` is 0 and the others are missing. ``labels`` None:
    those of the process, so that all it serves has no more topics than it may name.
    """

    def __init__(self, url: str | None, namespace: str | None, labels: TopicLabels | None = None) -> None:
        settings = Settings()
        settings = settings.model_copy(update={"call_timeout_s": min(_ANSWER_S, settings.call_timeout_s)})
        self._reading = threading.Lock()
        self._read: tuple[float, Readings] | None = None  # when it ended, and what it found
        self._link, session = open_session(url, namespace, settings, None, Link)
        self._reader = Reader(session.keys.namespace, labels or declared.topic_labels())
        self._store = RedisStore(session)

    def describe(self) -> Iterable[Metric]:
        """So that the registry does not ask Redis only to learn the names."""
        return [_family(metric) for metric in declared.FROM_REDIS]

    def collect(self) -> Iterator[Metric]:
        yield from families(self._latest())

    def _latest(self) -> Readings:
        """Read now; or what another scrape was just reading: one for each in turn would take, while Redis hangs, longer
        than Prometheus waits.
        """
        came = time.monotonic()
        with self._reading:
            if self._read is None or self._read[0] < came:
                readings = self._read_now()
                self._read = time.monotonic(), readings
            return self._read[1]

    def _read_now(self) -> Readings:
        try:
            return run(self._link, read_gauges(self._store, self._reader))
        except (ServerError, NewerFormat) as error:
            log.warning("gauges not read", error=str(error))
            readings = self._reader.readings()
            readings.put(declared.UP, 0)
            return readings

    def close(self) -> None:
        self._link.close()


def families(readings: Readings) -> Iterator[Metric]:
    """What was read from Redis, as a collector gives it."""
    for metric in declared.FROM_REDIS:
        family = _family(metric)
        for labels, value in readings.of(metric):
            family.add_metric(labels, value)
        yield family


def _family(metric: declared.RedisMetric) -> Any:
    family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return family(metric.name, metric.help, labels=metric.labels)


class _Files(Collector):
    """What processes left in files, by this process's labels of topics: each of them chose its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._labels = declared.topic_labels()

    def collect(self) -> Iterator[Metric]:
        # A file is empty for a moment as a process makes it, and for good if it is killed just then: the library fails.
        files = [str(file) for file in self._directory.glob("*.db") if file.stat().st_size > 0]
        for metric in MultiProcessCollector.merge(files, accumulate=True):  # type: ignore[no-untyped-call]
            sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
            for sample in metric.samples:
                labels = dict(sample.labels)
                if metric.name.startswith("streamdq_") and "topic" in labels:
                    labels["topic"] = self._labels.of(labels["namespace"], labels["topic"])
                key = sample.name, tuple(labels.items())
                sums[key] = sums.get(key, 0) + sample.value
            metric.samples = [Sample(name, dict(labels), value) for (name, labels), value in sums.items()]
            yield metric


@contextlib.contextmanager
def served(host: str, port: int, *collectors: Collector, own: bool = True) -> Iterator[int]:
    """Serves what the collectors have, and with ``own`` this process's metrics, until the end of the block. Gives the
    port: port 0 asks for a free one.

    Raises:
        InvalidInput: the address can't be listened on.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # twice the lines, and no one asks for them
    registry = CollectorRegistry()
    for collector in (*collectors, REGISTRY) if own else collectors:
        registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError, UnicodeError) as error:  # the last: what can be no host
        raise InvalidInput(f"metrics: can't listen on {host}:{port}: {error}; choose another port or host") from None
    assert isinstance(server, WSGIServer)
    log.info("metrics served", host=host, port=server.server_port)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class ProcessFiles:
    """Where several worker processes of one command leave their figures, for their parent to serve them together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for file in directory.glob("*.db"):  # of an earlier run: its figures are not ours
            file.unlink()

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator[ProcessFiles]:
        """In ``$PROMETHEUS_MULTIPROC_DIR``, emptied; else in a directory that is removed at the end."""
        if given := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            Path(given).mkdir(parents=True, exist_ok=True)
            yield cls(Path(given))
        else:
            with tempfile.TemporaryDirectory(prefix="streamdq-metrics-", ignore_cleanup_errors=True) as directory:
                yield cls(Path(directory))

    def environment(self, number: int) -> dict[str, str]:
        """For the process with this number; whoever takes its place gets the same, and counts on."""
        return {"PROMETHEUS_MULTIPROC_DIR": str(self._directory), declared.PROCESS_NUMBER: str(number)}

    def ended(self, number: int) -> None:
        """The process is gone: what it counted stays, what it said of itself as long as it lived goes."""
        mark_process_dead(number, str(self._directory))  # type: ignore[no-untyped-call]

    def collector(self) -> Collector:
        return _Files(self._directory)
