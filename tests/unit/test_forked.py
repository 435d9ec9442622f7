"""A forked process is like one that Python itself has started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.forked import ROOT, Forked
from tests.waiting import HANG_S, until

PROBE = """
import json, os, resource, signal, sys, threading
streams = sys.stdin, sys.stdout, sys.stderr
print(json.dumps({
    "name": __name__,
    "module": sys.modules["__main__"].__spec__.name,
    "argv": sys.argv,
    "path": sys.path,
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "files": sorted(os.listdir("/proc/self/fd")),
    "parent": os.getppid(),
    "group": os.getpgid(0) == os.getpid(),
    "session": os.getsid(0) == os.getpid(),
    "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": threading.active_count(),
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
    "umask": os.umask(0),
    "buffering": [(each.encoding, each.errors, each.line_buffering, each.write_through) for each in streams],
}))
"""
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
Start = Callable[..., "subprocess.Popen[Any]"]


def started(module: str, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen([sys.executable, "-m", module, *arguments], **options)


@pytest.fixture(params=[started, Forked])
def start(request: pytest.FixtureRequest) -> Start:
    """Each of the two."""
    found: Start = request.param
    return found


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module into the folder that this process is in."""
    monkeypatch.chdir(tmp_path)

    def write(code: str) -> str:
        (tmp_path / "written.py").write_text(code)
        return "written"

    return write


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("more", [{}, {"PYTHONUNBUFFERED": "1", "A": "ä"}], ids=["plain", "unbuffered"])
def test_it_finds_what_a_started_process_finds(
    module: Callable[[str], str], session: bool, more: dict[str, str]
) -> None:
    def found(start: Start) -> Any:
        env = {**BUFFERED, **more}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = start(module(PROBE), "a", "ä b", env=env, start_new_session=session, **pipes)
        out, err = process.communicate(timeout=HANG_S)
        assert (process.returncode, err) == (0, b"")
        return json.loads(out)

    assert found(Forked) == found(started)
    assert found(Forked)["parent"] == os.getpid()


@pytest.mark.parametrize(
    ("code", "returncode"),
    [
        ("", 0),
        ("import sys; sys.exit(3)", 3),
        ("raise ValueError", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import atexit, os; atexit.register(os._exit, 4)", 4),
        ("import os, threading, time; threading.Thread(target=lambda: (time.sleep(0.1), os._exit(5))).start()", 5),
    ],
)
def test_it_ends_as_a_started_process_ends(
    start: Start, module: Callable[[str], str], code: str, returncode: int
) -> None:
    process = start(module(code), stderr=subprocess.DEVNULL)

    assert process.wait(HANG_S) == returncode


def test_output_that_nobody_reads_any_more(start: Start, module: Callable[[str], str]) -> None:
    process = start(
        module("import sys; print('begun', flush=True); sys.stdin.read(); print('too late')"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=BUFFERED,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == "begun\n"
    process.stdout.close()
    process.stdin.close()

    told = process.stderr.read()
    process.stderr.close()
    assert process.wait(HANG_S) == 120
    assert "BrokenPipeError" in told


def test_two_of_them_have_different_random_numbers(module: Callable[[str], str]) -> None:
    name = module("import random; print(random.random())")
    outputs = {Forked(name, stdout=subprocess.PIPE).communicate(timeout=HANG_S)[0] for _ in range(2)}

    assert len(outputs) == 2


def test_what_is_read_when_imported_comes_too_late() -> None:
    with pytest.raises(AssertionError, match="a process of its own"):
        Forked("streamdq", env={"PROMETHEUS_MULTIPROC_DIR": "x"})


def test_the_parent_ends_with_the_process_that_asked() -> None:
    code = "from tests.forked import Forked; Forked('this').wait(); print('asked', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as asking:
        assert asking.stdout is not None
        assert b"asked\n" in iter(asking.stdout.readline, b"")
        family = psutil.Process(asking.pid).children(recursive=True)
        asking.kill()

    assert len(family) == 1
    until(lambda: not any(each.is_running() for each in family), "none is left")
