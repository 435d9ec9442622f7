"""Serves metrics over HTTP: this process's own, those of several worker processes, and the gauges read from Redis."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
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
from ..forks import renew_in_child
from ..link.connection import Link
from ..link.opening import open_session
from ..link.session import run
from ..metrics import declared
from ..metrics.declared import TopicLabels
from ..process.logs import log
from ..store.redis_store import RedisStore
from .gauges import Reader, Readings, read_gauges

_ANSWER_S = 2.0
"""By default Prometheus waits ten seconds for a scrape; it must learn before that that Redis is absent."""


class RedisCollector(Collector):
    """Reads the gauges at each scrape. Without Redis ``streamdq_up`` is 0 and the others are missing. ``labels`` None:
    the process's own, so that all metrics that it serves share one limit of topics.
    """

    def __init__(self, url: str | None, namespace: str | None, labels: TopicLabels | None = None) -> None:
        settings = Settings()
        settings = settings.model_copy(update={"call_timeout_s": min(_ANSWER_S, settings.call_timeout_s)})
        self._read: tuple[float, Readings] | None = None  # when the last reading ended, and its result
        self._link, session = open_session(url, namespace, settings, None, Link)
        self._reader = Reader(session.keys.namespace, labels or declared.topic_labels())
        self._store = RedisStore(session)
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        self._reading = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Names the metrics, so that the registry does not read Redis just for that."""
        return [_family(metric) for metric in declared.FROM_REDIS]

    def collect(self) -> Iterator[Metric]:
        yield from families(self._latest())

    def _latest(self) -> Readings:
        """Reads now, or waits for the reading of a concurrent scrape. While Redis hangs, one reading after the other
        would take longer than Prometheus waits.
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
    """The readings in the form that a collector returns."""
    for metric in declared.FROM_REDIS:
        family = _family(metric)
        for labels, value in readings.of(metric):
            family.add_metric(labels, value)
        yield family


def _family(metric: declared.ReadMetric) -> Any:
    family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return family(metric.name, metric.help, labels=metric.labels)


class _Files(Collector):
    """The figures in the processes' files, with this process's labels of topics, as each process chose its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._labels = declared.topic_labels()

    def collect(self) -> Iterator[Metric]:
        # A new file is empty for a moment, and stays so if its process is killed then. The library fails on it.
        files = [str(file) for file in self._directory.glob("*.db") if file.stat().st_size > 0]
        for metric in MultiProcessCollector.merge(files, accumulate=True):  # type: ignore[no-untyped-call]
            sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
            for sample in metric.samples:
                labels = dict(sample.labels)
                if metric.name.startswith("streamdq_") and "topic" in labels:
                    labels["topic"] = self._labels.of(labels["namespace"], labels["topic"])
                key = sample.name, tuple(labels.items())
                both = max if metric.type == "gauge" else float.__add__
                sums[key] = both(sums[key], sample.value) if key in sums else sample.value
            metric.samples = [Sample(name, dict(labels), value) for (name, labels), value in sums.items()]
            yield metric


@contextlib.contextmanager
def served(host: str, port: int, *collectors: Collector, own: bool = True) -> Iterator[int]:
    """Serves the collectors' metrics, and with ``own`` this process's, until the end of the block. Yields the port;
    port 0 chooses a free one.

    Raises:
        InvalidInput: the address can't be listened on.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # twice the lines, which nobody needs
    registry = CollectorRegistry()
    for collector in (*collectors, REGISTRY) if own else collectors:
        registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError, UnicodeError) as error:  # UnicodeError: it can't be a host name
        raise InvalidInput(f"metrics: can't listen on {host}:{port}: {error}; choose another port or host") from None
    assert isinstance(server, WSGIServer)
    log.info("metrics served", host=host, port=server.server_port)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_PREFIX, _IN_USE = "streamdq-metrics-", "in-use"


def _remove_left(directory: Path) -> None:
    """Removes what killed commands have left: their locks are free."""
    for left in directory.glob(f"{_PREFIX}*"):
        try:
            with (left / _IN_USE).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
        except OSError:  # it is in use, about to be, or gone
            continue


class ProcessFiles:
    """The files in which the worker processes of one command leave their figures, for the parent to serve together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator[ProcessFiles]:
        """In a directory of this command, within ``$PROMETHEUS_MULTIPROC_DIR`` if that is set, where other commands and
        programs may have their own files. It is removed at the end; one that a killed command has left, by the next.
        """
        given = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if given:
            Path(given).mkdir(parents=True, exist_ok=True)
            _remove_left(Path(given))
        with contextlib.ExitStack() as stack:
            made = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=given or None, ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(made))
            lock = stack.enter_context((directory / "new").open("wb"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            (directory / "new").rename(directory / _IN_USE)  # so nobody finds it before it is locked
            yield cls(directory)

    def environment(self, number: int) -> dict[str, str]:
        """The variables for the process with this number; its successor gets the same and continues its figures."""
        return {"PROMETHEUS_MULTIPROC_DIR": str(self._directory), declared.PROCESS_NUMBER: str(number)}

    def ended(self, number: int) -> None:
        """Notes that the process is gone: its counters stay, its gauges go."""
        mark_process_dead(number, str(self._directory))  # type: ignore[no-untyped-call]

    def collector(self) -> Collector:
        return _Files(self._directory)
