"""When a schedule's occurrences are due: by a cron expression in a time zone, or at an interval.

cronsim reads the expressions and finds matching local times. What these mean where clocks are changed is decided here:
a time that does not exist runs at the first moment after the gap, one that comes twice runs once, or twice with
``dst="both"``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ..errors import InvalidInput
from .civil import local_of, moments

Dst = Literal["once", "both"]

SHORTEST_MS = 1_000
_NAMES = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_MAX_CHARS = 200
_SOME_DAY = datetime(2026, 1, 1)  # noqa: DTZ001 - naive, as all local times here
_LAST_MS = 10**13 - 1  # as for all moments


@dataclass(frozen=True, slots=True)
class Cron:
    """``expression``: five fields, or six with seconds first."""

    expression: str
    where: ZoneInfo
    dst: Dst = "once"

    def after(self, ms: int) -> Iterator[int]:
        """The moments after the given one, ascending, as long as the calendar has any."""
        ahead: list[int] = []
        last = ms
        for local in CronSim(_expand(self.expression), self._from(ms) - timedelta(seconds=1)):
            found = moments(local, self.where)
            while ahead and ahead[0] <= found[0]:
                if (earlier := heapq.heappop(ahead)) > last:
                    yield (last := earlier)
            if found[0] > _LAST_MS:
                return
            for moment in found if self.dst == "both" else found[:1]:
                heapq.heappush(ahead, moment)
        yield from (moment for moment in sorted(ahead) if moment > last)

    def _from(self, ms: int) -> datetime:
        """The local time to start from: the earliest that clocks show at that moment by any of the offsets around it.
        Those that are set back show times again that lie behind, and those that are set forward leave out times that
        mean a moment after it.
        """
        return min(local_of(ms + hours * 3_600_000, self.where) - timedelta(hours=hours) for hours in _AROUND)


_AROUND = (-26, -13, 0, 13, 26)


@dataclass(frozen=True, slots=True)
class Every:
    """Each ``interval_ms`` after ``anchor_ms``."""

    interval_ms: int
    anchor_ms: int

    def after(self, ms: int) -> Iterator[int]:
        """The moments after the given one, ascending."""
        passed = max(0, (ms - self.anchor_ms) // self.interval_ms)
        for number in count(passed + 1):
            moment = self.anchor_ms + number * self.interval_ms
            if moment > _LAST_MS:
                return
            yield moment

    def count_to(self, ms: int) -> int:
        """How many moments there are up to the given one."""
        return max(0, (min(ms, _LAST_MS) - self.anchor_ms) // self.interval_ms)


Recurrence = Cron | Every


def cron(expression: str, where: ZoneInfo, dst: Dst = "once") -> Cron:
    """A recurrence by cron expression, checked.

    Raises:
        InvalidInput: it can't be read, or there is no such time.
    """
    if dst not in ("once", "both"):
        raise InvalidInput(f"dst: {dst!r} is neither 'once' nor 'both'")
    if not isinstance(expression, str) or len(expression) > _MAX_CHARS:
        raise InvalidInput("cron: must be text such as '0 9 * * 1-5'")
    found = Cron(" ".join(expression.split()), where, dst)
    try:
        next(found.after(0))
    except CronSimError as error:
        raise InvalidInput(
            f"cron: can't read {expression!r}: {error}; write minute, hour, day of month, month and day of week, "
            "such as '0 9 * * 1-5'"
        ) from None
    except StopIteration:
        raise InvalidInput(f"cron: {expression!r} matches no date") from None
    return found


def in_words(expression: str) -> str:
    """A cron expression that has been checked: ``At 09:00 on Monday through Friday``."""
    return CronSim(_expand(expression), _SOME_DAY).explain()


def _expand(expression: str) -> str:
    return _NAMES.get(expression.lower(), expression)
