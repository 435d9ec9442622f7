"""Lines of programs that have not configured structlog: they go to the standard logger, and structlog is not loaded."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys

import pytest
import structlog

from streamdq.process.logs import Log

_PROGRAM = """
import logging, sys
import streamdq
from streamdq.process.logs import log
log.info("nobody hears this")
log.warning("outcomes not sent yet", waiting=3, error="no 'answer'")
logging.basicConfig(level="INFO", format="%(name)s %(levelname)s %(filename)s %(message)s", stream=sys.stdout)
log.info("worker started", topics=["t"], body="secret")
print(sorted({name.partition(".")[0] for name in sys.modules} & {"structlog", "rich", "pygments"}))
"""


def test_they_are_written_without_structlog() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stderr == """event='outcomes not sent yet' waiting=3 error="no 'answer'"\n"""
    assert ran.stdout == "streamdq INFO <string> event='worker started' topics=['t']\n[]\n"


def test_structlog_gets_them_as_soon_as_the_program_configures_it(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    with caplog.at_level(logging.WARNING, "streamdq"):
        log.warning("before")
    with structlog.testing.capture_logs() as captured:
        structlog.configure(processors=structlog.get_config()["processors"])
        log.info("after", topics=["t"])
    assert caplog.messages == ["event='before'"]
    assert captured == [{"event": "after", "topics": ["t"], "log_level": "info"}]


def test_there_are_no_levels_but_these() -> None:
    assert not hasattr(Log(), "shout")


# -- a script that has configured nothing

_SCRIPT = """
import logging, sys
from streamdq import Queue, Worker

URL = "memory://script"
worker = Worker(URL)

@worker.handler("t", retry="none")
async def handle(body: dict) -> None:
    raise ValueError("no such user at https://me:hunter2@host/")

with Queue(URL) as queue:
    queue.enqueue("t", {"a": 1})
{before}
worker.run(burst=True)
logger = logging.getLogger("streamdq")
assert (logger.handlers, logger.level) == ([], logging.NOTSET), logger
"""


def _script(before: str = "", stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", _SCRIPT.replace("{before}", before)]
    return subprocess.run(program, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=60, check=True)


def test_while_a_script_runs_its_worker_lines_are_json_where_no_terminal_is() -> None:
    lines = [json.loads(line) for line in _script().stderr.splitlines()]
    assert [line["event"] for line in lines] == [
        "topics served", "worker started", "attempt ended", "worker stopped",
    ]  # fmt: skip
    failed = lines[2]
    assert (failed["level"], failed["topic"], failed["outcome"]) == ("error", "t", "dead")
    assert failed["error"] == "ValueError: no such user at https://…@host/"
    assert failed["exception"].endswith("ValueError: no such user at https://…@host/")
    assert "hunter2" not in str(lines)


@pytest.mark.thorough
def test_on_a_terminal_they_are_for_people() -> None:
    main, terminal = pty.openpty()
    try:
        _script(stderr=terminal)
        os.close(terminal)
        text = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(main, 65_536):
                text += part
    finally:
        os.close(main)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text.decode())
    assert re.search(r"\d\d:\d\d:\d\d \[error +\] attempt ended +outcome=dead", plain)
    assert "ValueError: no such user at https://…@host/" in plain


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("before", "out"),
    [
        ("logging.basicConfig(level='ERROR', format='own: %(levelname)s', stream=sys.stdout)", "own: ERROR\n"),
        pytest.param(
            "import structlog as s; s.configure([s.processors.KeyValueRenderer()], None, None, s.PrintLoggerFactory())",
            "event='attempt ended'",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_what_the_program_has_configured_stays_as_it_is(before: str, out: str) -> None:
    script = _script(before)
    assert script.stderr == ""
    assert out in script.stdout
