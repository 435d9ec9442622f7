"""What waits in an outbox and what was refused, for Prometheus: read from the database at each scrape."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..errors import OutboxError, OutboxUnavailable
from ..forks import renew_in_child
from ..metrics import declared
from ..process.logs import log, what
from .batch import RowState
from .figures import CountedRows

_ANSWER_S = 5.0
"""By default Prometheus waits ten seconds for a scrape: a database that hangs must not cost it the other metrics."""

_KEPT_S = 60.0
"""For how long the last figures stand in for a reading that takes longer than that, as among millions of rows."""

_Values = dict[declared.ReadMetric, float]


_LATER_SHARE = 100
"""Rows due beyond the horizon are counted in at most one part of so many of the time: there may be millions."""


class OutboxCollector(Collector):
    """Counts the rows of one namespace. While the database can't be read, or does not answer, the gauges are missing.

    It has connections of its own, and any process may serve it: it tells of rows that no relay looks at, too.
    """

    def __init__(self, url: str, namespace: str) -> None:
        self._url, self._namespace = url, namespace
        self._read: tuple[float, _Values] | None = None  # when figures were last read, and these
        self._rows: CountedRows | None = None
        self._later, self._later_at = 0, 0.0
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        self._begins = threading.Lock()
        self._reading: Future[_Values] | None = None  # the last one

    def describe(self) -> Iterable[Metric]:
        """Names the metrics, so that the registry does not read the database just for that."""
        return [_family(metric) for metric in declared.FROM_OUTBOX]

    def collect(self) -> Iterator[Metric]:
        try:
            values = self._latest()
        except OutboxError as error:
            log.warning("outbox not counted", error=what(error))
            return
        for metric, value in values.items():
            family = _family(metric)
            family.add_metric([self._namespace], value)
            yield family

    def _latest(self) -> _Values:
        reading = self._begun()
        try:
            return reading.result(_ANSWER_S)
        except TimeoutError:
            if self._read is not None and time.monotonic() - self._read[0] < _KEPT_S:
                return self._read[1]
            raise OutboxUnavailable(f"the database has not answered within {_ANSWER_S:g} s") from None

    def _begun(self) -> Future[_Values]:
        """The reading under way, or a new one. It has a thread of its own, as a locked table or a server that stands
        still may hold it up for any time; there is never more than one.
        """
        with self._begins:
            if self._reading is None or self._reading.done():
                reading: Future[_Values] = Future()
                threading.Thread(target=self._run, args=(reading,), name="streamdq-outbox", daemon=True).start()
                self._reading = reading
            return self._reading

    def _run(self, reading: Future[_Values]) -> None:
        try:
            values = self._values()
        except BaseException as error:  # it is raised where the result is awaited
            reading.set_exception(error)
        else:
            self._read = time.monotonic(), values
            reading.set_result(values)

    def _values(self) -> _Values:
        if self._rows is None:
            self._rows = CountedRows(self._url, self._namespace)
        self._rows.learn_horizon()
        states = (RowState.WAITING, RowState.RELAYING, RowState.REFUSED)
        waiting, relaying, refused = self._rows.figures(states).states.values()
        self._count_later(self._rows)
        return {
            declared.OUTBOX_WAITING: waiting.rows + relaying.rows,
            declared.OUTBOX_OLDEST: max(0, waiting.oldest_ms or 0, relaying.oldest_ms or 0) / 1000,
            declared.OUTBOX_LATER: self._later,
            declared.OUTBOX_REFUSED: refused.rows,
        }

    def _count_later(self, rows: CountedRows) -> None:
        began = time.monotonic()
        if began >= self._later_at:
            self._later = rows.later()
            ended = time.monotonic()
            self._later_at = ended + (ended - began) * (_LATER_SHARE - 1)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()


def _family(metric: declared.ReadMetric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
