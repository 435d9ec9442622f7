"""Jobs in requests and answers: to enqueue, as they are, and what became of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from ....job.after import OnFailure
from ....job.job import MAX_ID_BYTES, MAX_KEY_CHARS, JobState, NewJob, Priority
from ....job.uniqueness import UniqueAfter
from ....options import OF_JOB
from ....store.history.rows import Event
from .common import (
    DURATION,
    At,
    Delay,
    DurationIn,
    ExpireIn,
    In,
    PriorityIn,
    RetryIn,
    Ttr,
    UrlIn,
    VersionIn,
    due_from,
    example,
    not_both,
)

EXAMPLE_JOB: dict[str, Any] = {
    "topic": "order.close", "id": "order-42", "state": "delayed", "body": {"order_id": 42}, "due_ms": 1900000000000,
    "created_ms": 1899998200000, "attempt": 0, "step": 0, "ttr_ms": None, "retry": "15000ms 180000ms", "url": None,
    "expire_ms": None, "key": None, "priority": "normal", "waits_for": None, "groups": {},
}  # fmt: skip
_EXAMPLE_EVENT: dict[str, Any] = {
    "event": "retry", "group": "default", "attempt": 1, "step": 0, "consumer": "host-4711-9f3a",
    "due_ms": 1900000000000, "started_ms": 1900000000004, "finished_ms": 1900000000310, "reason": None,
    "error": "ConnectionError", "message": "ConnectionError: no answer from bank",
    "traceback": 'Traceback (most recent call last):\n  File "shop.py", line 7, in close\n    bank.settle(order)',
}  # fmt: skip


_MOST_PARENTS = 10_000


class ParentIn(In):
    """A job that another one waits for."""

    topic: Annotated[StrictStr, Field(max_length=MAX_ID_BYTES)]
    id: Annotated[StrictStr, Field(max_length=MAX_ID_BYTES)]
    key: Annotated[
        Annotated[StrictStr, Field(max_length=MAX_KEY_CHARS)] | None, Field(description="Its key, if it has one.")
    ] = None


class JobIn(In):
    """A job to enqueue. For fields left out, the topic's settings apply."""

    body: Any = Field(description="The data for the handler: any JSON except null and an empty string.")
    delay: Delay = None
    at: At = None
    ttr: Ttr = None
    retry: RetryIn = None
    expire: ExpireIn = None
    url: UrlIn = None
    tz: Annotated[
        Annotated[StrictStr, Field(max_length=100)] | None,
        Field(description=OF_JOB["tz"], examples=["Europe/Paris"]),
    ] = None
    quiet: Annotated[
        Annotated[StrictStr, Field(max_length=20)] | None,
        Field(description=OF_JOB["quiet"], examples=["21:00-08:00"]),
    ] = None
    version: VersionIn = 1
    unique_for: Annotated[
        DurationIn | None,
        Field(description=f"{OF_JOB['unique_for']} {DURATION}"),
    ] = None
    unique_after: Annotated[
        UniqueAfter,
        Field(description=OF_JOB["unique_after"]),
    ] = "enqueue"
    rate_of_id: Annotated[
        Annotated[StrictStr, Field(max_length=40)] | None,
        Field(description=OF_JOB["rate_of_id"], examples=["3/h", "1/10m"]),
    ] = None
    at_most: Annotated[
        DurationIn | None,
        Field(description=f"{OF_JOB['at_most']} {DURATION}"),
    ] = None
    key: Annotated[
        Annotated[StrictStr, Field(max_length=MAX_KEY_CHARS)] | None,
        Field(description=OF_JOB["key"], examples=["merchant-7"]),
    ] = None
    after: Annotated[
        Annotated[list[ParentIn], Field(max_length=_MOST_PARENTS, fail_fast=True)] | None,
        Field(description=OF_JOB["after"]),
    ] = None
    on_failure: Annotated[OnFailure, Field(description=OF_JOB["on_failure"])] = "block"
    priority: PriorityIn = None

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"body": {"order_id": 42}, "delay": "30m", "retry": "15s 3m 10m"}],
            **not_both("delay", "at"),
        },
    )

    def new_job(self, id: str | None) -> NewJob:
        """The job in the library's form."""
        given = {name: getattr(self, name) for name in _GIVEN}
        given["after"] = None if self.after is None else [one.model_dump() for one in self.after]
        return NewJob(self.body, id=id, at=due_from(self.at), **given)


_GIVEN = JobIn.model_fields.keys() - {"body", "at"}
"""What the library takes as it is."""


class HandlerProgressOut(BaseModel):
    """How far a running handler says it is."""

    fraction: float | None = Field(description="From 0 to 1; null if it did not say.")
    text: str
    at_ms: int = Field(description="When it said so.")


class GroupProgressOut(BaseModel):
    """How far one consumer group is with a job."""

    state: JobState
    attempt: int
    step: int = Field(description="How many steps of the retry schedule are used up.")
    crashes: int = Field(description="How often in a row it was lost with its consumer.")
    snoozed: int = Field(description="How often it was snoozed.")
    due_ms: int | None
    started_ms: int | None
    deadline_ms: int | None
    consumer: str | None
    reason: str | None = Field(
        description="Why it is dead: exhausted, buried, invalid or crashed. "
        "Or why the group has ended it and not done it: cancelled, expired, purged or archived."
    )
    error: str | None = Field(description="The error of the last attempt.")
    progress: HandlerProgressOut | None = Field(default=None, description="Of a running attempt, if its handler says.")
    aborted: bool = Field(default=False, description="It runs, is being stopped, and ends as cancelled.")


