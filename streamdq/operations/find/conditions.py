"""Conditions on jobs, as a search takes them: a field, an operator and a value.

A field is ``body`` or a dotted path into it (``body.items.0.sku``: names of members, numbers of items), or one of id,
url, key, attempts, error and reason.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError, from_json, to_json

from ...errors import InvalidInput
from ...job.job import Job
from ...store.find.wanted import OfGroup

Where = Mapping[str, Any] | Iterable[str]
"""``{"body.user": 7, "body.amount": (">", 100)}``, or the same as texts: ``["body.user=7", "body.amount>100"]``."""

OF_JOBS = ("id", "url", "key")
OF_GROUPS = ("attempts", "error", "reason")
MAX_CONDITIONS = 20
_MAX_CHARS = 2000
_BEYOND = 2**53  # no number that is compared with one of this size comes near it
_TEXT = re.compile(r"([^=<>!]+)(!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_OPERATORS = ("=", "!=", *_ORDERS)
_LONE = re.compile(r"[\ud800-\udfff]")  # bytes of a command line that are not UTF-8; no job can contain them
_MISSING = object()
# What every writer of JSON writes in the same way, but for spaces and escaped letters, which lua/lib/search.lua looks
# for. Numbers are not: some write 1e+05 for a hundred thousand.
_PLAIN = re.compile(r"[A-Za-z0-9 _.:@#+*,;()\[\]{}$!?=|~^-]*")


class SeenJob(NamedTuple):
    """What is known of a job elsewhere than in a topic: in an archive, an outbox, a schedule."""

    id: str
    url: str | None
    key: str | None
    attempts: int = 0
    error: str | None = None
    reason: str | None = None


class Condition(NamedTuple):
    """One condition. ``path``: the field's first name, and the steps into a body."""

    path: tuple[str, ...]
    operator: str
    value: Any

    @property
    def of_body(self) -> bool:
        return self.path[0] == "body"

    @property
    def of_group(self) -> bool:
        """Whether it concerns a group's progress with the job."""
        return self.path[0] in OF_GROUPS

    def holds(self, found: Any) -> bool:
        """Whether the field's value fulfills it; _MISSING fulfills only "!="."""
        if self.operator in ("=", "!="):
            return _is_same(found, self.value) == (self.operator == "=")
        of_numbers = _is_number(found) and _is_number(self.value)
        if of_numbers or (isinstance(found, str) and isinstance(self.value, str)):
            return _ORDERS[self.operator](found, self.value)
        return False

    def holds_in(self, body: Any) -> bool:
        for step in self.path[1:]:
            body = _inside(body, step)
        return self.holds(body)

    def holds_for(self, job: Job | SeenJob) -> bool:
        value = getattr(job, self.path[0])
        return self.holds(_MISSING if value is None else value)

    def in_script(self) -> OfGroup:
        """One that concerns a group's progress, as the script takes it."""
        name, value = self.path[0], self.value
        if isinstance(value, str):
            return OfGroup(name, self.operator, "string", value)
        if _is_number(value):
            return OfGroup(name, self.operator, "number", repr(max(-_BEYOND, min(_BEYOND, value))))
        return OfGroup(name, self.operator, "", "")

    @property
    def text(self) -> str:
        """What every record has whose body fulfills it, in the form of lua/lib/search.lua; '' = nothing is known."""
        name = self.path[-1]
        named = len(self.path) > 1 and not name.isdigit() and _PLAIN.fullmatch(name)
        if not self.of_body or self.operator == "!=":
            return ""
        if self.operator != "=" or _is_number(self.value):
            return _number_after(name, self.operator[0], self.value) if named else ""
        value = _plain_json(self.value)
        return f'"{name}":{value}' if named else value

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}{self.operator}{to_json(self.value).decode()}"


def _plain_json(value: Any) -> str:
    """The beginning of every JSON of this value; '' if it may be written in several ways."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return f'"{value}"'
    return ""


def _number_after(name: str, sign: str, value: Any) -> str:
    bound = _as_double(value)
    return f'{sign}{bound} "{name}":' if bound else ""


def _as_double(value: Any) -> str:
    """A number as Lua reads it; '' if it is none. Lua rounds both numbers of a comparison, so unequal ones may be equal
    there.
    """
    try:
        number = float(value) if _is_number(value) else math.inf
    except OverflowError:
        return ""
    return repr(number) if math.isfinite(number) else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is 1.0, and true is not 1."""
    if _is_number(one) and _is_number(other):
        return bool(one == other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step, _MISSING)
    if isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(value):
        return value[int(step)]
    return _MISSING


def conditions_in(where: Where | None) -> tuple[Condition, ...]:
    """The conditions, checked.

    Raises:
        InvalidInput
    """
    if where is None:
        return ()
    if isinstance(where, str):
        where = [where]
    if not isinstance(where, Mapping | Iterable):
        raise InvalidInput(f"where: {where!r} is neither a dict nor a list of conditions")
    found = tuple(
        [_given(field, value) for field, value in where.items()]
        if isinstance(where, Mapping)
        else [condition_in(text) for text in where]
    )
    if len(found) > MAX_CONDITIONS:
        raise InvalidInput(f"where: {len(found)} conditions; at most {MAX_CONDITIONS} are possible")
    return found


def _given(field: str, value: Any) -> Condition:
    how = "="
    if isinstance(value, tuple):
        if len(value) != 2 or value[0] not in _OPERATORS:
            shown = " ".join(_OPERATORS)
            raise InvalidInput(f"where: {value!r} is not a pair of an operator ({shown}) and a value")
        how, value = value
    try:
        plain = from_json(to_json(value))  # as enqueue would have stored it
    except (TypeError, ValueError, PydanticSerializationError) as error:
        raise InvalidInput(f"where: {field}: can't be written as JSON: {error}") from None
    return _checked(field, how, plain)


def condition_in(text: str) -> Condition:
    """``body.user=7``. The value is JSON, or a text without quotes.

    Raises:
        InvalidInput
    """
    found = _TEXT.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_CHARS else None
    if found is None or _LONE.search(text):
        raise InvalidInput(f"where: can't read {str(text)[:80]!r}; write FIELD=VALUE, or with one of != < <= > >=")
    field, how, written = found[1].strip(), found[2], found[3].strip()
    if written.startswith("="):  # nobody means a text that begins with it, and "0 jobs found" would be believed
        raise InvalidInput(f"where: {str(text)[:80]!r}: write = and not {how}=; a text that begins with = in quotes")
    if field.partition(".")[0] in (*OF_JOBS, "error", "reason"):
        return _checked(field, how, _unquoted(written))
    try:
        return _checked(field, how, from_json(written, allow_inf_nan=False))
    except ValueError:
        return _checked(field, how, written)


def is_condition(text: str) -> bool:
    """Whether condition_in can read it."""
    try:
        condition_in(text)
    except InvalidInput:
        return False
    return True


def _unquoted(text: str) -> str:
    """Texts need no quotes; those of a JSON text are taken off."""
    try:
        value = from_json(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _checked(field: str, how: str, value: Any) -> Condition:
    path = tuple(field.split(".")) if isinstance(field, str) else ()
    known = ("body", *OF_JOBS, *OF_GROUPS)
    if not path or path[0] not in known or "" in path or (len(path) > 1 and path[0] != "body"):
        raise InvalidInput(
            f"where: {str(field)[:80]!r} is not a field; there are body, body.NAME, and {', '.join(known[1:])}"
        )
    return Condition(path, how, value)
