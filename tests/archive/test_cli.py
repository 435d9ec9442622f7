"""streamdq archive, kick, list and show: for people, as JSON, and their exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamdq import Queue
from streamdq.cli import app as cli
from tests.archive.letters import bury, dead_now, finish
from tests.forked import Forked
from tests.postgres import PASSWORD, Postgres
from tests.servers import Server
from tests.waiting import HANG_S, until


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("STREAMDQ_ARCHIVE", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def carry_out(*arguments: str) -> Result:
        capsys.readouterr()
        code = cli.run(["--url", server.url, "archive", *arguments])
        return Result(code, *capsys.readouterr())

    return carry_out


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/dead.db"


def test_there_and_back(run: Run, queue: Queue, database: str) -> None:
    bury(queue, "a", "b", url="https://a.example/x", ttr="7s")
    assert run("--to", database) == (0, "2 archived\n", "")
    assert run("--to", database, "--json").json == {"archived": 0, "left": 0}

    listed = run("list", "--from", database)
    assert [line.split()[:4] for line in listed.out.splitlines() if "default" in line] == [
        ["1", "t", "a", "default"], ["2", "t", "b", "default"],
    ]  # fmt: skip
    (row,) = run("list", "--from", database, "--after", "1", "--json").json
    assert (row["id"], row["body"], row["ttr_ms"], row["state"]) == ("b", {"n": "b"}, 7000, "archived")
    shown = run("show", "--from", database, "t", "a")
    assert shown.code == 0
    for text in ("t / a", "buried", "https://a.example/x", '{"n":"a"}', "7s"):
        assert text in shown.out
    assert run("show", "--from", database, "t", "a", "--json").json[0]["reason"] == "buried"

    assert run("kick", "--from", database, "t", "a") == (0, "1 kicked\n", "")
    assert run("kick", "--from", database, "--all", "--json").json == {
        "kicked": 1, "live_count": 0, "live": [], "unknown": {},
    }  # fmt: skip
    assert finish(queue) == ["a", "b"]
    assert len(run("list", "--from", database, "--state", "kicked", "--json").json) == 2
    assert "nothing is archived" in run("list", "--from", database).out


def test_the_answer_no(run: Run, queue: Queue, url: str) -> None:
    bury(queue, "a")
    run("--to", url)
    assert run("kick", "--from", url, "t", "nobody").code == 1
    assert run("show", "--from", url, "t", "nobody").code == 1
    queue.enqueue("t", 1, id="a", delay="1h")
    result = run("kick", "--from", url, "t", "a")
    assert result.code == 1
    assert "1 left alone, as their ids are live: t / a (default)" in result.out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "pass --to sqlite:///FILE"),
        (("--to", "mysql://joe:s3cret@host/x"), "neither sqlite:/// nor postgresql://"),
        (("--to", "sqlite:///x.db", "--older-than", "soon"), "older-than"),
        (("--to", "sqlite:///x.db", "--reason", "tired"), "reason: 'tired' is not one of"),
        (("kick", "--from", "sqlite:///x.db"), "a topic and a job's id, or --all"),
        (("kick", "--from", "sqlite:///x.db", "t", "id", "--all"), "pass either a topic"),
        (("list",), "--from"),
        (("list", "--from", "sqlite:///none.db"), "no such file"),
        (("show", "--from", "sqlite:///none.db", "t", "x"), "no such file"),
    ],
)
def test_bad_input_is_two(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert why in result.err
    assert "s3cret" not in result.err


def test_a_database_that_fails_is_three_and_nothing_is_gone(run: Run, queue: Queue, postgres: Postgres) -> None:
    bury(queue, "a")
    for url in (postgres.url(password="wr0ng"), "postgresql://joe:wr0ng@127.0.0.1:1/x", "sqlite:////none/dead.db"):
        result = run("--to", url)
        assert (result.code, result.out) == (3, "")
        assert result.err.startswith("streamdq: the archive at ")
        assert "still in Redis" in result.err
        assert "wr0ng" not in result.err
        assert "Traceback" not in result.err
    assert dead_now(queue) == ["a"]


def test_the_url_from_the_environment(
    run: Run, queue: Queue, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.empty()
    bury(queue, "a")
    monkeypatch.setenv("STREAMDQ_ARCHIVE", postgres.url())
    assert run() == (0, "1 archived\n", "")
    assert len(run("list", "--json").json) == 1
    assert PASSWORD not in run("--help").out


def test_follow_goes_on_until_it_is_stopped(queue: Queue, server: Server, postgres: Postgres) -> None:
    """It waits for a database that is away, and ends between two batches."""
    postgres.empty()
    process = Forked(
        "streamdq", "--url", server.url, "archive", "--to", postgres.url(), "--follow", "--interval", "100ms", "--json",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        bury(queue, "a")
        assert json.loads(process.stdout.readline()) == {"archived": 1, "left": 0}
        postgres.stop()
        try:
            bury(queue, "b")
            assert "can't be used" in process.stderr.readline()
        finally:
            postgres.start()
        assert json.loads(process.stdout.readline()) == {"archived": 1, "left": 0}
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err
    assert PASSWORD not in err
    until(lambda: dead_now(queue) == [], "both are archived")
