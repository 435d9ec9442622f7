"""A schedule's plan: its next occurrences, as Redis keeps them, so that they run without anybody to reckon them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ..keys import shard_of
from ..times.durations import MAX_DELAY_MS
from .definition import CatchUp, Definition, Due, shown

LATE_MS = 30_000
"""An occurrence that is later than this was missed: ``catch_up`` decides. Longer than a mover or a primary takes to be
replaced.
"""


def late_ms(*, manual: bool) -> int:
    """LATE_MS; by a clock that a test sets forward, nothing is ever missed."""
    return MAX_DELAY_MS if manual else LATE_MS


_AHEAD = 16  # occurrences
_AHEAD_MS = 3_600_000  # and no further than this, but for the next two
_OVERDUE = 1_000  # looked at in one go, a few ms of work
_LET_THROUGH = 100  # of those, put into one plan
MAX_ID_BYTES = 200
"""A schedule's id: its jobs' ids add the time."""


class Occurrence(NamedTuple):
    """``time_ms``: by the clock. ``due_ms``: with jitter. ``id``: of its job. ``text``: what ``{due}`` stands for."""

    due_ms: int
    time_ms: int
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """``last_ms``: those up to it were planned or passed over. ``late_ms``: those up to it run however late they are.
    ``missed``: how many were passed over. ``more``: others follow.
    """

    occurrences: list[Occurrence]
    last_ms: int
    late_ms: int
    missed: int
    more: bool


def occurrence_id(id: str, time_ms: int, shards: int) -> str:
    """The id of an occurrence's job: schedule, ``@``, time, and what makes it belong to the topic's first shard."""
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    stem = f"{id}@{at.strftime('%Y-%m-%dT%H:%M:%S')}{f'.{time_ms % 1000:03}' if time_ms % 1000 else ''}Z"
    name, tried = stem, 0
    while shard_of(name, shards) != 0:
        tried += 1
        name = f"{stem}.{tried}"
    return name


def occurrence_in(job_id: str) -> tuple[str, int] | None:
    """The schedule's id and the time in the id of an occurrence's job; None if it is not like one."""
    found = _OCCURRENCE_ID.fullmatch(job_id)
    if found is None:
        return None
    try:
        at = datetime.fromisoformat(f"{found[2]}+00:00")
    except ValueError:
        return None
    return found[1], (at - _EPOCH) // timedelta(milliseconds=1)


_OCCURRENCE_ID = re.compile(r"(.+)@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?)Z(?:\.\d+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def make_plan(definition: Definition, id: str, last_ms: int, now_ms: int, shards: int, late_ms: int = LATE_MS) -> Plan:
    """The occurrences after ``last_ms``: of those that are due already, the ones that ``catch_up`` lets run, and then
    the next ones. If many were missed, they take several plans; each says that more follow. The jobs belong to shard 0.
    """
    dues = definition.occurrences(id, last_ms)
    overdue, first, whole = _overdue(dues, now_ms)
    runs = _to_run(definition.catch_up, overdue, now_ms, late_ms, whole)
    missed = len(overdue) - len(runs)
    cut = not whole or len(runs) > _LET_THROUGH
    runs = runs[:_LET_THROUGH]
    ahead, more = ([], cut) if cut or first is None else _ahead(first, dues, now_ms)
    occurrences = [
        Occurrence(due, time, occurrence_id(id, time, shards), shown(time, definition.tz))
        for time, due in (*runs, *ahead)
    ]
    return Plan(
        occurrences,
        last_ms=overdue[missed - 1].time_ms if missed else last_ms,
        late_ms=occurrences[len(runs) - 1].due_ms if runs else 0,
        missed=missed,
        more=more,
    )


def _overdue(dues: Iterator[Due], now_ms: int) -> tuple[list[Due], Due | None, bool]:
    """Those that are due, some at a time, the first that is not, and whether these are all that are due."""
    overdue: list[Due] = []
    for one in dues:
        if one.due_ms > now_ms:
            return overdue, one, True
        if len(overdue) == _OVERDUE:
            return overdue, None, False
        overdue.append(one)
    return overdue, None, True


def _to_run(catch_up: CatchUp, overdue: list[Due], now_ms: int, late_ms: int, whole: bool) -> list[Due]:
    """The last few of them, as each is later than the one after it."""
    oldest_ms = now_ms - max(late_ms, catch_up if isinstance(catch_up, int) else 0)
    runs = [one for one in overdue if one.due_ms >= oldest_ms]
    if not runs and whole and catch_up == "last":
        return overdue[-1:]
    return runs


def _ahead(first: Due, dues: Iterator[Due], now_ms: int) -> tuple[list[Due], bool]:
    """The next ones, and whether others follow them."""
    ahead = [first]
    for one in dues:
        if len(ahead) == _AHEAD or (len(ahead) > 1 and one.time_ms > now_ms + _AHEAD_MS):
            return ahead, True
        ahead.append(one)
    return ahead, False
