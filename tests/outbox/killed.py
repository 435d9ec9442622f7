"""Relays, and kills itself with -9 at a given step. It imports once, and forks for each order that it reads."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event

from streamdq import Queue
from streamdq.link.session import Op
from streamdq.outbox import rows
from streamdq.outbox.redis_side import RedisSide
from streamdq.outbox.relay import Relay

SMALL = 4
"""Rows in a batch, so that ten of them take three."""

_PLACES: dict[str, type[Any]] = {
    "take_lease": rows.Rows, "waiting": rows.Rows, "settle": rows.Rows, "release_lease": rows.Rows,
    "enqueue": RedisSide, "forget": RedisSide, "fates": RedisSide,
}  # fmt: skip


def _at(number: int) -> Callable[[], None]:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)

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

    setattr(place, step, operation if place is RedisSide else plain)


def carry_out(order: dict[str, Any]) -> None:
    rows.BATCH = SMALL
    arm(*order["die"])
    with Queue(order["redis"]) as queue, Relay(order["database"], queue, keep=order["keep"]) as relay:
        relay.reconcile() if order["do"] == "reconcile" else relay.run(burst=True)


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
