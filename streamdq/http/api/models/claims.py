"""Claims in requests and answers, and how they end."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from ....job.job import JobState
from .common import DURATION, DurationIn, In, Ttr, example
from .jobs import EXAMPLE_JOB, JobOut


class ClaimOut(BaseModel):
    """A claimed job."""

    claim: str = Field(description="Send it back to end or extend the attempt. A restart of the server does no harm.")
    group: str
    ttr_ms: int = Field(description="Time to run, from now; after that the job is delivered again.")
    encrypted: bool = Field(
        default=False,
        description="Its body is stored encrypted: send no text that may quote it, such as an exception's message.",
    )
    job: JobOut

    model_config = example(
        {"claim": "v1.W10.c2lnbmF0dXJl", "group": "default", "ttr_ms": 60000, "encrypted": False, "job": EXAMPLE_JOB}
    )


ClaimToken = Annotated[
    StrictStr, Field(description="The `claim` of a take.", max_length=8192, examples=["v1.W10.c2lnbmF0dXJl"])
]


class ClaimIn(In):
    """A claim to end."""

    claim: ClaimToken

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"claim": "v1.W10.c2lnbmF0dXJl"}]})


class FinishIn(ClaimIn):
    """A claim to end as done."""

    result: Any = Field(
        default=None,
        description="The job's result, any JSON, if the topic keeps results of the claim's group. Left out: it has "
        "none.",
    )

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"claim": "v1.W10.c2lnbmF0dXJl"}, {"claim": "v1.W10.c2lnbmF0dXJl", "result": 42}]
        },
    )


class EndedOut(BaseModel):
    """The result of a claim that had already ended."""

    state: JobState = Field(description="The state of the job after it, for its group: done, delayed, ready or dead.")

    model_config = example({"state": "done"})


class FailIn(ClaimIn):
    """An attempt that failed."""

    error: StrictStr = Field(description="Why; kept with the job.", max_length=10_000, examples=["no answer from bank"])
    delay: Annotated[
        DurationIn | None,
        Field(description=f"Try again after this long, without using up a step; attempt 100 is the last. {DURATION}"),
    ] = None
    traceback: StrictStr = Field(
        default="",
        description="The calls that led to it, the failing one last. Its last 4000 characters are kept.",
        max_length=20_000,
    )

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"claim": "v1.W10.c2lnbmF0dXJl", "error": "no answer from bank"}]},
    )


class SnoozeIn(ClaimIn):
    """A job to run again later."""

    delay: Annotated[DurationIn, Field(description=f"Run it again after this long. {DURATION}", examples=["5m"])]
    reason: StrictStr = Field(default="", description="Why; kept with the job.", max_length=10_000)

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"claim": "v1.W10.c2lnbmF0dXJl", "delay": "5m"}]}
    )


class BuryIn(ClaimIn):
    """A job that is given up."""

    reason: StrictStr = Field(description="Why; kept with the job.", max_length=10_000, examples=["no such order"])

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"claim": "v1.W10.c2lnbmF0dXJl", "reason": "no such order"}]}
    )


class TouchIn(ClaimIn):
    """A claim to extend."""

    ttr: Ttr = None

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"claim": "v1.W10.c2lnbmF0dXJl", "ttr": "5m"}]}
    )
