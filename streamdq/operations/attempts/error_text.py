"""How an exception is reported: its message, and the calls that led to it. Reading them may run the user's code, which
may itself raise anything; and neither must quote a body.
"""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Iterator, Sequence
from traceback import walk_tb
from types import FrameType
from typing import TypeGuard, TypeVar

from pydantic import ValidationError

from ...errors import BodyUnreadable
from ...job.job import Job
from ...job.retry import Bury, Retry, Snooze
from ...process.logs import as_exc_info, beginning_without_credentials, end_without_credentials, parts_of
from ...store.history.failures import MAX_TRACEBACK_CHARS

T = TypeVar("T")
MAX_ERROR_CHARS = 1000
_MOST_CALLS = 30  # of each exception
_MOST_ERRORS = 10  # an exception, those that led to it, and those of a group
_MESSAGE_CHARS = 500  # within a traceback
_MOST_CHARS = 2 * MAX_TRACEBACK_CHARS
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"


def is_a(value: object, kind: type[T]) -> TypeGuard[T]:
    """Like isinstance, but never runs the value's own code: isinstance may ask the value for its class."""
    return issubclass(type(value), kind)


def is_instruction(error: BaseException) -> bool:
    """Whether a handler raised it to say what should follow."""
    return issubclass(type(error), Bury | Retry | Snooze)


def text_of(error: object) -> str:
    """An exception's class and message."""
    name = _class_name(error)
    if not name:
        return "Exception: neither its class nor its message can be read"
    try:
        return f"{name}: {error}"
    except BaseException:
        return f"{name}: its message can't be read"


def kept_text(job: Job, error: object) -> str:
    """What is kept of an exception. If the body is encrypted, not the message of one that was not raised to be kept: it
    may quote the body, as streamdq's own do when they refuse a value. Of pydantic's, never the values.
    """
    if job.is_hidden and not (is_a(error, Retry) or is_a(error, Snooze) or is_a(error, BodyUnreadable)):
        return f"{text_of(error).partition(':')[0]}: its message is not kept, as the body is encrypted"
    if is_a(error, ValidationError):
        return f"{_class_name(error)}: {why_invalid(error, hidden=False)}"
    return text_of(error)


def why_invalid(error: ValidationError, *, hidden: bool) -> str:
    """Pydantic's messages without the values. They may quote the user's own validators. ``hidden``: the body must not
    show, so only the kinds of errors are reported: places may be keys of the body.
    """
    try:
        found = error.errors()
    except BaseException as failure:
        return "invalid" if hidden else text_of(failure)[:MAX_ERROR_CHARS]
    if hidden:
        return "; ".join(str(e["type"]) for e in found)[:MAX_ERROR_CHARS] or "invalid"
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in found)[:MAX_ERROR_CHARS]


def traceback_of(error: BaseException, *, hidden: bool) -> str:
    """The calls that led to the exception, the raising one last, as Python writes them: also those of the exceptions
    before it and of a group. Without the calls of streamdq that led to the user's code, and without variables.
    ``hidden``: the body must not show, so without messages.
    """
    return without_credentials("\n".join(_lines_of(error, hidden, set())))


def calls_shown(calls: Sequence[str]) -> str:
    """The calls that a handler was in when its TTR passed, likewise. ``calls``: as of ``calls_of``."""
    lines = []
    for call in calls:
        place, _, function = call.rpartition(" ")
        file, _, line = place.rpartition(":")
        lines.append(f'  File "{file}", line {line}, in {function}')
    return without_credentials("\n".join(["When its TTR passed (most recent call last):", *lines]))


def without_credentials(traceback: str) -> str:
    """Its end: of a longer one no more would be kept, and to look through it takes long."""
    return end_without_credentials(traceback, _MOST_CHARS)


def _lines_of(error: BaseException, hidden: bool, seen: set[int]) -> list[str]:
    if id(error) in seen or len(seen) >= _MOST_ERRORS:
        return []
    seen.add(id(error))
    lines: list[str] = []
    before, how = _led_by(error)
    if before is not None and (first := _lines_of(before, hidden, seen)):
        lines += [*first, "", how, ""]
    if calls := list(_calls(error)):
        lines += ["Traceback (most recent call last):", *calls]
    lines.append(_said(error, hidden))
    for part in parts_of(error):
        lines += [f"  {line}" if line else "" for line in _lines_of(part, hidden, seen)]
    return lines


def _led_by(error: BaseException) -> tuple[BaseException | None, str]:
    own = BaseException.__dict__
    if (cause := own["__cause__"].__get__(error)) is not None:
        return cause, _CAUSE
    return (None if own["__suppress_context__"].__get__(error) else own["__context__"].__get__(error)), _CONTEXT


def _calls(error: BaseException) -> Iterator[str]:
    """The last of them; in case of an endless recursion, there are a thousand."""
    for frame, line in deque(walk_tb(as_exc_info(error)[2]), maxlen=_MOST_CALLS):
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {line}, in {code.co_qualname}'
        if source := _source_of(frame, line):
            yield f"    {source}"


def _source_of(frame: FrameType, line: int) -> str:
    """The standard library's tracebacks look at each file anew, which costs more than all else here."""
    try:
        return linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    except Exception:  # of the module's own loader
        return ""


def _said(error: BaseException, hidden: bool) -> str:
    if hidden:
        return _class_name(error) or "Exception"
    if is_a(error, ValidationError):
        return f"{_class_name(error)}: {_beginning(why_invalid(error, hidden=False))}"
    return _beginning(text_of(error))


def _beginning(message: str) -> str:
    if len(message) <= _MESSAGE_CHARS:
        return message
    return beginning_without_credentials(message, _MESSAGE_CHARS, MAX_ERROR_CHARS)


def _class_name(error: object) -> str:
    try:
        return str(type(error).__name__)
    except BaseException:
        return ""
