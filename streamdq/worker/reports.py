"""Who hears of ends that Redis has confirmed: the log, the functions of ``on_end`` and ``on_dead``, and the files of
large bodies. In the log, failures are seen, and bodies are not.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any

from pydantic import ValidationError

from ..job.job import GroupProgress, Job, JobState
from ..operations.attempts.ends import AttemptResult, End, class_of
from ..operations.attempts.error_text import is_a, is_instruction, text_of, why_invalid
from ..process.logs import as_exc_info, cause_of, log, parts_of, way, what
from ..process.loop import cancel_and_wait
from ..store.replies import Refused
from ..threads import HandlerThreads
from .ended_files import EndedFiles
from .ends import PASSED
from .handlers import called, completed
from .member import Member
from .middleware import tell

_MOST = 1000
_SURROGATE = re.compile("[\ud800-\udfff]")
_LEVELS = {
    AttemptResult.DONE: "debug", AttemptResult.RETRY: "warning", AttemptResult.DEAD: "error",
    AttemptResult.SNOOZED: "info", AttemptResult.RELEASED: "info", AttemptResult.ABORTED: "info",
    AttemptResult.STALE: "info",
}  # fmt: skip
_GO_ON = frozenset({AttemptResult.RETRY, AttemptResult.SNOOZED})
_OVER = frozenset({AttemptResult.DONE, AttemptResult.ABORTED})
_FAILED = frozenset({AttemptResult.RETRY, AttemptResult.DEAD})
_listeners_of = attrgetter("held.listeners")


class Reports:
    """``freed`` is set when ends are confirmed: a claim that waits because too many are unsent must look again."""

    def __init__(
        self,
        member: Member,
        freed: asyncio.Event,
        notices: DeadLetterNotices,
        files: EndedFiles | None,
        *,
        show_errors: bool = True,
    ) -> None:
        self._member = member
        self._freed = freed
        self._notices = notices
        self._files = files
        self._show_errors = show_errors

    def confirmed(self, ends: Sequence[End], refused: Refused) -> None:
        """Redis has received these ends of one topic and outcome; those that were aborted have ended as ABORTED."""
        self._freed.set()
        stale = refused.stale
        if any(map(_listeners_of, ends)):
            tell(ends, stale)
        if refused.aborted:
            self._drop_files([end for end in ends if end.outcome in _OVER], ())
        elif ends[0].outcome is AttemptResult.DONE:
            self._drop_files(ends, stale)
            if not stale and not log.shows("debug"):
                return
        for i, end in enumerate(ends):
            self._report(end, AttemptResult.STALE if i in stale else end.outcome)

    def _drop_files(self, ends: Sequence[End], stale: Collection[int]) -> None:
        if self._files is not None:
            self._files.put(ends, stale)

    def _report(self, end: End, outcome: AttemptResult) -> None:
        job = end.held.job
        _log_end(end, outcome, self._member.naming(job), show=self._show_errors)
        if outcome is not AttemptResult.DEAD:
            return
        job.state = JobState.DEAD
        progress = GroupProgress(
            self._member.group, JobState.DEAD, job.attempt, job.step, end.held.crashes, job.snoozed,
            reason=end.reason, error=end.error,
        )  # fmt: skip
        job.groups = {self._member.group: progress}
        self._notices.put(job)


def _log_end(end: End, outcome: AttemptResult, naming: dict[str, Any], *, show: bool) -> None:
    """Logs that an attempt ended: a dead job as an error, a retry as a warning. ``show``: with the message of its
    exception, and with the exception itself, unless the handler raised it to say what should follow.
    """
    failed = outcome in _FAILED
    tell = getattr(log, _LEVELS[outcome] if failed or end.held.started_ms else "debug")  # debug: it had not begun
    fields = {
        "outcome": outcome.value, **naming, "error": shown(end, show=show) or None, "at": end.at or None,
        "reason": end.reason or None, "delay_ms": end.delay_ms if outcome in _GO_ON else None,
    }  # fmt: skip
    if failed and end.cause is not None and not is_instruction(end.cause):
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
    if end.error.startswith(PASSED):
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


class DeadLetterNotices:
    """Calls a worker's ``on_dead`` functions, without holding up other work. Each gets one job at a time, in the order
    of Redis's replies; up to 1,000 jobs wait for it. If it can't be called for a job, that is logged; the job is a dead
    letter in any case.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]], member: Member) -> None:
        self._member = member
        self._waiting: dict[Callable[..., Any], deque[Job]] = {function: deque() for function in functions}
        self._calling: dict[Callable[..., Any], asyncio.Task[None]] = {}
        self._closed = False
        self._threads = HandlerThreads(max(1, len(self._waiting)))

    def put(self, job: Job) -> None:
        for function, waiting in self._waiting.items():
            if self._closed or len(waiting) >= _MOST:
                self._not_called(job, "the worker has stopped" if self._closed else "too many calls wait")
                continue
            waiting.append(job)
            if (calling := self._calling.get(function)) is None or calling.done():
                self._calling[function] = asyncio.create_task(self._call_each(function, waiting))

    async def _call_each(self, function: Callable[..., Any], waiting: deque[Job]) -> None:
        while waiting:
            job = waiting[0]
            error = await asyncio.create_task(self._call(function, job))  # each in a context of its own
            if self._closed:
                return
            waiting.popleft()
            if error is not None:
                log.error("on_dead failed", error=what(error), **self._member.naming(job))

    async def _call(self, function: Callable[..., Any], job: Job) -> BaseException | None:
        if inspect.iscoroutinefunction(function):
            result, error = called(function, job)
        else:
            loop = asyncio.get_running_loop()
            try:
                result, error = await loop.run_in_executor(self._threads, called, function, job)
            except RuntimeError as refused:  # the system starts no thread
                return refused
        return await completed(result) if error is None else error

    def _not_called(self, job: Job, why: str) -> None:
        log.error("on_dead not called", why=why, **self._member.naming(job))

    async def close(self, timeout_s: float) -> None:
        """Waits at most this long for the remaining calls."""
        late: set[asyncio.Task[None]] = set()
        if self._calling:
            _, late = await asyncio.wait(self._calling.values(), timeout=timeout_s)
        self._closed = True
        if late:
            for job in [job for waiting in self._waiting.values() for job in waiting]:
                self._not_called(job, "the worker has stopped")
            await cancel_and_wait(late)
        self._threads.shutdown()
