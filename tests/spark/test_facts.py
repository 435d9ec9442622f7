"""Later runs take from the fact table what they need of earlier days, as long as the days' files are the same: the rows
are those that they would be, and a run that was killed leaves nothing that counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from shutil import copytree
from typing import Any, BinaryIO

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from streamdq.dump.local import LocalFolder
from streamdq_spark.analysis import Plan, analyze, events_to_read, plan
from streamdq_spark.dump_files import open_dump
from streamdq_spark.engines.base import Engine
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.engines.spark import Spark
from streamdq_spark.facts import Facts
from streamdq_spark.measures import SLO_MS
from streamdq_spark.questions import QUESTIONS, kept
from tests.spark.dumps import START, days_of, event, write_dump
from tests.spark.frames import assert_same, rows_of, written

WEEKS, EACH = 6, 6
DAYS = [(START + timedelta(days=n)).date() for n in range(7 * WEEKS)]
LAST = DAYS[-1]
HOURS = ("budget",)
"""A table that needs the hours alone."""


def history() -> list[dict[str, Any]]:
    late = event(9_999, START + timedelta(days=3, hours=2, minutes=1), started=START + timedelta(days=3, hours=3))
    return [*days_of(7 * WEEKS, EACH), late | {"due": START + timedelta(days=3)}]


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("facts") / "dump"
    write_dump(folder, history(), hours_each=24)
    return folder


def asked(dump: Path, out: Path, first: date | None = None, last: date | None = None) -> Plan:
    return plan(str(dump), str(out), first, last)


def known(dump: Path, out: Path, name: str = "hours", slo_ms: int = SLO_MS) -> frozenset[date]:
    return Facts(LocalFolder(out), open_dump(str(dump)).files, slo_ms).known(name, DAYS[0], LAST)


def facts(dump: Path, out: Path) -> list[dict[str, Any]]:
    days = {name: known(dump, out, name) for name in kept()}
    assert days["hours"]
    return sorted(Facts(LocalFolder(out), open_dump(str(dump)).files, SLO_MS).rows(days).to_pylist(), key=repr)


def same_tables(one: Path, other: Path) -> None:
    for name in QUESTIONS:
        assert_same(rows_of(written(one / name)), rows_of(written(other / name)))


def test_the_next_day_reads_its_own_events_alone(dump: Path, tmp_path: Path) -> None:
    out, apart = tmp_path / "out", tmp_path / "apart"
    analyze(DuckDB(), asked(dump, out, DAYS[0], DAYS[-2]))
    for own in out.iterdir():  # so that what is compared is of the last day
        if own.is_dir() and own.name != "facts":
            own.rename(tmp_path / own.name)
    assert events_to_read(asked(dump, out, LAST, LAST)) == EACH
    assert events_to_read(asked(dump, apart, LAST, LAST)) == len(history())
    for folder in (out, apart):
        analyze(DuckDB(), asked(dump, folder, LAST, LAST))
    same_tables(out, apart)
    assert known(dump, out) == set(DAYS)


def test_a_table_by_itself_counts_what_it_needs(dump: Path, tmp_path: Path) -> None:
    analyze(DuckDB(), asked(dump, tmp_path), questions=HOURS)
    assert known(dump, tmp_path) == set(DAYS)
    assert known(dump, tmp_path, "tried") == set()
    assert events_to_read(asked(dump, tmp_path, LAST, LAST), HOURS) == EACH
    assert events_to_read(asked(dump, tmp_path, LAST, LAST), ("hosts",)) == 15 * EACH


@pytest.mark.thorough
def test_a_file_a_month(dump: Path, tmp_path: Path) -> None:
    analyze(DuckDB(), asked(dump, tmp_path))
    files = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "facts").rglob("*"))
    months = ("facts/month=2026-01", "facts/month=2026-02")
    assert files == sorted([*months, *(f"{month}/facts.parquet" for month in months)])


@pytest.mark.thorough
def test_each_engine_goes_on_from_the_other_s_facts(dump: Path, spark: SparkSession, tmp_path: Path) -> None:
    engines: dict[str, Engine] = {"duckdb": DuckDB(), "spark": Spark(spark)}
    for name, engine in engines.items():
        analyze(engine, asked(dump, tmp_path / name, DAYS[0], DAYS[-2]))
    one, other = (facts(dump, tmp_path / name) for name in engines)
    assert_same(one, other)
    for name, other_engine in zip(engines, reversed(engines.values()), strict=True):
        assert events_to_read(asked(dump, tmp_path / name, LAST, LAST)) == EACH
        analyze(other_engine, asked(dump, tmp_path / name, LAST, LAST))
    same_tables(tmp_path / "duckdb", tmp_path / "spark")


def test_a_day_whose_files_changed_is_counted_again(tmp_path: Path) -> None:
    dump, out = tmp_path / "dump", tmp_path / "out"
    write_dump(dump, history(), hours_each=24)
    analyze(DuckDB(), asked(dump, out), questions=HOURS)
    more = event(1, START + timedelta(days=2, hours=20))
    write_dump(dump, [*history(), more], hours_each=24)
    assert known(dump, out) == set(DAYS) - {DAYS[2]}
    assert known(dump, out, slo_ms=SLO_MS + 1) == set()  # they tell who was late by another measure


def test_a_month_that_can_t_be_read_is_counted_again(dump: Path, tmp_path: Path) -> None:
    analyze(DuckDB(), asked(dump, tmp_path), questions=HOURS)
    (tmp_path / "facts" / "month=2026-01" / "facts.parquet").write_bytes(b"PAR1")
    (tmp_path / "facts" / "month=2026-02" / "facts.parquet").unlink()
    assert known(dump, tmp_path) == set()
    analyze(DuckDB(), asked(dump, tmp_path), questions=HOURS)
    assert known(dump, tmp_path) == set(DAYS)


def test_facts_with_other_columns_are_counted_again(dump: Path, tmp_path: Path) -> None:
    analyze(DuckDB(), asked(dump, tmp_path), questions=HOURS)
    for path in (tmp_path / "facts").rglob("*.parquet"):
        rows = parquet.read_table(path)
        parquet.write_table(rows.drop_columns(["firsts"]), path)
    assert known(dump, tmp_path) == set()
    analyze(DuckDB(), asked(dump, tmp_path), questions=HOURS)
    assert known(dump, tmp_path) == set(DAYS)


# -- a run that is killed


class Killed(BaseException):
    """As if the process had ended there."""


class Kills:
    """Ends the process while it writes its file of that number: the file is begun, or it is there and no more is."""

    def __init__(self, at: int, *, begun: bool) -> None:
        self._left, self._begun = at, begun
        self.files: list[str] = []

    @contextmanager
    def writing(self, folder: LocalFolder, path: str, durable: bool = True) -> Iterator[BinaryIO]:
        self.files.append(path)
        self._left -= 1
        with WRITING(folder, path, durable) as file:
            if self._left == 0 and self._begun:
                file.write(b"PAR1")
                raise Killed
            yield file
        if self._left == 0:
            raise Killed


WRITING = LocalFolder.writing


@pytest.fixture(scope="module")
def before(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("before") / "out"
    analyze(DuckDB(), asked(dump, out, DAYS[0], DAYS[-4]))
    return out


@pytest.fixture(scope="module")
def undisturbed(dump: Path, before: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    copytree(before, out)
    analyze(DuckDB(), asked(dump, out, DAYS[-3], LAST))
    return out


FILES = len(QUESTIONS) + 1 + 1
"""That such a run writes: the tables, a month of facts, and what was covered."""


@pytest.mark.thorough
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("at", range(1, FILES + 1))
def test_whenever_it_was_killed_it_counts_nothing_twice(
    at: int, begun: bool, dump: Path, before: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day more, killed while it writes a table or its facts; and again."""
    out, kills = tmp_path / "out", Kills(at, begun=begun)
    copytree(before, out)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "writing", lambda *given, **how: kills.writing(*given, **how))
        with pytest.raises(Killed):
            analyze(DuckDB(), asked(dump, out, DAYS[-3], LAST))
    analyze(DuckDB(), asked(dump, out, DAYS[-3], LAST))
    assert_same(facts(dump, out), facts(dump, undisturbed))
    same_tables(out, undisturbed)
