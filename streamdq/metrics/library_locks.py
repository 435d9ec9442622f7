"""The locks of prometheus_client, which does not renew them in a forked child: one that another thread of the parent
held would stop the child at its first count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import REGISTRY, values
from prometheus_client.metrics import MetricWrapperBase

from ..forks import call_in_child


def _renew() -> None:
    for lock in _locks():
        lock._at_fork_reinit()  # as Python's own modules do


def _locks() -> Iterator[Any]:
    registry: Any = REGISTRY
    yield registry._lock
    for metric in [each for each in registry._collector_to_names if isinstance(each, MetricWrapperBase)]:
        for one in (metric, *getattr(metric, "_metrics", {}).values()):
            for part in (one, *_parts(one)):
                if hasattr(part, "_lock"):
                    yield part._lock
    # In files, all values have one lock.
    closure: Any = values.ValueClass.inc.__closure__
    yield from (cell.cell_contents for cell in closure or () if hasattr(cell.cell_contents, "_at_fork_reinit"))


def _parts(metric: Any) -> Iterator[Any]:
    """The values of a metric; a histogram has several."""
    for name in ("_value", "_sum", "_count"):
        yield getattr(metric, name, None)
    yield from getattr(metric, "_buckets", ())


call_in_child(_renew)
