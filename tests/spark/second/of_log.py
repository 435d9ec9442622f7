"""The second calculation of a made-up history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

from streamdq.dump.arrow import arrow_schema

from ..dumps import as_row
from ..plain import Happened, Table
from .calculation import Asked, Second, calculated_of, differences


@contextmanager
def second_of(log: Sequence[Happened], **asked: Any) -> Iterator[Second]:
    """``asked``: as in `Asked`, of all days."""
    rows = [as_row(e) for e in log]
    days = [row["finished"].date() for row in rows] or [date(2026, 1, 5)]
    first = min(days) - timedelta(days=2)  # in which an attempt may have started
    events = pa.Table.from_pylist(rows, arrow_schema())
    with calculated_of(events, Asked(first, max(days), **asked)) as found:
        yield found


def second(name: str, log: Sequence[Happened], **asked: Any) -> Table:
    """The rows of a table."""
    with second_of(log, **asked) as calculated:
        return calculated.rows(name)


def assert_second(name: str, found: Table, log: Sequence[Happened], **asked: Any) -> None:
    """That the table is what SQL makes of the events."""
    assert differences(name, found, second(name, log, **asked)) == []
