"""Plain reads of which jobs wait for which."""

from __future__ import annotations

from collections.abc import Sequence

from ...job.after import PER_FIELD, Dependencies
from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, Session, checked
from ..commands import in_steps, one
from .links import (
    Follower,
    StoredParent,
    dependencies_in,
    fields_of,
    followers_in,
    head_in,
    member,
    on_failure_in,
    parents_in,
    part_fields,
)
from .records import nonce_of


def dependencies(session: Session, k: ShardKeys, id: str, record: bytes, most: int | None) -> Op[Dependencies | None]:
    """What the job waits, or waited, for, with so many of these (None: all); None: nothing is known of that."""
    name = member(id, nonce_of(record))
    commands = [
        Command(k.dependencies, ("HGET", k.dependencies, name)), Command(k.blocked, ("ZSCORE", k.blocked, name)),
    ]  # fmt: skip
    head, blocked = map(checked, (yield from session.call(commands)))
    if head is None:
        return None
    return dependencies_in(head, blocked is not None, (yield from _stored(session, k, name, head, most)))


def _stored(session: Session, k: ShardKeys, name: str, head: bytes, most: int | None) -> Op[list[bytes | None]]:
    total = int(head.split(b"|")[0])
    parts = -(-min(total, total if most is None else most) // PER_FIELD)
    reads = [Command(k.dependencies, ("HGET", k.dependencies, field)) for field in fields_of(name, parts)]
    return [checked(reply) for reply in (yield from in_steps(session, reads))]


def parents_head(session: Session, k: ShardKeys, id: str) -> Op[tuple[str, int, bool] | None]:
    """Of a job that is in the pool: how it is named where its parents are, how many these are, and whether the first is
    the gate of its flow. None: the job is gone.
    """
    record = yield from one(session, k.jobs, "HGET", k.jobs, id)
    if record is None:
        return None
    name = member(id, nonce_of(record))
    head = yield from one(session, k.dependencies, "HGET", k.dependencies, name)
    return (name, *head_in(head)) if head else (name, 0, False)


def parents_part(session: Session, k: ShardKeys, name: str, n: int) -> Op[list[StoredParent]]:
    """The n-th PER_FIELD of those that a job waits, or waited, for; [] if the job is gone."""
    reads = [Command(k.dependencies, ("HGET", k.dependencies, field)) for field in part_fields(name, n)]
    return parents_in([checked(reply) for reply in (yield from session.call(reads))])


def parents(session: Session, k: ShardKeys, id: str, record: bytes) -> Op[list[StoredParent]]:
    """All that the job waits, or waited, for."""
    name = member(id, nonce_of(record))
    head = yield from one(session, k.dependencies, "HGET", k.dependencies, name)
    return parents_in((yield from _stored(session, k, name, head, None))) if head else []


def blocked(session: Session, jobs: Sequence[tuple[ShardKeys, str, str]]) -> Op[list[bool]]:
    """Which of these jobs, by shard, id and nonce, can't start, because another one has failed."""
    reads = [Command(k.blocked, ("ZSCORE", k.blocked, member(id, nonce))) for k, id, nonce in jobs]
    return [checked(reply) is not None for reply in (yield from in_steps(session, reads))]


def on_failures(session: Session, jobs: Sequence[tuple[ShardKeys, str, str]]) -> Op[list[str]]:
    """What becomes of each job, by shard, id and nonce, if one that it waits for fails; "": it waits for none."""
    reads = [Command(k.dependencies, ("HGET", k.dependencies, member(id, nonce))) for k, id, nonce in jobs]
    return [on_failure_in(head) if (head := checked(reply)) else "" for reply in (yield from in_steps(session, reads))]


def followers(session: Session, k: ShardKeys, id: str) -> Op[list[Follower]]:
    """Who waits for a job that is in the pool."""
    text = yield from one(session, k.followers, "HGET", k.followers, id)
    return followers_in(text) if text else []
