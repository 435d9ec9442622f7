"""A job's body as JSON. Bodies that would reach the handler changed, or never, are refused: pydantic writes some values
as something else. What depends on the class alone is found once for each class, the rest in each body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, get_args

from pydantic import AliasChoices, AliasPath, BaseModel, Json, Secret, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, from_json, to_json

from ..errors import InvalidInput

_SURELY_READABLE_DEPTH = 150
_MOST_DIGITS = 4300  # of a number
_HALF = re.compile(rb"\d{%d}" % (_MOST_DIGITS // 2))
_LEAVES = frozenset((str, int, float, bool, type(None), bytes))
_TEXT = frozenset((str,))
_SECRETS = (Secret, SecretStr, SecretBytes)
_JSON: Any = Json  # a class, but not for type checkers
_Path = tuple[str, ...]


def encode_body(body: Any, max_bytes: int) -> bytes:
    """The body as compact JSON; models, dataclasses, dates, UUIDs and decimals as pydantic writes them.

    Raises:
        InvalidInput: blank, not JSON (NaN and infinity are not), larger than ``max_bytes``, or something that would not
            come back as it is (``check_unchanged``).
    """
    if body is None or (isinstance(body, str) and not body):
        raise InvalidInput("body: is blank; pass what the handler needs to know, such as a dict")
    try:
        encoded = to_json(body)
    except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
        raise InvalidInput(f"body: can't be written as JSON: {error}") from None
    if len(encoded) > max_bytes:  # check this first: parsing the body, as below, costs most
        raise InvalidInput(
            f"body: {len(encoded)} bytes of JSON, more than the {max_bytes} allowed; keep the data elsewhere and pass "
            "its key, or raise STREAMDQ_MAX_BODY_BYTES"
        )
    if b"NaN" in encoded or b"Infinity" in encoded:  # may be a number, or only a word in a string
        try:
            json.dumps(from_json(encoded), allow_nan=False)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"body: can't be written as JSON: {error}") from None
    if len(encoded) > _SURELY_READABLE_DEPTH:
        _check_readable(encoded)
    check_unchanged(body, encoded)
    return encoded


def _has_many_digits(encoded: bytes) -> bool:
    """Whether the body may contain a number with too many digits: half of it would fill a step of this search."""
    step = _MOST_DIGITS // 2
    return len(encoded) > _MOST_DIGITS and any(_HALF.match(encoded, i) for i in range(0, len(encoded), step))


def _check_readable(encoded: bytes) -> None:
    """Checks that pydantic can read the body: it writes deeper nesting and longer numbers than it reads."""
    if encoded.count(b"[") + encoded.count(b"{") <= _SURELY_READABLE_DEPTH and not _has_many_digits(encoded):
        return
    try:
        from_json(encoded)
    except ValueError as error:
        raise InvalidInput(
            f"body: can't be read again: {error}; nest it less deep, or pass the number as text"
        ) from None


def check_unchanged(body: Any, encoded: bytes) -> None:
    """``encoded``: the body as JSON.

    Raises:
        InvalidInput: names the field, and says what to do.
    """
    if _is_plain(body):
        return
    for path, value in _walk(body, (), in_model=False, has_null=b"null" in encoded):
        if isinstance(value, _SECRETS) and b"*" in encoded:  # else a serializer has written it
            raise InvalidInput(
                f"{_named(path)} is a secret, which is written as asterisks; pass its get_secret_value(), and let a "
                "codec encrypt bodies (docs/bodies.md)"
            )
        if isinstance(value, float):
            raise InvalidInput(f"{_named(path)} is {value}, which JSON can't write: it would come back as null")
        if isinstance(value, BaseModel) and (problem := _problem_of(type(value))):
            raise InvalidInput(f"{_named((*path, problem[0]))} {problem[1]}")


def _is_plain(value: Any) -> bool:
    """Whether it is made of what JSON has, as most bodies are. Written to be quick."""
    if type(value) is dict:
        if not _TEXT.issuperset(map(type, value)):
            return False
        value = value.values()
    elif type(value) is not list:
        return type(value) in _LEAVES
    return _LEAVES.issuperset(map(type, value)) or all(map(_is_plain, value))


def _walk(value: Any, path: _Path, *, in_model: bool, has_null: bool) -> Iterator[tuple[_Path, Any]]:
    """The values that are to be looked at, with their place. Only in models, NaN is written as null."""
    if isinstance(value, dict):
        _check_keys(value, path)
    elif isinstance(value, (BaseModel, *_SECRETS)):
        yield path, value
    in_model = in_model or isinstance(value, BaseModel)
    floats = in_model and has_null
    for name, one in _inner(value):
        if type(one) not in _LEAVES:
            yield from _walk(one, (*path, str(name)), in_model=in_model, has_null=has_null)
        elif floats and type(one) is float and not isfinite(one):
            yield (*path, str(name)), one


def _inner(value: Any) -> Iterable[tuple[Any, Any]]:
    """What it is made of, with the names or places; nothing, if it is written as a whole."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(value)
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}.items()
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name, None)) for field in fields(value)]
    return ()


def _check_keys(value: dict[Any, Any], path: _Path) -> None:
    """Keys are written as texts: ``{1: a, "1": b}`` would lose one."""
    seen: set[str] = set()
    for key in value:
        written = key if isinstance(key, str) else str(key)
        if written in seen:
            raise InvalidInput(f"{_named(path)} has two keys that are both written as {written!r}")
        seen.add(written)


def _named(path: _Path) -> str:
    return f"body: field {'.'.join(path)!r}" if path else "body:"


@cache
def _problem_of(model: type[BaseModel]) -> tuple[str, str] | None:
    """A field that the model doesn't read as it writes it, and why. None: it has none, or writes itself by code."""
    if model.__pydantic_decorators__.model_serializers:
        return None
    for name, field in model.model_fields.items():
        if problem := _problem_of_field(model, name, field):
            return name, problem
    if model.model_config.get("extra") == "forbid":
        for name in model.model_computed_fields:
            return name, "is computed, so it is written, and then forbidden when it is read; allow it, or exclude it"
    return None


def _problem_of_field(model: type[BaseModel], name: str, field: FieldInfo) -> str | None:
    if field.exclude:
        return "is required and excluded: it would be missing" if field.is_required() else None
    written, read = field.serialization_alias or name, _names_read(model, name, field)
    if written not in read:
        return f"is written as {written!r} and read as {' or '.join(map(repr, read))}: give both the same alias"
    serialized = any(name in one.info.fields for one in model.__pydantic_decorators__.field_serializers.values())
    if not serialized and _has_json(field.annotation, field.metadata):
        return "is of type Json, which is written as what it holds and read as text; declare the type that it holds"
    return None


def _names_read(model: type[BaseModel], name: str, field: FieldInfo) -> list[str]:
    """Under which names a field may come."""
    config, alias = model.model_config, field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [] if alias is None else [alias]
    names = [str(one.path[0]) if isinstance(one, AliasPath) and len(one.path) == 1 else one for one in choices]
    by_name = alias is None or config.get("populate_by_name") or config.get("validate_by_name")
    return [one for one in names if isinstance(one, str)] + ([name] if by_name else [])


def _has_json(annotation: Any, metadata: Iterable[Any]) -> bool:
    if any(one is _JSON or isinstance(one, _JSON) for one in (annotation, *metadata)):
        return True
    return any(_has_json(one, ()) for one in get_args(annotation))
