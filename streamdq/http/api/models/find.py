"""Searches in requests and answers, and what was done to the jobs that were found."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from .common import At, Delay, GroupName, In, JobId, example, one_of
from .jobs import EXAMPLE_JOB, JobOut


class FoundJobOut(JobOut):
    as_shown: str = Field(description="How it was when it was found; for the actions.")


_AS_SHOWN = "0.0000000002a74b1f0c9d8e7a6f5b"


class FoundOut(BaseModel):
    """A part of what a search finds."""

    jobs: list[FoundJobOut]
    next: str | None = Field(description="Pass it as `after` to go on; null at the end.")
    looked: int = Field(description="How many jobs were looked at for this answer.")
    total: int = Field(description="About how many jobs the whole search looks at.")
    unreadable: int = Field(description="Of those, how many bodies can't be read here; they match no condition on it.")

    model_config = example(
        {
            "jobs": [EXAMPLE_JOB | {"as_shown": _AS_SHOWN}],
            "next": "0.1.1024",
            "looked": 10_000,
            "total": 120_000,
            "unreadable": 0,
        }
    )


class ShownJobIn(In):
    """A job as a search has shown it."""

    id: JobId
    as_shown: Annotated[StrictStr, Field(max_length=9000)]


_ShownJobs = Annotated[list[ShownJobIn], Field(min_length=1, max_length=500)]
_EXAMPLE_SHOWN: dict[str, Any] = {"jobs": [{"id": "order-42", "as_shown": _AS_SHOWN}]}


class ShownIn(In):
    """Jobs that a search has shown."""

    jobs: _ShownJobs

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE_SHOWN]})


class ShownWhenIn(In):
    """Jobs that a search has shown, and either `delay` or `at`."""

    jobs: _ShownJobs
    delay: Delay = None
    at: At = None

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [_EXAMPLE_SHOWN | {"delay": "10m"}], **one_of("delay", "at")}
    )


class ShownDeadIn(In):
    """Jobs that a search has shown, and the group in which they are dead. Left out: each in which they were."""

    jobs: _ShownJobs
    group: GroupName | None = None

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE_SHOWN]})


class ActedJobOut(BaseModel):
    id: str
    outcome: Literal["done", "changed", "gone", "refused"]


class ActedOut(BaseModel):
    """What became of the jobs."""

    done: int = Field(description="To so many of them it was done.")
    changed: int = Field(description="Left alone: they were rescheduled, claimed, retried, kicked … since.")
    gone: int = Field(description="They have ended since.")
    refused: int = Field(description="Left alone: it can't be done to a job in this state.")
    jobs: list[ActedJobOut] = Field(description="Each, in the order of the request.")

    model_config = example(
        {"done": 1, "changed": 0, "gone": 0, "refused": 0, "jobs": [{"id": "order-42", "outcome": "done"}]}
    )
