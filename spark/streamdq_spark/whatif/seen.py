"""What the history of a pool says about its jobs and its workers, as arrays.

A job's wait, from ready to its start, has two causes. While more jobs wait than slots are free it waits for a slot: a
replay computes that anew. The rest is what a claim takes, and is taken as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..questions.pools import Queue
from .lives import UNKNOWN, Kind

Array = NDArray[Any]
GRACE_MS = 100
"""How long after its last sign a worker counts as there."""
STILL_THERE_MS = 300_000
"""Workers that were seen this shortly before the end of the history were there at its end."""
_IN_A_SLOT = (Kind.DONE, Kind.FAILED, Kind.BURIED, Kind.HANDED_BACK, Kind.SNOOZED)
_TYPICAL = 99  # of a hundred idle times of a slot between two jobs; the longest are of paused topics and the like
_NEARLY = 0.95
_CERTAINLY, _ENOUGH_STARTS = 2, 100


class Seen:
    """The rows of a pool's lives, one array for each column. `first[n]` to `first[n + 1]` are the rows of life n."""

    def __init__(self, table: pa.Table) -> None:
        table = table.combine_chunks()
        rows = table["rows"].combine_chunks()
        if isinstance(rows, pa.ChunkedArray):
            rows = pa.concat_arrays(rows.chunks) if rows.num_chunks else pa.array([], rows.type)
        fields = rows.flatten()
        columns = {name: fields.field(n) for n, name in enumerate(f.name for f in fields.type)}
        found = {name: column.to_numpy(zero_copy_only=False) for name, column in columns.items()}
        sizes = np.diff(rows.offsets.to_numpy())
        names = list(zip(table["topic"].to_pylist(), table["group"].to_pylist(), strict=True))
        self.queues: list[Queue] = sorted(set(names), key=repr)
        number = {queue: n for n, queue in enumerate(self.queues)}
        queue = np.fromiter((number[name] for name in names), np.int64, len(names))
        key = table["key"].to_numpy()
        begins = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
        order = np.lexsort((key, queue, found["finished"][begins]))  # however the rows came, a replay is the same
        at = np.repeat(begins[order], sizes[order]) + _within(sizes[order])
        self.queue, self.key = queue[order], key[order]
        streams = np.stack([self.queue, table["shard"].to_numpy()[order]], axis=1)
        self.stream: Array = np.unique(streams, axis=0, return_inverse=True)[1].reshape(
            -1
        )  # topics take turns, by shard
        self.first = np.concatenate([[0], np.cumsum(sizes[order])]).astype(np.int64)
        self.queue_of_row = np.repeat(self.queue, sizes[order])
        self.kind, self.dead, self.timed_out = (found[name][at] for name in ("kind", "dead", "timed_out"))
        self.step, self.consumer = found["step"][at], found["consumer"][at]
        self.started, self.finished = found["started"][at], found["finished"][at]
        self.known = (found["due"][at] != UNKNOWN) & (self.started != UNKNOWN)
        self.is_attempt = np.isin(self.kind, (Kind.DONE, Kind.FAILED, Kind.BURIED, Kind.CRASHED))
        self.moved = _first_known(found["moved"][at], found["due"][at], self.started, self.finished)
        self.due = _first_known(found["due"][at], self.moved)
        self.run = np.where(self.started == UNKNOWN, 0, np.maximum(self.finished - self.started, 0))
        self.in_slot = np.isin(self.kind, _IN_A_SLOT) & (self.started != UNKNOWN)

    @cached_property
    def end(self) -> int:
        return int(self.finished.max(initial=0))

    @cached_property
    def at_once(self) -> int:
        """The most that any worker was seen to run at once. An attempt counts until its end is recorded, which may be
        after the next one has begun, so it may be more than the worker's concurrency; or less, if it was never full.
        """
        which = np.flatnonzero(self.in_slot)
        moments = np.concatenate([self.started[which], self.started[which] + self.run[which]])
        change = np.concatenate([np.ones(len(which), np.int64), -np.ones(len(which), np.int64)])
        consumer = np.concatenate([self.consumer[which], self.consumer[which]])
        order = np.lexsort((change, moments, consumer))  # an end before a start of the same ms
        return int(np.cumsum(change[order]).max(initial=1))

    @cached_property
    def concurrency(self) -> int:
        """How many handlers each worker ran at once; all of a pool are taken to be alike. It is the median of what ran
        while workers were certainly full, as twice as many jobs waited as ran at most. If they never were, it is the
        most that any ran, which may be less than what it could.
        """
        course, full = self.course, self.certainly_full
        if full is None:
            return self.at_once
        each, lasted = course.running[full] / course.workers[full], course.lasted[full]
        order = np.argsort(each)
        half = np.searchsorted(np.cumsum(lasted[order]), lasted.sum() / 2)
        return max(1, round(float(each[order][min(half, len(order) - 1)])))

    @cached_property
    def certainly_full(self) -> Array | None:
        """The moments of the course at which workers were certainly full; None if there are too few."""
        course = self.course
        full: Array = (course.waiting >= _CERTAINLY * self.at_once * course.workers) & (course.workers > 0)
        return full if course.starts[full].sum() >= _ENOUGH_STARTS else None

    @cached_property
    def course(self) -> Course:
        """How many ran and waited at each time, and how many workers were there."""
        return _course(self)

    @cached_property
    def presence(self) -> tuple[Array, Array]:
        """When each worker was there: from its first start to its last end, which is infinite if it stayed."""
        which = np.flatnonzero(self.in_slot)
        _, number = np.unique(self.consumer[which], return_inverse=True)
        workers = number.max(initial=-1) + 1
        begins, ends = np.full(workers, np.inf), np.full(workers, -np.inf)
        np.minimum.at(begins, number, self.started[which])
        np.maximum.at(ends, number, self.started[which] + self.run[which] + GRACE_MS)
        return begins, np.where(ends >= self.end - STILL_THERE_MS, np.inf, ends)

    @cached_property
    def cut_off(self) -> Array:
        """Attempts that were cancelled because of their TTR, as far as one can tell: time-outs that took as long as any
        of their queue's. How long they would have taken nobody knows.
        """
        least = self.longest_timeout * _NEARLY
        found: Array = self.timed_out & self.in_slot & (self.run >= least[self.queue_of_row])
        return found

    @cached_property
    def longest_timeout(self) -> Array:
        """How long the longest attempt of each queue took that ended with a time-out; 0: none did."""
        out = self.timed_out & self.in_slot
        longest = np.zeros(len(self.queues))
        np.maximum.at(longest, self.queue_of_row[out], self.run[out])
        return longest

    def waits(self, concurrency: int) -> Waits:
        """How the jobs waited, with this many slots for each worker."""
        return _waits(self, concurrency)


