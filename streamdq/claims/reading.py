"""Reading the streams of shards for a group. What is read is pending; the claim script makes a claim of it."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import TooManyCalls
from ..keys import ShardKeys
from ..link.connection import Command
from ..link.session import Op, Session, checked

_BLOCK_GRACE_S = 3.0
Entries = list[bytes | str]  # stream 'm' or 'g', entry, member, in turn


def read_streams(
    session: Session, group: str, consumer: str, shards: Sequence[ShardKeys], count: int, block_ms: int | None
) -> Op[dict[ShardKeys, Entries]]:
    """XREADGROUP over the shards' streams: what each has, or nothing when ``block_ms`` passed. On Cluster, one shard.

    What it returns is pending, but not claimed yet: the claim script makes it so, or drops it.
    """
    streams = {
        name: (shard, kind) for shard in shards for kind, name in (("g", shard.ready_of(group)), ("m", shard.ready))
    }
    block = () if block_ms is None else ("BLOCK", max(1, block_ms))
    args = (
        "XREADGROUP",
        "GROUP",
        group,
        consumer,
        "COUNT",
        count,
        *block,
        "STREAMS",
        *streams,
        *[">"] * len(streams),
    )
    timeout_s = None if block_ms is None else block_ms / 1000 + _BLOCK_GRACE_S
    try:
        replies = yield from session.call([Command(shards[0].ready, args)], timeout_s=timeout_s, repeatable=False)
    except TooManyCalls:
        if block_ms is None:
            raise
        return {}  # it has waited in line instead, for as long
    found: dict[ShardKeys, Entries] = {}
    for name, entries in checked(replies[0]) or []:
        shard, kind = streams[name.decode()]
        for entry, fields in entries:
            if fields is not None:
                found.setdefault(shard, []).extend((kind, entry, fields[1]))
    return found
