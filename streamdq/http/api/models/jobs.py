"""Request and response models of the HTTP API. Inputs refuse unknown fields; outputs only document the answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, overload

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from ....errors import InvalidInput
from ....job.durability import PATTERN
from ....job.job import MAX_KEY_CHARS, MAX_VERSION, JobState, NewJob
from ....job.retry import MAX_STEPS
from ....job.uniqueness import UniqueAfter
from ....options import OF_JOB, OF_TOPIC
from ....store.history.rows import Event
from ....times.durations import MAX_DURATION_CHARS

# Limits of length are on the list or text itself: on a union they would only apply after all items were validated.
_DurationText = Annotated[StrictStr, Field(max_length=MAX_DURATION_CHARS)]
DurationIn = StrictInt | StrictFloat | _DurationText
DURATION = "Seconds, or text such as `250ms`, `15s`, `1h30m`, `2d`."
Delay = Annotated[DurationIn | None, Field(description=f"{OF_JOB['delay']} {DURATION}", examples=["30m"])]
At = Annotated[
    StrictInt | Annotated[StrictStr, Field(max_length=64)] | None,
    Field(
        description=f"{OF_JOB['at']} Use it instead of `delay`.",
        examples=[1900000000000],
    ),
]
Ttr = Annotated[DurationIn | None, Field(description=f"{OF_JOB['ttr']} {DURATION}", examples=["30s"])]
RetryIn = Annotated[
    Annotated[StrictStr, Field(max_length=2000)] | Annotated[list[DurationIn], Field(max_length=MAX_STEPS)] | None,
    Field(description=OF_JOB["retry"], examples=["15s 3m 10m"]),
]
ExpireIn = Annotated[DurationIn | None, Field(description=f"{OF_JOB['expire']} {DURATION}")]
UrlIn = Annotated[Annotated[StrictStr, Field(max_length=4096)] | None, Field(description=OF_JOB["url"])]
VersionIn = Annotated[StrictInt, Field(ge=1, le=MAX_VERSION, description=OF_JOB["version"])]
# What names may be, in terms of JSON Schema; job/job.py checks it, and says in its own words what is wrong.
NAME: dict[str, Any] = {"minLength": 1, "not": {"enum": [".", ".."]}, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"}
TOPIC_NAME = NAME | {"pattern": r"^[^\u0000-\u0020\u007f-\u00a0{}]+$"}
GROUP_NAME: dict[str, Any] = {"pattern": "^[A-Za-z0-9._-]{1,64}$"}
GroupName = Annotated[StrictStr, Field(max_length=64, json_schema_extra=GROUP_NAME)]
JobId = Annotated[StrictStr, Field(max_length=255, json_schema_extra=NAME)]


def _given(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def one_of(*names: str) -> dict[str, Any]:
    """The schema of an object that has exactly one of these; null is as if it were left out."""
    return {"oneOf": [_given(name) for name in names]}


def not_both(one: str, other: str) -> dict[str, Any]:
    return {"not": {"allOf": [_given(one), _given(other)]}}


EXAMPLE_JOB: dict[str, Any] = {
    "topic": "order.close", "id": "order-42", "state": "delayed", "body": {"order_id": 42}, "due_ms": 1900000000000,
    "created_ms": 1899998200000, "attempt": 0, "step": 0, "ttr_ms": None, "retry": "15000ms 180000ms", "url": None,
    "expire_ms": None, "key": None, "groups": {},
}  # fmt: skip
EXAMPLE_TOPIC: dict[str, Any] = {
    "topic": "order.close", "shards": 1, "ttr_ms": 60000, "retry": "15s 3m", "max_deliveries": 5,
    "rate": None, "durable": None, "key_concurrency": None, "key_order": None, "key_rate": None, "paused": False,
    "groups": {"default": {"ttr_ms": None, "retry": None}},
}  # fmt: skip


_MAX_UNKNOWN_FIELDS = 10


def example(value: dict[str, Any]) -> ConfigDict:
    """A model's configuration with an example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


_EXAMPLE_EVENT: dict[str, Any] = {
    "event": "retry", "group": "default", "attempt": 1, "step": 0, "consumer": "host-4711-9f3a",
    "due_ms": 1900000000000, "started_ms": 1900000000004, "finished_ms": 1900000000310, "reason": None,
    "error": "ConnectionError", "message": "ConnectionError: no answer from bank",
    "traceback": 'Traceback (most recent call last):\n  File "shop.py", line 7, in close\n    bank.settle(order)',
}  # fmt: skip


