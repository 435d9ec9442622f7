"""Pages of a group's dead letters, each of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import merge

from ...errors import InvalidInput
from ...keys import ShardKeys
from ...link.session import Op
from ...operations.jobs.get import job_of, shard_with
from ...operations.jobs.large_bodies import fetched
from ...operations.known import known_group
from ...store.jobs import ordered
from ...store.redis_store import RedisStore
from .. import redact
from ..auth import Identity
from .jobs import job_bytes

PAGE_BYTES = 1024 * 1024
_FEWEST_OF_A_SHARD = 10

Position = tuple[int, bytes]
"""The position of a dead letter: when it was buried, and its id. This is the order of the list, over all shards."""


@dataclass(slots=True)
class DeadPage:
    """Jobs as JSON. ``next``: the position after which the next page begins; None on the last page."""

    jobs: list[bytes] = field(default_factory=list)
    next: str | None = None


def dead_page(store: RedisStore, who: Identity, topic: str, group: str, limit: int, after: str) -> Op[DeadPage]:
    """At most ``limit`` dead letters in the order of their burial, until they exceed PAGE_BYTES. A page may be short or
    empty and still have a next one. If dead letters are kicked or purged meanwhile, no other letter is skipped.

    Raises:
        UnknownTopic, UnknownGroup
        InvalidInput: ``after`` is not the ``next`` of a page.
    """
    yield from known_group(store, topic, group, anew=True)
    shards = store.topics.shards(topic)
    positions, more = yield from _positions(store, [shard.dead_of(group) for shard in shards], limit, _position(after))
    page, size = DeadPage(), 0
    for number, (buried_ms, raw) in enumerate(positions, 1):
        found = yield from _job(store, who, shards, raw.decode())
        page.jobs += found
        size += sum(map(len, found))
        page.next = f"{buried_ms}.{raw.decode()}" if more or number < len(positions) else None
        if number == limit or size >= PAGE_BYTES:
            break
    return page


def _job(store: RedisStore, who: Identity, shards: Sequence[ShardKeys], id: str) -> Op[list[bytes]]:
    """The job as JSON; empty if it is no longer there."""
    topic = shards[0].topic
    shard = yield from shard_with(store, topic, store.topics.settings_of(topic), id)
    job = job_of(shard.topic, id, (yield from store.scripts.get(shard, id)), store.session.bodies)
    if job is None:
        return []
    yield from fetched([job])
    return [job_bytes(redact.job(who, job))]


def _position(after: str) -> Position:
    if not after:
        return (-1, b"")
    buried, dot, id = after.partition(".")
    if not (buried.isascii() and buried.isdigit() and len(buried) < 16 and dot):
        raise InvalidInput("after: not the `next` of an earlier page")
    return int(buried), id.encode("utf-8", "surrogateescape")


def _positions(store: RedisStore, keys: Sequence[str], limit: int, after: Position) -> Op[tuple[list[Position], bool]]:
    """The next positions in order, and whether there are more. If there are many shards, each gives only a part of the
    page; so a page ends early where a shard may have more that was not read.
    """
    count = min(limit, max(_FEWEST_OF_A_SHARD, 2 * limit // len(keys))) + 1
    found = yield from ordered.from_time(store.session, [(key, after[0], 0) for key in keys], count)
    of_shards, ends = [], []
    for key, rows in zip(keys, found, strict=True):
        offset = 0
        while len(rows) == count and rows[-1] <= after:  # many dead letters of the same millisecond
            offset += count
            (rows,) = yield from ordered.from_time(store.session, [(key, after[0], offset)], count)
        of_shards.append([row for row in rows if row > after])
        ends += rows[-1:] if len(rows) == count else []
    positions = list(merge(*of_shards))
    return ([position for position in positions if position <= min(ends)] if ends else positions), bool(ends)
