"""Where a worker's health is published: in a file, on a port, and to systemd."""

from __future__ import annotations

import errno
import json
import socket
import stat
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamdq.config import HEALTH_FILE
from streamdq.errors import InvalidInput
from streamdq.process import health_checks
from streamdq.process.health import STALLED_S, Health, Report, State
from streamdq.process.health_checks import ProcessHealth, published, read
from tests.waiting import HANG_S, until

READY = Report(0.0, "ready", "", "me", 1, slots=10)
HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_checks, "_EACH_S", 0.01)
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)


def now_ready() -> Report:
    return replace(READY, at=time.monotonic())


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


def test_without_a_file_no_process_runs(tmp_path: Path) -> None:
    assert read(tmp_path / "health").processes == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"processes": [{"pid": 1}]}', '{"processes": [7]}', "\udcff",
        '{"processes": [{"at": null}]}', '{"processes": [{"at": 1, "running": "many"}]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_health_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "health").write_text(text, errors="surrogateescape")
    with pytest.raises(InvalidInput, match="health: "):
        read(tmp_path / "health")


def test_a_file_that_cant_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInput, match="health: can't write the file"),
        published(list, tmp_path / "no" / "health", HOST, None),
    ):
        pass


@pytest.mark.parametrize("path", [".", "/"])
def test_a_path_without_a_name_is_refused(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="health: can't write the file"), published(list, Path(path), HOST, None):
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


def test_what_was_half_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    teller = health_checks._ToFile(tmp_path / "health")
    teller(Health([now_ready()]))
    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(OSError, match="no space"):
        teller(Health([now_ready()]))
    assert [file.name for file in tmp_path.iterdir()] == ["health"]


def test_a_file_of_two_workers_is_logged_once_and_left_to_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = health_checks._ToFile(tmp_path / "health"), health_checks._ToFile(tmp_path / "health")
    health = Health([now_ready()])
    for _ in range(3):
        one(health)
        other(health)
    one.close()
    assert read(tmp_path / "health").ready
    other.close()
    assert list(tmp_path.iterdir()) == []
    said = "two workers write the same health file; give each its own"
    assert [record.getMessage() for record in caplog.records].count(said) <= 2
    assert said in caplog.text


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


def test_systemd_hears_of_a_worker_that_cant_write_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the worker."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(HANG_S)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        state: list[State] = ["starting"]
        with published(lambda: [replace(now_ready(), state=state[0])], folder / "health", HOST, None):
            folder.rename(tmp_path / "moved")
            state[0] = "ready"
            while "READY=1" not in systemd.recv(4096).decode().splitlines():
                continue


def test_a_worker_starts_if_nobody_hears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """NOTIFY_SOCKET may be that of a service which has started the shell."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    with published(lambda: [now_ready()], tmp_path / "health", HOST, None):
        until(lambda: "health not published" in caplog.text, "a warning")
        assert read(tmp_path / "health").ready


def test_the_health_of_processes_that_cant_be_read_is_published_when_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when no descriptor is free."""
    file = tmp_path / "health"
    with ProcessHealth.made(1) as files, published(files.reports, file, HOST, None):
        child = Path(files.environment(0)[HEALTH_FILE])
        child.mkdir()
        until(lambda: "health not published" in caplog.text, "a warning")
        child.rmdir()
        child.write_text(json.dumps(Health([now_ready()]).json()))
        until(lambda: read(file).ready, "the next report")


def test_slow_callers_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_checks, "_CALLERS", 2)
    with published(lambda: [now_ready()], None, HOST, 0) as port, ExitStack() as stack:
        assert port is not None
        slow = [stack.enter_context(socket.create_connection((HOST, port), HANG_S)) for _ in range(3)]
        assert get(port, "/health/alive")[0] == 200
        for caller in slow[:2]:
            assert caller.recv(1) == b""


def test_systemd_hears_nothing_of_a_stalled_worker(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        teller = health_checks._ToSystemd(str(tmp_path / "notify"))
        teller(Health([replace(now_ready(), stalled="handlers")]))
        with pytest.raises(BlockingIOError):
            systemd.recv(4096)
        teller.close()


def test_the_parent_reads_the_files_of_its_processes() -> None:
    with ProcessHealth.made(2) as files:
        assert [one.state for one in files.reports()] == ["starting", "starting"]
        (variable, path), *none = files.environment(1).items()
        assert (variable, none) == (HEALTH_FILE, [])
        Path(path).write_text(json.dumps(Health([now_ready()]).json()))
        assert [one.state for one in files.reports()] == ["starting", "ready"]
        files.ended(1)
        files.ended(1)
        assert [one.state for one in files.reports()] == ["starting", "starting"]
