"""What is logged, and what never is."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from streamdq.cli import app as cli
from streamdq.errors import InvalidInput
from streamdq.process import logs
from tests.waiting import HANG_S


def test_a_traceback_is_one_more_text_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug")
    try:
        raise ValueError("why")
    except ValueError:
        structlog.get_logger("streamdq").debug("failed", exc_info=True)

    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: why" in json.loads(line)["exception"]


def test_logfmt_has_one_line_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(form="logfmt")
    try:
        raise ValueError("why\x1b[2J")
    except ValueError:
        logs.log.warning("attempt failed", topic="t", ids=["a b", 'c"'], done=True, exc_info=True)
    logging.getLogger("other").warning("from %s", "elsewhere")

    first, second = capsys.readouterr().err.splitlines()
    assert re.match(r'timestamp=\S+Z level=warning event="attempt failed" ', first)
    assert " topic=t " in first
    assert " done=true" in first
    assert "ValueError: why" in first
    assert "\x1b" not in first
    assert 'event="from elsewhere"' in second


@pytest.mark.parametrize("command", ["exporter", "mover"])
def test_a_format_is_an_option_or_a_variable(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, str]] = []

    def configured(level: str, form: str) -> None:
        taken.append((level, form))
        raise InvalidInput("enough")

    monkeypatch.setattr(logs, "configure", configured)
    assert cli.run([command, "--log-format", "json"]) == 2
    monkeypatch.setenv("STREAMDQ_LOG_FORMAT", "logfmt")
    assert cli.run([command]) == 2
    assert taken == [("info", "json"), ("info", "logfmt")]


def test_an_unknown_format_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["exporter", "--log-format", "xml"]) == 2
    assert "log-format: 'xml' is not one of auto, console, json, logfmt" in capsys.readouterr().err


@pytest.mark.parametrize("form", logs.FORMATS)
def test_bodies_and_passwords_are_never_logged(capsys: pytest.CaptureFixture[str], form: str) -> None:
    logs.configure(form=form)

    structlog.get_logger("streamdq").warning(
        "x", body={"a": "hunter2"}, raw_body=b"hunter2", password="hunter2", url="redis://me:hunter2@host:1/0"
    )
    logging.getLogger("other").warning("can't reach %s", "rediss://:hun@ter2@host")

    text = capsys.readouterr().err
    assert "hunter2" not in text
    assert "ter2" not in text
    assert "host:1/0" in text


class Endpoint:
    """An object of the user's, that tells too much of itself."""

    def __repr__(self) -> str:
        return "https://me:hunter2@host:2/"


@pytest.mark.parametrize("form", logs.FORMATS)
def test_objects_and_tracebacks_tell_no_secret_either(capsys: pytest.CaptureFixture[str], form: str) -> None:
    logs.configure(form=form)
    log = structlog.get_logger("theirs")

    def handler(body: dict[str, str]) -> None:
        raise ConnectionError(f"host=db password='hunter2' {Endpoint()} for {len(body)}")

    log.warning("x", error=ValueError(str(Endpoint())), at=Endpoint(), raw=b"redis://:hunter2@h", all={str(Endpoint())})
    try:
        handler({"card": "hunter" + "2"})
    except ConnectionError:
        log.exception("failed")
        logging.getLogger("library").exception("failed, too")

    text = capsys.readouterr().err
    assert text.count("ConnectionError: host=db password=") == 2
    assert text.count("in handler") == 2
    assert "host:2" in text
    assert "hunter2" not in text


@pytest.mark.thorough
def test_a_program_s_own_configuration_stays(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import logging; logging.basicConfig(level='INFO', format='MINE %(message)s')\n"
        "from streamdq import Worker\nworker = Worker('memory://')\nworker.handler('t')(lambda: None)\n"
    )
    code = "import sys; from streamdq.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "worker", "shop:worker", "--burst"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert "worker started" in done.stderr
    assert {line[:5] for line in done.stderr.splitlines()} == {"MINE "}