class In(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: Any) -> Any:
        """Reports many unknown fields as one error instead of one each."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields) + _MAX_UNKNOWN_FIELDS:
            raise PydanticCustomError(
                "too_many_fields",
                "{given} fields, of which there are {known}",
                {"given": len(given), "known": ", ".join(cls.model_fields)},
            )
        return given


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
        return NewJob(self.body, id=id, at=due_from(self.at), **given)


_GIVEN = JobIn.model_fields.keys() - {"body", "at"}
"""What the library takes as it is."""


@overload
def due_from(at: int | str, what: str = "at") -> datetime | int: ...
@overload
def due_from(at: int | str | None, what: str = "at") -> datetime | int | None: ...
def due_from(at: int | str | None, what: str = "at") -> datetime | int | None:
    """The moment in an `at`.

    Raises:
        InvalidInput: it can't be read.
    """
    if at is None or isinstance(at, int):
        return at
    if at.isascii() and at.isdigit():
        return int(at[:20])
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        raise InvalidInput(
            f"{what}: can't read {at[:80]!r}; write for example 2030-01-31T09:00:00+08:00, or 13 digits of milliseconds"
        ) from None


class WhenIn(In):
    """A new due time: either `delay` or `at`."""

    delay: Delay = None
    at: At = None

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"delay": "10m"}], **one_of("delay", "at")}
    )


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
    reason: str | None = Field(description="Why it is dead: exhausted, buried, invalid or crashed.")
    error: str | None = Field(description="The error of the last attempt.")


class JobOut(BaseModel):
    """A job. Times are Unix milliseconds by Redis's clock, durations milliseconds."""

    topic: str
    id: str
    state: JobState = Field(description="The state of the most active group.")
    body: Any = Field(description="Null if the server can't read it; `body_unreadable` tells why.")
    body_unreadable: str | None = Field(default=None, description="Why the body is null, such as a missing key.")
    version: int = Field(default=1, description="The version of the body's shape.")
    due_ms: int
    created_ms: int
    attempt: int
    step: int
    ttr_ms: int | None
    retry: str | None
    url: str | None
    expire_ms: int | None
    key: str | None = None
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
    problem: str = Field(description="`job-exists`, or `invalid-input`.")
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


class EndedOut(BaseModel):
    """The result of a claim that had already ended."""

    state: JobState = Field(description="The state of the job after it, for its group: done, delayed, ready or dead.")

    model_config = example({"state": "done"})


class FailIn(ClaimIn):
    """An attempt that failed."""

    error: StrictStr = Field(description="Why; kept with the job.", max_length=10_000, examples=["no answer from bank"])
    delay: Annotated[
        DurationIn | None,
        Field(description=f"Try again after this long, without using up a step. {DURATION}"),
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


class GroupSettingsOut(BaseModel):
    ttr_ms: int | None
    retry: str | None


class TopicOut(BaseModel):
    """A topic's settings."""

    topic: str
    shards: int
    former: list[int] = Field(
        default=[], description="Earlier numbers of shards, by which jobs may still be where they were put."
    )
    ttr_ms: int
    retry: str
    max_deliveries: int
    rate: float | None
    durable: str | None
    key_concurrency: int | None
    key_order: str | None = Field(description="`hold`: a job in retry holds its key; `pass`; or null.")
    key_rate: str | None
    paused: bool
    groups: dict[str, GroupSettingsOut]

    model_config = example(EXAMPLE_TOPIC)


class TopicsOut(BaseModel):
    topics: list[TopicOut]

    model_config = example({"topics": [EXAMPLE_TOPIC]})


class TopicIn(In):
    """Settings to change; what is left out stays."""

    ttr: Ttr = None
    retry: RetryIn = None
    shards: StrictInt | None = Field(default=None, description=OF_TOPIC["shards"])
    max_deliveries: StrictInt | None = Field(default=None, description=OF_TOPIC["max_deliveries"])
    groups: Annotated[list[GroupName], Field(max_length=100)] | None = Field(
        default=None, description=OF_TOPIC["groups"]
    )
    rate: StrictInt | StrictFloat | None = Field(default=None, description=OF_TOPIC["rate"])
    durable: Annotated[StrictStr, Field(pattern=f"{PATTERN}|^default$", max_length=20)] | None = Field(
        default=None,
        description=OF_TOPIC["durable"],
    )

    key_concurrency: StrictInt | None = Field(default=None, description=OF_TOPIC["key_concurrency"])
    key_order: StrictBool | Literal["pass"] | None = Field(
        default=None,
        description=OF_TOPIC["key_order"],
    )
    key_rate: Annotated[StrictStr, Field(max_length=40)] | None = Field(default=None, description=OF_TOPIC["key_rate"])

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"ttr": "30s", "retry": "15s 3m 10m"}]})


class GroupStatsOut(BaseModel):
    """One group's figures of a topic; the first five are now, the others since it began."""

    delayed: int
    ready: int
    running: int
    dead: int
    consumers: int
    done: int
    retried: int
    snoozed: int
    reclaimed: int
    cancelled: int
    expired: int
    aside: int = Field(description="Of the delayed ones, those that wait for their key.")
    retrying: int = Field(description="Of the delayed ones, those that wait for their next attempt.")


class TopicStatsOut(BaseModel):
    enqueued: int
    jobs: int
    next_due_ms: int | None
    overdue_ms: int
    paused: bool
    shards: int
    unreachable: int
    groups: dict[str, GroupStatsOut]


