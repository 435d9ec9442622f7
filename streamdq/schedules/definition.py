"""What a schedule says: when its occurrences are due, and what happens to those that are missed or overlap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain, islice, pairwise
from typing import Any, Literal, NamedTuple
from zlib import crc32
from zoneinfo import ZoneInfo

from ..errors import InvalidInput
from ..keys import plain
from ..times.durations import MAX_DELAY_MS, Duration, Moment, moment_ms, show_ms, to_ms
from .civil import zone
from .recurrence import SHORTEST_MS, Cron, Dst, Every, Recurrence, cron, in_words

Overlap = Literal["allow", "skip", "queue"]
CatchUp = Literal["none", "last"] | int
"""Of occurrences that were missed: none runs, the last one, or those that are at most so many ms late."""


class Due(NamedTuple):
    """When an occurrence comes by the clock, and when it is due, jitter included."""

    time_ms: int
    due_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Either ``cron`` or ``every_ms`` is set. Times are Unix milliseconds."""

    cron: str | None = None
    every_ms: int | None = None
    anchor_ms: int = 0  # of the interval: occurrences are due at multiples of it after this moment
    tz: str = "UTC"
    dst: Dst = "once"
    jitter_ms: int = 0
    start_ms: int | None = None
    until_ms: int | None = None
    overlap: Overlap = "allow"
    catch_up: CatchUp = "last"
    declared: bool = False  # by a worker's code, which may remove it again

    def times(self, after_ms: int) -> Iterator[int]:
        """When occurrences come after that moment, by the clock; ``occurrences`` adds the jitter."""
        first, last = self.clipped(after_ms)
        for time_ms in self.recurrence().after(first):
            if time_ms > last:
                return
            yield time_ms

    def clipped(self, after_ms: int) -> tuple[int, int]:
        """After which moment its first occurrence comes, if no earlier one counts, and up to which moment its last."""
        first = after_ms if self.start_ms is None else max(after_ms, self.start_ms - 1)
        return first, _NEVER_MS if self.until_ms is None else self.until_ms

    def due_ms(self, id: str, time_ms: int) -> int:
        """With jitter: the same for the same occurrence on all hosts; spread evenly."""
        if not self.jitter_ms:
            return time_ms
        return time_ms + (crc32(f"{id}\n{time_ms}".encode()) * (self.jitter_ms + 1) >> 32)

    def occurrences(self, id: str, after_ms: int) -> Iterator[Due]:
        """As ``times``, each with the moment when it is due, jitter included: before the next one comes, which may be
        soon, as where clocks are set forward.
        """
        times = self.times(after_ms)
        if not self.jitter_ms:
            yield from (Due(time_ms, time_ms) for time_ms in times)
            return
        for time_ms, next_ms in pairwise(chain(times, [_NEVER_MS])):
            yield Due(time_ms, min(self.due_ms(id, time_ms), next_ms - 1))

    def next(self, after_ms: int, count: int = 5) -> list[int]:
        return list(islice(self.times(after_ms), count))

    @property
    def phrase(self) -> str:
        """When it runs, for people: ``0 9 * * 1-5``, ``every 10m``."""
        return self.cron or f"every {show_ms(self.every_ms or 0)}"

    @property
    def words(self) -> str:
        """The same in words: ``At 09:00 on Monday through Friday``."""
        return in_words(self.cron) if self.cron else f"Every {show_ms(self.every_ms or 0)}"

    def text(self) -> str:
        """As stored: JSON without what is as by default."""
        given = {name: value for name, value in asdict(self).items() if value != _DEFAULTS[name]}
        return json.dumps(given, separators=(",", ":"))

    def is_same(self, other: Definition) -> bool:
        """Whether both say the same, wherever their intervals began."""
        return _without_anchor(self) == _without_anchor(other)

    def recurrence(self) -> Recurrence:
        """When its occurrences come, but for ``start_ms`` and ``until_ms``."""
        return _recurrence(self.cron, self.every_ms, self.anchor_ms, zone(self.tz), self.dst)


