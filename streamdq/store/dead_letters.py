"""Plain reads of a group's dead letters, and the receipts of those that an archive took out or put back."""

from __future__ import annotations

from collections.abc import Sequence

from ..keys import ShardKeys
from ..link.session import Op, Session
from .commands import one


def dead_now(session: Session, shard: ShardKeys, group: str) -> Op[int]:
    """How many dead letters the group has."""
    found: int = yield from one(session, shard.dead_of(group), "ZCARD", shard.dead_of(group))
    return found


def dead_until(session: Session, shard: ShardKeys, group: str, until_ms: int) -> Op[int]:
    """How many dead letters of the group were buried at or before ``until_ms``."""
    found: int = yield from one(session, shard.dead_of(group), "ZCOUNT", shard.dead_of(group), "-inf", until_ms)
    return found


def archive_receipts(session: Session, shard: ShardKeys) -> Op[list[bytes]]:
    """Receipts of letters that an archive took out or put back, as the scripts archive and restore leave them."""
    found: list[bytes] = yield from one(session, shard.archive, "HKEYS", shard.archive)
    return found


def drop_archive_receipts(session: Session, shard: ShardKeys, receipts: Sequence[str | bytes]) -> Op[None]:
    """Clears receipts that the archive's database knows of. This and ``drop_outbox_receipts`` are the only
    plain writes to a shard.
    """
    yield from one(session, shard.archive, "HDEL", shard.archive, *receipts)
