"""What strangers wrote reaches a terminal as text that it shows, not as something that it obeys."""

from __future__ import annotations

import io
import logging
import re
import sys
from pathlib import Path

import pytest
import structlog
from rich.console import Console

from streamdq import Job, NewJob, Queue
from streamdq.config import GroupSettings, TopicSettings
from streamdq.job.retry import DEFAULT_RETRY
from streamdq.process.logs import configure, visible, visible_json
from streamdq.terminal import job_view
from tests.cli.conftest import Run
from tests.waiting import HANG_S

# 8-bit CSI and OSC, an override of the direction, an escape, a bell.
EVIL = "\x9b31m\x9d0;x\x9c\u202edaed\u2066\u2028"
ERROR = EVIL + "\x1b[31m\x07\r"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def test_what_is_shown_instead() -> None:
    assert (
        visible("a\x9bb\u202ec\x1b[0m\ud800 ä 漢 \U0001f600\n\t")
        == r"a\x9bb\u202ec\x1b[0m\ud800 ä 漢 " + "\U0001f600\n\t"
    )
    assert visible_json('{"ä":"\x9b\u202e"}') == '{"ä":"\\u009b\\u202e"}'


def test_groups_with_values_of_their_own_are_named() -> None:
    settings = TopicSettings(ttr_ms=5000, groups={"a": GroupSettings(ttr_ms=7), "b": GroupSettings()})
    screen = Console(file=io.StringIO(), width=200)
    screen.print(job_view(Job("t", "j", b"1", 0, 0), settings))
    lines = [" ".join(line.split()) for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert "ttr 7ms (a); 5s (b)" in lines
    assert f"retry {DEFAULT_RETRY}" in lines


def test_no_command_lets_a_control_character_through(run: Run, queue: Queue, tmp_path: Path) -> None:
    topic, id, body = "t", "id", {EVIL: [EVIL]}  # names have no such characters
    archive = f"sqlite:///{tmp_path / 'dead.db'}"

    def bury() -> None:
        queue.enqueue_many(topic, [NewJob(body, id=id)])
        claim = queue.take(topic, timeout=HANG_S)
        assert claim
        claim.bury(ERROR)

    bury()
    queue.schedule(topic, body, id=id, every="1h")
    shown = [
        run(*words)
        for words in (
            ("get", topic, id), ("get", topic, "none" + EVIL), ("dead", "list", topic), ("stats",), ("audit",),
            ("upcoming",), ("topic", "configure", topic), ("topic", "pause", topic), ("topic", "resume", topic),
            ("cancel", topic, id), ("cancel", "none" + EVIL, id), ("enqueue", topic, "1", "--id", id),
            ("enqueue", topic, EVIL), ("enqueue", topic, "1", "--id", "new" + EVIL, "--delay", "1h"),
            ("reschedule", topic, "x" + EVIL, "--delay", EVIL),
            ("stats", "--wrong" + EVIL), ("archive", "list", "--from", f"sqlite:///{EVIL}"),
            ("archive", "--to", archive), ("archive", "list", "--from", archive),
            ("archive", "show", "--from", archive, topic, id), ("archive", "kick", "--from", archive, topic, id),
            ("doctor",), ("schedule", "list"), ("schedule", "show", topic, id), ("schedule", "show", topic, "x" + EVIL),
            ("schedule", "add", topic, "--id", id, "--every", "2h"), ("schedule", "trigger", topic, id),
            ("schedule", "add", topic, "--cron", EVIL), ("schedule", "pause", topic, id),
        )
    ]  # fmt: skip
    bury()
    machine = [run(*words, "--json") for words in (("get", topic, id), ("dead", "list", topic), ("stats",), ("audit",))]

    for result in (*shown, *machine):
        assert not OBEYED.search(result.out + result.err), result
    assert sum(r"\x9b31m" in result.out + result.err for result in shown) > 8
    assert machine[0].json["id"] == id
    assert machine[0].json["body"] == body


def test_a_log_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure(form="console")

    structlog.get_logger("streamdq").warning("job failed", id=EVIL, error=ERROR, more=[EVIL, {"x": ERROR}])
    logging.getLogger("other").warning("said %s", ERROR)

    text = written.getvalue()
    assert "job failed" in text
    assert text.count(r"\x9b31m") == 5
    # What is left are the colours of the line itself.
    assert not OBEYED.search(re.sub(r"\x1b\[[0-9;]*m", "", text))
    assert "\x1b[31m\x07" not in text
