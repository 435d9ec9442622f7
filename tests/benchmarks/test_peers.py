"""The comparison with other queues: its judgement, its table, and streamdq in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.__main__ import main
from benchmarks.peers.adapters import peer as shared
from benchmarks.peers.judge import Delivery, Ran, lateness_ms, per_second, rows
from benchmarks.peers.setup import Missing, peers, prepare
from benchmarks.peers.table import COLUMNS, cell, markdown
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
    assert [lateness_ms(runs, percent) for percent in (0, 50, 99)] == [0, 500, 990]


def test_a_line_that_was_cut_off_is_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert rows(log) == []
    log.write_text("1 20 30\n2 20 31\n3 20")
    assert rows(log) == [Ran(1, 20, 30), Ran(2, 20, 31)]


@pytest.mark.parametrize("number", [0, 19_999])
def test_the_body_has_165_bytes(number: int) -> None:
    body = shared.body(number, 1_800_000_000_000_000_000)
    assert len(json.dumps(body, separators=(",", ":"))) == 165
    assert (body["n"], body["due"]) == (number, 1_800_000_000_000_000_000)


def test_a_cell_has_the_range_and_what_went_wrong() -> None:
    drain = COLUMNS[2]
    runs = [{"per_second": rate, "missing": 0, "twice": twice} for rate, twice in ((1000, 0), (3000, 2), (2000, 1))]
    assert cell(runs, drain) == "2,000 (1,000–3,000); 2 twice"
    assert cell(runs[:1], drain) == "1,000"
    assert cell([{"none": "it can't"}], drain) == "–"
    assert cell([{"failed": "it broke"}], drain) == "failed"


def test_the_table_says_what_was_measured_and_how() -> None:
    peer = {"version": "1.2", "language": "C", "settings": "none", "runs": {"drain": [{"per_second": 5.0}]}}
    text = markdown({"machine": "a machine", "peers": {"other": peer}})
    assert "| drain: jobs/s | 5 |" in text
    assert "enqueue" not in text
    assert "- **other** 1.2 (C): none." in text


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


@needs_redis
def test_streamdq_beside_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    options = ["--peers", "streamdq", "--scale", "0.001", "--runs", "1", "--json", str(results)]
    assert main([*options, "--workloads", "one bulk drain trickle memory crash"]) == 0
    runs: dict[str, list[dict[str, Any]]] = json.loads(results.read_text())["peers"]["streamdq"]["runs"]
    for workload in ("drain", "trickle", "crash"):
        assert runs[workload][0]["missing"] == 0, workload
    assert runs["trickle"][0]["early"] == 0
    capsys.readouterr()
    assert main(["--table", "--json", str(results)]) == 0
    assert "| drain: jobs/s |" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--peers", "nobody"], ["--workloads", "nothing"]])
def test_who_is_not_known(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "is none of" in capsys.readouterr().err
