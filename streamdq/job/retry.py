"""Retry schedules (backoff), and the exceptions by which a handler decides itself. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from ..errors import InvalidInput, Portable
from ..keys import plain
from ..times.durations import Duration, exactly, has_unit, to_ms

MAX_STEPS = 100
MAX_ATTEMPTS = 100
"""Of a job whose handler asks for another attempt, again and again, unless it says how many."""

DEFAULT_RETRY = "15s 3m 10m 30m 30m 1h 2h 6h 15h"
"""The usual schedule of payment notifications: ten attempts over 25 hours."""


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """The backoff: delays between a failed attempt and the next, each counted from the failure.

    ``RetrySchedule.of("15s 3m 10m")``: four attempts at most. No steps: one attempt.
    """

    steps_ms: tuple[int, ...]

    @classmethod
    def of(cls, value: RetryInput) -> RetrySchedule:
        """From text (``"0 0 2m"``; ``""`` and ``"none"`` for no steps), a list of durations, or a schedule.

        A step in text needs a unit, since ``"3"`` looks like three retries.

        Raises:
            InvalidInput: a step is not a duration or lacks a unit, or there are more than 100.
        """
        if isinstance(value, RetrySchedule):
            return value
        if isinstance(value, str):
            value = [] if value.strip() in ("", "none") else value.replace(",", " ").split()
        elif isinstance(value, int | float) or not isinstance(value, Iterable):
            raise InvalidInput(f"retry: {value!r} is not a schedule; for three retries, write for example '15s 3m 10m'")
        steps = tuple(_step_ms(step) for step in islice(value, MAX_STEPS + 1))
        if len(steps) > MAX_STEPS:
            raise InvalidInput(f"retry: more than {MAX_STEPS} steps; use at most {MAX_STEPS}")
        return cls(steps)

    def delay_ms(self, step: int) -> int | None:
        """The delay after failure number ``step`` (from 0); None when the steps are used up."""
        return self.steps_ms[step] if step < len(self.steps_ms) else None

    def __str__(self) -> str:
        return " ".join(map(exactly, self.steps_ms)) or "none"

    def encode(self) -> str:
        """The form in a job's record: whole milliseconds, ``"none"`` for no steps."""
        return " ".join(f"{ms}ms" for ms in self.steps_ms) or "none"


def _step_ms(step: Duration) -> int:
    ms = to_ms(step, "retry")
    if isinstance(step, str) and not has_unit(step):
        raise InvalidInput(
            f"retry: {step!r} has no unit; write '{step}s' to retry after {step} seconds, or for three retries, for "
            "example, '15s 3m 10m'"
        )
    return ms


RetryInput = RetrySchedule | str | Iterable[Duration]


class Retry(Portable):
    """Raised by a handler: try again after ``delay``, without using up a step. Attempt number ``max_attempts`` (100 by
    default) is the last; then the job is a dead letter. Without ``delay``, take the next step, and wait for
    ``at_least`` if the step is shorter.
    """

    delay_ms: int | None = None  # also for subclasses that don't call __init__
    at_least_ms = 0
    max_attempts = MAX_ATTEMPTS

    def __init__(
        self,
        delay: Duration | None = None,
        reason: str = "",
        *,
        at_least: Duration | None = None,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
            raise InvalidInput(f"max_attempts: {max_attempts!r} is not a whole number from 1")
        super().__init__(reason or "the handler asked for another attempt")
        self.delay_ms = None if delay is None else to_ms(delay)
        self.at_least_ms = 0 if at_least is None else to_ms(at_least, "at_least")
        self.max_attempts = max_attempts


class Snooze(Portable):
    """Raised by a handler that can't do its job now: run it again after ``delay``. It uses up neither an attempt nor a
    step. ``job.snoozed`` is how often that happened; the handler should limit it.
    """

    delay_ms = 1000  # for subclasses that don't call __init__

    def __init__(self, delay: Duration, reason: str = "") -> None:
        super().__init__(reason or "the handler put the job off")
        self.delay_ms = to_ms(delay)


class Bury(Portable):
    """Raised by a handler: give the job up at once. It becomes a dead letter with this reason."""

    reason = ""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = plain(reason) if isinstance(reason, str) else str(reason)
