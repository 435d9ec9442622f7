"""``make flaky``: what it records, and that it goes on after an interruption."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import flaky

PYTEST = """
import sys
from pathlib import Path
once = Path(__file__).with_name("once")
first = not once.exists()
once.touch()
case = '<testcase classname="tests.a.test_b" name="test_c" time="0.5">' + first * "<failure/>" + "</testcase>"
Path(sys.argv[-1].partition("=")[2]).write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>")
sys.exit(first)
"""


def test_runs_are_recorded_and_the_rest_is_run_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flaky, "tried", lambda: "abc1234")
    (tmp_path / "pytest.py").write_text(PYTEST)
    record = tmp_path / "flaky.json"

    def flaky_runs(number: int) -> int:
        words = ["--runs", str(number), "--out", str(tmp_path / "out"), "--record", str(record), "--"]
        monkeypatch.setattr(sys, "argv", ["flaky", *words, sys.executable, str(tmp_path / "pytest.py")])
        return flaky.main()

    assert flaky_runs(1) == 1
    assert flaky_runs(2) == 1  # the second run is the only one now, and the first one counts
    found = json.loads(record.read_text())
    assert [(run["commit"], run["number"], run["tests"], run["failed"]) for run in found] == [
        ("abc1234", 1, 1, ["tests/a/test_b.py::test_c"]), ("abc1234", 2, 1, []),
    ]  # fmt: skip
    printed = capsys.readouterr().out
    assert "1 × tests/a/test_b.py::test_c: in [1]" in printed
    assert "0.5 s tests/a/test_b.py::test_c" in printed

    monkeypatch.setattr(flaky, "tried", lambda: "def5678")
    assert flaky_runs(1) == 0, "another commit begins anew"
    assert len(json.loads(record.read_text())) == 3
