"""Turns durations and points in time, as callers write them, into the milliseconds that the scripts take."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache

from ..errors import InvalidInput

Duration = float | int | str | timedelta
"""Seconds, a timedelta, or text such as ``"250ms"``, ``"15s"``, ``"1h30m"``, ``"2d"``."""

Moment = datetime | int
"""An aware datetime, or a millisecond timestamp of 13 digits."""

MAX_DELAY_MS = 10 * 366 * 86_400_000
"""Ten years. A longer delay is nearly always a mistaken unit (milliseconds for seconds)."""

MAX_DURATION_CHARS = 100

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_RATE = re.compile(r"([1-9][0-9]{0,5})/([0-9.]*)(ms|s|m|h|d|w)")
_TEXT = re.compile(rf"{_PART.pattern}(?: ?{_PART.pattern})*")


def to_ms(value: Duration, what: str = "delay") -> int:
    """The duration in whole milliseconds.

    Raises:
        InvalidInput: negative, not a number, not understood, or over ten years.
    """
    if type(value) is float or type(value) is int:  # not True
        ms = value * 1000
        if 0 <= ms <= MAX_DELAY_MS:
            return round(ms)
    if isinstance(value, str) and len(value) > MAX_DURATION_CHARS:  # don't keep such texts in the cache below
        raise InvalidInput(f"{what}: a duration has at most {MAX_DURATION_CHARS} characters, such as '1h30m'")
    try:
        return _to_ms(value, what)
    except TypeError:  # unhashable, so not a duration
        raise InvalidInput(f"{what}: {value!r} is not a duration; pass seconds, a timedelta, or text") from None


@lru_cache(maxsize=4096, typed=True)  # typed: 1 is a duration, True is not
def _to_ms(value: Duration, what: str) -> int:
    if isinstance(value, timedelta):
        ms = value.total_seconds() * 1000
    elif isinstance(value, bool):
        raise InvalidInput(f"{what}: {value!r} is not a duration; pass seconds, a timedelta, or text such as '1h30m'")
    elif isinstance(value, int | float):
        ms = value * 1000
    elif isinstance(value, str):
        ms = _parse(value.strip(), what)
    else:
        raise InvalidInput(
            f"{what}: {type(value).__name__} is not a duration; pass seconds, a timedelta, or text such as '1h30m'"
        )
    if not ms >= 0:  # not a number compares as False
        raise InvalidInput(f"{what}: {value!r} is negative or not a number; a duration is 0 or more")
    if ms > MAX_DELAY_MS:
        raise InvalidInput(f"{what}: {value!r} is more than ten years; a plain number means seconds")
    return round(ms)


def number_in(text: str) -> float:
    """Like float(), which also takes 1_0 and other scripts' digits.

    Raises:
        ValueError: it is no number.
    """
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def has_unit(text: str) -> bool:
    """Whether the text is no bare number; 0 is the same in every unit."""
    try:
        return number_in(text.strip()) == 0
    except ValueError:
        return True


def _parse(text: str, what: str) -> float:
    try:
        return number_in(text) * 1000
    except ValueError:
        pass
    if not _TEXT.fullmatch(text):
        raise InvalidInput(f"{what}: can't read {text!r}; write for example '250ms', '15s', '1h30m' or '2d'")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def rate_in(text: str, what: str) -> tuple[int, int]:
    """How many times, and in how many ms.

    Raises:
        InvalidInput: it is not like "3/h" or "1/10m".
    """
    found = _RATE.fullmatch(text.strip()) if isinstance(text, str) and len(text) <= 40 else None
    if found is None:
        raise InvalidInput(f"{what}: can't read {str(text)[:80]!r}; write '3/h' or '1/10m'")
    span_ms = to_ms((found[2] or "1") + found[3], what)
    if span_ms < 1:
        raise InvalidInput(f"{what}: must be at least 1 ms")
    return int(found[1]), span_ms


def moment_ms(value: Moment) -> int:
    """The point in time as Unix milliseconds.

    Raises:
        InvalidInput: a naive datetime, or an int that is not 13 digits long (seconds, say).
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            shown = value.isoformat()
            raise InvalidInput(f"at: {shown} has no time zone; write {shown}Z for UTC, pass tz, or an aware datetime")
        value = round(value.timestamp() * 1000)
        if not 10**12 <= value < 10**13:
            raise InvalidInput("at: the moment is before September 2001 or after November 2286")
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"at: {value!r} is neither an aware datetime nor an int of milliseconds")
    if not 10**12 <= value < 10**13:
        raise InvalidInput(f"at: {value!r} is not a 13-digit millisecond timestamp; seconds must be multiplied by 1000")
    return value


def exactly(ms: int) -> str:
    """The duration as text that says all of it: ``"1h30m15s"``, ``"0"``."""
    parts, rest = [], ms
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"


def show_ms(ms: float) -> str:
    """The duration for people: ``"340ms"``, ``"15s"``, ``"1h30m"``."""
    if ms < 1000:
        return f"{ms:.0f}ms" if ms == int(ms) or ms >= 10 else f"{ms:.1f}ms"
    rest, parts = round(ms), []
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
