"""A job's body as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from ..errors import InvalidInput
from .unchanged import check_unchanged

_SURELY_READABLE_DEPTH = 150
_MOST_DIGITS = 4300  # of a number
_HALF = re.compile(rb"\d{%d}" % (_MOST_DIGITS // 2))


def encode_body(body: Any, max_bytes: int) -> bytes:
    """The body as compact JSON; models, dataclasses, dates, UUIDs and decimals as pydantic writes them.

    Raises:
        InvalidInput: blank, not JSON (NaN and infinity are not), larger than ``max_bytes``, or something that would not
            come back as it is (``unchanged``).
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
