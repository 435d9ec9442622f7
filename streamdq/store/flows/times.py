"""How long the jobs of a flow took, and which of them decided when it ended. The history of their topics tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median_low
from typing import Any, NamedTuple

from ...config import MAX_BATCH
from ...job.flow import FlowStep, FlowTimes, StageTimes
from ...keys import ShardKeys
from ...link.session import Op, Session
from ..entries import ms_of
from ..history import history_reads
from ..history.rows import Event, HistoryRow, id_and_key_in, known_row_in
from ..jobs.links import StoredParent
from ..stream_entries import Entry
from . import parents
from .reading import Stage

LOOKBACK_ROWS, ROWS_PER_JOB = 10_000, 4
"""So many rows of the history are looked through, of all shards together, and so many more for each job."""
SKEW_MS = 1_000
"""By how much the clocks of a Cluster's nodes may differ."""
_ENDS = (Event.DONE, Event.DEAD, Event.CANCELLED, Event.EXPIRED)


class _Run(NamedTuple):
    """An attempt that has ended, or what ended a job without one."""

    ended_ms: int
    started_ms: int | None
    group: str
    is_end: bool  # the group has ended the job

    @property
    def ran_ms(self) -> int:
        return 0 if self.started_ms is None else max(0, self.ended_ms - self.started_ms)


@dataclass(slots=True)
class _Timed:
    """What the history says of a job. A job that has ended and is kicked has several ends. ``end``: the one that those
    know which wait for it. ``last``: the last one that the flow waited for.
    """

    runs: list[_Run] = field(default_factory=list)
    end: _Run | None = None
    last: _Run | None = None

    def add(self, row: HistoryRow) -> None:
        is_end = row.event in _ENDS
        if is_end or row.started_ms is not None:  # other rows tell that it is blocked, kicked or made ready
            self.runs.append(_Run(row.finished_ms, row.started_ms, row.group, is_end))

    def end_by(self, by_ms: float) -> _Run | None:
        ends = (one for one in self.runs if one.is_end and one.ended_ms <= by_ms)
        return max(ends, key=lambda one: one.ended_ms, default=None)

    @property
    def begun_by_ms(self) -> float:
        """When it had certainly begun; inf: it has not, as far as is known."""
        return min((one.ended_ms if one.started_ms is None else one.started_ms for one in self.runs), default=inf)

    def ran_ms(self, end: _Run) -> int:
        """In the group that ended it then."""
        return sum(one.ran_ms for one in self.runs if one.group == end.group and one.ended_ms <= end.ended_ms)


class Members:
    """The jobs of a flow. ``states``: of each, or how it has ended. ``body``: of the flow's own job."""

    def __init__(
        self, jobs: Sequence[StoredParent], states: Sequence[str], stages: Sequence[Stage], body: Mapping[str, Any]
    ) -> None:
        self.jobs, self.states = jobs, states
        self.built = sum(count for _, count, *_ in body["stages"])  # the others were added at run time
        self.stages = [(one.jobs, *one.after) for one in stages]
        kept = body.get("parents", {})
        self.are_known = kept is not None
        self.runs = [(kept or {}).get(str(n)) or parents.all_of(self.stages, n) for n in range(len(stages))]

    def each(self) -> Iterable[tuple[int, Sequence[range]]]:
        """The number of each job, and of those that it waits for; equal ones are the same object."""
        number = 0
        for runs in self.runs:
            for count, others in parents.each_of(runs):
                for _ in range(count):
                    yield number, others
                    number += 1


def times_of(session: Session, members: Members, begun_ms: int, ended_ms: int | None) -> Op[FlowTimes]:
    timed, is_complete = yield from _read(session, members, begun_ms, ended_ms)
    is_in_order = _close(members, timed, begun_ms, ended_ms)
    chain = _Chain(members, timed, begun_ms)
    why = "" if members.are_known else "too many of its jobs wait for different ones"
    if not why and any(chain.has_ended(n) and timed[n].end is None for n in range(len(members.jobs))):
        why = "the history no longer has the ends of all of its jobs"
        if not is_complete:
            why = "too many other jobs of its topics have ended meanwhile"
    if not why and not is_in_order:
        why = "the clock was set back meanwhile"
    path = () if why else chain.path()
    return FlowTimes(begun_ms, ended_ms, tuple(_stages(members, chain)), path, why)


