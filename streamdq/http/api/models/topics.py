"""Topics in requests and answers: settings and figures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from ....job.durability import PATTERN
from ....options import OF_TOPIC
from .common import GroupName, In, RetryIn, Ttr, example

Retention = Annotated[StrictStr, Field(max_length=40, examples=["1d"])]
EXAMPLE_TOPIC: dict[str, Any] = {
    "topic": "order.close", "shards": 1, "ttr_ms": 60000, "retry": "15s 3m", "max_deliveries": 5,
    "dead_for_ms": None, "rate": None, "durable": None, "key_concurrency": None, "key_order": None, "key_rate": None,
    "paused": False,
    "groups": {"default": {"ttr_ms": None, "retry": None, "result_ms": None}},
}  # fmt: skip


class GroupSettingsOut(BaseModel):
    ttr_ms: int | None
    retry: str | None
    result_ms: int | None = Field(default=None, description="For how long results are kept; null: they are not.")


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
    dead_for_ms: int | None = Field(description="For how long dead letters are kept; null: no limit.")
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
    """Settings to change; others stay as they are."""

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

    result: Retention | Annotated[dict[GroupName, Retention], Field(max_length=100)] | None = Field(
        default=None, description=OF_TOPIC["result"]
    )
    dead_for: Retention | None = Field(default=None, description=OF_TOPIC["dead_for"])

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
    waiting_for_key: int = Field(description="Of the delayed ones, those that wait for their key.")
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