def definition_in(text: str) -> Definition:
    """Fields that a later version has added are left out."""
    return Definition(**{name: value for name, value in json.loads(text).items() if name in _DEFAULTS})


def define(
    *,
    cron: str | None = None,
    every: Duration | None = None,
    tz: str = "UTC",
    dst: Dst = "once",
    jitter: Duration | None = None,
    start: Moment | None = None,
    until: Moment | None = None,
    overlap: Overlap = "allow",
    catch_up: Duration | Literal["none", "last"] = "last",
    declared: bool = False,
) -> Definition:
    """Checks what a caller gives.

    Raises:
        InvalidInput: an argument can't be read, they don't go together, or no occurrence would ever come.
    """
    if (cron is None) == (every is None):
        raise InvalidInput("schedule: pass either cron or every")
    if overlap not in ("allow", "skip", "queue"):
        raise InvalidInput(f"overlap: {overlap!r} is not one of 'allow', 'skip', 'queue'")
    every_ms = None if every is None else _interval(every)
    found = Definition(
        cron=None if cron is None else " ".join((plain(cron) if isinstance(cron, str) else str(cron)).split()),
        every_ms=every_ms,
        tz=zone(tz).key,
        dst=dst,
        jitter_ms=0 if jitter is None else to_ms(jitter, "jitter"),
        start_ms=None if start is None else named_moment("start", start),
        until_ms=None if until is None else named_moment("until", until),
        overlap=overlap,
        catch_up=catch_up if catch_up in ("none", "last") else to_ms(catch_up, "catch_up"),  # type: ignore[arg-type]
        declared=declared,
    )
    _check_together(found)
    return found


def _interval(every: Duration) -> int:
    ms = to_ms(every, "every")
    if ms < SHORTEST_MS:
        raise InvalidInput("every: must be at least 1 s")
    return ms


def _check_together(given: Definition) -> None:
    if given.cron is not None:
        cron(given.cron, zone(given.tz), given.dst)
    elif given.dst != "once":
        raise InvalidInput("dst: an interval has no local times; pass it with cron")
    if given.start_ms is not None and given.until_ms is not None and given.start_ms > given.until_ms:
        raise InvalidInput("until: is before start")
    if given.jitter_ms and given.jitter_ms >= (gap := _shortest_gap(given)):
        raise InvalidInput(f"jitter: must be shorter than the time between two occurrences, {gap / 1000:g} s")


def _shortest_gap(given: Definition) -> int:
    """Between its next occurrences: of an expression, some of the first after now will do."""
    if given.every_ms is not None:
        return given.every_ms
    times = given.next(given.start_ms or _SOME_MS, 50)
    return min((later - earlier for earlier, later in pairwise(times)), default=MAX_DELAY_MS)


_SOME_MS = 1_800_000_000_000
_NEVER_MS = 10**14


def named_moment(name: str, value: Moment) -> int:
    """Like ``moment_ms``; its errors call the argument by its name."""
    try:
        return moment_ms(value)
    except InvalidInput as error:
        raise InvalidInput(str(error).replace("at:", f"{name}:", 1)) from None


def shown(ms: int, tz: str) -> str:
    """That moment as ISO 8601 with the zone's offset, in seconds or, if need be, milliseconds."""
    at = datetime.fromtimestamp(ms / 1000, zone(tz))
    return at.isoformat(timespec="milliseconds" if ms % 1000 else "seconds")


@lru_cache(maxsize=4096)
def _recurrence(expression: str | None, every_ms: int | None, anchor_ms: int, where: ZoneInfo, dst: Dst) -> Recurrence:
    """By the zone itself, not its name: after an update of the database, the name means another one."""
    if expression is not None:
        return Cron(expression, where, dst)
    assert every_ms is not None
    return Every(every_ms, anchor_ms)


def _without_anchor(definition: Definition) -> dict[str, Any]:
    return asdict(definition) | {"anchor_ms": 0}


_DEFAULTS = asdict(Definition())
