"""What an owner asks for: two time spans compared by `analyze --compare`, and the table of `streamdq capacity`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamdq.cli import app as cli
from tests.spark.conftest import Command
from tests.spark.dumps import as_row, days_of, write_dump
from tests.spark.logs import MONDAY, done
from tests.spark.plain import HOUR
from tests.spark.test_compared import made_up

BEFORE, AFTER = "2026-01-05..2026-01-11", "2026-01-12..2026-01-18"


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks; in the second all attempts of t1 take 400 ms longer."""
    folder = tmp_path_factory.mktemp("released") / "dump"
    log = made_up(
        7, topics=2, after=lambda e: e._replace(started=e.started and e.started - 400) if e.topic == "t1" else e
    )
    write_dump(folder, map(as_row, log), hours_each=24)
    return folder


@pytest.mark.thorough
def test_what_changed_is_shown_and_in_the_report(command: Command, dump: Path, tmp_path: Path) -> None:
    job = ["analyze", dump, "--output", tmp_path / "out", "--only", "throughput"]
    report = tmp_path / "report.html"
    code, said, _ = command(*job, "--compare", BEFORE, AFTER, "--report", report)
    assert code == 0
    lines = [line.split() for line in said.splitlines() if "run time, median" in line]
    assert [(words[0], words[-1]) for words in lines] == [("t1", "worse")]
    page = report.read_text()
    assert "What changed?" in page
    assert f"From {BEFORE} to {AFTER}" in page
    assert json.loads((tmp_path / "out" / "analysis.json").read_text())["compare"] == [BEFORE, AFTER]
    code, said, _ = command(*job, "--compare", "2026-01-06..2026-01-07", "2026-01-08..2026-01-09")
    assert code == 0
    assert "nothing changed from 2026-01-06..2026-01-07 to 2026-01-08..2026-01-09 beyond chance" in said


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (("2026-01-05", AFTER), "is no span; write 2026-01-05..2026-01-11"),
        (("2026-01-05..soon", AFTER), "is no span"),
        (("2026-01-05..9999-12-31", AFTER), "is no span"),
        (("2026-01-11..2026-01-05", AFTER), "ends before it begins"),
        ((BEFORE, "2026-01-11..2026-01-18"), "overlap"),
        ((BEFORE, "2026-01-12..2026-01-20"), "is not within the days that are analysed, 2026-01-05 to 2026-01-18"),
        (("2026-01-04T23:00..2026-01-05T12:00", AFTER), "is not within the days"),
    ],
)
def test_a_bad_span_is_reported(
    command: Command, dump: Path, tmp_path: Path, spans: tuple[str, str], message: str
) -> None:
    code, out, err = command("analyze", dump, "--output", tmp_path / "out", "--compare", *spans)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_capacity_is_shown_for_any_concurrency(command: Command, tmp_path: Path) -> None:
    """Two jobs an hour that take 20 minutes, for 16 days."""
    log = [
        done(
            "slow",
            MONDAY + n * HOUR // 2 + HOUR // 3,
            id=f"{n}",
            due=MONDAY + n * HOUR // 2,
            started=MONDAY + n * HOUR // 2,
        )
        for n in range(16 * 48)
    ]
    write_dump(tmp_path / "dump", map(as_row, log), hours_each=24)
    job = ["analyze", tmp_path / "dump", "--output", tmp_path / "out", "--only", "capacity"]
    assert command(*job)[0] == 0
    code, said, _ = command("capacity", tmp_path / "out", "--json")
    assert code == 0
    (pool,) = json.loads(said)
    assert pool["topics"] == ["slow"]
    assert len(pool["hours"]) == 24
    code, said, _ = command("capacity", tmp_path / "out", "--concurrency", "1", "--json")
    (alone,) = json.loads(said)
    for hour, one in zip(pool["hours"], alone["hours"], strict=True):
        assert hour["slots"] == one["slots"]
        assert one["workers"] >= one["slots"] / 0.8
        assert hour["workers"] <= one["workers"]
    code, said, _ = command("capacity", tmp_path / "out")
    assert code == 0
    assert "Counted with 1 handler at once in each worker" in said
    assert "1 worked lately" in said


@pytest.mark.thorough
def test_without_two_weeks_capacity_says_what_it_takes(command: Command, tmp_path: Path) -> None:
    write_dump(tmp_path / "dump", days_of(2), hours_each=24)
    job = ["analyze", tmp_path / "dump", "--output", tmp_path / "out", "--only"]
    assert command(*job, "throughput")[0] == 0
    code, out, err = command("capacity", tmp_path / "out")
    assert (code, out) == (2, "")
    assert "there is no table capacity in" in err
    assert command(*job, "capacity")[0] == 0
    code, out, _ = command("capacity", tmp_path / "out")
    assert code == 0
    assert out.startswith("Nothing is known of the coming hours: this takes two weeks of history")


def test_the_report_of_a_week_is_one_command(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("typer.launch", shown.append)
    out = tmp_path / "new" / "week.html"
    assert cli.run(["report", str(dump), "--out", str(out), "--open", "--tz", "Europe/Paris"]) == 0
    assert shown == [out.as_uri()]
    assert out.as_uri() in capsys.readouterr().out
    page = out.read_text()
    assert "2026-01-12 to 2026-01-18" in page, "the last seven days of the dump"
    assert "Europe/Paris" in page
    assert cli.run(["report", str(dump), "--out", str(out), "--page", "javascript:x"]) == 2
    assert "not a URL" in capsys.readouterr().err
