"""Archives, and kills itself with -9 at a given step. It imports once, and forks for each order that it reads."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event

from streamdq import Queue
from streamdq.archive import Archive, archive, dead_letters
from streamdq.archive.store import Store
from streamdq.link.session import Op

SMALL = 4
"""Letters in a batch, so that ten of them take three."""

_PLACES: dict[str, type[Any]] = {
    "put": Store, "lock": Store, "mark": Store, "turn": Store,
    "take_out": dead_letters.Letters, "give_back": dead_letters.Letters, "forget": dead_letters.Letters,
}  # fmt: skip


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _at(number: int) -> Callable[[], None]:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            _die()

    return count


def arm(step: str, when: str, number: int) -> None:
    """Dies before or after the given call of a step; "commit" is the moment before the database commits."""
    reached = _at(number)
    if step == "commit":
        event.listen(Engine, "commit", lambda _connection: reached())
        return
    place = _PLACES[step]
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

    setattr(place, step, operation if place is dead_letters.Letters else plain)


def carry_out(order: dict[str, Any]) -> None:
    dead_letters.PAGE = archive._KICK_BATCH = SMALL
    arm(*order["die"])
    with Queue(order["redis"]) as queue, Archive(order["database"]) as opened:
        getattr(opened, order["do"])(queue)


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            carry_out(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
