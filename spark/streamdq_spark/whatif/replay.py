"""A pool's history once more, event by event, with settings that may be others."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Any

import numpy as np

from streamdq.job.ttr import cut_before_ms

from ..questions.pools import Queue
from .lives import Kind
from .seen import Array, Seen, Waits

_FREE, _COME, _GO, _DUE, _READY = range(5)
"""What an event of the simulation is about, in the order of those of one moment."""
_LOOKS_MS = 10
"""How often a busy worker looks for jobs of topics that had none (`streamdq/worker/consumer.py`)."""
_AHEAD_MS, _MOST_AHEAD = 20, 200
"""How much work of short handlers a worker claims ahead of free slots (`streamdq/worker/runner.py`)."""
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Change:
    """Settings; None: as they were. ``retry_ms``, ``ttr_ms`` and ``rate`` (so many jobs become ready in a second; 0: no
    limit) are those of ``topics``, or of all topics if there are none. ``workers`` run all the time, each with
    ``concurrency`` handlers at once.
    """

    retry_ms: tuple[int, ...] | None = None
    ttr_ms: int | None = None
    rate: float | None = None
    workers: int | None = None
    concurrency: int | None = None
    topics: frozenset[str] = frozenset()

    def of(self, topic: str) -> Change:
        """With what is meant for this topic."""
        if not self.topics or topic in self.topics:
            return self
        return Change(workers=self.workers, concurrency=self.concurrency)


@dataclass(slots=True)
class ReplayResult:
    """What a replay made of a queue. ``late_ms``: of each attempt. ``open``: jobs that have not ended by the end of the
    history. ``drawn``: attempts that nobody saw, drawn by chance. ``unknown``: attempts that were cut off before and
    would have had longer; they are taken to be cut off again.
    """

    late_ms: list[float]
    attempts: int = 0
    done: int = 0
    dead: int = 0
    expired: int = 0
    cancelled: int = 0
    open: int = 0
    drawn: int = 0
    unknown: int = 0
    busy_ms: float = 0.0


def replay(
    seen: Seen, waits: Waits, concurrency: int, change: Change, seed: int, *, times: float = 1.0
) -> list[ReplayResult]:
    """The result of each of the pool's queues. ``concurrency`` is what it was. The same arguments give the same
    result: chance depends on the seed, the job and the attempt alone, so changes are compared with the same luck.
    ``times``: as long as they did, handlers run.
    """
    return _Pool(seen, waits, concurrency, change, seed, times).run()


class _Queue:
    """A queue's settings in the replay, and what is drawn from."""

    def __init__(self, seen: Seen, number: int, name: Queue, change: Change) -> None:
        own = change.of(name[0])
        self.limit_ms = inf if own.ttr_ms is None else own.ttr_ms - cut_before_ms(own.ttr_ms)  # inf: as they ran
        self.longest_timeout_ms = float(seen.longest_timeout[number])
        self.changed = own.retry_ms is not None
        self.apart_ms = 1000 / own.rate if own.rate else 0.0
        self.limited = own.rate is not None
        self.next_ms = 0.0
        here = np.flatnonzero(seen.queue_of_row == number)
        self.retry_ms = own.retry_ms if own.retry_ms is not None else _schedule(seen, here)
        drawable = here[np.isin(seen.kind[here], (Kind.DONE, Kind.FAILED, Kind.BURIED)) & seen.known[here]]
        steps = np.maximum(seen.step[drawable], 0)
        self.by_step = {int(step): drawable[steps == step].tolist() for step in np.unique(steps)}
        moved = drawable[seen.moved[drawable] >= seen.due[drawable]]
        own_delay = seen.moved[moved] - seen.due[moved]
        self.mover_ms = float(np.percentile(own_delay, 25)) if len(own_delay) else 0.0
        self.out = ReplayResult([])

    def like(self, step: int, chance: int) -> int | None:
        """A row of an attempt at this step, or at the nearest before it; None if nobody saw any."""
        known = [held for held in self.by_step if held <= step]
        if not known:
            return None
        rows = self.by_step[max(known)]
        return int(rows[chance % len(rows)])