class StatsOut(BaseModel):
    """Totals, and each topic's figures. Jobs count once for each group."""

    delayed: int
    ready: int
    running: int
    dead: int
    topics: dict[str, TopicStatsOut]

    model_config = example(
        {
            "delayed": 12,
            "ready": 0,
            "running": 1,
            "dead": 0,
            "topics": {
                "order.close": {
                    "enqueued": 14,
                    "jobs": 13,
                    "next_due_ms": 1900000000000,
                    "overdue_ms": 0,
                    "paused": False,
                    "shards": 1,
                    "groups": {
                        "default": {
                            "delayed": 12,
                            "ready": 0,
                            "running": 1,
                            "dead": 0,
                            "consumers": 2,
                            "done": 1,
                            "retried": 0,
                            "snoozed": 0,
                            "reclaimed": 0,
                            "cancelled": 0,
                            "expired": 0,
                        }
                    },
                }
            },
        }
    )


class UpcomingOut(BaseModel):
    """How many jobs come due within each window from now, overdue ones included. A job is counted once, whatever the
    number of groups.
    """

    windows: dict[str, int] = Field(examples=[{"1m": 12, "10m": 340, "1h": 2100, "1d": 9000}])

    model_config = example({"windows": {"1m": 12, "10m": 340, "1h": 2100, "1d": 9000}})


class ScaleOut(BaseModel):
    """How many replicas of a worker a group needs."""

    topic: str
    group: str
    replicas: int = Field(description="As many as should run: the most of `replicas_now` and `replicas_ahead`.")
    replicas_now: int = Field(description="For what is ready and running.")
    replicas_ahead: int = Field(description="For what is due within `within_ms` as well.")
    slo_ms: int = Field(description="How late an attempt may start.")
    within_ms: int
    concurrency: int = Field(description="How many jobs a replica runs at once.")
    ready: int
    running: int
    due: int = Field(description="Attempts due within `within_ms`, overdue ones included.")
    attempt_ms: float = Field(description="How long an attempt takes on average; 0 if it is not known.")
    attempts: int = Field(description="How many were measured for that.")

    model_config = example({
        "topic": "order.close", "group": "default", "replicas": 3, "replicas_now": 1, "replicas_ahead": 3,
        "slo_ms": 5000, "within_ms": 600000, "concurrency": 100, "ready": 12, "running": 40, "due": 24000,
        "attempt_ms": 812.5, "attempts": 1000,
    })  # fmt: skip


class KeyLoadOut(BaseModel):
    """What a group has to do for one key."""

    key: str
    waiting: int = Field(description="Jobs that wait for a place of the key, due or not.")
    running: int
    paused: bool


class KeysOut(BaseModel):
    keys: list[KeyLoadOut]

    model_config = example({"keys": [{"key": "merchant-7", "waiting": 1204, "running": 1, "paused": False}]})


class DeadOut(BaseModel):
    jobs: list[JobOut]
    next: str | None

    model_config = example({"jobs": [EXAMPLE_JOB | {"state": "dead"}], "next": "1767225600000.order-42"})


_IDS: dict[str, Any] = {"not": {"type": "null"}, "minItems": 1}


class DeadIn(In):
    """Which dead letters: their ids, or `all`."""

    group: GroupName = "default"
    ids: Annotated[list[JobId], Field(max_length=500)] | None = None
    all: StrictBool = False

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"ids": ["order-42"]}, {"all": True, "group": "audit"}],
            "oneOf": [
                {"required": ["ids"], "properties": {"ids": _IDS, "all": {"const": False}}},
                {"required": ["all"], "properties": {"ids": {"maxItems": 0}, "all": {"const": True}}},
            ],
        },
    )


class CountOut(BaseModel):
    count: int = Field(description="How many dead letters were kicked or purged.")

    model_config = example({"count": 1})


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


class LettersIn(In):
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


class BalanceOut(BaseModel):
    """One group's account: enqueued = done + dead + cancelled + expired + live."""

    topic: str
    group: str
    enqueued: int
    done: int
    dead: int
    cancelled: int
    expired: int
    delayed: int
    ready: int
    running: int
    live: int
    imbalance: int


class OrphanOut(BaseModel):
    topic: str
    id: str
    what: str


class AuditOut(BaseModel):
    """The result of an audit."""

    balanced: bool = Field(description="Whether every account balances and there are no orphans.")
    left: int = Field(description="How many jobs have not ended, each counted once for each of its groups.")
    balances: list[BalanceOut] = Field(description="The account of each topic and group.")
    orphans: list[OrphanOut] = Field(description="What is stored of a job in one place and missing in another.")

    model_config = example(
        {
            "balanced": True,
            "left": 1,
            "orphans": [],
            "balances": [
                {
                    "topic": "order.close",
                    "group": "default",
                    "enqueued": 14,
                    "done": 12,
                    "dead": 0,
                    "cancelled": 1,
                    "expired": 0,
                    "delayed": 1,
                    "ready": 0,
                    "running": 0,
                    "live": 1,
                    "imbalance": 0,
                }
            ],
        }
    )


class HealthOut(BaseModel):
    status: str = Field(examples=["ok"])

    model_config = example({"status": "ok"})
