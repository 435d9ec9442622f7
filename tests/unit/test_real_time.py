"""Each kind of dependence on real time is found, and what has none of it passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_time import findings

SLOW = {
    "time.sleep(0.01)": "sleeps",
    "sleep(1)": "sleeps",
    "await asyncio.sleep(0.06)": "sleeps",
    "await asyncio.sleep(pause)": "sleeps",
    "assert monotonic() - began < 2": "compares",
    "assert 1 <= (time.perf_counter() - began) * 1000": "compares",
    "took = loop.time() - began\n    assert 0.5 < took": "compares",
    "async with asyncio.timeout(5): pass": "a limit of 5 s",
    "process.wait(timeout=10)": "a limit of 10 s",
    "subprocess.run([], timeout=20)": "a limit of 20 s",
}
QUICK = [
    "await asyncio.sleep(0)",
    "await asyncio.sleep(0.05)",
    "assert monotonic() < deadline",
    "async with asyncio.timeout(60): pass",
    "queue.take(timeout=0.2)",
    "process.wait(timeout=HANG_S)",
    "time.sleep(1)  # real time: what the handler does while it is killed",
]


def found(line: str, decorator: str = "") -> list[str]:
    source = f"{decorator}\nasync def test_it():\n    {line}\n"
    return [finding.what for finding in findings(source, Path("test_it.py"))]


@pytest.mark.parametrize("line", SLOW)
def test_what_depends_on_speed_is_found(line: str) -> None:
    (what,) = found(line)
    assert SLOW[line] in what
    assert not found(line, "@in_virtual_time"), "time passes only while everything waits"


@pytest.mark.parametrize("line", QUICK)
def test_what_does_not_is_not(line: str) -> None:
    assert not found(line)
