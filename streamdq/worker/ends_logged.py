"""How the log tells of attempts that ended: failures are seen, and bodies are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from ..operations.attempts import End, Held, Outcome, class_of
from ..operations.failures import is_a, is_told, text_of, why_invalid
from ..process.logs import as_exc_info, cause_of, log, parts_of, way
from ..times.durations import show_ms

_PASSED = "TimeoutError: TTR "
_SURROGATE = re.compile("[\ud800-\udfff]")
_LEVELS = {
    Outcome.DONE: "debug", Outcome.RETRY: "warning", Outcome.DEAD: "error", Outcome.SNOOZED: "info",
    Outcome.RELEASED: "info", Outcome.STALE: "info",
}  # fmt: skip
_GO_ON = frozenset({Outcome.RETRY, Outcome.SNOOZED})
_FAILED = frozenset({Outcome.RETRY, Outcome.DEAD})


def passed(held: Held) -> str:
    """The error of an attempt whose TTR has passed."""
    return f"{_PASSED}{show_ms(held.touch_ms or held.ttr_ms)} passed"


def log_end(end: End, outcome: Outcome, naming: dict[str, Any], *, show: bool) -> None:
    """Logs that an attempt ended: a dead job as an error, a retry as a warning. ``show``: with the message of its
    exception, and with the exception itself, unless the handler raised it to say what should follow.
    """
    failed = outcome in _FAILED
    tell = getattr(log, _LEVELS[outcome] if failed or end.held.started_ms else "debug")  # debug: it had not begun
    fields = {
        "outcome": outcome.value, **naming, "error": shown(end, show=show) or None, "at": end.at or None,
        "reason": end.reason or None, "delay_ms": end.delay_ms if outcome in _GO_ON else None,
    }  # fmt: skip
    if failed and end.cause is not None and not is_told(end.cause):
        _with_exception(tell, fields, end.cause)
    else:
        tell("attempt ended", **fields)


def _with_exception(tell: Callable[..., bool], fields: dict[str, Any], cause: BaseException) -> None:
    if may_be_shown(cause):
        if tell("attempt ended", exc_info=as_exc_info(cause), **fields):
            return
        log.debug("an exception can't be written", error=fields["error"])  # to write it runs the user's code
    tell("attempt ended", way=way(cause), **fields)


def shown(end: End, *, show: bool) -> str:
    """What the log says of an end's error."""
    if end.error.startswith(_PASSED):
        return end.error.partition(": ")[2]
    if not show:
        return class_of(end)
    if end.cause is not None and is_a(end.cause, ValidationError):
        return f"ValidationError: {why_invalid(end.cause, hidden=False)}"
    return end.error


def may_be_shown(error: BaseException | None) -> bool:
    """Whether the log can have the exception, those that led to it, and those of a group: pydantic's quote what they
    refuse, and a lone surrogate in a message can't be written.
    """
    seen: set[int] = set()
    left = [error]
    while left:
        error = left.pop()
        if error is None or id(error) in seen:
            continue
        if is_a(error, ValidationError) or _SURROGATE.search(text_of(error)):
            return False
        seen.add(id(error))
        left += [cause_of(error), *parts_of(error)]
    return True