def _close(members: Members, timed: Sequence[_Timed], begun_ms: int, ended_ms: int | None) -> bool:
    """Finds the ends of each job: not later than the flow's end, or than the start of what waits for the job. False:
    some are all the same, or before the flow began, so the clock was set back.
    """
    latest, is_in_order = (ended_ms or inf) + SKEW_MS, True
    for one, begun_by_ms in zip(timed, _begun_by_ms(members, timed), strict=True):
        some, by_ms = one.end_by(inf), min(latest, begun_by_ms + SKEW_MS)
        one.last = one.end_by(latest) or some
        one.end = one.end_by(by_ms) or some
        if one.end and not begun_ms - SKEW_MS <= one.end.ended_ms <= by_ms:
            is_in_order = False
    return is_in_order


def _begun_by_ms(members: Members, timed: Sequence[_Timed]) -> list[float]:
    """Of each job, when the first of those had certainly begun that wait for it."""
    found = [inf] * len(timed)
    waited: list[tuple[Sequence[range], float]] = []
    for n, others in members.each():
        if not waited or waited[-1][0] is not others:
            waited.append((others, inf))
        waited[-1] = others, min(waited[-1][1], timed[n].begun_by_ms)
    for others, begun_by_ms in waited:
        for some in others:
            for n in some:
                found[n] = min(found[n], begun_by_ms)
    return found


