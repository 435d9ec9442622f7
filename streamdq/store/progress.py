"""The codec of the hash ``progress``: how far a group is with a job. lua/lib/progress.lua writes it; this reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_SEPARATOR = "\x1f"


class Phase(StrEnum):
    """Where the group is with the job."""

    RUNNING = "r"
    WAITING = "w"  # for its next attempt, in the bucket or in its own stream
    DEAD = "d"
    THROUGH = "x"  # other groups are not


@dataclass(frozen=True, slots=True)
class Progress:
    """One group's progress with one job. What a phase does not have is 0, '' or None."""

    phase: Phase
    attempt: int  # those that count
    snoozed: int  # those that don't
    step: int
    crashes: int
    main: str  # entry of the job in the shared stream; '-' once that was removed
    sequence: str  # of the current delivery
    entry: str  # running: where it was claimed; '' means `main`, else an entry of the group's own stream
    started_ms: int = 0  # running: when it was claimed
    ahead: bool = False  # running: it was claimed ahead of a slot, and nobody knows that it has started
    deadline_ms: int = 0  # running: when its TTR passes
    due_ms: int | None = None  # of the attempt that runs or is next; None: as the record says
    consumer: str = ""  # running
    reason: str = ""  # dead
    error: str = ""  # waiting, dead

    @property
    def claimed_from(self) -> str:
        """The entry that a running attempt was claimed from."""
        return self.entry or self.main


def progress_field(group: str, id: str) -> str:
    """Where the hash has it."""
    return f"{group}{_SEPARATOR}{id}"


def group_and_id(field: bytes) -> tuple[str, str]:
    """Whose progress a field of the hash is, and with which job."""
    group, _, id = field.decode().partition(_SEPARATOR)
    return group, id


def progress_in(value: bytes) -> Progress:
    """The progress in a value of the hash."""
    state, attempts, step, crashes, main, sequence, entry, started, deadline, note = value.decode().split("|", 9)
    phase, counts = Phase(state), (*attempts_in(attempts), int(step), int(crashes), main, sequence, entry)
    if phase is Phase.RUNNING:
        consumer, _, due = note.partition("|")
        return Progress(
            phase, *counts, abs(int(started)), started.startswith("-"), int(deadline), _ms(due), consumer=consumer
        )  # fmt: skip
    if phase is Phase.WAITING:
        return Progress(phase, *counts, due_ms=_ms(deadline), error=note)
    if phase is Phase.DEAD:
        reason, _, error = note.partition("|")
        return Progress(phase, *counts, reason=reason, error=error)
    return Progress(phase, *counts)


def attempts_in(text: str) -> tuple[int, int]:
    """The attempts of a group's progress: those that count, and those that were snoozed."""
    counted, _, snoozed = text.partition("+")
    return int(counted), int(snoozed or 0)


def _ms(text: str) -> int | None:
    return int(text) if text else None
