"""Rows of a dump that can't be, as of a clock that was wrong or of memory that was damaged. They are set aside: no
table counts them, and the analysis says how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from streamdq.times.durations import MAX_DELAY_MS

DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)
_DAYS_LATER = 2
"""Until the end of the day after its own, what a row says was before it may seem to be later: clocks differ."""
_SIZES = {"attempt": 10**6, "step": 10**6, "body_bytes": 1 << 29}
"""Redis holds no longer value than that."""
_MOMENTS = {"created": 0, "moved": 0, "started": 0, "due": MAX_DELAY_MS}
"""How long after the row each may be, at most."""


def is_sound(footer: parquet.FileMetaData, day: date) -> bool:
    """Whether the statistics of a file of this day show that each of its rows can be."""
    names = footer.schema.names
    for column, least, most in _limits(day):
        for group in range(footer.num_row_groups):
            own = footer.row_group(group).column(names.index(column)).statistics
            if own is None or not own.has_min_max:
                if own is None or own.null_count != footer.row_group(group).num_rows:
                    return False
                continue
            try:
                if _number(own.min) < least or _number(own.max) > most:
                    return False
            except (OverflowError, ValueError):  # a year that Python does not have
                return False
    return True


def possible(rows: pa.Table, day: date) -> pa.Table:
    """Those that can be."""
    for column, least, most in _limits(day):
        values = rows[column].cast(pa.int64())
        if pa.types.is_timestamp(rows.schema.field(column).type):  # rounded down, as SQL's functions do
            values = pc.cast(pc.floor(pc.divide(values.cast(pa.float64()), 1000.0)), pa.int64())
        within = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
        rows = rows.filter(pc.fill_null(within, fill_value=True))
    return rows


def condition(ms_of: str = "") -> str:
    """The same as SQL, of the events as tables see them; or of a dump's own rows: `ms_of` makes ms of their moments."""
    day = f"floor({ms_of}(finished) / {DAY_MS})" if ms_of else "day"
    sizes = [f"coalesce({name} BETWEEN 0 AND {most}, TRUE)" for name, most in _SIZES.items()]
    moments = [
        f"coalesce({ms_of}({name}) BETWEEN 0 AND ({day} + {_DAYS_LATER}) * {DAY_MS} + {later}, TRUE)"
        for name, later in _MOMENTS.items()
    ]
    return " AND ".join(sizes + moments)


def _limits(day: date) -> Iterator[tuple[str, int, int]]:
    """Columns and what they may be, moments in ms."""
    end = ((day - _EPOCH).days + _DAYS_LATER) * DAY_MS
    yield from ((name, 0, most) for name, most in _SIZES.items())
    yield from ((name, 0, end + later) for name, later in _MOMENTS.items())


def _number(value: datetime | int) -> int:
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return value
