"""What `make flaky` reads of a run, and what it says of several."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.flaky import Run, outcomes, run, summary

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.unit.test_a" name="test_one[x]" time="0.5"/>
<testcase classname="tests.unit.test_a" name="test_two" time="2.25"><failure message="no">why</failure></testcase>
<testcase classname="tests.unit.test_b" name="test_three" time="0.1"><error message="no">why</error></testcase>
</testsuite></testsuites>"""
ONE, TWO, THREE = (
    "tests/unit/test_a.py::test_one[x]",
    "tests/unit/test_a.py::test_two",
    "tests/unit/test_b.py::test_three",
)


def test_what_failed_and_how_long_it_took(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT, encoding="utf-8")
    assert outcomes(tmp_path / "report.xml") == ({ONE: 0.5, TWO: 2.25, THREE: 0.1}, [TWO, THREE])


def test_a_run_without_a_report_has_failed(tmp_path: Path) -> None:
    done = run(2, True, [sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(3)"], tmp_path)
    assert (done.number, done.busy, done.failed) == (2, True, ["(pytest itself)"])
    assert done.status == 3
    assert "junitxml" in (tmp_path / "run-2.txt").read_text(encoding="utf-8")


def test_the_summary_names_what_ever_failed_and_the_slowest() -> None:
    runs = [
        Run(1, False, 0, 60.0, 50.0, {ONE: 0.5, TWO: 2.0}, []),
        Run(2, True, 1, 90.0, 55.0, {ONE: 0.7, TWO: 1.0}, [TWO]),
        Run(3, False, 1, 60.0, 50.0, {}, [TWO]),
    ]
    assert summary(runs) == [
        "3 runs, 2 failed; 1 tests ever failed",
        f"  2 × {TWO}: in [2, 3]",
        "the slowest, in their slowest run:",
        f"     2.0 s {TWO}",
        f"     0.7 s {ONE}",
    ]
    assert str(runs[1]) == "run  2, on a busy machine: 2 tests, 1 failed; 90 s, of CPU 55 s"
