"""Asks DuckDB for the tables, and compares them with what an analysis wrote."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import require_manifest

FOLDER = Path(__file__).parent
PREPARED = ("prelude", "forecasts")
"""What several of the tables are made of."""
_DAY = timedelta(days=1)
_CLOSE = 1e-9
_SHOWN = 3

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """The days that were asked for, both included, and by what measure."""

    first: date
    last: date
    slo_ms: int = 1000
    objective: float = 0.99
    tz: str = "UTC"
    goes_on: bool = False
    compare: tuple[tuple[int, int], tuple[int, int]] | None = None
    """Two spans of time in ms, the second end of each excluded."""


def names() -> list[str]:
    """The tables that have SQL."""
    return sorted(path.stem for path in FOLDER.glob("*.sql") if path.stem not in PREPARED)


@contextmanager
def calculated(dump: Path, asked: Asked, memory: str = "2GB") -> Iterator[Second]:
    """DuckDB with the events of the dump."""
    files = [str(dump / file.path) for file in require_manifest(LocalFolder(dump)).files]
    with duckdb.connect() as database:
        database.execute(f"SET TimeZone = 'UTC'; SET memory_limit = '{memory}'; SET preserve_insertion_order = false")
        database.execute("SET VARIABLE files = ?", [files])
        first, end = (_ms(day) for day in (asked.first, asked.last + _DAY))
        told: dict[str, Any] = {"first_ms": first, "end_ms": end, "slo_ms": asked.slo_ms, "objective": asked.objective,
                "tz": asked.tz, "goes_on": asked.goes_on}  # fmt: skip
        if asked.compare:
            (told["before_since"], told["before_until"]), (told["after_since"], told["after_until"]) = asked.compare
        for name, value in told.items():
            database.execute(f"SET VARIABLE {name} = ?", [value])
        database.execute(_HISTORY)
        for name in PREPARED:
            database.execute((FOLDER / f"{name}.sql").read_text())
        yield Second(database)


_TIMES = ("created", "due", "moved", "started", "finished")
_HISTORY = f"""
CREATE VIEW history AS
SELECT * REPLACE ({", ".join(f"epoch_ms({name}) AS {name}" for name in _TIMES)}),
    CAST(split_part(entry, '-', 1) AS UBIGINT) AS entry_ms, CAST(split_part(entry, '-', 2) AS UBIGINT) AS entry_number
FROM read_parquet(getvariable('files'), hive_partitioning = false)
"""


class Second:
    """The tables, calculated when they are asked for."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self._made: set[str] = set()

    def rows(self, name: str) -> list[Row]:
        query = (FOLDER / f"{name}.sql").read_text()
        for needed in re.findall(r"\bsecond_(\w+)", query):
            self._make(needed)
        self._make(name)
        return _rows(self._database.sql(f'FROM "second_{name}"'))

    def _make(self, name: str) -> None:
        if name not in self._made:
            self._database.execute(f'CREATE TABLE "second_{name}" AS {(FOLDER / f"{name}.sql").read_text()}')
            self._made.add(name)

    def written(self, tables: Path, name: str, asked: Asked) -> list[Row]:
        """What an analysis of these days wrote."""
        files = [path for path in sorted((tables / name).rglob("*.parquet")) if _is_of(path, asked)]
        if not files:
            return []
        listed = [str(path) for path in files]
        return _rows(
            self._database.sql("FROM read_parquet($files, hive_partitioning = false)", params={"files": listed})
        )


def differences(name: str, found: list[Row], wanted: list[Row]) -> list[str]:
    """What a table has otherwise than the second calculation of it: the first of each kind, and how many there are."""
    query = (FOLDER / f"{name}.sql").read_text()
    keys, allowed = _listed("KEY", query), slack(name)
    mine, theirs = ({_key(row, keys): row for row in rows} for rows in (found, wanted))
    told = [
        f"{len(rows)} rows have {len(by_key)} keys" for rows, by_key in ((found, mine), (wanted, theirs))
        if len(rows) != len(by_key)
    ]  # fmt: skip
    told += _first("only in the table", [str(key) for key in mine.keys() - theirs.keys()])
    told += _first("not in the table", [str(key) for key in theirs.keys() - mine.keys()])
    columns = Counter[str]()
    for key in sorted(mine.keys() & theirs.keys(), key=repr):
        own, other = mine[key], theirs[key]
        if own.keys() != other.keys():
            return [*told, f"columns {sorted(own.keys() ^ other.keys())} are in one of them alone"]
        for column, value in own.items():
            if not _same(value, other[column], allowed.get(column, 0.0)):
                columns[column] += 1
                if columns[column] <= _SHOWN:
                    told.append(f"{key}: {column} is {value}, and should be {other[column]}")
    return told + [f"{column} differs in {n} rows" for column, n in columns.items()]


def slack(name: str) -> dict[str, float]:
    """By column that the table has rounded: how far apart two values may be that are rounded to neighbours."""
    listed = _listed("ROUNDED", (FOLDER / f"{name}.sql").read_text())
    return {column: 1.5 * 10.0 ** -int(digits) for column, digits in (rounded.split() for rounded in listed)}


def _first(what: str, keys: list[str]) -> list[str]:
    return [f"{what}: {', '.join(sorted(keys)[:_SHOWN])}, {len(keys)} in all"] if keys else []


def _listed(word: str, query: str) -> list[str]:
    found = re.search(rf"^-- {word} (.+)$", query, re.MULTILINE)
    return re.split(r",\s*", found[1]) if found else []


def _key(row: Row, keys: list[str]) -> tuple[Any, ...]:
    return tuple(row[key] for key in keys)


def _same(a: Any, b: Any, slack: float) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y, slack) for x, y in zip(a, b, strict=True))
    if isinstance(a, bool) or isinstance(b, bool) or not isinstance(a, int | float) or not isinstance(b, int | float):
        return bool(a == b)
    return math.isclose(a, b, rel_tol=_CLOSE, abs_tol=max(_CLOSE, slack))


def _rows(answer: duckdb.DuckDBPyRelation) -> list[Row]:
    plain = ", ".join(
        f'epoch_ms("{name}") AS "{name}"' if "TIMESTAMP" in str(kind) else
        f'CAST("{name}" AS DOUBLE) AS "{name}"' if str(kind).startswith(("DECIMAL", "HUGEINT")) else f'"{name}"'
        for name, kind in zip(answer.columns, answer.types, strict=True)
    )  # fmt: skip
    found = answer.project(plain)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def _is_of(path: Path, asked: Asked) -> bool:
    days = dict(part.split("=", 1) for part in path.parts if "=" in part)
    if "from_dt" in days:
        return (days["from_dt"], days["dt"]) == (str(asked.first), str(asked.last))
    return str(asked.first) <= days["dt"] <= str(asked.last)


def _ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000
