"""Dead letters in requests and answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from .common import GroupName, In, JobId, example
from .jobs import EXAMPLE_JOB, JobOut


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
