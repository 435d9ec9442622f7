"""Spans of time that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from streamdq.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Span:
    """From ``since`` on and before ``until``, in ms since 1970."""

    since: int
    until: int
    text: str

    @classmethod
    def parse(cls, text: str) -> Span:
        """``A..B``: two days, both included, or two times, the second excluded; UTC unless it has an offset.

        Raises:
            InvalidInput: it is not a span, or it ends before it begins.
        """
        try:
            first, last = text.split("..")
            since, until = _moment(first, timedelta(0)), _moment(last, timedelta(days=1))
        except (ValueError, OverflowError):  # the latter of 9999-12-31, which no day follows
            raise InvalidInput(
                f"compare: {text!r} is no span; write 2026-01-05..2026-01-11 or 2026-01-12T14:00..2026-01-12T18:00"
            ) from None
        if until <= since:
            raise InvalidInput(f"compare: {text} ends before it begins")
        return cls(since, until, text)


def _moment(text: str, whole_day: timedelta) -> int:
    """In ms; of a day its begin, and ``whole_day`` later."""
    if len(text.strip()) == len("2026-01-05"):
        day = date.fromisoformat(text.strip())
        at = datetime(day.year, day.month, day.day, tzinfo=UTC) + whole_day
    else:
        at = datetime.fromisoformat(text.strip())
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)
