"""What would not come back as it went in is refused, with the field's name; all else passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    Secret,
    SecretBytes,
    SecretStr,
    computed_field,
    field_serializer,
    model_serializer,
)

from streamdq import InvalidInput
from streamdq.job.body import encode_body

LIMIT = 100_000
NAN, INFINITY = float("nan"), float("inf")


class Login(BaseModel):
    user: str = "u"
    password: SecretStr = SecretStr("hunter2")


class Order(BaseModel):
    amount: float = 1.0
    note: str | None = None
    of: list[Any] = []


class Forbids(BaseModel):
    model_config = ConfigDict(extra="forbid")
    net: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gross(self) -> int:
        return self.net * 2


class Ignores(BaseModel):
    net: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gross(self) -> int:
        return self.net * 2


class Alias(BaseModel):
    n: int = Field(1, validation_alias="in", serialization_alias="out")


class Deep(BaseModel):
    q: int = Field(1, validation_alias=AliasPath("q", 0))


class Excluded(BaseModel):
    n: int = Field(exclude=True)
    optional: int = Field(1, exclude=True)


class WithJson(BaseModel):
    text: Annotated[Json[list[int]] | None, Field(description="a list")] = None


class Writes(BaseModel):
    text: Json[int]
    key: SecretStr

    @field_serializer("text")
    def as_text(self, value: int) -> str:
        return str(value)

    @field_serializer("key")
    def as_key(self, value: SecretStr) -> str:
        return value.get_secret_value()


class WritesAll(BaseModel):
    n: int = Field(1, validation_alias="in")

    @model_serializer
    def as_dict(self) -> dict[str, int]:
        return {"in": self.n}


@dataclass
class ClaimedJob:
    key: SecretBytes = field(default=SecretBytes(b"k"))


class Colour(Enum):
    RED = "red"


REFUSED: list[tuple[Any, str]] = [
    (Login(), "body: field 'password' is a secret"),
    ({"login": [Login()]}, "body: field 'login.0.password' is a secret"),
    ({"key": SecretStr("x")}, "body: field 'key' is a secret"),
    (SecretStr("x"), "body: is a secret"),
    (ClaimedJob(), "body: field 'key' is a secret"),
    ([Secret[int](1)], "body: field '0' is a secret"),
    (Order(amount=NAN), "body: field 'amount' is nan, which JSON can't write"),
    (Order(of=[{"x": [INFINITY]}]), "body: field 'of.0.x.0' is inf, which JSON can't write"),
    ({1: "a", "1": "b"}, "body: has two keys that are both written as '1'"),
    ({"by": [{2: "a", "2": "b"}]}, "body: field 'by.0' has two keys that are both written as '2'"),
    (Order(of=[{1: "a", "1": "b"}]), "body: field 'of.0' has two keys"),
    (Forbids(), "body: field 'gross' is computed"),
    ({"one": Forbids()}, "body: field 'one.gross' is computed"),
    (Alias.model_validate({}), "body: field 'n' is written as 'out' and read as 'in'"),
    (Deep.model_validate({}), "body: field 'q' is written as 'q' and read as"),
    (Excluded(n=1, optional=1), "body: field 'n' is required and excluded"),
    (WithJson(text="[1]"), "body: field 'text' is of type Json"),  # type: ignore[arg-type]
]
PASS: list[Any] = [
    Order(note=None, of=[None, {"a": 1.5}]),
    Order(amount=0.0),
    Ignores(),
    WritesAll.model_validate({"in": 2}),
    {"when": datetime(2030, 1, 1, tzinfo=UTC), "id": UUID(int=1), "price": Decimal("1.10"), "of": (1, 2), "set": {1}},
    {"path": Path("a"), "colour": Colour.RED, 1: "one", "two": None, "stars": "**********"},
    ["null", 1.5, None],
]


@pytest.mark.parametrize(("body", "why"), REFUSED, ids=lambda one: one if isinstance(one, str) else "")
def test_what_would_change_is_refused(body: Any, why: str) -> None:
    with pytest.raises(InvalidInput) as error:
        encode_body(body, LIMIT)
    # Before 2.8, pydantic writes no secret outside a model, and says so itself.
    assert str(error.value).startswith((why, "body: can't be written as JSON: Unable to serialize unknown type"))


@pytest.mark.parametrize("body", PASS, ids=lambda body: type(body).__name__)
def test_all_else_passes(body: Any) -> None:
    assert encode_body(body, LIMIT)


def test_secrets_written_by_code_are_the_authors_choice() -> None:
    body = Writes.model_validate({"text": "5", "key": "shown"})
    assert Writes.model_validate_json(encode_body(body, LIMIT)) == body


def test_what_each_model_passes_comes_back() -> None:
    class Both(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        n: int = Field(1, validation_alias=AliasChoices("old", "new"), serialization_alias="new")
        m: int = Field(1, alias="M")
        p: int = Field(1, validation_alias=AliasPath("p"))

    body = Both.model_validate({"n": 2, "M": 3, "p": 4})
    assert Both.model_validate_json(encode_body(body, LIMIT)) == body
