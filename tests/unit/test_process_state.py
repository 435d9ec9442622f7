"""A process may lack what most have: a home, a name for its user, a file system that it can write to, stdin.

Locks that were held when it was forked: test_forks.py. No stderr, or one that nobody reads: test_log_lines.py. A locale
that is not UTF-8: test_encodings.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import HANG_S

JOBS = """
import os, sys
from streamdq import Queue, Worker
from streamdq.errors import StreamdqError
url = sys.argv[1] or None
try:
    with Queue(url) as queue:
        worker = Worker(url)

        @worker.handler("t", retry="none")
        def handle(body: dict) -> None: ...

        queue.enqueue("t", {})
        worker.run(burst=True)
        print(queue.stats("t").topics["t"].groups["default"].done)
except StreamdqError as error:
    print(f"{type(error).__name__}: {error}")
"""
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "STREAMDQ_", "HOME"))}


def ran(code: str, url: str, env: dict[str, str], **options: Any) -> str:
    """What the program prints. It must not end by an exception of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, url], env={**PLAIN, **env}, capture_output=True, encoding="utf-8", timeout=HANG_S,
        check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "env",
    [
        pytest.param({}, id="no home", marks=pytest.mark.thorough),
        pytest.param({"HOME": "/nonexistent"}, id="a home that is not there", marks=pytest.mark.thorough),
        pytest.param(
            {"HOME": "/proc", "XDG_STATE_HOME": "/proc", "XDG_RUNTIME_DIR": "/proc"}, id="nothing can be written"
        ),
    ],
)
def test_jobs_run_without_a_home(env: dict[str, str], tmp_path: Path) -> None:
    assert ran(JOBS, f"embedded://{tmp_path}", env) == "1"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["HOME", "XDG_STATE_HOME"])
def test_without_a_server_the_error_says_that_none_can_keep_the_data(name: str) -> None:
    output = ran(JOBS, "", {name: "/proc"})
    assert output.startswith("EmbeddedError: Can't keep a Redis in /proc")


def test_a_command_says_so_in_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamdq", "stats"], env={**PLAIN, "HOME": "/proc"}, capture_output=True,
        encoding="utf-8", timeout=HANG_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "Can't keep a Redis in /proc" in done.stderr


@pytest.mark.thorough
def test_a_users_home_that_is_not_known() -> None:
    assert ran(JOBS, "embedded://~no-such-user", {}).startswith("InvalidInput: url: embedded://~no-such-user: ")


UNKNOWN = 54321
AS_UNKNOWN = """
import os, sys
os.environ.pop("HOME", None)
import streamdq, streamdq.embedded.server, streamdq.queue, streamdq.link.connection
from streamdq.embedded import server
from streamdq.errors import EmbeddedError
from pathlib import Path
folder = Path(sys.argv[1])
streamdq.Queue("memory://imports")  # what it needs, while this process may read it
os.chown(folder, {uid}, {uid})
os.setgid({uid})
os.setuid({uid})
try:
    print(server.default_directory())
except EmbeddedError as error:
    print(error)
server._require_private(folder)
print(server._socket_path(folder).name)
try:
    streamdq.Queue()
except EmbeddedError as error:
    print(error)
""".replace("{uid}", str(UNKNOWN))


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_a_user_without_a_name_or_a_home() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        first, socket_name, second = ran(AS_UNKNOWN, folder, {}).splitlines()
    assert first == second == "There is no home directory to keep data in: use embedded:///DIR."
    assert socket_name == "redis.sock"


@pytest.mark.thorough
def test_without_standard_streams_a_command_works(tmp_path: Path) -> None:
    """Its connections and files must not take their numbers."""
    command = [sys.executable, "-m", "streamdq", "--url", f"embedded://{tmp_path}"]
    for words in (["enqueue", "t", "{}"], ["topic", "list"], ["stats", "--json"]):
        closed = "<&- 2>&-" if words[0] == "stats" else "<&- >&- 2>&-"
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *command, *words], env=PLAIN, stdout=subprocess.PIPE,
            timeout=HANG_S, check=False,
        )  # fmt: skip
        if words[0] == "stats":
            assert json.loads(done.stdout)["topics"]["t"]["enqueued"] == 1