def _within(sizes: Array) -> Array:
    """0, 1, … for each of these sizes."""
    ends = np.cumsum(sizes)
    places: Array = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
    return places


def _first_known(*choices: Array) -> Array:
    found = choices[0]
    for choice in choices[1:]:
        found = np.where(found == UNKNOWN, choice, found)
    return found


@dataclass(frozen=True, slots=True)
class Course:
    """From each of these moments on, for as long as it `lasted`. `starts`: attempts that began at that moment. `which`:
    the rows that needed a slot; `moved`, `started`: the numbers of the moments at which they got ready and began.
    """

    running: Array
    waiting: Array
    workers: Array
    lasted: Array
    starts: Array
    which: Array
    moved: Array
    started: Array


def _course(seen: Seen) -> Course:
    which = np.flatnonzero(seen.in_slot)
    started, ended = seen.started[which], seen.started[which] + seen.run[which]
    begins, ends = seen.presence
    changes = [  # when; how many more run, wait, and are there
        (np.minimum(seen.moved[which], started), 0, 1, 0), (started, 1, -1, 0), (ended, -1, 0, 0), (begins, 0, 0, 1),
        (ends[np.isfinite(ends)], 0, 0, -1),
    ]  # fmt: skip
    moments, at = np.unique(np.concatenate([change[0] for change in changes]), return_inverse=True)
    sizes = [len(change[0]) for change in changes]
    place = np.split(at, np.cumsum(sizes)[:-1])

    def total(column: int) -> Array:
        by = np.repeat([float(change[column]) for change in changes], sizes)
        summed: Array = np.cumsum(np.bincount(at, by, len(moments)))
        return summed

    lasted = np.diff(moments, append=moments[-1:])
    starts = np.bincount(place[1], minlength=len(moments))
    return Course(total(1), total(2), total(3), lasted, starts, which, place[0], place[1])


@dataclass(frozen=True, slots=True)
class Waits:
    """`claim_ms`: what of each row's wait was no wait for a slot. `slot_ms`: the rest. `turn_ms`: how long a slot stays
    empty between two jobs though others wait; below 0: so much before the recorded end of an attempt it is free again.
    """

    claim_ms: Array
    slot_ms: Array
    turn_ms: float


def _waits(seen: Seen, concurrency: int) -> Waits:
    course = seen.course
    slots = course.workers * concurrency
    full = (course.waiting > np.maximum(slots - course.running, 0)) * course.lasted
    so_far = np.concatenate([[0], np.cumsum(full)])
    slot = np.zeros(len(seen.kind))
    slot[course.which] = so_far[course.started] - so_far[course.moved]
    claim = np.where(seen.started == UNKNOWN, 0.0, np.maximum(seen.started - seen.moved, 0) - slot)
    prompt = course.which[slot[course.which] == 0]
    if len(prompt):  # what a claim takes does not show where jobs waited anyway
        claim = np.where(slot > 0, np.maximum(claim, np.median(claim[prompt])), claim)
    certain = full if seen.certainly_full is None else seen.certainly_full * course.lasted
    return Waits(np.maximum(claim, 0), slot, _turn((slots - course.running) * certain, certain, course))


def _turn(idle: Array, full: Array, course: Course) -> float:
    """The mean time that slots were idle while workers were full, for each start before which they were full since the
    one before. As the slots are their number times the time between starts, less how long attempts ran, it is below 0
    if more ran than there are slots.
    """
    begins = np.flatnonzero(course.starts)[1:]
    if not len(begins):
        return 0.0
    first = np.flatnonzero(course.starts)[0]
    idle_since, full_since, since = (
        np.diff(np.concatenate([[0], np.cumsum(each)])[[first, *begins]]) for each in (idle, full, course.lasted)
    )
    when_full = full_since == since
    idle_since, count = idle_since[when_full], course.starts[begins][when_full]
    if not len(count):
        return 0.0
    each = idle_since / count
    usual = each <= np.percentile(each, _TYPICAL)
    return float(idle_since[usual].sum() / count[usual].sum())
