"""Dumping, following and compacting as commands."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from streamdq import Queue, terminal
from streamdq.cli import app as cli
from streamdq.dump import dumper as dump_module
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import load_manifest, require_manifest
from streamdq.keys import ShardKeys
from tests.cli.conftest import Run, Start
from tests.dumps import HOUR_MS, START_MS, dumped, entries_of, fill, now_ms, write_rows
from tests.servers import Server, binaries
from tests.turns import others_later
from tests.waiting import HANG_S, until

SHARD = ShardKeys("streamdq", "t", 0)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "dump")


@pytest.fixture(autouse=True)
def _topic(request: pytest.FixtureRequest) -> None:
    if "redis_server" in request.fixturenames:
        request.getfixturevalue("queue").configure("t", create=True)


def write(server: Server, count: int, begin_ms: int = START_MS) -> list[str]:
    with server.client() as client:
        return write_rows(client, SHARD, count, begin_ms)


def test_dump_says_what_it_did(run: Run, redis_server: Server, out: str) -> None:
    entries = write(redis_server, 12)
    result = run("dump", "--out", out)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"12 rows in 1 file of {out}, ")
    assert run("dump", "--out", out).out == f"0 rows in 0 files of {out}\n"
    more = write(redis_server, 3, START_MS + HOUR_MS)
    reported = run("dump", "--out", out, "--topic", "t", "--json").json
    assert reported.pop("seconds") > 0
    assert reported == {"rows": 3, "files": 1, "skipped": 0, "lost": 0, "resets": 0, "unreadable": 0}
    assert entries_of(Path(out)) == entries + more


@pytest.mark.parametrize("looking", [True, False])
def test_a_terminal_sees_a_bar_with_the_rate_and_the_time_left(
    run: Run, redis_server: Server, out: str, monkeypatch: pytest.MonkeyPatch, looking: bool
) -> None:
    monkeypatch.setattr(dump_module, "PAGE", 100)
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "console", lambda **_: Console(file=screen, force_terminal=looking, width=100))
    write(redis_server, 1000)
    assert run("dump", "--out", out).code == 0
    shown = re.search(r"dumped [^\d]*1000/1000 [\d,]+/s 0:00:00", Text.from_ansi(screen.getvalue()).plain)
    assert bool(shown) is looking
    assert ("/s" in screen.getvalue()) is looking


def test_what_was_lost_is_said_and_is_exit_code_1(run: Run, redis_server: Server, out: str) -> None:
    write(redis_server, 10)
    with redis_server.client() as client:
        client.xtrim(SHARD.history, maxlen=8, approximate=False)
        result = run("dump", "--out", out)
        assert (result.code, result.out.splitlines()[1]) == (0, "2 older rows had been trimmed before the dump began")
        write(redis_server, 10, START_MS + HOUR_MS)
        client.xtrim(SHARD.history, maxlen=7, approximate=False)
        result = run("dump", "--out", out)
        assert result.code == 1
        assert "LOST: 3 rows were trimmed before they were dumped" in result.out
        client.delete(SHARD.history, SHARD.counts, SHARD.settings)
        client.xadd(SHARD.history, {"e": "nonsense"})
        result = run("dump", "--out", out)
    assert result.code == 1
    assert "LOST: Redis has lost 1 history streams" in result.out
    assert "1 entries are not history rows" in result.out
    assert run("dump", "--out", out).code == 0


def test_once_and_forget_leave_redis_free(run: Run, redis_server: Server, out: str) -> None:
    write(redis_server, 2)
    with redis_server.client() as client:
        assert run("dump", "--out", out, "--once").code == 0
        assert not client.hexists(SHARD.settings, "dumps")
        run("dump", "--out", out)
        assert client.hexists(SHARD.settings, "dumps")
        elsewhere = run("dump", "--out", f"{out}x", "--forget")
        assert (elsewhere.code, "holds no dump" in elsewhere.err) == (1, True)
        assert run("dump", "--out", out, "--forget", "--json").json == {"forgotten": out}
        assert not client.hexists(SHARD.settings, "dumps")
    assert len(dumped(Path(out))) == 2


def test_doctor_tells_what_redis_keeps_for_dumps(
    run: Run, redis_server: Server, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> list[tuple[str, str]]:
        return [(line["verdict"], line["what"]) for line in run("doctor", "--json").json if "dump" in line["what"]]

    assert found() == []
    run("dump", "--out", out)
    with Queue(redis_server.url) as queue:
        queue.enqueue("t", 1, id="a", delay="1h")
        queue.cancel("t", "a")
    assert found()[0][0] == "ok"
    run("dump", "--out", out)
    id = require_manifest(LocalFolder(Path(out))).id
    with redis_server.client() as client:
        write_rows(client, SHARD, 5, begin_ms=now_ms())
        run("dump", "--out", out)
        assert found() == [("ok", f"dump {id} has all history rows")]
        write_rows(client, SHARD, 30, begin_ms=now_ms() + 10_000)
    assert found() == [("ok", f"dump {id} has all history rows except 30")]
    monkeypatch.setenv("STREAMDQ_HISTORY_LENGTH", "20")
    assert found() == [("advice", f"Redis keeps 30 rows of history that dump {id} does not have")]
    assert run("forget-dump", id).out == f"Redis no longer keeps history for dump {id}\n"
    assert found() == []
    assert run("forget-dump", id).code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--topic", "u"], 2, "no topic 'u'"),
        (["--every", "often"], 2, "can't read 'often'"),
        (["--out", "nonsense://x"], 2, "nonsense"),
        (["--out", "/proc/nowhere"], 1, "can't lock _dump.lock"),
    ],
)
def test_bad_arguments_are_reported(run: Run, out: str, arguments: list[str], code: int, message: str) -> None:
    result = run("dump", "--out", out, *arguments)
    assert result.code == code
    assert message in result.err
    assert result.err.count("\n") == 1


def test_follow_goes_on_until_it_is_told_to_stop(
    start: Start, run: Run, redis_server: Server, queue: Queue, out: str
) -> None:
    number = signal.SIGINT if redis_server.binary.name == binaries()[0].name else signal.SIGTERM
    folder = LocalFolder(Path(out))
    first = write(redis_server, 4)
    process = start("--url", redis_server.url, "dump", "--out", out, "--follow", "--every", "100ms", "--json")
    assert process.stdout
    assert json.loads(process.stdout.readline())["rows"] == 4
    busy = run("dump", "--out", out)
    assert busy.code == 1
    assert "another dump is already running" in busy.err
    # What comes later, and a topic that comes later.
    second = write(redis_server, 3, START_MS + HOUR_MS)
    queue.configure("new", create=True)
    with redis_server.client() as client:
        others = write_rows(client, ShardKeys("streamdq", "new", 0), 2)
    until(lambda: require_manifest(folder).rows == 9, "all dumped")
    process.send_signal(number)
    assert process.wait(HANG_S) == 0
    assert entries_of(folder) == first + second
    assert entries_of(folder, "new") == others
    assert folder.files("events") == sorted(file.path for file in require_manifest(folder).files)


@pytest.mark.thorough
@pytest.mark.parametrize("at_first", others_later([True, False], False))
def test_follow_waits_for_a_redis_that_is_away(start: Start, redis_server: Server, out: str, at_first: bool) -> None:
    env = {**os.environ, "STREAMDQ_CALL_TIMEOUT_S": "0.5"}
    folder = LocalFolder(Path(out))
    if at_first:
        redis_server.kill()
    process = start("--url", redis_server.url, "dump", "--out", out, "--follow", "--every", "100ms", "--json", env=env)
    if not at_first:
        until(lambda: load_manifest(folder), "started")
        redis_server.kill()
    assert process.stderr
    assert "did not answer" in process.stderr.readline()
    redis_server.start()
    with Queue(redis_server.url) as queue:
        queue.configure("t", create=True)
    entries = write(redis_server, 3)
    until(lambda: (found := load_manifest(folder)) and found.rows == 3, "dumped")
    process.send_signal(signal.SIGTERM)
    process.wait(HANG_S)
    assert entries_of(folder) == entries


def test_tail_follows_a_topic_through_a_restart_of_redis(start: Start, redis_server: Server) -> None:
    env = {**os.environ, "STREAMDQ_CALL_TIMEOUT_S": "0.5"}
    with Queue(redis_server.url) as queue:
        queue.enqueue("t", 1, id="a", delay="1h")
        queue.cancel("t", "a")
        process = start("--url", redis_server.url, "tail", "t", "--since", "-1h", "--json", env=env)
        assert process.stdout
        assert process.stderr
        first = json.loads(process.stdout.readline())
        assert (first["event"], first["id"]) == ("cancelled", "a")
        with redis_server.client() as client:
            client.save()
        redis_server.kill()
        assert "did not answer" in process.stderr.readline()
        redis_server.start()
        queue.enqueue("t", 1, id="b", delay="1h")
        queue.cancel("t", "b")
        assert json.loads(process.stdout.readline())["id"] == "b"
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG_S) == 0


def test_tail_shows_a_line_for_each_event(start: Start, run: Run, redis_server: Server) -> None:
    with Queue(redis_server.url) as queue:
        queue.enqueue("t", 1, id="a\u202eb", retry="0")
        for name in ("fail", "bury"):
            claim = queue.take("t", timeout=HANG_S)
            assert claim
            getattr(claim, name)("no answer")
    process = start("--url", redis_server.url, "tail", "t", "--since", "-1h", "--event", "retry", "--event", "dead")
    assert process.stdout
    lines = [process.stdout.readline().split("  ") for _ in range(2)]
    assert [line[1].strip() for line in lines] == ["retry", "dead"]
    assert "no answer" in lines[0][-1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 0
    assert run("tail", "nope").code == 2
    assert "since" in run("tail", "t", "--since", "soon").err


def test_compact_joins_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(LocalFolder(tmp_path), files=3)
    before = dumped(tmp_path)
    assert cli.run(["compact", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "6 files of 2 hours merged, 18 rows; 0 old files removed\n"
    assert cli.run(["compact", "--out", str(tmp_path), "--grace", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"hours": 0, "joined": 0, "rows": 0, "removed": 6}
    assert dumped(tmp_path) == before
    assert cli.run(["compact", "--out", str(tmp_path / "nothing")]) == 1
    assert "holds no dump" in capsys.readouterr().err
