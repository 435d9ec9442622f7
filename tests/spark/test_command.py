"""`streamdq analyze`, in this process and with the suite's Spark."""

from __future__ import annotations

import inspect
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dashboards import slo as alerts
from streamdq import Queue
from streamdq.cli import app as cli
from streamdq.config import TopicSettings
from streamdq.dump.manifest import StreamMark
from streamdq_spark.commands import analyze as cli_analyze
from streamdq_spark.measures import OBJECTIVE, SLO_MS
from streamdq_spark.report import write_report
from tests.servers import Server
from tests.spark.conftest import Command
from tests.spark.dumps import START, days_of, event, write_dump, write_manifest
from tests.spark.frames import rows_of, written


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty attempts, each 100 ms later than the one before."""
    folder = tmp_path_factory.mktemp("slo") / "dump"
    at = START + timedelta(hours=1)
    write_dump(folder, [event(n, at, due=at, started=at + timedelta(milliseconds=100 * n)) for n in range(20)])
    return folder


def only_row(out: Path, table: str) -> dict[str, Any]:
    (row,) = rows_of(written(out / table))
    return row


# -- the SLO


@pytest.mark.thorough
def test_the_slo_is_the_one_that_is_asked_for(command: Command, dump: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out", tmp_path / "report.html"
    slo = ["--slo", "400ms", "--objective", "90%"]
    tables = [word for name in ("punctuality", "punctuality_topics", "changes") for word in ("--only", name)]
    code, said, _ = command("analyze", dump, "--output", out, *slo, *tables, "--report", report, "--json")
    assert code == 0
    assert {"slo_ms": 400, "objective": 0.9}.items() <= json.loads(said).items()
    for name in ("punctuality", "punctuality_topics"):
        row = only_row(out, name)
        assert (row["attempts"], row["within_slo"], row["share_within_slo"]) == (20, 5, 0.25)
        assert row["budget_burn"] == pytest.approx(7.5)
    late = [row for row in rows_of(written(out / "changes")) if row["measure"] == "late"]
    assert [row["now"] for row in late] == [0.75]
    page = report.read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "within 400 ms; objective 90 %" in page
    assert "10 % of attempts may start later than 400 ms" in page
    assert "within 1 s" not in page


@pytest.mark.thorough
def test_hours_are_compared_by_the_clocks_of_the_zone_that_is_asked_for(command: Command, tmp_path: Path) -> None:
    """Five weeks of a job at nine in Paris and none else, the last two days after clocks were put forward. The third
    day at another hour would be expected.
    """
    changed = START + timedelta(days=83)  # 2026-03-29
    days = [changed + timedelta(days=n - 33) for n in range(35)]
    write_dump(
        tmp_path / "dump",
        [
            event(100 * n + k, at + timedelta(hours=8 if at < changed else 7, minutes=k))
            for n, at in enumerate(days)
            for k in range(30)
        ]
        + [event(99_999, days[-1] + timedelta(hours=23))],
    )
    job = ["analyze", tmp_path / "dump", "--only", "forecast", "--only", "anomalies", "--json"]
    for tz, hour in (("Europe/Paris", 7), ("UTC", 8)):
        out = tmp_path / tz.replace("/", "-")
        code, said, _ = command(*job, "--output", out, "--tz", tz)
        assert (code, json.loads(said)["tz"]) == (0, tz)
        rows = rows_of(written(out / "forecast"))
        best = max(rows, key=lambda row: row["expected"])
        assert best["hour"] // 3_600_000 % 24 == hour
        judged = rows_of(written(out / "anomalies"))
        assert any(row["anomaly"] for row in judged) == (tz == "UTC")
    code, _, said = command(*job, "--output", tmp_path / "UTC", "--tz", "Europe/Paris")
    assert code == 2
    assert "have --tz UTC: use another folder for another time zone" in said
    code, _, said = command(*job, "--output", tmp_path / "other", "--tz", "Europe/Pariss")
    assert code == 2
    assert "did you mean Europe/Paris?" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            (["--objective", text], "is not a share")
            for text in ("100%", "1", "0", "99.9", "-5%", "nan", "99%%", "most")
        ),
        (["--slo", "soon"], "slo: can't read 'soon'"),
        (["--slo", "0"], "an SLO of 0 ms"),
    ],
)
def test_a_bad_slo_is_reported(command: Command, dump: Path, tmp_path: Path, words: list[str], message: str) -> None:
    code, out, err = command("analyze", dump, "--output", tmp_path / "out", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "out").exists()


def test_unless_told_otherwise_it_is_that_of_the_alerts() -> None:
    options = inspect.signature(cli_analyze.analyze).parameters
    assert (options["slo"].default, options["objective"].default) == ("1s", "99%")
    assert (SLO_MS, OBJECTIVE) == (1000, 0.99) == (float(alerts.ON_TIME_LE) * 1000, alerts.OBJECTIVE)


# -- the dump is named as for sql and what-if


def test_the_dump_is_an_argument(command: Command, tmp_path: Path) -> None:
    code, out, err = command("analyze", "nowhere", "--output", tmp_path / "out")
    assert (code, out) == (1, "")
    assert "nowhere holds no dump" in err


@pytest.mark.parametrize(
    ("named", "message"), [([], "Missing argument 'dump'"), (["a", "b"], "unexpected extra argument(s) (b)")]
)
def test_one_dump_is_named(command: Command, named: list[str], message: str, tmp_path: Path) -> None:
    code, _, err = command("analyze", *named, "--output", tmp_path / "out")
    assert code == 2
    assert message in err


# -- what waits in Redis


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weeks") / "dump"
    write_dump(folder, days_of(22, 4), hours_each=24)
    return folder


@pytest.mark.thorough
def test_the_forecast_is_joined_with_what_waits_in_redis(
    command: Command,
    newest: Server,
    weeks: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, TopicSettings] = {}

    def write(*arguments: Any, **more: Any) -> None:
        settings.update(more["settings"])
        write_report(*arguments, **more)

    monkeypatch.setattr("streamdq_spark.report.write_report", write)
    with Queue(newest.url) as queue:
        for n in range(7):
            queue.enqueue("order.close", n, delay="90m")
        queue.enqueue("new.topic", 1, delay="1s")
        queue.enqueue("new.topic", 1, delay="30d")  # beyond the forecast
        queue.configure("order.close", ttr="77s")
    job = ["analyze", weeks, "--output", tmp_path / "out", "--only", "forecast"]
    report = tmp_path / "report.html"
    code, said, _ = command("--url", newest.url, *job, "--waiting", "--report", report)
    assert code == 0
    assert "forecast" in said
    rows = rows_of(written((tmp_path / "out") / "forecast"))
    waiting = {
        topic: sum(row["waiting"] for row in rows if row["topic"] == topic) for topic in {r["topic"] for r in rows}
    }
    assert waiting == {"order.close": 7, "new.topic": 1}, "refund.check has too few jobs for a forecast"
    page = report.read_text()
    assert "waiting in Redis now" in page
    assert "was not asked" not in page
    assert settings["order.close"].ttr_ms == 77_000, "for the advice"


def test_a_redis_that_is_away_is_reported_before_anything_is_done(
    command: Command, weeks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMDQ_CALL_TIMEOUT_S", "0.2")
    job = ["analyze", weeks, "--output", tmp_path / "out", "--waiting"]
    code, out, err = command("--url", "redis://127.0.0.1:1", *job)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert not (tmp_path / "out").exists()


# -- the operations page


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (["--page", "https://ops.example"], "pass --report FILE"),
        (["--page", "javascript:x", "--report", "r"], "not a URL"),
    ],
)
def test_a_page_without_use_is_refused(
    command: Command, dump: Path, tmp_path: Path, page: list[str], problem: str
) -> None:
    code, _, err = command("analyze", dump, "--output", tmp_path / "out", *page)
    assert code == 2
    assert problem in err
    assert not (tmp_path / "out").exists()


def test_a_report_that_can_t_be_written_is_reported_before_anything_is_done(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq_spark.session.session", Mock(side_effect=AssertionError("Spark starts")))
    (tmp_path / "file").write_text("no folder")
    report = tmp_path / "file" / "report.html"
    code = cli.run(["analyze", str(dump), "--output", str(tmp_path / "out"), "--report", str(report)])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (1, 1)
    assert "Not a directory" in said or "File exists" in said


# -- what is not in the numbers


def test_what_redis_lost_before_it_was_dumped_is_reported(command: Command, tmp_path: Path) -> None:
    folder, out = tmp_path / "dump", tmp_path / "out"
    manifest = write_dump(folder, [event(0, START)])
    manifest.streams = [StreamMark(topic="t", shard=0, lost=3, resets=2), StreamMark(topic="u", shard=0, resets=1)]
    write_manifest(folder, manifest)
    job = ["analyze", folder, "--output", out, "--only", "throughput"]
    code, said, _ = command(*job)
    assert code == 0
    assert "3 events are not in the dump" in said
    assert "Redis lost history or went back to an earlier state 3 times" in said
    assert {"lost": 3, "resets": 3}.items() <= json.loads((out / "analysis.json").read_text()).items()
