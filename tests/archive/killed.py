"""Archives or kicks, and is killed at a given step."""

from __future__ import annotations

from typing import Any

from streamdq import Queue
from streamdq.archive import Archive, archive, dead_letters
from streamdq.archive.store import Store
from tests.killed_at import arm, serve

SMALL = 4
"""DeadLetters in a batch, so that ten of them take three."""

_DATABASE = dict.fromkeys(("put", "lock", "mark", "turn"), Store)
_REDIS = dict.fromkeys(("take_out", "give_back", "forget"), dead_letters.DeadLetters)


def carry_out(order: dict[str, Any]) -> None:
    dead_letters.PAGE = archive._KICK_BATCH = SMALL
    arm(order["die"], _DATABASE, _REDIS)
    with Queue(order["redis"]) as queue, Archive(order["database"]) as opened:
        getattr(opened, order["do"])(queue)


if __name__ == "__main__":
    serve(carry_out)