def _read(session: Session, members: Members, begun_ms: int, ended_ms: int | None) -> Op[tuple[list[_Timed], bool]]:
    """Of each job; and whether all rows since the flow began were looked through."""
    places = _places(session, members)
    timed = [_Timed() for _ in members.jobs]
    since, until = _span(session, begun_ms, ended_ms)
    starts = dict.fromkeys(places, since)
    created_by_ms = begun_ms + SKEW_MS, (ended_ms or inf) + SKEW_MS
    most = LOOKBACK_ROWS + ROWS_PER_JOB * len(members.jobs)
    looked = 0
    while starts and looked < most:
        shards = list(starts)
        count = max(1, MAX_BATCH // len(shards))
        pages = yield from history_reads.rows_from(session, list(starts.items()), count)
        for shard, entries in zip(shards, pages, strict=True):
            for number, row in _rows_in(shard, entries, places[shard]):
                _add(timed[number], row, created_by_ms[number >= members.built])
            looked += len(entries)
            if len(entries) < count or ms_of(entries[-1].id) > until:
                del starts[shard]
            else:
                starts[shard] = f"({entries[-1].id}"
    return timed, not starts


def _places(session: Session, members: Members) -> dict[ShardKeys, dict[str, int]]:
    """In each shard, the jobs' numbers by their ids."""
    found: dict[ShardKeys, dict[str, int]] = {}
    for n, one in enumerate(members.jobs):
        found.setdefault(session.keys.shard(one.topic, one.shard), {})[one.id] = n
    return found


def _add(timed: _Timed, row: HistoryRow, created_by_ms: float) -> None:
    """A job of another flow, or of none, may have the id since."""
    if (row.created_ms or 0) <= created_by_ms:
        timed.add(row)


def _span(session: Session, begun_ms: int, ended_ms: int | None) -> tuple[str, float]:
    """From which entry on, and until when, rows are looked through."""
    if session.clock.manual:  # a row's id has Redis's own time
        return "-", inf
    return str(max(0, begun_ms - SKEW_MS)), (ended_ms or inf) + SKEW_MS


def _rows_in(
    shard: ShardKeys, entries: Iterable[Entry], numbers: Mapping[str, int]
) -> Iterable[tuple[int, HistoryRow]]:
    """The rows of jobs with these ids, each with the job's number."""
    for entry in entries:
        found = id_and_key_in(entry.value)
        number = numbers.get(found[0]) if found else None
        row = None if number is None else known_row_in(shard.topic, shard.shard, entry.id, entry.value)
        if number is not None and row:
            yield number, row


class _Chain:
    """Of each job, by its number: when it could begin, and which job before it decided that. ``depth``: how many jobs
    that have not ended are in the longest chain up to it.
    """

    def __init__(self, members: Members, timed: Sequence[_Timed], begun_ms: int) -> None:
        self._members, self._timed = members, timed
        count = len(members.jobs)
        self._depth = [0] * count
        self._before: list[int | None] = [None] * count
        self.begun: list[int | None] = [begun_ms] * count
        others: Sequence[range] | None = None
        before: int | None = None
        begun: int | None = begun_ms
        depth = 0
        for n, some in members.each():
            if some is not others:
                others, before = some, self._decisive(some, blocked=members.states[n] == "blocked")
                depth = 0 if before is None else self._depth[before]
                begun = begun_ms if before is None else self._end(before)
            self._before[n] = before
            self.begun[n] = begun
            self._depth[n] = 0 if self.has_ended(n) else depth + 1

    def has_ended(self, n: int) -> bool:
        return self._members.jobs[n].outcome is not None

    def _end(self, n: int) -> int | None:
        end = self._timed[n].end
        return end.ended_ms if end and self.has_ended(n) else None

    def _decisive(self, others: Sequence[range], *, blocked: bool) -> int | None:
        """The one of them that a job waits for the longest, or that blocks it."""
        best, best_rank = None, (False, -1, -1)
        for some in others:
            for n in some:
                blocks = blocked and self._members.states[n] not in ("done", "waiting", "delayed", "ready", "running")
                rank = blocks, self._depth[n], self._end(n) or 0
                if rank > best_rank:
                    best, best_rank = n, rank
        return best

    def times(self, n: int, end: _Run | None = None) -> tuple[int, int] | None:
        """What a job that has ended waited, and ran; None: that is not known. ``end``: None for that of ``_end``."""
        end, begun = end or self._timed[n].end, self.begun[n]
        if end is None or begun is None or not self.has_ended(n):
            return None
        took = max(0, end.ended_ms - begun)
        ran = min(self._timed[n].ran_ms(end), took)
        return took - ran, ran

    def _last(self, n: int) -> int:
        last = self._timed[n].last
        return last.ended_ms if last and self.has_ended(n) else 0

    def path(self) -> tuple[FlowStep, ...]:
        count = len(self._members.jobs)
        n: int | None = max(range(count), key=lambda n: (self._depth[n], self._last(n), -n))
        stage_of = [number for number, (count, *_) in enumerate(self._members.stages) for _ in range(count)]
        steps: list[FlowStep] = []
        while n is not None:
            one, state, timed = self._members.jobs[n], self._members.states[n], self._timed[n]
            end = timed.end if steps else timed.last
            waited, ran = self.times(n, end) or (None, None)
            ended_ms = end.ended_ms if end and self.has_ended(n) else None
            steps.append(FlowStep(one.topic, one.id, stage_of[n], state, self.begun[n], waited, ran, ended_ms))
            n = self._before[n]
        return tuple(reversed(steps))


def _stages(members: Members, chain: _Chain) -> Iterable[StageTimes]:
    begin = 0
    for count, *_ in members.stages:
        found = [times for n in range(begin, begin + count) if (times := chain.times(n))] if members.are_known else []
        begin += count
        waited, ran = [one for one, _ in found], [one for _, one in found]
        if found:
            yield StageTimes(len(found), median_low(waited), median_low(ran), max(waited), max(ran))
        else:
            yield StageTimes(0, 0, 0, 0, 0)
