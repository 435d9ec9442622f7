"""Which topic a worker claims from next, when several have ready jobs and slots are scarce: each in turn, by weight, or
strictly by priority.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from ..errors import InvalidInput
from ..job.job import check_topic
from ..keys import ShardKeys

_LEAST_WEIGHT, _MOST_WEIGHT = 0.001, 1_000_000  # far from where sums of jobs by weight lose their digits


class Limit(NamedTuple):
    """How many jobs of a topic may be claimed (``most``), and how many of them start at once."""

    most: int
    at_once: int


class TopicScheduler:
    """Each in turn, as many as there is room for."""

    strict = False  # whether the others are looked at before each claim, and nothing is claimed ahead

    def compete(self, topics: Collection[str]) -> None:
        """These topics have jobs now, as far as is known. Call it before each claim."""

    def order(self, shards: Sequence[ShardKeys]) -> list[ShardKeys]:
        """The shards in the order in which to claim from them."""
        return list(shards)

    def share(self, topic: str, room: int) -> int:
        """How many jobs of the topic may be claimed now, of so many that there is room for."""
        del topic
        return room

    def took(self, topic: str, jobs: int) -> None:
        """So many jobs were claimed."""

    def gave_back(self, topic: str, jobs: int) -> None:
        """So many jobs that were claimed go back without having started."""

    def is_behind(self, topic: str) -> bool:
        """Whether the topic may have nothing now, because of another one that competes."""
        del topic
        return False


class Weighted(TopicScheduler):
    """Start-time fair queueing: a topic has passed its jobs divided by its weight, and the one that has passed least is
    next. One that comes back after a rest begins where the others are: nobody saves up turns.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._passed: dict[str, float] = {}
        self._competing: Collection[str] = ()
        self._now = 0.0

    def _weight(self, topic: str) -> float:
        return self._weights.get(topic, 1)

    def compete(self, topics: Collection[str]) -> None:
        for topic in topics:
            if topic not in self._competing:
                self._passed[topic] = max(self._passed.get(topic, 0.0), self._now)
        self._competing = topics

    def order(self, shards: Sequence[ShardKeys]) -> list[ShardKeys]:
        return sorted(shards, key=lambda shard: self._passed.get(shard.topic, self._now))

    def share(self, topic: str, room: int) -> int:
        """Its part of the room; more, if it has to catch up with the others."""
        others = [self._passed.get(other, self._now) for other in self._competing if other != topic]
        if not others:
            return room
        weight = self._weight(topic)
        part = int(room * weight / sum(self._weight(one) for one in {*self._competing, topic}))
        behind = ceil((min(others) - self._passed.get(topic, self._now)) * weight)
        return min(room, max(1, part, behind))

    def took(self, topic: str, jobs: int) -> None:
        before = self._passed.get(topic, self._now)
        self._now = max(self._now, before)
        self._passed[topic] = before + jobs / self._weight(topic)

    def gave_back(self, topic: str, jobs: int) -> None:
        if topic in self._passed:
            self._passed[topic] -= jobs / self._weight(topic)


class Prioritized(TopicScheduler):
    """A topic gets nothing while one before it has a ready job. Topics that are not in the list come last."""

    strict = True

    def __init__(self, topics: Sequence[str]) -> None:
        self._ranks = {topic: rank for rank, topic in enumerate(topics)}
        self._first = 0

    def _rank(self, topic: str) -> int:
        return self._ranks.get(topic, len(self._ranks))

    def compete(self, topics: Collection[str]) -> None:
        self._first = min(map(self._rank, topics), default=0)

    def order(self, shards: Sequence[ShardKeys]) -> list[ShardKeys]:
        return sorted(shards, key=lambda shard: self._rank(shard.topic))

    def is_behind(self, topic: str) -> bool:
        return self._rank(topic) > self._first


def scheduler_of(weights: Mapping[str, float] | None, priority: Sequence[str] | None) -> TopicScheduler:
    """By the weights or the priority of a worker's topics.

    Raises:
        InvalidInput: both are given, or one can't be read.
    """
    if weights is not None and priority is not None:
        raise InvalidInput("worker: pass topics with weights or a priority, not both")
    if priority is not None:
        if isinstance(priority, str) or len(set(priority)) != len(priority):
            raise InvalidInput("priority: pass a list of different topics, the most important first")
        return Prioritized([check_topic(topic) for topic in priority])
    if weights is None:
        return TopicScheduler()
    return Weighted({check_topic(topic): _checked(topic, weight) for topic, weight in weights.items()})


def _checked(topic: str, weight: float) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not _LEAST_WEIGHT <= weight <= _MOST_WEIGHT:
        raise InvalidInput(
            f"topics: weight {weight!r} of {topic!r} is not a number from {_LEAST_WEIGHT} to {_MOST_WEIGHT:,}"
        )
    return weight
