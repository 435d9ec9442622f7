"""How many replicas of a worker a topic needs, now and for what is due soon.

A delay queue knows its future: the waiting jobs' due times. Together with the measured duration of attempts they say
how many slots are needed, so that each attempt starts within the objective.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil
from statistics import fmean

from ...config import DEFAULT_GROUP
from ...errors import InvalidInput
from ...keys import ShardKeys
from ...link.session import Op, Work
from ...store import namespace
from ...store.history import history_reads
from ...store.history.rows import known_row_in
from ...store.jobs import ordered
from ...store.redis_store import RedisStore
from ...times.durations import Duration, to_ms
from ..known import known_group
from .stats import stats

MOST_REPLICAS = 10_000
_MOST_WITHIN_MS = 3_600_000
_MOST_STEPS = 720  # each is a ZCOUNT for each shard
_ROWS, _FEWEST_ROWS = 1000, 50  # of the newest history: of the topic, and of each of its shards
_BUSY = 0.8  # the share of the slots that is planned: durations vary
_PARTS, _MOST_PARTS, _NONE = 10, 100, 1e-9


@dataclass(frozen=True, slots=True)
class Scale:
    """What a group needs. ``replicas``: as many as KEDA or an operator should run: the most of the next two."""

    topic: str
    group: str
    replicas: int
    replicas_now: int  # for what is ready and running
    replicas_ahead: int  # for what is due within ``within_ms``, too
    slo_ms: int
    within_ms: int
    concurrency: int
    ready: int
    running: int
    due: int  # within ``within_ms``, overdue ones included
    attempt_ms: float  # how long an attempt takes on average; 0: not known
    attempts: int  # measured for that


def scale(
    store: RedisStore,
    topic: str,
    group: str = DEFAULT_GROUP,
    *,
    within: Duration = "10m",
    slo: Duration = "5s",
    concurrency: int = 100,
    attempt: Duration | None = None,
) -> Op[Scale]:
    """How many replicas the group needs so that each attempt starts at most ``slo`` after it is due. It looks
    ``within`` ahead, at most an hour. ``concurrency``: of one replica. ``attempt``: how long one takes; None: as in the
    newest history. If neither is known, one replica is enough for any work, and none for no work.

    Docs: docs/kubernetes.md has the formula.

    Raises:
        UnknownTopic, UnknownGroup
        InvalidInput: an argument is out of range.
    """
    within_ms, slo_ms = _checked(within, slo, concurrency)
    settings = yield from known_group(store, topic, group)
    figures = (yield from stats(store, topic)).topics[topic].groups[group]
    took = (yield from _durations(store, topic, group)) if attempt is None else []
    attempt_ms = fmean(took or [0]) if attempt is None else float(to_ms(attempt, "attempt"))
    steps = max(1, min(_MOST_STEPS, ceil(within_ms / slo_ms)))
    now_ms = yield from namespace.now_ms(store.session)
    loads = [0] * steps
    if not settings.paused:  # nothing of a paused topic starts; what runs goes on
        loads = yield from _coming(store, store.topics.all_shards(topic), now_ms, within_ms, steps)
        loads = _let_through(loads, settings.rate, within_ms / steps)
    ready = 0 if settings.paused else figures.ready
    load = _Load(loads, within_ms / steps, ready, figures.running, slo_ms, attempt_ms)
    # It may take half a second, in which an event loop must not stand still.
    now, ahead = yield Work(lambda: [load.replicas(concurrency, ahead=ahead) for ahead in (False, True)])
    return Scale(
        topic, group, max(now, ahead), now, ahead, slo_ms, within_ms, concurrency, figures.ready, figures.running,
        sum(loads), attempt_ms, len(took),
    )  # fmt: skip


def _checked(within: Duration, slo: Duration, concurrency: int) -> tuple[int, int]:
    within_ms, slo_ms = to_ms(within, "within"), to_ms(slo, "slo")
    if not 1 <= within_ms <= _MOST_WITHIN_MS:
        raise InvalidInput("within: must be between 1 ms and 1 hour")
    if slo_ms < 1:
        raise InvalidInput("slo: must be at least 1 ms; it is how late an attempt may start")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= MOST_REPLICAS:
        raise InvalidInput(f"concurrency: {concurrency!r} is not a whole number between 1 and {MOST_REPLICAS:,}")
    return within_ms, slo_ms


def _coming(store: RedisStore, shards: Sequence[ShardKeys], now_ms: int, within_ms: int, steps: int) -> Op[list[int]]:
    """How many attempts are due in each step from now; overdue ones are in the first."""
    ends = [now_ms + within_ms * (i + 1) // steps for i in range(steps)]
    counts = yield from ordered.due_between(store.session, shards, ends)
    return [sum(of_shard[i] for of_shard in counts) for i in range(steps)]


def _let_through(loads: list[int], rate: float | None, step_ms: float) -> list[int]:
    """The loads as they pass the topic's rate, if it has one: more workers would not make them start sooner."""
    if rate is None:
        return loads
    passed, kept, allowed = [], 0.0, 0.0
    for load in loads:
        kept += load
        allowed = min(allowed + rate * step_ms / 1000, max(1, rate * step_ms / 1000))  # nothing is saved up
        now = int(min(kept, allowed))
        passed.append(now)
        kept -= now
        allowed -= now
    return passed


