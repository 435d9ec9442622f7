"""The receipts of a database's outbox: what the script ``relay`` has enqueued of it."""

from __future__ import annotations

from collections.abc import Sequence

from ..keys import ShardKeys
from ..link.command import Command
from ..link.session import Op, Session, checked
from .commands import one


def drop_outbox_receipts(session: Session, shards: Sequence[ShardKeys], receipts: Sequence[str]) -> Op[None]:
    """Clears receipts that no row needs any more."""
    for reply in (yield from session.call([Command(k.outbox, ("HDEL", k.outbox, *receipts)) for k in shards])):
        checked(reply)


def keep_outbox_receipt(session: Session, shard: ShardKeys, receipt: str) -> Op[None]:
    """Of a row that no script puts in at one go."""
    yield from one(session, shard.outbox, "HSET", shard.outbox, receipt, 1)


def outbox_receipts(session: Session, shards: Sequence[ShardKeys], receipts: Sequence[str]) -> Op[list[bool]]:
    """Which receipts of a database's outbox are in one of these shards."""
    replies = yield from session.call([Command(k.outbox, ("HMGET", k.outbox, *receipts)) for k in shards])
    found = [checked(reply) for reply in replies]
    return [any(row[i] is not None for row in found) for i in range(len(receipts))]


def scan_outbox(session: Session, shard: ShardKeys, cursor: bytes, pattern: str) -> Op[tuple[bytes, list[str]]]:
    """The next cursor, b"0" at the end; and some receipts of databases' outboxes that match."""
    key = shard.outbox
    following, flat = yield from one(session, key, "HSCAN", key, cursor, "MATCH", pattern, "COUNT", 500)
    return following, [field.decode() for field in flat[::2]]
