"""What is wrong with topics and needs somebody: one entry for each topic or group, the most urgent first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ..topics.stats import OVERDUE_MS, TopicStats


class Trouble(IntEnum):
    """What is wrong; the first are the most urgent."""

    UNREACHABLE = 0
    OVERDUE = 1
    UNSERVED = 2
    DYING = 3
    PAUSED = 4


class Problem(NamedTuple):
    """``group`` '': it concerns the topic. ``number``: of jobs, or shards, that it is about. ``ms``: for how long."""

    trouble: Trouble
    topic: str
    group: str = ""
    number: int = 0
    ms: int = 0


def problems_of(topic: str, stats: TopicStats, died: Mapping[str, int]) -> list[Problem]:
    """A topic's problems. ``died``: how many dead letters of each group are of the last hour."""
    found = []
    if stats.unreachable:
        found.append(Problem(Trouble.UNREACHABLE, topic, number=stats.unreachable))
    if stats.paused:
        ready = sum(group.ready for group in stats.groups.values())
        if ready or stats.overdue_ms > 0:
            found.append(Problem(Trouble.PAUSED, topic, number=ready, ms=stats.overdue_ms))
    else:
        if stats.overdue_ms > OVERDUE_MS:
            found.append(Problem(Trouble.OVERDUE, topic, ms=stats.overdue_ms))
        found += [
            Problem(Trouble.UNSERVED, topic, name, group.ready)
            for name, group in stats.groups.items()
            if group.ready and not group.consumers
        ]
    return found + [Problem(Trouble.DYING, topic, name, count) for name, count in died.items() if count]


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """The most urgent first; of one kind, those that concern most."""
    return sorted(problems, key=lambda one: (one.trouble, -one.number, -one.ms, one.topic, one.group))
