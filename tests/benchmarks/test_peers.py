"""The comparison with other queues: its judgement, its table, and streamdq in it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

from benchmarks.peers import driver
from benchmarks.peers.__main__ import main
from benchmarks.peers.adapters import peer as shared
from benchmarks.peers.chart import Row, chart
from benchmarks.peers.chart import rows as chart_rows
from benchmarks.peers.driver import PeerProcess, Worker
from benchmarks.peers.judge import Delivery, Ran, lateness_ms, per_second, rows
from benchmarks.peers.setup import Missing, Peer, peers, prepare
from benchmarks.peers.table import TABLES, cell, markdown
from tests.conftest import BINARIES

needs_redis = pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine")
MS = 1_000_000


def ran(*numbers: int, due: int = 0, at: int = 0) -> list[Ran]:
    return [Ran(number, due * MS, at * MS) for number in numbers]


def test_what_was_delivered() -> None:
    assert Delivery.of(ran(0, 1, 2), 3) == Delivery(0, 0, 0)
    assert Delivery.of(ran(0, 2, 2, 2), 3) == Delivery(missing=1, twice=2, early=0)
    assert Delivery.of(ran(5, 6, due=10, at=9) + ran(7, due=10, at=10), 3, first=5) == Delivery(0, 0, early=2)


def test_a_job_that_nobody_enqueued_is_no_result() -> None:
    with pytest.raises(ValueError, match=r"\[3\]"):
        Delivery.of(ran(0, 3), 3)


def test_speed_and_lateness() -> None:
    runs = [Ran(n, 0, n * 10 * MS) for n in range(101)]
    assert per_second(runs) == pytest.approx(100)
    assert per_second(runs[:1]) == 0
    assert [lateness_ms(runs, percent) for percent in (0, 50, 99)] == [0, 500, 990]


def test_a_line_that_was_cut_off_is_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert rows(log) == []
    log.write_text("1 20 30\n2 20 31\n3 20")
    assert rows(log) == [Ran(1, 20, 30), Ran(2, 20, 31)]


@pytest.mark.parametrize("number", [-1, 0, 19_999])
def test_the_body_has_165_bytes(number: int) -> None:
    body = shared.body(number, 1_800_000_000_000_000_000)
    assert len(json.dumps(body, separators=(",", ":"))) == 165
    assert (body["n"], body["due"]) == (number, 1_800_000_000_000_000_000)


def test_due_times_are_whole_milliseconds_and_a_delay_is_never_less() -> None:
    before = time.time_ns()
    (at_once, none), *_ = shared._jobs(first=3, count=2)
    assert (at_once["n"], none) == (3, None)
    spread = shared._jobs(first=0, count=50, between_s=[3600, 7200])
    assert len({due for _, due in spread}) == 50
    for job, due in spread:
        assert job["due"] == due
        assert due % MS == 0
        assert 3600 <= (due - before) / 1e9 + 0.001 < 10_000
    due = time.time_ns() + 3_600_000 * MS + 1
    assert 0 < shared.delay_ms(due) <= 3_600_001
    assert time.time_ns() + shared.delay_ms(due) * MS >= due
    assert shared.delay_ms(before - 1) == 0


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Its log is what the test writes; nothing settles."""

    class Ready:
        def line(self, _: float) -> str:
            return "ready\n"

        def must_live(self) -> None: ...

        def told(self) -> str:
            return "all is well"

    monkeypatch.setattr(driver, "_SETTLE_S", 0.0)
    return Worker(cast("PeerProcess", Ready()), tmp_path / "log")


