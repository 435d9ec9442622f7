"""Listening to ``wake`` streams: of a shard, when something earlier arrives, and of the namespace, when the registry
changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .connection import Command
from .session import Op, Session, checked

BLOCK_S = 10.0
_BLOCK_GRACE_S = 3.0


def ring(session: Session, streams: Sequence[str], seen: Mapping[str, bytes]) -> Op[dict[str, bytes]]:
    """Blocks until one of the streams has something newer than ``seen``, at most ten seconds; {stream: newest id}."""
    ids = [seen.get(name, b"0-0") for name in streams]
    args = ("XREAD", "BLOCK", int(BLOCK_S * 1000), "STREAMS", *streams, *ids)
    replies = yield from session.call([Command(streams[0], args)], timeout_s=BLOCK_S + _BLOCK_GRACE_S)
    return {name.decode(): entries[-1][0] for name, entries in checked(replies[0]) or []}