class _Stream:
    """The jobs of a queue's shard that wait for a slot. Those of which this is not the first attempt have a stream of
    their own; claims take from both in turn.
    """

    __slots__ = ("again", "first", "turn")

    def __init__(self) -> None:
        self.first: deque[int] = deque()
        self.again: deque[int] = deque()
        self.turn = False

    def take(self) -> int:
        self.turn = not self.turn
        jobs = self.again if self.again and (self.turn or not self.first) else self.first
        return jobs.popleft()

    def __bool__(self) -> bool:
        return bool(self.first or self.again)


class _Worker:
    """A worker process: the streams of which it knows that they have jobs, the next one first; and the jobs that it has
    claimed ahead of free slots, as its handlers are short.
    """

    __slots__ = ("ahead", "is_idle", "known", "looked_at", "mean_ms", "running", "slots", "turns")

    def __init__(self) -> None:
        self.slots = self.running = 0
        self.turns: deque[int] = deque()
        self.known: set[int] = set()
        self.ahead: deque[int] = deque()
        self.mean_ms = 1000.0  # how long its handlers ran lately
        self.looked_at = -inf
        self.is_idle = False  # whether it is among those that wait for a job

    @property
    def room(self) -> int:
        """How many more jobs it claims."""
        more = 0
        if self.slots and self.mean_ms <= _AHEAD_MS:
            more = min(_MOST_AHEAD, int(_AHEAD_MS / max(self.mean_ms, 1.0)) * self.slots)
        return self.slots + more - self.running - len(self.ahead)

    def learn(self, streams: Iterable[int]) -> None:
        for stream in streams:
            if stream not in self.known:
                self.known.add(stream)
                self.turns.append(stream)


def _schedule(seen: Seen, here: Array) -> tuple[int, ...]:
    """The retry schedule as it was: the median wait before each step, as far as jobs were retried."""
    follows = here[np.isin(here + 1, here)]
    follows = follows[~np.isin(follows + 1, seen.first)]  # of the same life
    follows = follows[(seen.kind[follows] == Kind.FAILED) & (seen.step[follows + 1] == seen.step[follows] + 1)]
    steps, waits = seen.step[follows + 1], seen.due[follows + 1] - seen.finished[follows]
    found: list[int] = []
    for step in range(1, int(steps.max(initial=0)) + 1):
        of_step = waits[steps == step]
        found.append(int(np.median(of_step)) if len(of_step) else found[-1] if found else 0)
    return tuple(found)


