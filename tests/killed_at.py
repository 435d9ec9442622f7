"""A process that works on a database and on Redis, and kills itself with -9 at a given step. It imports once, and forks
for each order that it reads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from streamdq.link.session import Op
from tests.waiting import HANG_S

Die = tuple[str, str, int]
"""A step, "before" or "after", and which of its calls; "commit" is the moment before the database commits."""


def name(die: Die) -> str:
    return "-".join(str(part) for part in die if part)


# -- in the test


class Killed:
    """Hands orders to a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def carry_out(self, **order: Any) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "-9\n", "it was to be killed"


@contextmanager
def killed(module: str) -> Iterator[Killed]:
    """The process of a module whose main is ``serve``."""
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    yield Killed(process)
    process.communicate(timeout=HANG_S)


# -- in the process


def serve(carry_out: Callable[[dict[str, Any]], None]) -> None:
    """Carries out each order in a process of its own, and tells how that ended."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            carry_out(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def arm(die: Die, database: Mapping[str, type[Any]], redis: Mapping[str, type[Any]]) -> None:
    """This process dies at that step, which is a method of these classes: plain ones, or operations on Redis."""
    step, when, number = die
    reached = _at(number)
    if step == "commit":
        event.listen(Engine, "commit", lambda _connection: reached())
        return
    place = (redis if step in redis else database)[step]
    original = getattr(place, step)

    def plain(*args: Any) -> Any:
        if when == "before":
            reached()
        result = original(*args)
        if when == "after":
            reached()
        return result

    def operation(*args: Any) -> Op[Any]:
        if when == "before":
            reached()
        result = yield from original(*args)
        if when == "after":
            reached()
        return result

    setattr(place, step, operation if step in redis else plain)


def _at(number: int) -> Callable[[], None]:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return count
