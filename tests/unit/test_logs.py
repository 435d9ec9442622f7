"""Lines of programs that have not configured structlog: they go to the standard logger, and structlog is not loaded."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import structlog

from streamdq.logs import Log

_PROGRAM = """
import logging, sys
import streamdq
from streamdq.logs import log
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
