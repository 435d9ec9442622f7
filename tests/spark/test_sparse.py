"""A dump that has next to nothing to tell: every question answers it, an empty table is a table, the report says so."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamdq.dump.local import LocalFolder
from streamdq.errors import InvalidInput
from streamdq.store.history.rows import Event
from streamdq_spark.analysis import analyze, chosen, plan
from streamdq_spark.engines.duck import DuckDB
from streamdq_spark.questions import QUESTIONS, tables
from streamdq_spark.report import load_tables
from streamdq_spark.summary import Summary
from tests.spark import plain
from tests.spark.dumps import EPOCH, START, TIMES, event, write_dump
from tests.spark.frames import assert_same, rows_of, written
from tests.spark.plain import Happened

Case = tuple[list[dict[str, Any]], Path, Summary]
NOT_RUN: dict[str, Any] = {"started": None, "moved": None, "consumer": None, "error": None, "reason": None}
BARE: dict[str, Any] = dict.fromkeys(
    ("consumer", "created", "due", "moved", "started", "error", "reason", "body_bytes")
)
"""All that may be null is: docs/reference/history.md."""


def of_kind(kind: Event, **columns: Any) -> list[dict[str, Any]]:
    """Three events of one kind on two days, as the engine writes them."""
    own = NOT_RUN if kind in (Event.CANCELLED, Event.EXPIRED, Event.KICKED) else {}
    own = own | ({"error": "ValueError"} if kind in (Event.RETRY, Event.DEAD) else {})
    own = own | ({"reason": "exhausted"} if kind is Event.DEAD else {})
    reported = {"event": kind.value} | own | columns
    return [event(n, START + timedelta(hours=11 * n, minutes=5)) | reported for n in range(3)]


NOON = START + timedelta(hours=12)
CASES: dict[str, list[dict[str, Any]]] = {
    **{kind.value: of_kind(kind) for kind in Event},
    "nulls": [row | {"id": f"{kind}{row['id']}"} for kind in Event for row in of_kind(kind, **BARE)],
    "one row": [event(0, NOON)],
    "one job": [
        event(n, NOON + timedelta(seconds=n), id="j", created=NOON, event=kind, attempt=n + 1, step=n)
        for n, kind in enumerate(("retry", "retry", "done"))
    ],
}


def happened(row: dict[str, Any]) -> Happened:
    ms = {name: None if row[name] is None else round((row[name] - EPOCH) / timedelta(milliseconds=1)) for name in TIMES}
    return Happened(**(row | ms))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.thorough] if name not in ("nulls", "one job") else []) for name in CASES
    ],
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A case's events, the folder of its dump and tables, and what the analysis said of it."""
    folder, rows = tmp_path_factory.mktemp("sparse"), CASES[request.param]
    write_dump(folder / "dump", rows, hours_each=24)
    return rows, folder, analyze(DuckDB(), plan(str(folder / "dump"), str(folder / "out")))


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_answers_it(case: Case, name: str) -> None:
    rows, folder, summary = case
    wanted = getattr(plain, name)([happened(row) for row in rows])
    assert summary.tables[name] == len(wanted)
    assert json.loads((folder / "out" / "analysis.json").read_text())["tables"][name] == len(wanted)
    found = written(folder / "out" / name)
    assert_same(rows_of(found), wanted)
    assert found.column_names == list(tables()[name].columns)


def test_days_in_which_nothing_happened(tmp_path: Path) -> None:
    """Between two days that have something, and asked for by themselves."""
    write_dump(tmp_path / "dump", [event(n, NOON + timedelta(days=2 * n, minutes=1)) for n in range(2)])
    dump, out, between = str(tmp_path / "dump"), str(tmp_path / "out"), (START + timedelta(days=1)).date()
    some = chosen(["throughput", "retries", "workers"])
    whole = analyze(DuckDB(), plan(dump, out), questions=some)
    assert whole.tables == {"throughput": 2, "retries": 1, "workers": 2}
    with pytest.raises(InvalidInput, match="has no events on the requested days: it holds 2026-01-05 to"):
        plan(dump, out, between, between)
    before = plan(dump, out, between, (START + timedelta(days=2)).date())
    assert analyze(DuckDB(), before, questions=some).tables == {"throughput": 1, "retries": 1, "workers": 1}
    assert written(tmp_path / "out" / "throughput").num_rows == 2
    assert load_tables(LocalFolder(tmp_path / "out"), ["throughput"], between, between) == {"throughput": []}
