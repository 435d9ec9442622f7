"""How the attempts of claimed jobs end. Ends are sent in batches, each for one shard and group."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any

from ...config import MAX_CLAIM
from ...errors import BodyDamaged, BodyUnreadable
from ...job.retry import Bury, Retry, RetrySchedule, Snooze
from ...keys import ShardKeys
from ...link.session import Op
from ...process.logs import beginning_without_credentials
from ...store.batches import FREED_BYTES, MAX_BYTES, most_jobs, parts
from ...store.history.failures import Failure, failure_text
from ...store.history.rows import SEPARATOR, Event, moved_ms
from ...store.jobs.results import done
from ...store.replies import Refused
from ...store.scripts import Scripts
from . import measured
from .claimed import ClaimedJob
from .error_text import MAX_ERROR_CHARS, calls_shown, is_a, is_instruction, kept_text, text_of, traceback_of

_NO_ATTEMPT = -1  # sent instead of the number of used steps: the attempt does not count
_LONGEST_UNREADABLE_MS = 60_000  # so it runs soon after a key was added
_NOTHING_SENT = done(b"")
_STALLED_S = 0.25  # if a claim took longer, the process or the network had stalled
_CLASS = re.compile(r"[^\W\d][\w.]{0,99}(?=: )")


class AttemptResult(StrEnum):
    """How an attempt ended; also the value of the metrics' label."""

    __hash__ = str.__hash__  # that of Enum is a function in Python, and every end of an attempt calls it

    DONE = "done"
    RETRY = "retry"
    SNOOZED = "snoozed"
    DEAD = "dead"
    RELEASED = "released"
    ABORTED = "aborted"  # however its handler ended
    STALE = "stale"


_body_of = attrgetter("held.job.raw_body")
# Jobs per call, by how much work each outcome costs: no call takes more than a few milliseconds.
_MOST = {
    AttemptResult.DONE: MAX_CLAIM,
    AttemptResult.RETRY: 200,
    AttemptResult.SNOOZED: 200,
    AttemptResult.DEAD: 200,
    AttemptResult.RELEASED: 200,
}
_FAILED = frozenset({AttemptResult.RETRY, AttemptResult.DEAD})
_MOST_OF_KEYS = 100  # each also gives the place of its key to another job


class DeadReason(StrEnum):
    """Why a job was buried; also the value of the metrics' label."""

    EXHAUSTED = "exhausted"  # the steps of its retry schedule are used up
    BURIED = "buried"  # its handler raised Bury
    INVALID = "invalid"  # its body is not what the handler takes
    CRASHED = "crashed"  # its consumers died max_deliveries times


_CLASSES: dict[str, str] = {DeadReason.BURIED: "Bury", DeadReason.INVALID: "ValidationError", DeadReason.CRASHED: ""}


@dataclass(slots=True)
class End:
    """How one attempt ends. ``delay_ms``: for a retry or a snooze; ``steps``: for a retry; ``reason``: for a burial;
    ``at``: where the code failed, and ``cause``: the exception, for the log. ``traceback``: what is kept beside
    the error. ``hidden``: nothing is kept but the error, which then has no message.
    """

    held: ClaimedJob
    outcome: AttemptResult
    error: str = ""
    delay_ms: int = 0
    steps: int = 0
    reason: str = ""
    at: str = ""
    cause: BaseException | None = None
    traceback: str = ""
    hidden: bool = False

    def __post_init__(self) -> None:
        """Hides credentials in the error before it is kept anywhere, and makes it printable: it may contain anything,
        even lone surrogates, which can't be sent.
        """
        if self.error:
            text = beginning_without_credentials(self.error, MAX_ERROR_CHARS, 4 * MAX_ERROR_CHARS)
            self.error = "".join(c if c.isprintable() else " " for c in text)


def lost_too_often(held: ClaimedJob, max_deliveries: int) -> End | None:
    """The burial of a job that was lost with its consumer so many times in a row; None: it may be tried again."""
    if held.crashes < max_deliveries:
        return None
    text = f"lost with its consumer {held.crashes} times in a row"
    return End(held, AttemptResult.DEAD, text, reason=DeadReason.CRASHED)


