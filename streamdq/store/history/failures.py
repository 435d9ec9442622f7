"""The codec of the stream ``failures``: what failed in an attempt, under the id of its row in the history."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_MESSAGE_CHARS, MAX_TRACEBACK_CHARS = 500, 4000
_SEPARATOR = "\x1f"
_CUT = "…"
# Control characters other than newline, and surrogates, which can't be sent.
_UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed: class and message of the exception in one line, and its traceback, the raising call last; '' if
    there is none.
    """

    message: str
    traceback: str = ""


def failure_text(failure: Failure) -> str:
    """As it is stored: the beginning of the message, and the end of the traceback, whole lines if possible."""
    message, traceback = (_UNPRINTABLE.sub(" ", part) for part in (failure.message, failure.traceback))
    return f"{_first(message.replace(chr(10), ' '))}{_SEPARATOR}{_last(traceback)}"


def failure_in(value: bytes) -> Failure:
    """What an entry's value says."""
    message, _, traceback = value.decode(errors="replace").partition(_SEPARATOR)
    return Failure(message, traceback)


def _first(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + _CUT


def _last(text: str) -> str:
    if len(text) <= MAX_TRACEBACK_CHARS:
        return text
    kept = text[2 - MAX_TRACEBACK_CHARS :]
    return f"{_CUT}\n{kept.partition(chr(10))[2] or kept}"
