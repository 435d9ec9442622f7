"""Simulated history is a dump like another: its rows keep the rules that real ones keep."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamdq.cli import app as cli
from streamdq.demo.simulated import simulate
from streamdq.dump.arrow import arrow_schema
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import require_manifest
from streamdq.errors import InvalidInput
from streamdq.job.retry import DEFAULT_RETRY, RetrySchedule
from streamdq.store.history.rows import COLUMNS, Event

ROWS, DAYS = 10_000, 3


def rows_of(directory: Path) -> pa.Table:
    folder = LocalFolder(directory)
    tables = []
    for file in require_manifest(folder).files:
        table = pq.ParquetFile(directory / file.path).read()
        assert (table.num_rows, folder.size(file.path)) == (file.rows, file.bytes)
        hours = {f"events/dt={at:%Y-%m-%d}/hour={at:%H}" for at in table["finished"].to_pylist()}
        assert hours == {file.path.rpartition("/")[0]}
        tables.append(table)
    return pa.concat_tables(tables)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated")
    simulate(LocalFolder(path), ROWS, DAYS, seed=7)
    return path


@pytest.fixture(scope="module")
def table(directory: Path) -> pa.Table:
    return rows_of(directory)


@pytest.fixture(scope="module")
def rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


@pytest.mark.thorough
def test_as_many_rows_as_were_asked_for_with_the_schema_of_a_dump(table: pa.Table) -> None:
    assert table.num_rows == ROWS
    assert table.schema.equals(arrow_schema(), check_metadata=True)
    for column in COLUMNS:
        assert column.nullable or table[column.name].null_count == 0


def test_every_event_and_every_reason_happens(rows: list[dict[str, Any]]) -> None:
    assert {row["event"] for row in rows} >= set(Event) - {Event.RELEASED, Event.BLOCKED, Event.UNBLOCKED, Event.FLOW}
    assert {row["reason"] for row in rows} >= {None, "exhausted", "buried"}
    assert all((row["event"] == "dead") == (row["reason"] is not None) for row in rows)
    assert all((row["event"] in ("retry", "dead")) == (row["error"] is not None) for row in rows)


def test_entries_are_unique_and_rise_with_time_in_each_stream(rows: list[dict[str, Any]]) -> None:
    last: dict[Any, tuple[int, int]] = {}
    for row in sorted(rows, key=lambda row: [*map(int, row["entry"].split("-"))]):
        ms, sequence = map(int, row["entry"].split("-"))
        assert ms == round(row["finished"].timestamp() * 1000)
        stream = row["topic"], row["shard"]
        assert last.get(stream, (0, 0)) < (ms, sequence)
        last[stream] = ms, sequence
    assert len(last) > 8


def test_times_stand_in_order(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        times = [row[name] for name in ("created", "due", "moved", "started", "finished")]
        known = [at for at in times if at is not None]
        if row["started"] is not None:
            assert known == sorted(known), row
        assert (row["due"] is None) == (row["event"] == "reclaimed" and row["attempt"] > 1)
        assert row["created"] <= row["finished"]


def test_a_jobs_attempts_follow_its_retry_steps(rows: list[dict[str, Any]]) -> None:
    steps_ms = RetrySchedule.of(DEFAULT_RETRY).steps_ms
    lives: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["finished"]):
        lives[row["id"]].append(row)
    followed: Counter[int] = Counter()
    for life in lives.values():
        assert len({(row["topic"], row["shard"], row["created"]) for row in life}) == 1
        for row, following in pairwise(life):
            if row["event"] == "retry":
                if following["due"] is not None:
                    waited_ms = (following["due"] - row["finished"]).total_seconds() * 1000
                    assert round(waited_ms) == steps_ms[row["step"]]
                assert (following["step"], following["attempt"]) == (row["step"] + 1, row["attempt"] + 1)
                followed[row["step"]] += 1
            else:
                assert row["event"] in ("dead", "kicked", "reclaimed", "released"), (row, following)
    assert set(followed) == set(range(len(steps_ms)))


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_rows_and_another_does_not(tmp_path: Path) -> None:
    for folder, seed in (("7", 7), ("again", 7), ("8", 8)):
        simulate(LocalFolder(tmp_path / folder), 1000, 1, seed)
    one, same, other = (rows_of(tmp_path / folder) for folder in ("7", "again", "8"))
    assert one.equals(same)
    assert not one.equals(other)


def test_a_dump_is_not_written_over(directory: Path) -> None:
    with pytest.raises(InvalidInput, match="holds a dump already"):
        simulate(LocalFolder(directory), 10, 1, seed=1)


def test_an_unfinished_one_is_no_dump_and_is_cleared_away(tmp_path: Path) -> None:
    def stop(_rows: int, _total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(LocalFolder(tmp_path), 1000, 1, seed=1, tell=stop)
    assert len(LocalFolder(tmp_path).files("events")) == 1
    simulate(LocalFolder(tmp_path), 5, 1, seed=2)
    assert rows_of(tmp_path).num_rows == 5
    assert len(LocalFolder(tmp_path).files("events")) == len(require_manifest(LocalFolder(tmp_path)).files)


def test_it_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate-history", "--out", str(tmp_path / "a"), "--events", "500", "--days", "2", "--seed", "3"]
    assert cli.run([*arguments, "--start", "2026-03-01"]) == 0
    assert capsys.readouterr().out.startswith("500 rows in ")
    assert {at.day for at in rows_of(tmp_path / "a")["finished"].to_pylist()} == {1, 2}
    assert cli.run(arguments) == 2
    assert "holds a dump already" in capsys.readouterr().err
    assert cli.run([*arguments[:2], str(tmp_path / "b"), "--start", "yesterday"]) == 2
    assert "is not a day" in capsys.readouterr().err
    for start, days in (("1969-12-31", "2"), ("9999-12-30", "2"), ("0001-01-01", "1")):
        assert cli.run([*arguments[:2], str(tmp_path / "b"), "--start", start, "--days", days]) == 2
        assert "between 1970-01-01 and" in capsys.readouterr().err
    assert cli.run([*arguments[:2], str(tmp_path / "b"), "--start", "9999-12-30", "--days", "1", "--events", "9"]) == 0
