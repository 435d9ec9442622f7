"""Moments as callers pass them, also such as are counted from now."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import NamedTuple

from ..errors import InvalidInput
from ..schedules.civil import civil_moment_ms
from ..times.durations import Duration, Moment, moment_ms, to_ms

Bound = Moment | str | timedelta
"""A moment; or, as a timedelta or a text such as "10m" or "-1h", one counted from now."""

_MOST_DIGITS = 20  # of a time in ms; int() refuses thousands
_RELATIVE = re.compile(r"([+-]?)(\d.*[a-z])")


class Time(NamedTuple):
    """``ms`` None: no limit."""

    ms: int | None
    relative: bool = False

    def at(self, now_ms: int, otherwise: int) -> int:
        if self.ms is None:
            return otherwise
        return now_ms + self.ms if self.relative else self.ms


def time_of(bound: Bound | None, name: str) -> Time:
    """What a caller has passed as ``name``.

    Raises:
        InvalidInput: it can't be read.
    """
    try:
        return _time(bound)
    except InvalidInput as error:
        raise InvalidInput(re.sub("^(at|due):", f"{name}:", str(error))) from None


def _time(bound: Bound | None) -> Time:
    if bound is None or bound == "":
        return Time(None)
    if isinstance(bound, timedelta):
        return _from_now(abs(bound), bound < timedelta(0))
    if isinstance(bound, str):
        return _time_in(bound.strip())
    return Time(moment_ms(bound))


def _time_in(text: str) -> Time:
    if text == "now":
        return Time(0, relative=True)
    if found := _RELATIVE.fullmatch(text):
        return _from_now(found[2], found[1] == "-")
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return Time(moment_ms(int(text)))
    return Time(civil_moment_ms(text, None, None))


def _from_now(span: Duration, ago: bool) -> Time:
    ms = to_ms(span, "due")
    return Time(-ms if ago else ms, relative=True)
