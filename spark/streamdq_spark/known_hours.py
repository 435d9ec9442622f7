"""What happened in each hour, kept in the output folder, so that the next analysis reads only the events of its own
days. The hours of a UTC day count as long as its files in the dump are those that they were counted from.

There is a file for each month, so that a year of days is twelve of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from streamdq.dump.folder import Folder
from streamdq.errors import FolderError

from .dump_files import Dump, GoodFile
from .table_files import table_files

TABLE = "hours"
_FILE = "hours.json"
HOURS = pa.schema(
    [("topic", pa.string()), *((name, pa.int64()) for name in ("hour", "attempts", "done", "failed", "late"))]
)
_DAY_H = 24


def known_days(folder: Folder, dump: Dump, slo_ms: int) -> frozenset[date]:
    """The days of the dump of which the folder has the hours."""
    kept, now = _kept(folder), _marks(dump.files, slo_ms)
    there = {path.split("/")[1].removeprefix("month=") for path in table_files(folder, TABLE)}
    return frozenset(date.fromisoformat(day) for day, mark in now.items() if kept.get(day) == mark and day[:7] in there)


def read_hours(folder: Folder, days: Collection[date]) -> pa.Table:
    """The hours of these days, with the columns `HOURS`."""
    found = [_month(folder, month) for month in sorted({_month_of(day) for day in days})]
    return _of_days(pa.concat_tables([HOURS.empty_table(), *found]), days)


def keep_hours(folder: Folder, hours: pa.Table, files: Iterable[GoodFile], slo_ms: int) -> None:
    """Keeps the hours of the days of these files, in place of what there was of them.

    What a crash leaves: days that count as not known, and are read again.
    """
    marks = _marks(files, slo_ms)
    days = {date.fromisoformat(day) for day in marks}
    if not days:
        return
    _tell(folder, {day: mark for day, mark in _kept(folder).items() if day not in marks})
    for month in sorted({_month_of(day) for day in days}):
        before, own = _month(folder, month), {day for day in days if _month_of(day) == month}
        left = before.filter(pc.invert(_is_of(before, own)))
        rows = pa.concat_tables([left, _of_days(hours, own)]).sort_by([("topic", "ascending"), ("hour", "ascending")])
        with folder.writing(_path(month)) as file:
            parquet.write_table(rows, file)
    _tell(folder, _kept(folder) | marks)


def _month(folder: Folder, month: str) -> pa.Table:
    with suppress(FolderError, OSError, pa.ArrowException), folder.open(_path(month)) as file:
        return parquet.ParquetFile(file).read().select(HOURS.names).cast(HOURS)
    return HOURS.empty_table()


def _path(month: str) -> str:
    return f"{TABLE}/month={month}/hours.parquet"


def _month_of(day: date) -> str:
    return f"{day:%Y-%m}"


def _of_days(hours: pa.Table, days: Collection[date]) -> pa.Table:
    return hours.filter(_is_of(hours, days))


def _is_of(hours: pa.Table, days: Collection[date]) -> pa.Array:
    numbers = [(day - date(1970, 1, 1)).days for day in days]
    return pc.is_in(
        pc.floor(pc.divide(hours["hour"].cast(pa.float64()), float(_DAY_H))).cast(pa.int64()),
        pa.array(numbers, pa.int64()),
    )


def _marks(files: Iterable[GoodFile], slo_ms: int) -> dict[str, str]:
    """By day, what tells its files from any others."""
    of_day: dict[str, list[tuple[str, int, int, int | None]]] = {}
    for file in files:
        of_day.setdefault(str(file.day), []).append((file.path, file.bytes, file.rows, file.last_ms))
    return {day: _hash([slo_ms, sorted(own)]) for day, own in of_day.items()}


def _hash(kept: object) -> str:
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]


def _kept(folder: Folder) -> dict[str, str]:
    with suppress(ValueError, AttributeError, FolderError):
        return dict(json.loads(folder.read(_FILE) or b"{}").items())
    return {}


def _tell(folder: Folder, marks: dict[str, str]) -> None:
    folder.write(_FILE, json.dumps(marks, indent=2, sort_keys=True).encode() + b"\n")
