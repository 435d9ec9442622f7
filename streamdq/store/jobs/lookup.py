"""Plain reads of jobs that shards have: whether they are there, their records, how far groups are with them."""

from __future__ import annotations

from collections.abc import Sequence

from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, Session, checked
from ..commands import in_steps, one
from .members import id_in
from .progress import Progress, progress_field, progress_in

_PAGE_BYTES = 1024 * 1024
"""Of records that one HSCAN reads, if each is as large as the largest: about a millisecond of Redis's time."""


def with_job(session: Session, shards: Sequence[ShardKeys], id: str) -> Op[list[ShardKeys]]:
    """Those of the shards that have a job with this id."""
    replies = yield from in_steps(session, [Command(shard.jobs, ("HEXISTS", shard.jobs, id)) for shard in shards])
    return [shard for shard, reply in zip(shards, replies, strict=True) if checked(reply)]


def records_there(session: Session, shard: ShardKeys, ids: Sequence[str]) -> Op[list[bool]]:
    """Which of the ids the shard has jobs with."""
    replies = yield from in_steps(session, [Command(shard.jobs, ("HEXISTS", shard.jobs, id)) for id in ids])
    return [checked(reply) == 1 for reply in replies]


def jobs_page(
    session: Session, shard: ShardKeys, cursor: bytes, most: int
) -> Op[tuple[bytes, list[tuple[str, bytes]]]]:
    """The next cursor, b"0" at the end; and some of the shard's jobs, each with its record: about ``most``, or fewer if
    the shard has had large ones. A job that is there all the time comes at least once.
    """
    largest = yield from one(session, shard.settings, "HGET", shard.settings, "largest")
    count = max(1, min(most, _PAGE_BYTES // max(1, int(largest or 0))))
    following, flat = yield from one(session, shard.jobs, "HSCAN", shard.jobs, cursor, "COUNT", count)
    return following, [(id_in(id), record) for id, record in zip(flat[::2], flat[1::2], strict=True)]


def records(session: Session, jobs: Sequence[tuple[ShardKeys, str]]) -> Op[list[bytes | None]]:
    """The record of each (shard, id); None: there is no such job."""
    replies = yield from in_steps(session, [Command(k.jobs, ("HGET", k.jobs, id)) for k, id in jobs])
    return [checked(reply) for reply in replies]


def progress(session: Session, jobs: Sequence[tuple[ShardKeys, str, str]]) -> Op[list[Progress | None]]:
    """The group's progress with each (shard, group, id); None if it has not begun."""
    commands = [Command(k.progress, ("HGET", k.progress, progress_field(group, id))) for k, group, id in jobs]
    replies = yield from in_steps(session, commands)
    return [progress_in(value) if (value := checked(reply)) else None for reply in replies]
