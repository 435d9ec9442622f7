"""Blocking reads of ready streams and of ``wake`` streams, and the heartbeat of the consumer that makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import TooManyCalls
from ..keys import ShardKeys
from ..link.command import Command
from ..link.session import Op, Session, checked

_BLOCK_GRACE_S = 3.0
_END = "18446744073709551615-0"  # behind the last possible entry

Entries = list[bytes | str]
"""Stream 'm' or 'g', entry, member, in turn."""


def read_streams(
    session: Session, group: str, consumer: str, shards: Sequence[ShardKeys], count: int, block_ms: int | None
) -> Op[dict[ShardKeys, Entries]]:
    """XREADGROUP over the shards' streams: what each has, or nothing when ``block_ms`` passed. On Cluster, one shard.

    What it returns is pending, but not claimed yet: the claim script makes it so, or drops it.

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
        return {}  # it has waited in line instead, for as long
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
    """Blocks until one of the streams has something newer than ``seen``, at most ``block_s``; {stream: newest id}."""
    ids = [seen.get(name, b"0-0") for name in streams]
    args = ("XREAD", "BLOCK", int(block_s * 1000), "STREAMS", *streams, *ids)
    replies = yield from session.call([Command(streams[0], args)], timeout_s=block_s + _BLOCK_GRACE_S)
    return {name.decode(): entries[-1][0] for name, entries in checked(replies[0]) or []}


def join(session: Session, group: str, consumer: str, shards: Sequence[ShardKeys]) -> Op[None]:
    """Makes the consumer known to the group, in both streams of each shard: a blocked read alone does not, before
    Redis 7.2. One call; a group that is not there is for the first read to find.
    """
    yield from session.call(
        [
            Command(shard.ready, ("XGROUP", "CREATECONSUMER", name, group, consumer))
            for shard in shards
            for name in (shard.ready, shard.ready_of(group))
        ]
    )


def heartbeat(session: Session, group: str, consumer: str, shards: Sequence[ShardKeys]) -> Op[None]:
    """The consumer's sign of life: asks for what it has pending behind the last possible entry. The reply is empty, but
    Redis resets the consumer's idle time. On a Cluster, one shard.
    """
    streams = [shard.ready for shard in shards]
    args = ("XREADGROUP", "GROUP", group, consumer, "STREAMS", *streams, *[_END] * len(streams))
    yield from session.call([Command(streams[0], args)])
