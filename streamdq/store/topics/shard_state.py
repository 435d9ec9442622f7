"""Plain reads of what shards have of their topic: its settings and counters, and the heads of the buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...config import layout_in
from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, Session, checked
from ..commands import in_steps, one
from ..counters import GroupCounter, group_field


def shard_counts(session: Session, shards: Sequence[ShardKeys]) -> Op[list[int]]:
    """For each shard, in how many shards its topic may have jobs, as far as it knows; 0 if there is no such shard."""
    replies = yield from in_steps(session, [Command(k.settings, ("HGET", k.settings, "shards")) for k in shards])
    return [layout_in((checked(reply) or b"0").decode()).in_use for reply in replies]


def ready_counts(session: Session, shards: Sequence[ShardKeys], group: str) -> Op[list[int]]:
    """How many jobs are ready for the group in each shard, by its counters; one call."""
    field = group_field(GroupCounter.READY, group)
    replies = yield from session.call([Command(shard.counts, ("HGET", shard.counts, field)) for shard in shards])
    return [int(checked(reply) or 0) for reply in replies]


def versions(session: Session, shards: Sequence[ShardKeys]) -> Op[list[int | None]]:
    """The version of the topic's settings in each shard; None if the shard is missing or answers with an error. One
    call.
    """
    replies = yield from session.call([Command(k.settings, ("HGET", k.settings, "version")) for k in shards])
    return [int(reply) if isinstance(reply, bytes) else None for reply in replies]


def has_schedules(session: Session, first: ShardKeys) -> Op[bool]:
    """Whether the topic with this first shard has schedules."""
    return bool((yield from one(session, first.schedules, "EXISTS", first.schedules)))


class Watched(NamedTuple):
    """What the mover checks in shards. A shard that answers with an error has no head and no open jobs."""

    due_ms: list[int | None]  # of the head of each bucket
    now_ms: int | None  # only with counters
    open: list[bool]  # whether each shard has ready or claimed jobs; only with counters


def watch(session: Session, shards: Sequence[ShardKeys], groups: Sequence[Sequence[str]] | None) -> Op[Watched]:
    """The heads of the buckets. With ``groups``, the groups of each shard, also the time and the groups' counters. One
    call with one or two commands per shard.
    """
    commands = [Command(k.bucket, ("ZRANGE", k.bucket, 0, 0, "WITHSCORES")) for k in shards]
    if groups is not None:
        commands.append(Command(shards[0].bucket, ("TIME",)))
        commands += [
            Command(k.counts, ("HMGET", k.counts, *_open_fields(names)))
            for k, names in zip(shards, groups, strict=True)
        ]
    replies = yield from session.call(commands)
    due_ms = [int(float(head[1])) if isinstance(head, list) and head else None for head in replies[: len(shards)]]
    if groups is None:
        return Watched(due_ms, None, [])
    now, *counts = replies[len(shards) :]
    now_ms = int(now[0]) * 1000 + int(now[1]) // 1000 if isinstance(now, list) else None
    return Watched(due_ms, now_ms, [_any_above_0(reply) for reply in counts])


def _any_above_0(reply: Any) -> bool:
    return isinstance(reply, list) and any(int(count or 0) > 0 for count in reply)


def _open_fields(groups: Sequence[str]) -> list[str]:
    """The groups' counters of open jobs. Never empty, because HMGET needs a field."""
    counters = (GroupCounter.READY, GroupCounter.RUNNING)
    fields = [group_field(counter, group) for group in groups for counter in counters]
    return fields or [group_field(GroupCounter.READY, "")]
