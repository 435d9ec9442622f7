"""From a kept result to the value that the handler returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from ...codec.bodies import Bodies
from ...errors import BodyDamaged, ResultNotKept
from ...link.session import Op, Work
from ...store.jobs.results import StoredResult
from ...store.redis_store import RedisStore
from .wanted import Wanted, failure_in

_NULL = b"null"


def value(
    store: RedisStore, wanted: Wanted, group: str, kept: StoredResult, validate: Callable[[bytes], Any] | None = None
) -> Op[Any]:
    """What the handler returned, as JSON has it, or as ``validate`` makes it of that.

    Raises:
        JobFailed, JobCancelled, JobExpired: it has not returned anything.
        ResultNotKept, ResultTooLarge: the job is done.
        BodyUnreadable: this process can't read it: a key, a codec or a storage is missing.
        BodyDamaged: another client has written it.
    """
    encoded = yield from json_of(store.session.bodies, wanted, group, kept)
    if validate is None:
        try:
            return from_json(encoded)
        except ValueError as error:  # another client has written it
            raise BodyDamaged(f"it is no JSON: {error}", f"the result of job {wanted.id!r}") from None
    try:
        return validate(encoded)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        why = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'result'}: {one['msg']}" for one in found)
        raise ResultNotKept(wanted.topic, wanted.id, f"it is there, but not of the topic's type: {why}") from None


def json_of(bodies: Bodies, wanted: Wanted, group: str, kept: StoredResult) -> Op[bytes]:
    """The same as JSON."""
    if (failure := failure_in(wanted.topic, wanted.id, kept)) is not None:
        raise failure
    stored = kept.payload or _NULL
    if bodies.blocks(stored):
        found: bytes = yield Work(lambda: bodies.open_result(wanted.topic, group, wanted.id, stored))
        return found
    return bodies.open_result(wanted.topic, group, wanted.id, stored)