def _durations(store: RedisStore, topic: str, group: str) -> Op[list[int]]:
    """How long the group's last attempts took, in ms."""
    shards = store.topics.all_shards(topic)
    asked = [(shard, max(_FEWEST_ROWS, _ROWS // len(shards))) for shard in shards]
    took = []
    for (shard, _), entries in zip(asked, (yield from history_reads.newest_rows(store.session, asked)), strict=True):
        for entry in entries:
            row = known_row_in(topic, shard.shard, entry.id, entry.value)
            if row and row.group == group and row.started_ms is not None:
                took.append(max(0, row.finished_ms - row.started_ms))
    return took


@dataclass(frozen=True, slots=True)
class _Load:
    """Work that comes in steps of equal length; what is ``ready`` is there already."""

    loads: Sequence[int]
    step_ms: float
    ready: int
    running: int
    slo_ms: float
    attempt_ms: float

    def replicas(self, concurrency: int, *, ahead: bool) -> int:
        """The fewest that keep the objective; not more than MOST_REPLICAS. What runs keeps its slots."""
        loads = self.loads if ahead else ()
        if self.attempt_ms <= 0:
            return int(self.ready + self.running + sum(loads) > 0)
        least, most = ceil(self.running / concurrency), MOST_REPLICAS
        while least < most:
            middle = (least + most) // 2
            if self._is_met(middle * concurrency * _BUSY, loads):
                most = middle
            else:
                least = middle + 1
        return least

    def _is_met(self, slots: float, loads: Sequence[int]) -> bool:
        """Whether each attempt starts in time with so many slots, first come, first served.

        Slots that get free at the same moment are one entry of a heap; attempts that are short beside the objective are
        taken together, so that the entries stay few.
        """
        quantum_ms = max(self.attempt_ms, self.slo_ms / 10)
        together = quantum_ms / self.attempt_ms
        idle, busy = self._slots_at_first(slots, quantum_ms)
        for due_ms, count in self._arrivals(loads):
            while busy and busy[0][0] <= due_ms:
                idle += heappop(busy)[1]
            left, start_ms = count / together, due_ms
            while left > _NONE:
                if idle <= _NONE:
                    if not busy or busy[0][0] - due_ms > self.slo_ms:
                        return False
                    start_ms, idle = heappop(busy)
                taken = min(idle, left)
                left, idle = left - taken, idle - taken
                heappush(busy, (start_ms + quantum_ms, taken))
            if start_ms > due_ms and idle > _NONE:  # for the next ones they are not idle yet
                heappush(busy, (start_ms, idle))
                idle = 0.0
        return True

    def _arrivals(self, loads: Sequence[int]) -> Iterator[tuple[float, float]]:
        """When how many are due. What is due in a step counts as due at its start, all at once; if the step is longer
        than the objective, in equal parts that are not.
        """
        yield 0.0, self.ready
        parts = min(_MOST_PARTS, ceil(self.step_ms / self.slo_ms))
        for i, load in enumerate(loads):
            for part in range(parts if load else 0):
                yield (i + part / parts) * self.step_ms, load / parts

    def _slots_at_first(self, slots: float, quantum_ms: float) -> tuple[float, list[tuple[float, float]]]:
        """How many are idle, and when which others get free: what runs ends bit by bit within an attempt's time."""
        busy = min(slots, float(self.running))
        free = [(quantum_ms * (i + 0.5) / _PARTS, busy / _PARTS) for i in range(_PARTS)] if busy else []
        return slots - busy, free
