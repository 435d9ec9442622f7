"""A worker's health by its file and its port, and a worker that reloads its code."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from pathlib import Path

import pytest

from streamdq import Queue
from streamdq.cli import app as cli
from tests.cli.conftest import Run, Start
from tests.servers import Server
from tests.turns import others_later
from tests.waiting import HANG_S, until

WORKER = """
from streamdq import Worker

worker = Worker()

@worker.handler("t")
async def handle(body: dict) -> None:
    open("ran-{}", "a").close()
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(WORKER.format("first"))
    return file


def is_ready(run: Run, file: Path) -> bool:
    return run("health", str(file), "--ready").code == 0


@pytest.mark.parametrize("processes", others_later([1, 2], 1))
def test_a_worker_is_ready_by_its_file_until_it_ends(
    server: Server, run: Run, start: Start, tmp_path: Path, processes: int
) -> None:
    file = tmp_path / "health"
    arguments = ["worker", "shop:worker", "--health-file", "health", "--processes", str(processes)]
    process = start("--url", server.url, *arguments)
    until(lambda: is_ready(run, file), "a ready worker")
    until(lambda: run("health", str(file)).out.count(" is ready: 0 of 100 slots busy") == processes, "all of them")
    assert run("health", str(file)).code == 0
    found = run("health", str(file), "--json").json
    assert len({one["pid"] for one in found["processes"]}) == processes
    process.terminate()
    process.communicate(timeout=HANG_S)
    ended = run("health", str(file))
    assert (ended.code, ended.out) == (1, f"no worker runs: there is no file {file}\n")


def test_a_stopped_process_is_stalled(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "health"
    file.write_text(json.dumps({"processes": [{"at": -20.0, "state": "ready", "consumer": "me"}]}))
    found = run("health", str(file))
    assert (found.code, found.out) == (
        1,
        "me is stalled: its process stands still, was killed, or can't write its health file\n",
    )


def test_a_worker_answers_on_its_port(server: Server, start: Start) -> None:
    arguments = ["worker", "shop:worker", "--health-port", "0", "--log-format", "json"]
    process = start("--url", server.url, *arguments)
    assert process.stderr is not None
    lines = (json.loads(line) for line in process.stderr)
    port = next(line["port"] for line in lines if line["event"] == "health served")
    next(line for line in lines if line["event"] == "worker started")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=HANG_S) as answer:
        assert json.load(answer)["processes"][0]["state"] == "ready"


@pytest.mark.thorough
def test_it_runs_new_code_after_a_change_and_waits_while_the_code_is_broken(
    server: Server, start: Start, tmp_path: Path, module: Path
) -> None:
    pytest.importorskip("watchfiles")
    with Queue(server.url) as queue:
        process = start("--url", server.url, "worker", "shop:worker", "--reload")
        queue.enqueue("t", {})
        until((tmp_path / "ran-first").exists, "the first code")
        module.write_text("broken")
        assert process.stderr
        next(line for line in process.stderr if "waiting for a change of its code" in line)
        module.write_text(WORKER.format("second"))

        def second_code_runs() -> bool:
            queue.enqueue("t", {})  # the first code may still take some
            return (tmp_path / "ran-second").exists()

        until(second_code_runs, "the second code")
        process.terminate()
        process.communicate(timeout=HANG_S)
        assert process.returncode == 0


@pytest.mark.thorough
def test_a_second_signal_ends_what_is_reloaded_though_its_shutdown_hangs(
    server: Server, start: Start, tmp_path: Path, module: Path
) -> None:
    pytest.importorskip("watchfiles")
    hangs = "\n@worker.on_shutdown\nasync def hang() -> None:\n    open('hangs', 'w').close()\n    import asyncio\n"
    module.write_text(WORKER.format("first") + hangs + "    await asyncio.Event().wait()\n")
    with Queue(server.url) as queue:
        process = start("--url", server.url, "worker", "shop:worker", "--reload", stderr=subprocess.DEVNULL)
        queue.enqueue("t", {})
        until((tmp_path / "ran-first").exists, "the worker")
        process.terminate()
        until((tmp_path / "hangs").exists, "its shutdown")

        def has_ended() -> bool:
            process.terminate()
            return process.poll() is not None

        until(has_ended, "the end")


def test_reload_is_for_one_process(run: Run) -> None:
    assert run("worker", "shop:worker", "--reload", "--processes", "2").code == 2


def test_the_file_of_the_environment_is_not_that_of_other_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STREAMDQ_HEALTH_FILE", str(tmp_path / "health"))
    monkeypatch.chdir(tmp_path)
    assert cli.run(["worker", "nowhere:worker"]) == 2
    assert "STREAMDQ_HEALTH_FILE" not in os.environ
