"""Waiting for entries of ready streams and ``wake`` streams, by blocking reads or, on Cluster, by looks that tell of
the next change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from ..errors import ServerError, TooManyCalls
from ..keys import ShardKeys
from ..link.command import Command
from ..link.session import Op, Session, checked

_BLOCK_GRACE_S = 3.0
_LOOK_S = 2.0

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
    found = yield from read_new(session, streams, seen, block_s)
    return {name: entries[-1][0] for name, entries in found.items()}


def read_new(
    session: Session, streams: Sequence[str], seen: Mapping[str, bytes], block_s: float
) -> Op[dict[str, list[tuple[bytes, list[bytes]]]]]:
    """As ``listen``, but returns the entries, which are newer than ``seen``: {stream: [(id, fields), ...]}.

    Raises:
        ServerError: one of them is no stream, because another client has written there.
    """
    ids = [seen.get(name, b"0-0") for name in streams]
    args = ("XREAD", "BLOCK", int(block_s * 1000), "STREAMS", *streams, *ids)
    (reply,) = yield from session.call([Command(streams[0], args)], timeout_s=block_s + _BLOCK_GRACE_S)
    if isinstance(reply, ResponseError) and "WRONGTYPE" in str(reply):
        raise ServerError(f"{reply}; delete the one that is no stream: {' '.join(streams)}") from reply
    return {name.decode(): entries for name, entries in checked(reply) or []}


def newest(session: Session, streams: Sequence[str], changed: Callable[[str], None]) -> Op[dict[str, bytes]]:
    """The id of each stream's newest entry, if it has one; ``changed`` is called at the next change. On Cluster, where
    all streams should be on one node; one call.
    """
    commands = [Command(name, ("XREVRANGE", name, "+", "-", "COUNT", 1)) for name in streams]
    replies = yield from session.call(commands, timeout_s=_LOOK_S, changed=changed)
    return {name: found[0][0] for name, reply in zip(streams, replies, strict=True) if (found := checked(reply))}


def with_news(session: Session, group: str, streams: Sequence[str], changed: Callable[[str], None]) -> Op[list[str]]:
    """Those of the ready streams that are missing or have an entry which was not delivered to the group; ``changed`` is
    called at the next change of each stream. On Cluster, where all should be on one node. One call, and another one if
    there are entries.
    """
    replies = yield from session.call(
        [Command(name, ("XINFO", "STREAM", name)) for name in streams], timeout_s=_LOOK_S, changed=changed
    )
    found = dict(zip(streams, replies, strict=True))
    news = [name for name, reply in found.items() if _is_missing(reply)]
    last = {name: checked(found[name])[b"last-entry"] for name in streams if name not in news}
    some = [name for name in last if last[name]]
    if some:
        groups = yield from session.call(
            [Command(name, ("XINFO", "GROUPS", name)) for name in some], timeout_s=_LOOK_S, changed=changed
        )
        news += [
            name
            for name, reply in zip(some, groups, strict=True)
            if _is_missing(reply) or _delivered(checked(reply), group) < _position(last[name][0])
        ]
    return news


def _is_missing(reply: Any) -> bool:
    return isinstance(reply, ResponseError) and "no such key" in str(reply)


def _position(entry: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry.split(b"-")))


def _delivered(groups: Sequence[Mapping[bytes, Any]], group: str) -> tuple[int, ...]:
    """The position of the last entry that was delivered to the group; before all others if there is no such group."""
    positions = (_position(row[b"last-delivered-id"]) for row in groups if row[b"name"] == group.encode())
    return next(positions, ())


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