class AbortOut(BaseModel):
    """What came of an abort."""

    result: Literal["cancelled", "aborting"] = Field(
        description="`cancelled`: no attempt ran, and no new one starts. `aborting`: an attempt runs and is being "
        "stopped; it ends as cancelled, and no new one starts."
    )

    model_config = example({"result": "aborting"})


class DependencyOut(BaseModel):
    """A job that another one waits for."""

    topic: str
    id: str
    outcome: str | None = Field(
        description="Null: it has not ended. Otherwise `done`, `dead`, `cancelled`, `replaced`, `expired`, `purged`, "
        "`archived`, `left` (its groups were removed) or `lost`."
    )


class DependenciesOut(BaseModel):
    """What a job waits for."""

    total: int
    done: int
    failed: int
    on_failure: OnFailure
    delay_ms: int
    blocked: bool = Field(description="It can't start, because one of the others has failed.")
    jobs: list[DependencyOut] = Field(description="The first 500 of them.")


class JobOut(BaseModel):
    """A job. Times are Unix milliseconds by Redis's clock, durations milliseconds."""

    topic: str
    id: str
    state: JobState = Field(description="The state of the most active group.")
    body: Any = Field(description="Null if the server can't read it; `body_unreadable` tells why.")
    body_unreadable: str | None = Field(default=None, description="Why the body is null, such as a missing key.")
    version: int = Field(default=1, description="The version of the body's shape.")
    due_ms: int | None = Field(description="Null while it waits for other jobs.")
    created_ms: int
    attempt: int
    step: int
    ttr_ms: int | None
    retry: str | None
    url: str | None
    expire_ms: int | None
    key: str | None = None
    priority: Priority = "normal"
    waits_for: DependenciesOut | None = Field(default=None, description="Of a job that waits for others.")
    groups: dict[str, GroupProgressOut]

    model_config = example(EXAMPLE_JOB)


class JobEventOut(BaseModel):
    """An attempt that ended, or another change. Times are Unix milliseconds by Redis's clock."""

    event: Event
    group: str
    attempt: int = Field(description="Which attempt of the group, from 1; attempts before it for an event without one.")
    step: int = Field(description="How many steps of the retry schedule had been used up before.")
    consumer: str | None
    due_ms: int | None
    started_ms: int | None
    finished_ms: int = Field(description="When it took place.")
    reason: str | None = Field(description="Why it is dead: exhausted, buried, invalid or crashed.")
    error: str | None = Field(description="The class of the exception.")
    message: str | None = Field(description="Class and message of the exception; null if they are not kept any more.")
    traceback: str | None = Field(description="The calls that led to it, the failing one last.")


class ResultOut(BaseModel):
    """How a job ended in one group."""

    topic: str
    id: str
    group: str
    outcome: Literal["done", "dead", "cancelled", "expired", "error", "waiting"] = Field(
        description="`error`: it is done, and its result could not be kept. `waiting`: it has not ended yet."
    )
    ended_ms: int | None = Field(default=None, description="When it ended, if that is still known.")
    result: Any = Field(default=None, description="What the handler returned, of a job that is done.")
    result_unreadable: str | None = Field(
        default=None, description="Why this server can't read the result, which is null then."
    )
    reason: str | None = Field(default=None, description="Of a dead job: why it was buried.")
    error: str | None = Field(default=None, description="Of a dead job; or why the result could not be kept.")

    model_config = example(
        {
            "topic": "report.make",
            "id": "report-7",
            "group": "default",
            "outcome": "done",
            "ended_ms": 1899998200000,
            "result": {"pages": 12},
            "result_unreadable": None,
            "reason": None,
            "error": None,
        }
    )


class JobHistoryOut(BaseModel):
    """What became of a job, as long as the history has it."""

    events: list[JobEventOut] = Field(description="In the order in which they took place.")
    complete: bool = Field(
        description="False: only a part of the history was searched, so older events may be missing."
    )

    model_config = example({"events": [_EXAMPLE_EVENT], "complete": True})


class BulkLine(BaseModel):
    """A line that created no job."""

    line: int = Field(description="The line's number, from 1.")
    problem: str = Field(description="`job-exists`, `parent-unknown`, `forbidden`, or `invalid-input`.")
    detail: str
    id: str | None = None


class BulkOut(BaseModel):
    """The result of a bulk request."""

    lines: int = Field(description="How many lines were read, not counting blank ones.")
    created: int
    existing: int = Field(description="How many ids were taken; the existing jobs were kept.")
    invalid: int = Field(description="How many lines were invalid; the others were accepted.")
    problems: list[BulkLine] = Field(description="The first 100 lines that created no job.")

    model_config = example(
        {
            "lines": 3,
            "created": 1,
            "existing": 1,
            "invalid": 1,
            "problems": [
                {"line": 2, "problem": "job-exists", "detail": "The id is taken", "id": "order-42"},
                {"line": 3, "problem": "invalid-input", "detail": "body: is blank", "id": None},
            ],
        }
    )
