"""Standard streams that are closed, full, or of another encoding: no traceback, and the exit code is right."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamdq import Queue
from streamdq.cli import app as cli
from streamdq.cli import streams
from tests.cli.conftest import COMMAND
from tests.forked import Forked
from tests.servers import Server
from tests.turns import others_later
from tests.waiting import HANG_S

FULL = "/dev/full"
needs_full = pytest.mark.skipif(not Path(FULL).exists(), reason="this system has no /dev/full")


def shell(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the script; "$@" is the command line."""
    command = ["sh", "-c", script, "sh", *COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S, **options)


@needs_full
@pytest.mark.parametrize(
    "arguments", others_later([("stats",), ("stats", "--json"), ("--version",), ("--help",)], ("stats",))
)
def test_a_full_stdout_is_reported_in_a_line(server: Server, arguments: tuple[str, ...]) -> None:
    result = shell(f'"$@" >{FULL}', "--url", server.url, *arguments)

    assert result.stderr == "streamdq: can't read or write: No space left on device\n"
    assert result.returncode == 3, "1 would be an answer"


@pytest.mark.thorough
@needs_full
@pytest.mark.parametrize("to", [FULL, "&-"])
def test_a_stderr_that_takes_nothing_does_not_change_the_exit_code(to: str) -> None:
    result = shell(f'"$@" 2>{to}', "no-such-command")

    assert (result.returncode, result.stdout) == (2, "")


@pytest.mark.thorough
def test_with_all_of_them_closed_a_job_is_enqueued(server: Server) -> None:
    result = shell('"$@" <&- >&- 2>&-', "--url", server.url, "enqueue", "t", "1", "--id", "closed")

    assert result.returncode == 0
    with Queue(server.url) as queue:
        assert queue.get("t", "closed") is not None


@pytest.mark.thorough
@pytest.mark.parametrize(("arguments", "code"), [(("-",), 2), (("--file", "-"), 0)])
def test_a_closed_stdin_is_empty(server: Server, arguments: tuple[str, ...], code: int) -> None:
    result = shell('"$@" <&-', "--url", server.url, "enqueue", "t", *arguments)

    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.thorough
def test_a_closed_stream_is_not_what_is_opened_next(server: Server) -> None:
    """A child process, or a C library, that prints would print into Redis's connection."""
    script = (
        "import os, sys; from streamdq import Queue; from streamdq.cli import app, streams; streams.prepare(); "
        "queue = Queue(sys.argv[1]); queue.stats(); "
        "sys.exit(not all(os.fstat(n).st_rdev == os.stat(os.devnull).st_rdev for n in (0, 1, 2)))"
    )
    command = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", script, server.url]

    assert subprocess.run(command, check=False, timeout=HANG_S).returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_encoding_lacks_is_escaped(server: Server, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "grün–✔"

    def call(*arguments: str) -> str:
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
        streams.prepare()
        assert cli.run(["--url", server.url, *arguments]) == 0
        sys.stdout.flush()
        return written.getvalue().decode(encoding)

    assert "\\u2714" in call("enqueue", "t", '"ü✔"', "--id", name, "--delay", "1h")
    assert "\\u2714" in call("get", "t", name)
    as_json = call("get", "t", name, "--json")
    assert as_json.isascii()
    assert json.loads(as_json)["id"] == name


def test_a_file_of_tokens_keeps_what_it_has_when_the_disk_is_full(tmp_path: Path) -> None:
    """The limit on a file's size stands for the disk's."""
    file = tmp_path / "tokens"
    assert cli.run(["token", "a", "admin", "--file", str(file)]) == 0
    before = file.read_text()
    (tmp_path / "limited.py").write_text(
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "sys.dont_write_bytecode = True; "  # Python would leave it cut, and every later import of the module fails
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 10},) * 2); "
        "from streamdq.cli.app import main; sys.argv[0] = 'streamdq'; sys.exit(main())"
    )

    with Forked(
        "limited", "token", "b", "admin", "--file", str(file), stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        _, said = process.communicate(timeout=HANG_S)

    assert file.read_text() == before
    assert process.returncode == 2
    assert said.startswith(f"streamdq: --file: can't add to {file}: ")
