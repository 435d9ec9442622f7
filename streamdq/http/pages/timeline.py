"""A job's timeline, from its record and its history rows, and why it was late."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...job.job import GroupProgress, HandlerProgress, Job, JobState
from ...operations.history.job_history import JobEvent
from ...store.history.rows import Event, HistoryRow
from ...times.durations import show_ms

_MINUTE_MS = 60_000
ON_TIME_MS = 100


def brief(ms: int) -> str:
    """A duration in short: 340ms, 3.2s, 4m10s."""
    if 1000 <= ms < _MINUTE_MS:
        return f"{ms / 1000:.1f}".removesuffix(".0") + "s"
    return show_ms(ms if ms < _MINUTE_MS else ms - ms % 1000)


@dataclass(slots=True)
class Attempt:
    """One attempt of one group: ended, running or still to come. Times are in milliseconds; None: not yet, or
    unknown.
    """

    group: str
    number: int
    due_ms: int | None = None
    moved_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    event: str = "waiting"
    consumer: str = ""
    error: str = ""
    reason: str = ""
    traceback: str = ""
    progress: HandlerProgress | None = None  # it runs, and its handler says how far it is

    def ran_ms(self, now_ms: int) -> int | None:
        if self.started_ms is None:
            return None
        return max(0, (self.ended_ms or now_ms) - self.started_ms)

    def waited_until_ms(self, now_ms: int) -> int:
        return self.started_ms or self.ended_ms or now_ms

    def gaps(self, now_ms: int) -> list[tuple[str, int]]:
        """The attempt's waits and its run, in order, as (what, ms)."""
        found = []
        if self.due_ms is not None and self.event == JobState.READY:  # the time of its move is not stored with it
            found.append(("worker", max(0, now_ms - self.due_ms)))
        elif self.due_ms is not None:
            moved = self.moved_ms or self.started_ms or max(now_ms, self.due_ms)
            found.append(("mover", max(0, moved - self.due_ms)))
            if self.moved_ms is not None:
                found.append(("worker", max(0, (self.started_ms or now_ms) - max(self.moved_ms, self.due_ms))))
        if self.started_ms is not None:
            found.append(("ran", self.ran_ms(now_ms) or 0))
        return found


@dataclass(slots=True)
class Story:
    """All that is known of a job. ``job`` None: it has ended or never existed. ``complete``: no older row is
    missing.
    """

    job: Job | None
    now_ms: int
    created_ms: int | None = None
    body_bytes: int | None = None
    events: list[Attempt | HistoryRow] = field(default_factory=list)  # in the order in which they happened
    complete: bool = True


ABORTED = "aborted"  # in the history: the reason of a cancelled row whose attempt ran
SNOOZED = "snoozed"  # in the history: a released row with an error
_ATTEMPTS = (Event.DONE, Event.RETRY, Event.DEAD, Event.RELEASED, Event.RECLAIMED, Event.EXPIRED)


def story_of(events: Iterable[JobEvent], job: Job | None, moved: dict[str, int], now_ms: int) -> Story:
    """Builds the story from the job's events, in the order of the history, and the job itself. ``moved``: when each
    group's present attempt became ready.
    """
    story = Story(job, now_ms)
    for event in events:
        row = event.row
        story.created_ms = story.created_ms or row.created_ms
        story.body_bytes = story.body_bytes or row.body_bytes or None
        if _is_attempt(row):
            story.events.append(_ended(event))
        else:
            story.events.append(row)  # events that are not attempts: cancelled, kicked
    if job is not None:
        story.created_ms, story.body_bytes = job.created_ms, len(job.raw_body)
        _tell_messages(story, job)
        still = [_open(one, job, moved) for one in job.groups.values() if one.state in _OPEN]
        story.events += sorted(still, key=lambda one: one.started_ms or max(now_ms, one.due_ms or 0))
    return story


def _is_attempt(row: HistoryRow) -> bool:
    return row.event in _ATTEMPTS or (row.event is Event.CANCELLED and row.reason == ABORTED)


def _tell_messages(story: Story, job: Job) -> None:
    """The history has the class of each error, and the message as long as that is kept. Of each group's last attempt,
    the job has it in any case.
    """
    for progress in job.groups.values():
        last = next(
            (one for one in reversed(story.events) if isinstance(one, Attempt) and one.group == progress.group), None
        )
        if last is None or not last.error or last.number != progress.attempt:
            continue
        if progress.error and progress.error.startswith(last.error):
            last.error = progress.error


def _ended(event: JobEvent) -> Attempt:
    row = event.row
    return Attempt(
        row.group,
        row.attempt,
        row.due_ms,
        row.moved_ms,
        row.started_ms,
        row.finished_ms,
        SNOOZED if row.event is Event.RELEASED and row.error else row.event.value,
        row.consumer,
        event.message or row.error,
        row.reason,
        event.traceback,
    )


_OPEN = (JobState.DELAYED, JobState.READY, JobState.RUNNING)


def _open(progress: GroupProgress, job: Job, moved: dict[str, int]) -> Attempt:
    running = progress.state is JobState.RUNNING
    return Attempt(
        progress.group,
        progress.attempt if running else progress.attempt + 1,
        progress.due_ms or job.due_ms,
        moved.get(progress.group),
        progress.started_ms,
        event="aborting" if progress.aborted else progress.state.value,
        consumer=progress.consumer or "",
        progress=progress.progress,
    )


def why(attempt: Attempt, now_ms: int, paused: bool = False) -> str:
    """Whether the attempt was late and why, as a sentence about its longest wait."""
    if attempt.due_ms is None:
        return ""
    if attempt.due_ms > now_ms and attempt.started_ms is None:
        return f"Due in {brief(attempt.due_ms - now_ms)}."
    late_ms = max(0, attempt.waited_until_ms(now_ms) - attempt.due_ms)
    if attempt.started_ms is not None and late_ms < ON_TIME_MS:
        return f"On time: it started {brief(late_ms)} after it was due."
    if attempt.event == Event.EXPIRED:
        return f"Given up: it had expired, {brief(late_ms)} after it was due."
    longest, waited_ms = _longest_wait(attempt, now_ms) or ("mover", late_ms)
    waited = brief(waited_ms)
    if attempt.started_ms is None:
        return f"It has been due for {brief(late_ms)}{_still_waits(longest, waited, paused)}"
    return f"Late by {brief(late_ms)}: it waited {waited} {_WAITED_FOR[longest]}"


def _longest_wait(attempt: Attempt, now_ms: int) -> tuple[str, int] | None:
    waits = [gap for gap in attempt.gaps(attempt.ended_ms or now_ms) if gap[0] != "ran"]
    return max(waits, key=lambda gap: gap[1], default=None)


_WAITED_FOR = {
    "worker": "for a worker.",
    "mover": "to be moved to the ready stream, for a mover, for the end of a pause, or because of the topic's rate.",
}


def _still_waits(longest: str, waited: str, paused: bool) -> str:
    if longest == "worker":
        return f": it has been waiting {waited} for a worker."
    cause = "the topic is paused" if paused else "no mover is active, or the topic's rate limits it"
    return f", and has not been moved to the ready stream yet: {cause}."
