"""What a row may hold. ``outbox.enqueue`` writes nothing else; a program that inserts rows by itself may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from ..codec.envelope import ENCODED_TEXT, envelope_in, from_text
from ..errors import BodyDamaged, InvalidInput
from ..job.job import ENCODED, FLOWS, check_id, check_key, check_own_topic, check_url
from ..job.retry import RetrySchedule
from ..job.uniqueness import OnConflict, check_conflict
from ..store.jobs.records import url_and_priority
from ..times.durations import MAX_DELAY_MS, moment_ms
from .flow_rows import flow_in

if TYPE_CHECKING:
    from sqlalchemy import RowMapping


def _check_url(url: Any) -> None:
    """The column has the priority as well."""
    found = url_and_priority(url)[0] if isinstance(url, str) else url
    if found is not None:
        check_url(found)


_OPTIONS: dict[str, Callable[[Any], object]] = {"retry": RetrySchedule.of, "url": _check_url, "job_key": check_key}
_MOST_NONCE_CHARS = 255
_LEAST_MS = {"delay_ms": 0, "ttr_ms": 1, "expire_ms": 0}


def check_relayed(on_conflict: OnConflict) -> None:
    """
    Raises:
        InvalidInput: a relay can't do this if the id is taken.
    """
    check_conflict(on_conflict)
    if on_conflict == "postpone":
        raise InvalidInput("on_conflict: 'postpone' is for Queue.enqueue alone, not for the outbox")


def check_row(row: RowMapping) -> None:
    """
    Raises:
        InvalidInput: the row can't be relayed, now or later.
    """
    check_id(row["id"])
    check_relayed(row["on_conflict"])
    _check_times(row)
    if row["topic"] == FLOWS:
        flow_in(row["body"])
    else:
        check_own_topic(row["topic"])
    check_fields(row)


def check_fields(row: Mapping[Any, Any]) -> None:
    """Those of a job, of a row or of a flow's.

    Raises:
        InvalidInput
    """
    _check_durations(row)
    _check_body(row["body"])
    for name, check in _OPTIONS.items():
        if row[name] is not None:
            check(row[name])
    for name in ("retry", "nonce"):
        if row[name] is not None and (not isinstance(row[name], str) or not row[name].isprintable()):
            raise InvalidInput(f"{name}: has characters that can't be printed")
    if len(row["nonce"]) > _MOST_NONCE_CHARS:
        raise InvalidInput(f"nonce: has more than {_MOST_NONCE_CHARS} characters")


def _check_durations(row: Mapping[Any, Any]) -> None:
    for name, least in _LEAST_MS.items():
        value = row[name]
        if value is not None and not (type(value) is int and least <= value <= MAX_DELAY_MS):
            raise InvalidInput(f"{name}: {value!r:.80} is not a number of milliseconds from {least} to {MAX_DELAY_MS}")


def _check_times(row: RowMapping) -> None:
    if (row["delay_ms"] is None) == (row["due_ms"] is None):
        raise InvalidInput("delay_ms and due_ms: one of them must be given, and the other null")
    for name in ("due_ms", "made_ms"):
        if row[name] is not None:
            _check_moment(name, row[name])


def _check_moment(name: str, value: Any) -> None:
    try:
        moment_ms(value)
    except InvalidInput:
        raise InvalidInput(f"{name}: {value!r:.80} is not a 13-digit millisecond timestamp") from None


def _check_body(body: Any) -> None:
    if isinstance(body, str) and body.startswith(ENCODED_TEXT):
        _check_encoded(body)
        return
    try:
        blank = from_json(body) in (None, "")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"body: is not JSON: {error}") from None
    if blank or "\n" in body:
        raise InvalidInput("body: must be JSON in one line, and neither null nor empty")


def _check_encoded(body: str) -> None:
    try:
        raw = from_text(body)
        envelope_in(raw)
    except (ValueError, BodyDamaged):
        raise InvalidInput("body: is neither JSON nor an encoded body") from None
    if raw[:1] != ENCODED:
        raise InvalidInput("body: is neither JSON nor an encoded body")
