"""The models of the operations on schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from ....job.job import NewJob
from ....operations.schedules.define import ScheduleOptions, planned
from ....options import MOMENT, OF_SCHEDULE
from ....schedules.definition import Definition
from .common import (
    DURATION,
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
    one_of,
)

MomentIn = StrictInt | Annotated[StrictStr, Field(max_length=64)]

EXAMPLE_SCHEDULE: dict[str, Any] = {
    "topic": "report.send", "id": "acme", "state": "active", "cron": "0 9 * * 1-5", "every_ms": None,
    "words": "At 09:00 on Monday through Friday", "tz": "Europe/Paris", "dst": "once", "jitter_ms": 0,
    "start_ms": None, "until_ms": None, "overlap": "skip", "catch_up": "last", "declared": False,
    "next_ms": [1900051200000, 1900137600000], "previous": "acme@2030-03-15T08:00:00Z", "waiting": False, "fired": 12,
    "skipped": 0, "missed": 0, "ttr_ms": None, "retry": None, "url": None, "expire_ms": None, "version": 1,
    "body": {"for": "{due}"},
}  # fmt: skip


class ScheduleIn(In):
    """A schedule: either `cron` or `every`. Fields that you leave out get their defaults."""

    body: Any = Field(
        default=None, description="The body of its jobs; `{due}` in its texts stands for the occurrence's time."
    )
    cron: Annotated[StrictStr, Field(max_length=200)] | None = Field(
        default=None,
        description=OF_SCHEDULE["cron"],
        examples=["0 9 * * 1-5"],
    )
    every: Annotated[DurationIn | None, Field(description=f"{OF_SCHEDULE['every']} {DURATION}", examples=["10m"])] = (
        None
    )
    tz: Annotated[StrictStr, Field(max_length=100)] = Field(
        default="UTC", description=OF_SCHEDULE["tz"], examples=["Europe/Paris"]
    )
    dst: Literal["once", "both"] = Field(default="once", description=OF_SCHEDULE["dst"])
    jitter: Annotated[DurationIn | None, Field(description=f"{OF_SCHEDULE['jitter']} {DURATION}")] = None
    start: Annotated[MomentIn | None, Field(description=OF_SCHEDULE["start"])] = None
    until: Annotated[MomentIn | None, Field(description=OF_SCHEDULE["until"])] = None
    overlap: Literal["allow", "skip", "queue"] = Field(default="allow", description=OF_SCHEDULE["overlap"])
    catch_up: Annotated[DurationIn, Field(description=OF_SCHEDULE["catch_up"], examples=["1h"])] = "last"
    ttr: Ttr = None
    retry: RetryIn = None
    expire: ExpireIn = None
    url: UrlIn = None
    version: VersionIn = 1
    priority: PriorityIn = None

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"body": {"for": "{due}"}, "cron": "0 9 * * 1-5", "tz": "Europe/Paris", "overlap": "skip"}],
            **one_of("cron", "every"),
        },
    )

    def planned(self) -> tuple[Definition, NewJob]:
        """When it runs, and the job of its occurrences, in the library's form."""
        given: Any = {name: getattr(self, name) for name in ScheduleOptions.__annotations__}
        given |= {name: due_from(given[name], name) for name in ("start", "until")}
        return planned(self.body, given)


class ScheduleOut(BaseModel):
    """A schedule. Times are Unix milliseconds by Redis's clock, durations milliseconds."""

    topic: str
    id: str
    state: Literal["active", "paused", "ended"]
    cron: str | None
    every_ms: int | None
    words: str = Field(description="When it runs, in words.")
    tz: str
    dst: str
    jitter_ms: int
    start_ms: int | None
    until_ms: int | None
    overlap: str
    catch_up: str = Field(description=OF_SCHEDULE["catch_up"])
    declared: bool = Field(description="Whether a worker's code declares it.")
    next_ms: list[int] = Field(description="When the next occurrences come, without jitter; five at most.")
    previous: str | None = Field(description="The id of the last occurrence's job.")
    waiting: bool = Field(description="An occurrence waits for the job before it to end.")
    fired: int = Field(description="How many occurrences became jobs.")
    skipped: int = Field(description="How many did not, as the job before had not ended, or their id was taken.")
    missed: int = Field(description="How many did not, as no mover was running in time.")
    ttr_ms: int | None
    retry: str | None
    url: str | None
    expire_ms: int | None
    version: int = Field(description="The version of the body's shape.")
    body: Any

    model_config = example(EXAMPLE_SCHEDULE)


class SchedulesOut(BaseModel):
    schedules: list[ScheduleOut]
    next: str | None

    model_config = example({"schedules": [EXAMPLE_SCHEDULE], "next": "report.send acme"})


class BackfillIn(In):
    """A past time."""

    start: Annotated[MomentIn, Field(description=f"Its first moment. {MOMENT}", examples=["2030-01-01T00:00:00Z"])]
    end: Annotated[MomentIn, Field(description="The first moment after it.", examples=["2030-01-08T00:00:00Z"])]

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"start": "2030-01-01T00:00:00Z", "end": "2030-01-08T00:00:00Z"}]},
    )


class BackfillOut(BaseModel):
    enqueued: int = Field(description="How many jobs; others were in the queue already.")

    model_config = example({"enqueued": 5})
