"""What is told of a worker's health, and where."""

from __future__ import annotations

import json
import socket
import stat
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from streamdq.errors import InvalidInput
from streamdq.process import health as health_module
from streamdq.process.health import STALLED_S, Health, ProcessHealth, Report, WorkerHealth, published, read
from tests.waiting import HANG_S, until

READY = Report(0.0, "ready", "", "me", 1, slots=10)
HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "_EACH_S", 0.01)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)


def now_ready() -> Report:
    return replace(READY, at=time.monotonic())


def test_a_worker_is_stalled_while_its_loop_or_all_of_its_handlers_hang() -> None:
    def gauge() -> Any:
        return REGISTRY.get_sample_value("streamdq_workers_stalled", {"namespace": "of-health", "group": "g"})

    one = WorkerHealth("of-health", "g", 2)
    one.state = "ready"
    assert (one.stalled, gauge(), one.report(1).ready) == ("", 0, True)
    one.blocked(STALLED_S - 0.1)
    one.hang(1)
    assert (one.stalled, gauge()) == ("", 0)
    one.blocked(STALLED_S)
    assert (one.stalled, gauge(), one.report(1).ready) == ("loop", 1, False)
    one.blocked(0)
    one.hang(2)
    assert (one.stalled, gauge()) == ("handlers", 1)
    one.close()
    assert gauge() == 0


def test_the_last_claim_and_the_state_are_in_the_report() -> None:
    one = WorkerHealth("of-health", "g", 2)
    assert (one.report(0).last_claim_s, one.report(0).ready) == (None, False)
    one.claimed()
    one.state = "draining"
    report = one.report(1)
    assert report.last_claim_s is not None
    assert (report.running, report.slots, report.ready) == (1, 2, False)


@pytest.mark.parametrize(
    ("age_s", "stalled"), [(0, ""), (STALLED_S - 0.1, ""), (STALLED_S, "process"), (-1, "process")]
)
def test_a_process_that_reports_no_more_stands_still_or_is_gone(age_s: float, stalled: str) -> None:
    """An age below 0: the host has been started again since."""
    assert READY.seen_at(age_s).stalled == stalled


def test_several_processes_live_while_one_does() -> None:
    stalled = replace(READY, stalled="loop")
    assert (Health([READY, stalled]).alive, Health([READY, stalled]).ready) == (True, True)
    assert (Health([stalled, stalled]).alive, Health([stalled, stalled]).ready) == (False, False)
    starting = replace(READY, state="starting")
    assert (Health([starting]).alive, Health([starting]).ready) == (True, False)


def test_the_file_is_replaced_while_it_runs_and_gone_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "health"
    reports = [Report.of_process()]
    with published(lambda: reports, file, HOST, None) as port:
        assert port is None
        assert not read(file).ready
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        reports[0] = now_ready()
        until(lambda: read(file).ready, "the next report")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_longer_written_is_of_a_stalled_process(tmp_path: Path) -> None:
    file = tmp_path / "health"
    file.write_text(json.dumps(Health([replace(now_ready(), at=time.monotonic() - STALLED_S)]).json()))
    (one,) = read(file).processes
    assert one.stalled == "process"


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"processes": [{"pid": 1}]}', '{"processes": [7]}', "\udcff"])
def test_what_is_no_health_file_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "health").write_text(text, errors="surrogateescape")
    with pytest.raises(InvalidInput, match="health: "):
        read(tmp_path / "health")


def test_a_file_that_cant_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInput, match="health: can't be published"),
        published(list, tmp_path / "no" / "health", HOST, None),
    ):
        pass


def test_a_file_that_cant_be_written_later_is_logged_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    asked = 0

    def reports() -> list[Report]:
        nonlocal asked
        asked += 1
        return [now_ready()]

    with published(reports, folder / "health", HOST, None):
        folder.rename(tmp_path / "moved")
        before = asked
        until(lambda: asked > before + 5, "more tries")
        folder.mkdir()
        until(lambda: (folder / "health").exists(), "a try that works")
    assert [record.getMessage() for record in caplog.records].count("health not published") <= 1


def get(port: int | None, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=HANG_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text else None


def test_the_port_answers_whether_it_is_alive_and_ready() -> None:
    reports = [Report.of_process()]
    with published(lambda: reports, None, HOST, 0) as port:
        status, body = get(port, "/health/alive")
        assert (status, body["alive"], body["ready"], body["processes"][0]["state"]) == (200, True, False, "starting")
        assert get(port, "/health/ready")[0] == 503
        reports[0] = now_ready()
        assert get(port, "/health/ready?probe=1")[0] == 200
        reports[0] = replace(reports[0], stalled="loop")
        assert (get(port, "/health/alive")[0], get(port, "/health/ready")[0]) == (503, 503)
        assert get(port, "/") == (404, None)
        with pytest.raises(InvalidInput, match="health: can't listen on"), published(list, None, HOST, port):
            pass


def test_systemd_hears_that_it_is_ready_lives_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(HANG_S)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        reports = [Report.of_process()]

        def hears(line: str) -> None:
            while line not in systemd.recv(4096).decode().splitlines():
                continue

        with published(lambda: reports, None, HOST, None):
            hears("WATCHDOG=1")
            reports[0] = now_ready()
            hears("READY=1")
            reports[0] = replace(now_ready(), state="draining")
            hears("STOPPING=1")


def test_systemd_hears_nothing_of_a_stalled_worker(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        teller = health_module._ToSystemd(str(tmp_path / "notify"))
        teller(Health([replace(now_ready(), stalled="handlers")]))
        with pytest.raises(BlockingIOError):
            systemd.recv(4096)
        teller.close()


def test_the_parent_reads_the_files_of_its_processes() -> None:
    with ProcessHealth.open(2) as files:
        assert [one.state for one in files.reports()] == ["starting", "starting"]
        (variable, path), *none = files.environment(1).items()
        assert (variable, none) == (health_module.HEALTH_FILE, [])
        Path(path).write_text(json.dumps(Health([now_ready()]).json()))
        assert [one.state for one in files.reports()] == ["starting", "ready"]
        files.ended(1)
        files.ended(1)
        assert [one.state for one in files.reports()] == ["starting", "starting"]