def test_it_waits_for_jobs_and_not_for_lines(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no job ran within 0 s: all is well"):
        worker.wait_for(2, patience_s=0.0)
    (tmp_path / "log").write_text("-1 5 6\n0 5 6\n0 5 7\n")
    found = worker.wait_for(2, patience_s=0.0)
    assert Delivery.of(found, 2) == Delivery(missing=1, twice=1, early=0), "the first job is none of them"
    (tmp_path / "log").write_text("-1 5 6\n0 5 6\n0 5 7\n1 5 6\n")
    assert Delivery.of(worker.wait_for(2), 2) == Delivery(missing=0, twice=1, early=0)


def test_a_process_that_ends_or_hangs_says_so(tmp_path: Path) -> None:
    class Program(Peer):
        def command(self) -> list[str]:
            return [sys.executable, "-c", self.program]

    def line(program: str, within_s: float) -> str:
        started = PeerProcess(Program("x", program, "redis", "", ""), tmp_path / "errors")
        try:
            return started.line(within_s)
        finally:
            started.kill()

    assert line("print('ready')", 60) == "ready\n"
    with pytest.raises(RuntimeError, match=r"ended with 3: out of order$"):
        line("import sys; print('out of order', file=sys.stderr); sys.exit(3)", 60)
    with pytest.raises(RuntimeError, match="ended with -9"):
        line("import time; time.sleep(60)", 0.2)


def test_a_cell_has_the_range_and_what_went_wrong() -> None:
    drain = TABLES["How much"][2]
    runs = [{"per_second": rate, "missing": 0, "twice": twice} for rate, twice in ((1000, 0), (3000, 2), (2000, 1))]
    assert cell(runs, drain) == "2,000 (1,000–3,000); 2 twice"
    assert cell(runs[:1], drain) == "1,000"
    assert cell([{"none": "it can't"}], drain) == "–"
    assert cell([{"failed": "it broke"}], drain) == "failed"


def test_the_table_says_what_was_measured_and_how() -> None:
    peer = {"version": "1.2", "language": "C", "settings": "none", "runs": {"drain": [{"per_second": 5.0}]}}
    text = markdown({"machine": "a machine", "peers": {"other": peer}})
    assert "| other |  |  | 5 |" in text
    assert "kill -9" not in text, "none of its figures was measured"
    assert "- **other** 1.2 (C): none." in text


def test_the_chart_has_the_best_queue_on_top_and_leaves_out_who_failed() -> None:
    def peer(*seconds: float) -> dict[str, Any]:
        return {"runs": {"drain": [{"per_second": value} for value in seconds] or [{"failed": "it broke"}]}}

    results = {"peers": {"slow": peer(90, 110, 100), "streamdq": peer(9_000), "broken": peer()}}
    drain = TABLES["How much"][2]
    assert chart_rows(results, drain) == [Row("streamdq", 9000, 9000, 9000), Row("slow", 90, 100, 110)]
    picture = chart(results)
    assert picture.index(">streamdq</text>") < picture.index(">slow</text>")
    assert "broken" not in picture
    assert ">100</text>" in picture
    ET.fromstring(picture)


def test_each_peer_has_its_program_and_fixed_versions() -> None:
    for peer in peers().values():
        assert Path(peer.command()[1]).is_file()
        assert peer.settings
        assert all("==" in package or package == "redis" for package in peer.pip)
        assert all("@" in package for package in peer.npm)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Missing, match="beanstalkd needs beanstalkd"):
        prepare(peers()["beanstalkd"])


@pytest.mark.thorough
@needs_redis
def test_streamdq_beside_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    options = ["--peers", "streamdq", "--scale", "0.001", "--runs", "1", "--json", str(results)]
    assert main([*options, "--workloads", "one bulk drain trickle memory crash"]) == 0
    runs: dict[str, list[dict[str, Any]]] = json.loads(results.read_text())["peers"]["streamdq"]["runs"]
    for workload in ("drain", "trickle", "crash"):
        assert runs[workload][0]["missing"] == 0, workload
    assert runs["trickle"][0]["early"] == 0
    assert 0 < runs["trickle"][0]["first_ms"] <= runs["trickle"][0]["last_ms"]
    capsys.readouterr()
    assert main(["--table", "--json", str(results)]) == 0
    assert "| drain, jobs/s |" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--peers", "nobody"], ["--workloads", "nothing"]])
def test_who_is_not_known(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "is none of" in capsys.readouterr().err
