"""Erasures in requests and answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from ....job.job import MAX_KEY_CHARS
from ....operations.find.conditions import MAX_CONDITIONS
from .common import TOPIC_NAME, In, example

_Condition = Annotated[StrictStr, Field(max_length=2000)]


class EraseIn(In):
    """Whose data: the key of jobs, conditions, or both."""

    dry_run: StrictBool = Field(description="Only count. There is no default: without it nothing is done.")
    topic: Annotated[StrictStr, Field(max_length=255, json_schema_extra=TOPIC_NAME)] | None = Field(
        default=None, description="Only this topic; left out: all."
    )
    key: Annotated[StrictStr, Field(max_length=MAX_KEY_CHARS)] | None = Field(
        default=None, description="Jobs with this key."
    )
    where: Annotated[list[_Condition], Field(max_length=MAX_CONDITIONS)] = Field(
        default=[], description="Conditions that jobs fulfill, such as `body.user=7` or `id=order-42`, as for a search."
    )
    schedules: StrictBool = Field(default=False, description="Also remove schedules that match.")
    abort: StrictBool = Field(default=False, description="Abort running jobs.")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"key": "merchant-7", "dry_run": True}, {"where": ["body.user=7"], "dry_run": True}]
        },
    )


class AmountOut(BaseModel):
    found: int
    erased: int


class RemainingOut(BaseModel):
    """What was found and not erased, and why."""

    place: str
    topic: str
    count: int
    why: str
    ids: list[str] = Field(description="At most 100 of them.")


class ErasedOut(BaseModel):
    """What was found and erased."""

    dry_run: bool
    whole: bool = Field(description="Whether nothing remains of what was found.")
    places: dict[str, AmountOut] = Field(description="By place, such as `delayed jobs`, `history` or `results`.")
    remaining: list[RemainingOut]

    model_config = example(
        {
            "dry_run": False,
            "whole": True,
            "places": {"delayed jobs": {"found": 2, "erased": 2}, "history": {"found": 7, "erased": 7}},
            "remaining": [],
        }
    )
