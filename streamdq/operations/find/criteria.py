"""What a search looks for: states, due times, ids, keys and conditions on fields."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ...errors import InvalidInput
from ...job.job import JobState, check_group, check_id, check_key
from ...keys import plain
from ...store.find.wanted import OfGroup, Whole
from ..bounds import Bound, Time, time_of
from .conditions import Condition, Where, conditions_in

BLOCKED = "blocked"
"""Of the jobs that wait for others: those that can't start, because one of the others has failed."""
FINDABLE = (
    JobState.WAITING, BLOCKED, JobState.DELAYED, JobState.READY, JobState.RUNNING, JobState.DEAD, JobState.DONE,
    JobState.ENDED,
)  # fmt: skip
NEVER_MS = 10**15


@dataclass(frozen=True)
class Criteria:
    """What a search looks for. ``due``: from and until, in ms since 1970 or relative to now."""

    state: JobState | Literal["blocked"] | None = None
    due: tuple[Time, Time] | None = None
    group: str | None = None
    key: str | None = None
    id_prefix: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def by_due(self) -> bool:
        """Whether the jobs can be read from the buckets, by due time. Those that wait for others are at their end."""
        return self.state is JobState.WAITING or (self.state is JobState.DELAYED and self.due is not None)

    @cached_property
    def of_body(self) -> tuple[Condition, ...]:
        return tuple(condition for condition in self.conditions if condition.of_body)

    @cached_property
    def of_jobs(self) -> tuple[Condition, ...]:
        return tuple(one for one in self.conditions if not one.of_body and not one.of_group)

    @property
    def of_groups(self) -> list[OfGroup]:
        """The script alone decides these."""
        return [condition.in_script() for condition in self.conditions if condition.of_group]

    @property
    def of_body_alone(self) -> bool:
        """Whether all that the script can't decide are conditions on the body."""
        return bool(self.of_body) and not self.of_jobs and self.key is None

    @property
    def needed(self) -> Whole:
        """How much of a job it takes to decide what the script can't."""
        return "record" if self.of_body else "head" if self.of_jobs or self.key is not None else "plan"

    @property
    def texts(self) -> list[str]:
        """What the record of every match has."""
        texts = [text for condition in self.conditions if (text := condition.text)]
        return texts if self.key is None else [*texts, f"\x1f{self.key}\n"]


def criteria_of(
    *,
    state: JobState | str | None = None,
    due: tuple[Bound | None, Bound | None] | None = None,
    group: str | None = None,
    key: str | None = None,
    id_prefix: str | None = None,
    where: Where | None = None,
) -> Criteria:
    """What is looked for, checked.

    Raises:
        InvalidInput
    """
    if due is not None and state in (JobState.WAITING, BLOCKED):
        raise InvalidInput(f"due: jobs that are {state} have no due time yet; leave it out")
    return Criteria(
        _state(state),
        _times(due),
        None if group is None else check_group(group),
        None if key is None else check_key(key),
        _prefix(id_prefix or ""),
        conditions_in(where),
    )


def _state(state: JobState | str | None) -> JobState | Literal["blocked"] | None:
    if state is None or state == BLOCKED:
        return state  # type: ignore[return-value]
    if state not in FINDABLE:
        raise InvalidInput(f"state: {str(state)[:80]!r} is not one of {', '.join(FINDABLE)}")
    return JobState(state)


def _times(due: tuple[Bound | None, Bound | None] | None) -> tuple[Time, Time] | None:
    if due is None:
        return None
    if not isinstance(due, tuple | list) or len(due) != 2:
        raise InvalidInput("due: pass a pair of the first and the last time; None for no limit")
    return time_of(due[0], "due"), time_of(due[1], "due")


def _prefix(text: str) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"id_prefix: {text!r} is not a text")
    return check_id(plain(text) + "x")[:-1]