def unreadable(held: ClaimedJob, error: BodyUnreadable) -> End:
    """The end of an attempt whose body can't be read. The job goes back, uncounted, and comes again later and later: to
    a worker that can read it, or to this worker when it is configured for it. A body that nobody can read is buried.
    """
    measured.unreadable(held)
    if is_a(error, BodyDamaged):
        return End(held, AttemptResult.DEAD, text_of(error), reason=DeadReason.INVALID)
    delay_ms = min(_LONGEST_UNREADABLE_MS, 1000 * 2 ** min(held.job.snoozed, 10))
    return End(held, AttemptResult.SNOOZED, text_of(error), delay_ms)


def end_of_failure(held: ClaimedJob, error: BaseException | str, schedule: RetrySchedule) -> End:
    """The end of an attempt that failed with this exception or text: a retry, or a burial if no step is left.

    The delay is chosen here; ``lua/retry.lua`` adds it to Redis's time.
    """
    text = error if is_a(error, str) else kept_text(held.job, error)
    if is_a(error, Bury):
        return End(held, AttemptResult.DEAD, error.reason, reason=DeadReason.BURIED)
    if is_a(error, Snooze):
        return End(held, AttemptResult.SNOOZED, text, error.delay_ms)
    if is_a(error, Retry) and error.delay_ms is not None:
        if held.job.attempt >= error.max_attempts:
            return End(held, AttemptResult.DEAD, text, reason=DeadReason.EXHAUSTED)
        return End(held, AttemptResult.RETRY, text, error.delay_ms)
    if held.job.retry is not None:
        schedule = RetrySchedule.of(held.job.retry)
    delay_ms = schedule.delay_ms(held.job.step)
    if delay_ms is None:
        return End(held, AttemptResult.DEAD, text, reason=DeadReason.EXHAUSTED)
    if is_a(error, Retry):
        delay_ms = max(delay_ms, error.at_least_ms)
    return End(held, AttemptResult.RETRY, text, delay_ms, steps=1)


def tell_calls(end: End, error: BaseException) -> None:
    """Keeps the calls that led to the exception with the end of the attempt, unless the handler raised it to say what
    should follow.
    """
    if end.held.was_in:
        end.traceback = calls_shown(end.held.was_in)
    elif end.outcome in _FAILED and not is_instruction(error):
        end.traceback = traceback_of(error, hidden=end.held.job.is_hidden)


def hide(end: End, *, own: bool) -> None:
    """Only the class of the exception that ended the attempt is kept. ``own``: unless the text is streamdq's own."""
    end.hidden = True
    if not own:
        end.error = f"{class_of(end) or 'Exception'}: its message is not kept"


def too_late(held: ClaimedJob, schedule: RetrySchedule, now_ms: int) -> End:
    """The end of an attempt that came too late to start. After a stall, the job goes back uncounted. Without a stall,
    the TTR is shorter than a claim takes; the job would go back forever, so the attempt fails.
    """
    if time.monotonic() - held.deadline + held.ttr_ms / 1000 > _STALLED_S:
        held.started_ms = 0
        return End(held, AttemptResult.RELEASED)
    held.started_ms = max(now_ms, held.due_ms)
    return end_of_failure(
        held, f"TimeoutError: its TTR of {held.ttr_ms} ms passed before the attempt could start", schedule
    )


def row_of(event: str, held: ClaimedJob, consumer: str, error: str = "", reason: str = "") -> str:
    """The attempt as a history row, without the time when it finished. ``event``: an Event's value, as text, because an
    Event takes long to format. ``error`` is a class, never a message, because messages may quote the body.
    """
    job, s = held.job, SEPARATOR
    return (
        f"{event}{s}{job.id}{s}{held.group}{s}{job.attempt}{s}{job.step}{s}{consumer}{s}{job.created_ms}{s}"
        f"{held.due_ms}{s}{moved_ms(held.main, held.entry).decode()}{s}{held.started_ms or ''}{s}{error}{s}{reason}{s}"
        f"{len(job.raw_body)}{s}{job.key or ''}"
    )


def class_of(end: End) -> str:
    """The class of the exception that ended the attempt; '' if there was none, or only a text."""
    if end.reason in _CLASSES:
        return _CLASSES[end.reason]
    found = _CLASS.match(end.error)
    return found[0] if found else ""


