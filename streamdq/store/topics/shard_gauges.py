"""The gauges of shards that are not in their stats, for the exporter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, Session, checked
from ..jobs.ordered import due_commands
from ..stream_entries import pending_in
from .group_consumers import alive_in


class GroupGauges(NamedTuple):
    """The gauges of one group in one shard."""

    consumers: int  # that are alive
    oldest_ms: int  # the longest time that one of the first pending entries has been pending


class ScheduleCounts(NamedTuple):
    """How many schedules a topic has, how many of them will run again, and when a mover looks at the next one; None: at
    none.
    """

    total: int
    active: int
    look_ms: int | None


class ShardGauges(NamedTuple):
    """The gauges of one shard that are not in its stats."""

    due_within: list[int]
    schedules: ScheduleCounts | None
    flow_look_ms: int | None  # when a mover looks at the next flow; None: at none
    groups: dict[str, GroupGauges]


class GaugesOf(NamedTuple):
    """A shard to be measured. ``busy``: those of its groups that may have pending entries. ``ends_ms`` as due_within
    takes them. ``scheduled``: it has its topic's schedules. ``flows``: it has flows.
    """

    shard: ShardKeys
    groups: Sequence[str]
    busy: Collection[str]
    ends_ms: Sequence[int]
    scheduled: bool
    flows: bool


def gauges(
    session: Session, asked: Sequence[GaugesOf], most_pending: int, alive: Collection[str]
) -> Op[list[ShardGauges]]:
    """One call. It has one command per time and per group, two more per busy group, three if there are schedules, and
    one for flows; those of busy groups read up to ``most_pending`` pending entries of both streams. A missing group has
    no consumers and no pending entries. ``alive``: see namespace.alive.
    """
    commands = [command for one in asked for command in _gauge_commands(one, most_pending)]
    replies = iter((yield from session.call(commands)) if commands else ())
    return [
        ShardGauges(
            [checked(next(replies)) for _ in one.ends_ms],
            _schedule_counts(next(replies), next(replies), next(replies)) if one.scheduled else None,
            _first_ms(next(replies)) if one.flows else None,
            {
                group: GroupGauges(alive_in(next(replies), alive), _oldest_ms(replies) if group in one.busy else 0)
                for group in one.groups
            },
        )
        for one in asked
    ]


def _gauge_commands(asked: GaugesOf, most_pending: int) -> list[Command]:
    shard = asked.shard
    commands = due_commands(shard, asked.ends_ms)
    if asked.scheduled:
        commands += [
            Command(shard.schedules, ("HLEN", shard.schedules)), Command(shard.ticks, ("ZCARD", shard.ticks)),
            Command(shard.ticks, ("ZRANGE", shard.ticks, 0, 0, "WITHSCORES")),
        ]  # fmt: skip
    if asked.flows:
        commands.append(Command(shard.flow_times, ("ZRANGE", shard.flow_times, 0, 0, "WITHSCORES")))
    for group in asked.groups:
        commands.append(Command(shard.ready, ("XINFO", "CONSUMERS", shard.ready, group)))
        if group in asked.busy:
            streams = (shard.ready, shard.ready_of(group))
            commands += [Command(name, ("XPENDING", name, group, "-", "+", most_pending)) for name in streams]
    return commands


def _schedule_counts(total: Any, active: Any, first: Any) -> ScheduleCounts:
    return ScheduleCounts(checked(total), checked(active), _first_ms(first))


def _first_ms(first: Any) -> int | None:
    found = checked(first)
    return int(float(found[1])) if found else None


def _oldest_ms(replies: Iterator[Any]) -> int:
    """Of the pending entries of both streams."""
    return max((entry.idle_ms for _ in range(2) for entry in pending_in(next(replies))), default=0)
