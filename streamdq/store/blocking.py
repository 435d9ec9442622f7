"""Blocking reads of ready streams and ``wake`` streams, and the consumer's heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import TooManyCalls
from ..keys import ShardKeys
from ..link.command import Command
from ..link.session import Op, Session, checked

_BLOCK_GRACE_S = 3.0
_END = "18446744073709551615-0"  # after the last possible entry

Entries = list[bytes | str]
"""Three values per entry: stream ('m' shared, 'g' the group's own), entry id, member."""


def read_streams(
    session: Session, group: str, consumer: str, shards: Sequence[ShardKeys], count: int, block_ms: int | None
) -> Op[dict[ShardKeys, Entries]]:
    """XREADGROUP over the shards' streams; returns nothing if ``block_ms`` has passed. On Cluster, one shard only.

    The returned entries are pending but not claimed yet: the claim script claims them or drops them.

    Raises:
        GroupMissing
    """
    streams = {
        name: (shard, kind) for shard in shards for kind, name in (("g", shard.ready_of(group)), ("m", shard.ready))
    }
    block = () if block_ms is None else ("BLOCK", max(1, block_ms))
    args = (
        "XREADGROUP", "GROUP", group, consumer, "COUNT", count, *block, "STREAMS", *streams, *[">"] * len(streams),
    )  # fmt: skip
    timeout_s = None if block_ms is None else block_ms / 1000 + _BLOCK_GRACE_S
    try:
        replies = yield from session.call([Command(shards[0].ready, args)], timeout_s=timeout_s, repeatable=False)
    except TooManyCalls:
        if block_ms is None:
            raise
        return {}  # the call has waited in line for a connection instead, just as long
    return _by_shard(streams, checked(replies[0]) or [])


def _by_shard(streams: Mapping[str, tuple[ShardKeys, str]], reply: Sequence[Any]) -> dict[ShardKeys, Entries]:
    found: dict[ShardKeys, Entries] = {}
    for name, entries in reply:
        shard, kind = streams[name.decode()]
        for entry, fields in entries:
            if fields is not None:
                found.setdefault(shard, []).extend((kind, entry, fields[1]))
    return found


def listen(session: Session, streams: Sequence[str], seen: Mapping[str, bytes], block_s: float) -> Op[dict[str, bytes]]:
    """Blocks until a stream has an entry newer than ``seen``, at most ``block_s``; returns {stream: newest id}."""
    ids = [seen.get(name, b"0-0") for name in streams]
    args = ("XREAD", "BLOCK", int(block_s * 1000), "STREAMS", *streams, *ids)
    replies = yield from session.call([Command(streams[0], args)], timeout_s=block_s + _BLOCK_GRACE_S)
    return {name.decode(): entries[-1][0] for name, entries in checked(replies[0]) or []}


def join(session: Session, group: str, consumer: str, shards: Sequence[ShardKeys]) -> Op[None]:
    """Makes the consumer known to the group, in both streams of each shard: before Redis 7.2 a blocked read does not do
    that. One call. Ignores missing groups; the first read will find them.
    """
    yield from session.call(
        [
            Command(shard.ready, ("XGROUP", "CREATECONSUMER", name, group, consumer))
            for shard in shards
            for name in (shard.ready, shard.ready_of(group))
        ]
    )


def heartbeat(session: Session, group: str, consumer: str, shards: Sequence[ShardKeys]) -> Op[None]:
    """The consumer's heartbeat: asks for its pending entries after the last possible id. The reply is empty, but Redis
    resets the consumer's idle time. On Cluster, one shard only.
    """
    streams = [shard.ready for shard in shards]
    args = ("XREADGROUP", "GROUP", group, consumer, "STREAMS", *streams, *[_END] * len(streams))
    yield from session.call([Command(streams[0], args)])
