"""Bad input and bad servers: one line that says what to do, an exit code, nothing written, no traceback."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamdq.cli import app as cli
from tests.cli.conftest import Result, Run
from tests.servers import Server, binaries

ENQUEUE = ("enqueue", "t", "1")


def one_line(result: Result) -> None:
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("streamdq: ")
    assert "Traceback" not in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*ENQUEUE, "--delay=-1s"), "can't read"),
        ((*ENQUEUE, "--delay=-1"), "negative"),
        ((*ENQUEUE, "--delay", "NaN"), "not a number"),
        ((*ENQUEUE, "--delay", "inf"), "ten years"),
        ((*ENQUEUE, "--delay", "9" * 99), "ten years"),
        ((*ENQUEUE, "--delay", "9" * 400), "at most 100 characters"),
        ((*ENQUEUE, "--delay", "11000d"), "ten years"),
        ((*ENQUEUE, "--delay", "soon"), "write for example"),
        ((*ENQUEUE, "--delay", "1s", "--at", "1900000000000"), "not both"),
        ((*ENQUEUE, "--at", "2030-01-01T00:00:00"), "no time zone; write 2030-01-01T00:00:00Z"),
        ((*ENQUEUE, "--at", "1900000000"), "13-digit"),
        ((*ENQUEUE, "--at", "tomorrow"), "can't read"),
        (("enqueue", "", "1"), "topic"),
        (("enqueue", "{}", "1"), "topic"),
        (("enqueue", "a\nb", "1"), "topic"),
        (("enqueue", "a b", "1"), "topic"),
        (("enqueue", "\udcff", "1"), "topic"),
        ((*ENQUEUE, "--id", "x" * 300), "id"),
        ((*ENQUEUE, "--id", ""), "id"),
        ((*ENQUEUE, "--id", " "), "id"),
        ((*ENQUEUE, "--id", "a\nb"), "id"),
        (("enqueue", "t", '"' + "x" * 262_144 + '"'), "STREAMDQ_MAX_BODY_BYTES"),
        (("enqueue", "t", "hello"), "; write a text with its quotes: '\"hello\"'"),
        (("enqueue", "t", "{a: 1}"), "at line 1 column 2; put it in single quotes, and names in double ones"),
        (("enqueue", "t", "NaN"), "not JSON"),
        (("enqueue", "t", ""), "not JSON"),
        (("enqueue", "t", '"\udcff"'), "not JSON"),
        (("enqueue", "t", '""'), "blank"),
        (("enqueue", "t", "null"), "blank"),
        (("enqueue", "t", "[" * 3000), "not JSON"),
        ((*ENQUEUE, "--ttr", "0"), "ttr"),
        ((*ENQUEUE, "--retry", "1s never"), "retry"),
        (
            (*ENQUEUE, "--retry", "3"),
            "--retry: '3' has no unit; write '3s' to retry after 3 seconds, or for",
        ),
        (("topic", "configure", "t", "--retry", "15s,3"), "--retry: '3' has no unit"),
        ((*ENQUEUE, "--url", "redis://x"), "http"),
        ((*ENQUEUE, "--on-conflict", "panic"), "on-conflict"),
        (("get", "known", "x" * 300), "id"),
        (("cancel", "never.heard.of", "x"), "no topic"),
        (("reschedule", "known", "x"), "pass --delay or --at"),
        (("dead", "list", "known", "--group", "none"), "no group"),
        (("dead", "kick", "known", "x", "--group", "a b"), "group"),
        (("upcoming", "--window", "soon"), "window"),
        (("topic", "configure", "t", "--rate=-1"), "rate"),
        (("topic", "configure", "t", "--shards", "0"), "shards"),
        (("topic", "configure", "t", "--group", "a b"), "group"),
        (("--namespace", "a b", "stats"), "namespace"),
        (("stats", "--interval", "often"), "interval"),
        (("stats", "--url", ""), "--url: is empty; set STREAMDQ_URL to your Redis"),
        (("stats", "--namespace", ""), "--namespace: '' is not valid"),
        (("stats", "--url", "memory://"), "--url: memory:// lives only inside the process that opens it"),
        (("--url", "memory://x", "exporter"), "--url: memory://"),
        (("mover", "--url", "memory://x"), "--url: memory://"),
        (("worker", "nonsense"), "MODULE:WORKER"),
        (("worker", "no_such_module:worker"), "no_such_module"),
        (("worker", "json:loads"), "not a streamdq Worker"),
        (("worker", "json:nothing"), "has no 'nothing', nor any Worker"),
        (("worker", "shop/jobs.py"), "'shop/jobs.py' is not MODULE:WORKER; write for example shop.jobs:worker"),
        (("worker", "orders"), "'orders' is not MODULE:WORKER; write for example orders:worker"),
        (("worker", "shop.orders"), "is not MODULE:WORKER; write for example shop.orders:worker"),
        (("worker", ":mails"), "is not MODULE:WORKER; write for example shop.jobs:mails"),
        (("worker", "./shop.py:orders"), "is not MODULE:WORKER; write for example shop:orders"),
        (("worker", "no_such.py:orders"), "'no_such.py:orders' names a file, not a module; write no_such:orders"),
        (("worker", "json:loads", "--log-level", "loud"), "log-level"),
        (("get", "t"), "see streamdq get --help"),
        (("health",), "Missing argument 'file', and STREAMDQ_HEALTH_FILE is not set; see streamdq health --help"),
        (("get", "t", "x", "--loud"), "--loud"),
        (("stats", "--url"), "see streamdq --help"),
        (("no-such-command",), "no-such-command"),
    ],
)
def test_bad_input_is_refused_and_nothing_written(
    run: Run, redis_server: Server, arguments: tuple[str, ...], says: str
) -> None:
    run("topic", "configure", "known", "--create")
    with redis_server.client() as client:
        before = sorted(client.scan_iter())
        result = run(*arguments)
        after = sorted(client.scan_iter())

    one_line(result)
    assert result.code == 2
    assert says in result.err
    assert before == after


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*ENQUEUE, "--at-most", "1h"), "streamdq: --unique-for, --rate-of-id, --at-most: pass an id"),
        ((*ENQUEUE, "--id", "a", "--at-most", "1h"), "--at-most: pass --on-conflict postpone as well"),
        ((*ENQUEUE, "--delay", "1s", "--at", "1900000000000"), "pass --delay or --at, not both"),
        (("reschedule", "known", "x"), "pass --delay or --at"),
        ((*ENQUEUE, "--ttr", "0"), "--ttr: "),
        (("topic", "configure", "known", "--key-rate", "often"), "--key-rate: can't read 'often'"),
        (("dead", "list", "known", "--group", "none"), "`streamdq topic configure known --group NAME` creates it"),
        (("upcoming", "--window", "soon"), "--window: "),
    ],
)
def test_errors_name_options_instead_of_arguments(run: Run, arguments: tuple[str, ...], says: str) -> None:
    run("topic", "configure", "known", "--create")
    result = run(*arguments)
    one_line(result)
    assert says in result.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--weight", "pay"), "can't read 'pay'"),
        (("--weight", "pay=0"), "from 0.001 to"),
        (("--weight", "pay=2", "--priority", "mail"), "not both"),
        (("--priority", "pay", "--priority", "pay"), "different topics"),
        (("--priority", "pay", "--priority", "nothing"), "no handler for 'nothing'"),
    ],
)
def test_turns_that_make_no_sense_are_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    (tmp_path / "in_turns.py").write_text(
        "from streamdq import Worker\nworker = Worker()\nworker.handler('pay')(print)\n"
    )
    monkeypatch.chdir(tmp_path)

    result = run("worker", "in_turns:worker", "--burst", *options)

    one_line(result)
    assert result.code == 2
    assert says in result.err


def test_for_a_misspelt_worker_the_error_names_those_that_exist(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two_workers.py").write_text("from streamdq import Worker\nmails = Worker()\norders = Worker()\n")
    monkeypatch.chdir(tmp_path)

    result = run("worker", "two_workers:oders")

    one_line(result)
    assert result.code == 2
    assert "module 'two_workers' has no 'oders'; its workers are: mails, orders" in result.err


@pytest.mark.parametrize("call", ["run(burst=True)", "serve()"])
def test_a_module_that_runs_its_worker_when_it_is_imported_is_reported(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It would run one that nobody asked for, with none of the options of the command."""
    runs = f"worker.{call}" if call.startswith("run") else f"asyncio.run(worker.{call})"
    name = f"unguarded_{call.partition('(')[0]}"
    (tmp_path / f"{name}.py").write_text(
        f"import asyncio\nfrom streamdq import Worker\nworker = Worker()\nworker.handler('t')(print)\n{runs}\n"
    )
    monkeypatch.chdir(tmp_path)

    result = run("worker", f"{name}:worker", "--burst")

    one_line(result)
    assert result.code == 2
    called = f"{name} calls {call.partition('(')[0]}()"
    assert f"{called} while `streamdq worker` imports it; put that under if __name__ ==" in result.err


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "import json\nimport no_such_module",
            "failed at {file}:2: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("from json import nothing", "failed at {file}:1: ImportError: cannot import name 'nothing'"),
        ("raise SystemExit(7)", "failed at {file}:1: SystemExit: 7"),
        ("\n1 / 0", "failed at {file}:2: ZeroDivisionError"),
        ("worker = (", "failed: SyntaxError: '(' was never closed (theirs.py, line 1)"),
    ],
)
def test_the_error_says_where_a_worker_module_fails(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, says: str
) -> None:
    file = tmp_path / "theirs.py"
    file.write_text(source)
    monkeypatch.chdir(tmp_path)

    result = run("worker", "theirs:worker")

    one_line(result)
    assert result.code == 2
    assert says.format(file=file) in result.err