class _Pool:
    """The simulation. Of each job: `at`, the row of its present or last attempt that was seen; `row`, the row that says
    how the attempt goes, which is another one if it was drawn; `due`; `used`, steps of the schedule.
    """

    def __init__(self, seen: Seen, waits: Waits, concurrency: int, change: Change, seed: int, times: float) -> None:
        self.seed, self.horizon = seed, seen.end
        self.turn_ms = waits.turn_ms
        self.queues = [_Queue(seen, n, name, change) for n, name in enumerate(seen.queues)]
        self.queue: list[int] = seen.queue.tolist()
        self.key: list[int] = seen.key.tolist()
        self.first: list[int] = seen.first.tolist()
        self.kind: list[int] = seen.kind.tolist()
        self.dead: list[bool] = seen.dead.tolist()
        self.step: list[int] = seen.step.tolist()
        self.due_seen: list[int] = seen.due.tolist()
        self.moved: list[int] = seen.moved.tolist()
        self.finished: list[int] = seen.finished.tolist()
        self.run_ms: list[float] = (seen.run * times).tolist() if times != 1 else seen.run.tolist()
        self.known: list[bool] = (seen.known & seen.is_attempt).tolist()
        self.claim_ms: list[float] = waits.claim_ms.tolist()
        self.cut_off: list[bool] = seen.cut_off.tolist()
        jobs = len(self.queue)
        self.at = self.first[:-1]
        self.row = list(self.at)
        self.drawn = [False] * jobs
        self.due = [0.0] * jobs
        self.ends = [0.0] * jobs
        self.used = [max(self.step[row], 0) for row in self.at]
        self.tries = [0] * jobs
        self.events: list[tuple[float, int, int, int]] = []
        self.numbered = 0
        self.stream: list[int] = seen.stream.tolist()
        self.streams = [_Stream() for _ in range(max(self.stream, default=0) + 1)]
        self.waiting: dict[int, None] = {}  # the streams in which jobs wait, as they came
        self.idle: deque[int] = deque()  # those with a free slot; Redis serves the one that waited longest
        self.by: list[int] = [0] * jobs
        self.each = change.concurrency or concurrency
        self.workers = self._place_workers(seen, change)

    def _place_workers(self, seen: Seen, change: Change) -> list[_Worker]:
        begins, ends = seen.presence
        if change.workers is not None:
            begins, ends = np.full(change.workers, -inf), np.full(change.workers, inf)
        for what, moments in ((_COME, begins), (_GO, ends)):
            for worker in np.flatnonzero(moments < inf).tolist():
                self._put(float(moments[worker]), what, worker)
        return [_Worker() for _ in begins]

    def _put(self, at: float, what: int, of: int) -> None:
        self.numbered += 1
        heapq.heappush(self.events, (at, what, self.numbered, of))

    # -- the loop

    def run(self) -> list[ReplayResult]:
        for job in range(len(self.queue)):
            self._arrive(job)
        handle: tuple[Any, ...] = (self._free, self._come, self._go, self._move, self._ready)
        while self.events:
            at, what, _, of = heapq.heappop(self.events)
            handle[what](at, of)
        for stream in self.waiting:  # nobody was left to run them
            for job in chain(self.streams[stream].first, self.streams[stream].again):
                self.queues[self.queue[job]].out.open += 1
        return [queue.out for queue in self.queues]

    def _arrive(self, job: int) -> None:
        row = self.at[job]
        kind = self.kind[row]
        if kind == Kind.CANCELLED:
            self.queues[self.queue[job]].out.cancelled += 1
        elif kind == Kind.KICKED:
            self._kick(job, row, 0.0)
        else:
            self._follow(job, row, float(self.due_seen[row]))

    def _follow(self, job: int, row: int, due: float, *, drawn: bool = False) -> None:
        """The job's next attempt goes like this row, its own unless it is drawn, and is due then."""
        self.row[job], self.due[job], self.drawn[job] = row, due, drawn
        if not drawn:
            self.at[job] = row
        queue = self.queues[self.queue[job]]
        if due > self.horizon:
            queue.out.open += 1
        elif queue.limited:
            self._put(due + queue.mover_ms, _DUE, job)
        else:
            mover_ms = max(self.moved[row] - self.due_seen[row], 0)
            self._put(due + mover_ms + self.claim_ms[row], _READY, job)

    def _move(self, at: float, job: int) -> None:
        """A job of a queue with a rate is due."""
        queue = self.queues[self.queue[job]]
        moved = max(at, queue.next_ms)
        queue.next_ms = moved + queue.apart_ms
        self._put(moved + self.claim_ms[self.row[job]], _READY, job)

    def _ready(self, at: float, job: int) -> None:
        row = self.row[job]
        kind = self.kind[row]
        out = self.queues[self.queue[job]].out
        if kind == Kind.EXPIRED:
            out.expired += 1
        elif kind == Kind.LOST or kind == Kind.CRASHED:
            self._without_slot(at, job, row)
        else:
            self._wait(job)
            if (worker := self._idle_worker()) is not None:
                self._fill(at, worker)

    def _wait(self, job: int) -> None:
        number = self.stream[job]
        stream = self.streams[number]
        (stream.again if self.drawn[job] or self.row[job] != self.first[job] else stream.first).append(job)
        self.waiting[number] = None

    def _idle_worker(self) -> int | None:
        while self.idle:
            worker = self.idle.popleft()
            self.workers[worker].is_idle = False
            if self.workers[worker].running < self.workers[worker].slots:
                return worker
        return None

    def _start(self, at: float, job: int, worker: int) -> None:
        row, queue = self.row[job], self.queues[self.queue[job]]
        run_ms = self.run_ms[row]
        if self.known[row]:
            queue.out.late_ms.append(at - self.due[job])
        if run_ms > queue.limit_ms or (self.cut_off[row] and queue.limit_ms < inf):
            queue.out.unknown += self.cut_off[row] and queue.limit_ms > queue.longest_timeout_ms
            run_ms = queue.limit_ms
        queue.out.busy_ms += run_ms
        self.by[job] = worker
        self._put(at + max(run_ms + self.turn_ms, 0), _FREE, job)
        self.ends[job] = at + run_ms  # before its slot takes another one

    def _free(self, at: float, job: int) -> None:
        number = self.by[job]
        worker = self.workers[number]
        worker.running -= 1
        worker.mean_ms += (self.run_ms[self.row[job]] - worker.mean_ms) * 0.1
        self._end(self.ends[job], job)
        self._fill(at, number)

    def _come(self, at: float, worker: int) -> None:
        self.workers[worker].slots = self.each
        self._fill(at, worker)

    def _go(self, at: float, number: int) -> None:
        worker = self.workers[number]
        worker.slots = 0
        while worker.ahead:
            self._ready(at, worker.ahead.popleft())

    def _fill(self, at: float, number: int) -> None:
        """The worker takes jobs, as long as it has room and there are any."""
        worker = self.workers[number]
        while True:
            while worker.ahead and worker.running < worker.slots:
                worker.running += 1
                self._start(at, worker.ahead.popleft(), number)
            if not self.waiting or worker.room <= 0:
                break
            worker.ahead.append(self._next(at, worker))
        if worker.running < worker.slots and not worker.is_idle:
            worker.is_idle = True
            self.idle.append(number)

    def _next(self, at: float, worker: _Worker) -> int:
        """The job that the worker claims; some wait. It goes round the streams that it knows of, and looks into the
        others now and then, or if it knows of none.
        """
        if at - worker.looked_at >= _LOOKS_MS:
            worker.looked_at = at
            worker.learn(self.waiting)
        while worker.turns:
            number = worker.turns.popleft()
            if number in self.waiting:
                worker.turns.append(number)
                return self._take(number)
            worker.known.discard(number)
        worker.learn(self.waiting)
        return self._next(at, worker)

    def _take(self, number: int) -> int:
        stream = self.streams[number]
        job = stream.take()
        if not stream:
            del self.waiting[number]
        return job

    # -- how attempts end

    def _end(self, at: float, job: int) -> None:
        row, queue = self.row[job], self.queues[self.queue[job]]
        kind, out = self.kind[row], queue.out
        if kind == Kind.HANDED_BACK or kind == Kind.SNOOZED:
            self._again(at, job, keeps_due=kind == Kind.HANDED_BACK)
            return
        out.attempts += 1
        too_long = self.run_ms[row] > queue.limit_ms
        if kind == Kind.FAILED or (too_long and kind == Kind.DONE):
            self._failed(at, job, too_long)
        elif kind == Kind.DONE:
            out.done += 1
        else:
            self._die(at, job)

    def _without_slot(self, at: float, job: int, row: int) -> None:
        """Its worker is lost, and the slot with it."""
        if self.kind[row] == Kind.LOST:
            self._again(at + self.run_ms[row], job, keeps_due=True)
            return
        out = self.queues[self.queue[job]].out
        out.attempts += 1
        if self.known[row]:
            out.late_ms.append(at - self.due[job])
        self._die(at + self.run_ms[row], job)

    def _again(self, at: float, job: int, *, keeps_due: bool) -> None:
        """An attempt that does not count; the next one goes as it was seen."""
        before, row = self.at[job], self.at[job] + 1
        if row >= self.first[job + 1] or self.kind[row] == Kind.CANCELLED:
            self._left(job, row)
        elif keeps_due and self.due_seen[row] < self.finished[before]:
            moved = at + max(self.moved[row] - self.finished[before], 0)
            late = self.due_seen[row] - self.due_seen[before]
            self.at[job] = self.row[job] = row
            self.drawn[job] = False
            self.due[job] += late
            self._put(moved + self.claim_ms[row], _READY, job)
        else:
            self._follow(job, row, at + self.due_seen[row] - self.finished[before])

    def _left(self, job: int, row: int) -> None:
        """There is nothing more to see of the job, or its cancel."""
        out = self.queues[self.queue[job]].out
        if row < self.first[job + 1]:
            out.cancelled += 1
        else:
            out.open += 1

    def _failed(self, at: float, job: int, too_long: bool) -> None:
        queue, before, row = self.queues[self.queue[job]], self.at[job], self.at[job] + 1
        more = row < self.first[job + 1]
        if not self.drawn[job] and not too_long and (not queue.changed or self._said_its_delay(before, row, more)):
            self._goes_on_as_seen(at, job, more)
        elif self.used[job] < len(queue.retry_ms):
            cut = too_long and self.kind[self.row[job]] == Kind.DONE
            self._next_step(at + queue.retry_ms[self.used[job]], job, self.step[self.row[job]] if cut else None)
        else:
            self._die(at, job)

    def _said_its_delay(self, before: int, row: int, more: bool) -> bool:
        """Whether the handler gave the delay, and no step of the schedule was used up."""
        return more and not self.dead[before] and self.step[row] == self.step[before]

    def _goes_on_as_seen(self, at: float, job: int, more: bool) -> None:
        before, row = self.at[job], self.at[job] + 1
        if self.dead[before]:
            self._die(at, job)
        elif not more or self.kind[row] == Kind.CANCELLED:
            self._left(job, row)
        else:
            self.used[job] = max(self.step[row], 0)
            self._follow(job, row, at + self.due_seen[row] - self.finished[before])

    def _next_step(self, due: float, job: int, like: int | None) -> None:
        """Another attempt, by the schedule: as it was seen if it was, else drawn from those of its step. ``like``: from
        those of this step, as it is no failure that it follows.
        """
        self.used[job] += 1
        queue, row = self.queues[self.queue[job]], self.at[job] + 1
        kind = self.kind[row] if row < self.first[job + 1] else None
        if due > self.horizon:
            queue.out.open += 1
        elif kind == Kind.CANCELLED and due >= self.finished[row]:
            queue.out.cancelled += 1
        elif kind is not None and kind != Kind.KICKED and kind != Kind.CANCELLED:
            self._follow(job, row, due)
        else:
            self._draw(due, job, self.used[job] if like is None else max(like, 0))

    def _draw(self, due: float, job: int, step: int) -> None:
        queue = self.queues[self.queue[job]]
        self.tries[job] += 1
        row = queue.like(step, _chance(self.seed, self.key[job], self.tries[job]))
        if row is None:
            queue.out.open += 1
            return
        queue.out.drawn += 1
        self._follow(job, row, due, drawn=True)

    def _die(self, at: float, job: int) -> None:
        self.queues[self.queue[job]].out.dead += 1
        for row in range(self.at[job] + 1, self.first[job + 1]):
            if self.kind[row] == Kind.KICKED:
                self._kick(job, row, at)
                return

    def _kick(self, job: int, row: int, died: float) -> None:
        """A dead job was sent back, if it was dead at that time; what follows goes as it was seen."""
        if self.finished[row] < died or row + 1 >= self.first[job + 1] or self.kind[row + 1] == Kind.CANCELLED:
            return
        self.used[job] = max(self.step[row + 1], 0)
        self._follow(job, row + 1, float(self.due_seen[row + 1]))


def _chance(seed: int, key: int, number: int) -> int:
    """A number by chance, always the same for these three (splitmix64)."""
    mixed = (seed * 0x9E3779B97F4A7C15 + key + number * 0xD1B54A32D192ED03) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)
