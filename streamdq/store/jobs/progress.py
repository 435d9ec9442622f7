"""The codec of the hash ``progress``: how far a group is with a job. lua/lib/progress.lua writes it; this reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...job.job import HandlerProgress

_SEPARATOR = "\x1f"


class Phase(StrEnum):
    """The state of a job in one group."""

    RUNNING = "r"
    ABORTED = "a"  # running, and told to stop
    WAITING = "w"  # for its next attempt, in the bucket or in its own stream
    DEAD = "d"
    ENDED_IN_GROUP = "x"  # the group has ended the job, other groups have not


@dataclass(frozen=True, slots=True)
class Progress:
    """One group's progress with one job. Fields that a phase does not have are 0, '' or None."""

    phase: Phase
    attempt: int  # attempts that count
    snoozed: int  # attempts that don't
    step: int
    crashes: int
    main: str  # entry of the job in the shared stream; '-' after it was removed
    sequence: str  # of the current delivery
    entry: str  # running: the entry that was claimed, of the group's own stream; '' means `main`
    started_ms: int = 0  # running: when it was claimed
    ahead: bool = False  # running: it was claimed ahead of a slot, and is not known to have started
    deadline_ms: int = 0  # running: when its TTR passes
    aborted: bool = False  # running, and will end as cancelled
    due_ms: int | None = None  # of the running or next attempt; None: see the record
    consumer: str = ""  # running
    report: HandlerProgress | None = None  # running: how far its handler said it was
    reason: str = ""  # dead; ended: why, if the group has not done it
    error: str = ""  # waiting, dead

    @property
    def claimed_from(self) -> str:
        """The entry that a running attempt was claimed from."""
        return self.entry or self.main


def progress_field(group: str, id: str) -> str:
    """The field of a group's progress with a job."""
    return f"{group}{_SEPARATOR}{id}"


def progress_in(value: bytes) -> Progress:
    """The progress in a value of the hash."""
    text = value.decode(errors="replace")  # another client's consumer or error need not be UTF-8
    state, attempts, step, crashes, main, sequence, entry, started, deadline, note = text.split("|", 9)
    phase, counts = Phase(state), (*attempts_in(attempts), int(step), int(crashes), main, sequence, entry)
    if phase in (Phase.RUNNING, Phase.ABORTED):
        consumer, due, report = (*note.split("|", 2), "", "")[:3]
        return Progress(
            Phase.RUNNING, *counts, abs(int(started)), started.startswith("-"), int(deadline), phase is Phase.ABORTED,
            _ms(due), consumer=consumer, report=report_in(report),
        )  # fmt: skip
    if phase is Phase.WAITING:
        return Progress(phase, *counts, due_ms=_ms(deadline), error=note)
    if phase is Phase.DEAD:
        reason, _, error = note.partition("|")
        return Progress(phase, *counts, reason=reason, error=error)
    return Progress(phase, *counts, reason=note)


def report_in(text: str) -> HandlerProgress | None:
    """What a handler has said of how far it is; None: nothing, or it is another client's."""
    if not text:
        return None
    try:
        at_ms, fraction, shown = text.split(" ", 2)
        return HandlerProgress(float(fraction) if fraction else None, shown, int(at_ms))
    except ValueError:
        return None


def attempts_in(text: str) -> tuple[int, int]:
    """The numbers of attempts in a progress: those that count, and those that were snoozed."""
    counted, _, snoozed = text.partition("+")
    return int(counted), int(snoozed or 0)


def _ms(text: str) -> int | None:
    return int(text) if text else None
