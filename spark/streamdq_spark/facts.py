"""The fact table: what later analyses need of earlier days, by hour. So they read the events of their own days alone.

It holds the rows of all views that are kept by day (``questions.kept``), each under the name of its view, in one file
for each month. A file's footer says for which days it has a view's rows, and from which files of the dump and by which
rule they were counted. So rows and record appear in one step: a run that was killed leaves a month as it was, or
complete, and a repeated run counts nothing twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from streamdq.dump.folder import Folder
from streamdq.errors import FolderError

from .dump_files import GoodFile
from .questions import kept

TABLE = "facts"
FACT, DAY = "fact", "day"
_TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64()}
_COUNTED = b"counted"
_EPOCH = date(1970, 1, 1)
Days = Mapping[str, Collection[date]]
"""Of views, by name."""


def schema() -> pa.Schema:
    """The name of the view, and the columns of all of them."""
    columns = {name: _TYPES[kind] for view in kept().values() for name, kind in view.columns.items()}
    return pa.schema([(FACT, pa.string()), *columns.items()])


class Facts:
    """The fact table in an output folder, for one dump and SLO."""

    def __init__(self, folder: Folder, files: Iterable[GoodFile], slo_ms: int) -> None:
        self._folder = folder
        self._files = _by_day(files)
        self._slo_ms = slo_ms
        self._months: dict[str, tuple[pa.Table, dict[str, dict[str, str]]]] = {}

    def known(self, name: str, since: date, until: date) -> frozenset[date]:
        """The days between these two, both included, of which the rows of the view are there."""
        months = {f"{since + timedelta(days=n):%Y-%m}" for n in range((until - since).days + 1)}
        found = {day: mark for month in months for day, mark in self._counted(month).get(name, {}).items()}
        days = (day for day in self._files if since <= day <= until)
        return frozenset(day for day in days if found.get(str(day)) == self._mark(name, day))

    def rows(self, days: Days) -> pa.Table:
        """The rows of these days, with the columns of `schema`."""
        months = {f"{day:%Y-%m}" for own in days.values() for day in own}
        whole = pa.concat_tables([schema().empty_table(), *(self._month(month) for month in sorted(months))])
        parts = [whole.filter(_of(whole, name, own)) for name, own in days.items()]
        return pa.concat_tables([schema().empty_table(), *parts])

    def keep(self, made: Mapping[str, pa.Table], days: Days) -> None:
        """Keeps these rows of the views, for these days, in place of what there was of them."""
        months = {f"{day:%Y-%m}" for own in days.values() for day in own}
        for month in sorted(months):
            own = {name: [day for day in of_view if f"{day:%Y-%m}" == month] for name, of_view in days.items()}
            self._keep_month(month, made, {name: of_view for name, of_view in own.items() if of_view})

    def _keep_month(self, month: str, made: Mapping[str, pa.Table], days: Days) -> None:
        rows, counted = self._month(month), dict(self._counted(month))
        for name, own in days.items():
            new = as_facts(name, made[name])
            left = rows.filter(pc.invert(_of(rows, name, own)))
            rows = pa.concat_tables([left, new.filter(_of(new, name, own))])
            counted[name] = counted.get(name, {}) | {str(day): self._mark(name, day) for day in own}
        rows = rows.sort_by([(FACT, "ascending"), (DAY, "ascending")])
        footer = {_COUNTED: json.dumps(counted, sort_keys=True).encode()}
        with self._folder.writing(_path(month)) as file:
            parquet.write_table(rows.replace_schema_metadata(footer), file, compression="zstd")
        self._months.pop(month)

    def _counted(self, month: str) -> dict[str, dict[str, str]]:
        """By view and day, the mark of what was counted."""
        return self._read(month)[1]

    def _month(self, month: str) -> pa.Table:
        return self._read(month)[0]

    def _read(self, month: str) -> tuple[pa.Table, dict[str, dict[str, str]]]:
        """What there is of a month; nothing, if it can't be read."""
        if month not in self._months:
            self._months[month] = schema().empty_table(), {}
            with suppress(FolderError, OSError, pa.ArrowException, KeyError, ValueError):
                with self._folder.open(_path(month)) as file:
                    rows = parquet.ParquetFile(file).read()
                counted = json.loads((rows.schema.metadata or {})[_COUNTED])
                self._months[month] = rows.select(schema().names).cast(schema()), counted
        return self._months[month]

    def _mark(self, name: str, day: date) -> str:
        """What tells the day's rows from those of other files of the dump, another SLO, or another rule."""
        counted_from = [self._slo_ms, kept()[name].text, sorted(self._files[day], key=str)]
        return hashlib.sha256(json.dumps(counted_from).encode()).hexdigest()[:16]


def _by_day(files: Iterable[GoodFile]) -> dict[date, list[tuple[str, int, int, int | None]]]:
    found: dict[date, list[tuple[str, int, int, int | None]]] = {}
    for file in files:
        found.setdefault(file.day, []).append((file.path, file.bytes, file.rows, file.last_ms))
    return found


def as_facts(name: str, rows: pa.Table) -> pa.Table:
    """With all columns; those that the view does not have are null."""
    columns = {FACT: pa.array([name] * rows.num_rows, pa.string())} | dict(
        zip(rows.column_names, rows.columns, strict=True)
    )
    empty = {field.name: pa.nulls(rows.num_rows, field.type) for field in schema()}
    return pa.table(empty | columns).select(schema().names).cast(schema())


def _of(rows: pa.Table, name: str, days: Collection[date]) -> pa.Array:
    numbers = pa.array([(day - _EPOCH).days for day in days], pa.int64())
    return pc.and_(pc.equal(rows[FACT], name), pc.is_in(rows[DAY], numbers))


def _path(month: str) -> str:
    return f"{TABLE}/month={month}/facts.parquet"
