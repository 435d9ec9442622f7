"""Relays, and is killed at a given step."""

from __future__ import annotations

from typing import Any

from streamdq import Queue
from streamdq.outbox import rows
from streamdq.outbox.redis_side import RedisSide
from streamdq.outbox.relay import Relay
from tests.killed_at import arm, serve

SMALL = 4
"""Rows in a batch, so that ten of them take three."""

_DATABASE = dict.fromkeys(("take_lease", "claim", "waiting", "write_states", "release_lease"), rows.Rows)
_REDIS = dict.fromkeys(("enqueue", "forget", "fates"), RedisSide)


def carry_out(order: dict[str, Any]) -> None:
    rows.BATCH = SMALL
    arm(order["die"], _DATABASE, _REDIS)
    with Queue(order["redis"]) as queue, Relay(order["database"], queue, keep=order["keep"]) as relay:
        relay.reconcile() if order["do"] == "reconcile" else relay.run(burst=True)


if __name__ == "__main__":
    serve(carry_out)
