"""What the models of several subjects have. Inputs refuse unknown fields; outputs only document the answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, overload

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from ....errors import InvalidInput
from ....job.job import MAX_VERSION, Priority
from ....job.retry import MAX_STEPS
from ....options import OF_JOB
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
PriorityIn = Annotated[Priority | None, Field(description=OF_JOB["priority"])]
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


_MAX_UNKNOWN_FIELDS = 10


def example(value: dict[str, Any]) -> ConfigDict:
    """A model's configuration with an example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


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
