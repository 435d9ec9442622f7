"""Uniqueness in time: for how long an id is taken, how often it may be used, and ids made of a body's fields."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Any, Literal, get_args

from pydantic_core import from_json

from ..errors import InvalidInput
from ..times.durations import Duration, rate_in, to_ms

MOST_TIMES = 100
"""Of a ``rate_of_id``: Redis keeps the time of each."""

NO_RULE = "|||"

UniqueAfter = Literal["enqueue", "finish"]
"""From when ``unique_for`` counts."""

OnConflict = Literal["reject", "keep", "replace", "postpone"]
"""What to do if another job has the id."""

CONFLICTS: tuple[OnConflict, ...] = get_args(OnConflict)


def check_conflict(on_conflict: OnConflict) -> None:
    if on_conflict not in CONFLICTS:
        raise InvalidInput(f"on_conflict: {on_conflict!r:.80} is not one of {', '.join(map(repr, CONFLICTS))}")


@dataclass(frozen=True, slots=True)
class DerivedId:
    """An id that is made of these fields of the body."""

    fields: tuple[str, ...]

    def of(self, body: bytes) -> str:
        """The id for a body, given as JSON: the first 32 hex digits of the SHA-256 of an object with the fields and
        their values, as JSON with sorted names, no spaces, and numbers as JavaScript writes them.

        Raises:
            InvalidInput: the body has no such field.
        """
        value = from_json(body)
        text = _canonical({field: self._field(value, field) for field in self.fields})
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @staticmethod
    def _field(value: Any, field: str) -> Any:
        for name in field.split("."):
            if not isinstance(value, dict) or name not in value:
                raise InvalidInput(f"id: the body has no field {field!r}, of which its id is made")
            value = value[name]
        return value


def unique(*fields: str) -> DerivedId:
    """An id made of fields of the body, for ``id=unique("user", "kind")``: jobs with the same values have the same id.
    ``"order.id"`` is the field ``id`` of the field ``order``. Neither the order of the fields nor the other fields
    matter.

    Raises:
        InvalidInput: no field is given, or one is not a name.
    """
    if not fields or not all(isinstance(field, str) and field for field in fields):
        raise InvalidInput("unique: pass the names of one or more fields of the body")
    return DerivedId(tuple(sorted(set(fields))))


def _canonical(value: Any) -> str:
    """JSON with sorted names and no spaces. 1.0 and 1 are the same number in JSON, which JavaScript writes as 1."""
    if isinstance(value, float):
        return _as_javascript(value)
    if isinstance(value, list):
        return f"[{','.join(_canonical(one) for one in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_canonical(name)}:{_canonical(value[name])}' for name in sorted(value))}}}"
    return json.dumps(value, ensure_ascii=False)


def _as_javascript(number: float) -> str:
    """ECMA-262, 6.1.6.1.20: digits alone from 1e-6 up to 1e21, otherwise an exponent without leading zeros."""
    _, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)  # JSON has no infinity
    if number == 0:
        return "0"
    sign, shown, point = "-" if number < 0 else "", "".join(map(str, digits)), len(digits) + exponent
    if 0 < point <= 21:
        whole, rest = shown[:point].ljust(point, "0"), shown[point:]
        return f"{sign}{whole}.{rest}" if rest else f"{sign}{whole}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{shown}"
    rest = f".{shown[1:]}" if shown[1:] else ""
    return f"{sign}{shown[0]}{rest}e{point - 1:+d}"


def rule_of(
    id: object,
    unique_for: Duration | None,
    rate_of_id: str | None,
    at_most: Duration | None,
    unique_after: UniqueAfter = "enqueue",
) -> str:
    """The rule in the form that the script takes; '' = none.

    Raises:
        InvalidInput: one of them can't be read, or there is no ``id``.
    """
    after = _after(unique_after, unique_for)
    if unique_for is None and rate_of_id is None and at_most is None:
        return ""
    if id is None:
        raise InvalidInput("unique_for, rate_of_id, at_most: pass an id as well; a random one is never taken")
    window_ms = "" if unique_for is None else _at_least_1(to_ms(unique_for, "unique_for"), "unique_for")
    times, per_ms = ("", "") if rate_of_id is None else _rate_of_id(rate_of_id)
    at_most_ms = "" if at_most is None else to_ms(at_most, "at_most")
    return f"{after}{window_ms}|{times}|{per_ms}|{at_most_ms}"


def _after(unique_after: UniqueAfter, unique_for: Duration | None) -> str:
    if unique_after not in ("enqueue", "finish"):
        raise InvalidInput(f"unique_after: {unique_after!r} is not one of 'enqueue', 'finish'")
    if unique_after == "enqueue":
        return ""
    if unique_for is None:
        raise InvalidInput("unique_after: pass unique_for as well; it is how long the id stays taken after that")
    return "f"


def _at_least_1(ms: int, what: str) -> int:
    if ms < 1:
        raise InvalidInput(f"{what}: must be at least 1 ms")
    return ms


def _rate_of_id(text: str) -> tuple[int, int]:
    times, per_ms = rate_in(text, "rate_of_id")
    if times > MOST_TIMES:
        raise InvalidInput(f"rate_of_id: {text!r}: at most {MOST_TIMES} times; take a shorter span")
    return times, per_ms