def ends_together(ends: Sequence[End], groups: int) -> list[End]:
    """As many of these ends (all of one outcome) as one script call may carry. ``groups``: the topic's groups."""
    outcome = ends[0].outcome
    most = most_jobs(_MOST[outcome], groups if outcome is AttemptResult.DONE else 1)
    batch = _until_children(ends[:most])
    if any(end.held.job.key is not None for end in batch):
        batch = batch[:_MOST_OF_KEYS]
    if any(end.held.result is not None for end in batch):
        batch = next(parts(batch, lambda end: len(end.held.result or b""), most))
    # If the topic is paused or has a rate, release reads each record for the due time; others only free its memory.
    max_bytes = MAX_BYTES if outcome is AttemptResult.RELEASED else FREED_BYTES
    if sum(map(len, map(_body_of, batch))) <= max_bytes:
        return batch
    return next(parts(batch, lambda end: len(end.held.job.raw_body), most, max_bytes))


def _until_children(ends: Sequence[End]) -> list[End]:
    """The first ones. An attempt that has added jobs to its flow is ended by a call of its own."""
    first = next((i for i, end in enumerate(ends) if end.held.children), len(ends))
    return list(ends[: max(1, first)])


def can_be_sent(held: ClaimedJob) -> bool:
    """Whether its Job has all that is sent of it: nothing keeps a handler from deleting or changing that."""
    job = held.job
    try:
        row_of("", held, "").encode()
        return isinstance(job.id, str) and isinstance(job.raw_body, bytes)
    except (AttributeError, TypeError, UnicodeEncodeError):
        return False


def send_ends(scripts: Scripts, shard: ShardKeys, group: str, consumer: str, ends: list[End]) -> Op[Refused]:
    """Ends attempts of one shard and one generation of a group that this consumer claimed, all with the same outcome,
    at most MAX_BATCH. Returns which were refused because another consumer has the job now, or because they were
    aborted: these have ended as ABORTED. Idempotent: a repeated batch changes nothing.
    """
    outcome = ends[0].outcome
    event = (Event.RELEASED if outcome is AttemptResult.SNOOZED else Event(outcome)).value
    keeps_history = scripts.keeps_history
    failure_of = _failure_of if scripts.keeps_failures and outcome in _FAILED else _no_failure
    args: list[Any] = []
    for end in ends:
        held = end.held
        error = class_of(end) if end.error else ""
        row = row_of(event, held, consumer, error, end.reason) if keeps_history else ""
        args += [held.main, held.entry, held.job.id, row]
        if outcome in (AttemptResult.RETRY, AttemptResult.SNOOZED):
            args += [
                end.delay_ms,
                _NO_ATTEMPT if outcome is AttemptResult.SNOOZED else end.steps,
                end.error,
                failure_of(end),
            ]
        elif outcome is AttemptResult.DEAD:
            args += [end.reason, end.error, failure_of(end)]
    args += _results_of(ends) + _children_of(ends)
    first = ends[0].held
    refused: Refused = yield from _SCRIPTS[outcome](
        scripts, shard, group, first.generation, consumer, args, first.receipt
    )
    measured.attempts_ended(ends, refused)
    _note_aborted(ends, refused)
    return refused


def _note_aborted(ends: Sequence[End], refused: Refused) -> None:
    for i in refused.aborted:
        ends[i].outcome, ends[i].held.aborted = AttemptResult.ABORTED, True


def _results_of(ends: Sequence[End]) -> list[Any]:
    """What ``finish`` is sent of what the attempts have returned."""
    if ends[0].outcome is not AttemptResult.DONE or all(end.held.result is None for end in ends):
        return []  # an attempt whose TTR passed may have returned something all the same
    return [*(end.held.result or _NOTHING_SENT for end in ends), "results"]


def _children_of(ends: Sequence[End]) -> list[Any]:
    """What ``finish`` is sent of jobs that the one attempt has added to its flow."""
    if ends[0].outcome is not AttemptResult.DONE or not ends[0].held.children:
        return []
    from ...store.flows.children import children_text

    return [children_text(ends[0].held.children), "children"]


def _failure_of(end: End) -> str:
    """What is kept of the failure; '' for nothing."""
    if end.hidden or not (end.error or end.traceback):
        return ""
    return failure_text(Failure(end.error, end.traceback))


def _no_failure(_end: End) -> str:
    return ""


_SCRIPTS = {
    AttemptResult.DONE: Scripts.finish,
    AttemptResult.RETRY: Scripts.retry,
    AttemptResult.SNOOZED: Scripts.retry,
    AttemptResult.DEAD: Scripts.bury,
    AttemptResult.RELEASED: Scripts.release,
}