@pytest.fixture
def web_server() -> Iterator[str]:
    """Something that listens and does not speak Redis's protocol."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def answer() -> None:
            while not done.is_set():
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1024)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        yield f"redis://user:hunter2@127.0.0.1:{port}"
        done.set()
        with socket.create_connection(("127.0.0.1", port)) as last:
            last.sendall(b"bye")
        thread.join()


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> Result:
    code = cli.run(arguments)
    return Result(code, *capsys.readouterr())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_CALL_TIMEOUT_S", "0.3")


@pytest.mark.parametrize("command", [ENQUEUE, ("get", "t", "x"), ("stats", "--json"), ("doctor",), ("audit",)])
def test_a_server_that_can_not_be_reached(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("STREAMDQ_CALL_TIMEOUT_S", "86400")  # it is not tried again
    result = call(capsys, "--url", "redis://user:hunter2@127.0.0.1:1", *command)

    one_line(result)
    assert result.code == 3
    assert "Connection refused; check that it is running" in result.err
    assert "hunter2" not in result.err


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_not_redis(capsys: pytest.CaptureFixture[str], web_server: str) -> None:
    result = call(capsys, "--url", web_server, *ENQUEUE)

    one_line(result)
    assert result.code == 3
    assert "hunter2" not in result.err


_NEED_DATA = [ENQUEUE, ("get", "t", "x"), ("stats", "--json"), ("audit",), ("topic", "delete", "t", "--force")]


@pytest.mark.parametrize("command", _NEED_DATA)
def test_data_of_a_newer_version(capsys: pytest.CaptureFixture[str], server: Server, command: tuple[str, ...]) -> None:
    with server.client() as client:
        client.hset("{streamdq}:topics", "t", '{"format": 99}')

        result = call(capsys, "--url", server.url, *command)

        one_line(result)
        assert result.code == 3
        assert "has format 99" in result.err
        assert "docs/upgrading.md" in result.err
        assert client.keys() == [b"{streamdq}:topics"]


def test_a_wrong_password(capsys: pytest.CaptureFixture[str]) -> None:
    if not binaries():
        pytest.skip("no Redis server on this machine")
    with Server(options={"requirepass": "right"}) as server:
        result = call(capsys, "--url", f"redis://:hunter2@{server.address}", *ENQUEUE)
        without = call(capsys, "--url", f"redis://{server.address}", *ENQUEUE)

    for refused in (result, without):
        one_line(refused)
        assert refused.code == 3
        assert "check user name and password" in refused.err or "does not allow" in refused.err
        assert "hunter2" not in refused.err


def test_a_bad_setting_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_LEASE_MS", "soon")

    result = call(capsys, "--url", "redis://127.0.0.1:1", "stats")

    one_line(result)
    assert result.code == 2
    assert "STREAMDQ_LEASE_MS" in result.err


def test_commands_without_redis_take_memory_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STREAMDQ_URL", "memory://tests")
    assert cli.run(["token", "mailer", "worker"]) == 0
    assert cli.run(["stats"]) == 2
    assert "--url: memory:// lives only inside the process" in capsys.readouterr().err
