"""What an attempt has returned, as it is kept for those that wait for its job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from ...codec.bodies import Bodies
from ...errors import ResultTooLarge
from ...job.result import MAX_RESULT_BYTES
from ...store.jobs import results
from .error_text import is_a, text_of


@dataclass(frozen=True, slots=True)
class Written:
    """The JSON of a value in another process, or why it can't be kept."""

    plain: bytes
    why: str = ""


def written_results(value: Any, jobs: int | None, most_bytes: int) -> Any:
    """The value as it is sent to another process, for ``kept_result`` there. ``jobs``: of a batch."""
    if jobs is None:
        return _written(value, most_bytes)
    try:
        values = each_result(value, jobs)
    except TypeError as error:
        return [Written(b"", text_of(error))] * jobs
    return [_written(one, most_bytes) for one in values]


def _written(value: Any, most_bytes: int) -> Written:
    try:
        plain = as_json(value)
    except Exception as error:
        return Written(b"", text_of(error))
    if len(plain) > most_bytes:
        return Written(b"", f"{ResultTooLarge.__name__}: {len(plain)} bytes of JSON, {most_bytes} are read at most")
    return Written(plain)


def kept_result(bodies: Bodies, topic: str, group: str, id: str, value: Any) -> tuple[bytes, str]:
    """What ``finish`` is given of the value, and why it is not kept, "" if it is. It never raises an exception: the job
    is done, and must not run again because of what it returned. It blocks if there is a storage of large bodies.
    """
    if is_a(value, Written) and value.why:
        return _refused(value.why)
    try:
        plain = value.plain if is_a(value, Written) else as_json(value)
        stored = bodies.seal_result(topic, group, id, plain, MAX_RESULT_BYTES)
    except Exception as error:  # of an object's serializer, a codec, or the storage
        return _refused(text_of(error))
    if stored is None:
        where = "" if bodies.offload else "; a storage of large bodies would take it (STREAMDQ_OFFLOAD)"
        return _refused(f"{ResultTooLarge.__name__}: {len(plain)} bytes of JSON, {MAX_RESULT_BYTES} may be kept{where}")
    return results.done(stored), ""


def each_result(value: Any, jobs: int) -> Sequence[Any]:
    """The results of a batch: one for each job. None stands for one None each.

    Raises:
        TypeError: it is something else.
    """
    if value is None:
        return [None] * jobs
    if not isinstance(value, list | tuple) or len(value) != jobs:
        what = f"{len(value)} results" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
        raise TypeError(
            f"the handler returned {what} for a batch of {jobs} jobs; it has to return a list with one for each"
        )
    return value


def as_json(value: Any) -> bytes:
    """The value as pydantic writes it.

    Raises:
        Exception: it can't be written, or not be read again (NaN, infinity, too deep).
    """
    encoded = to_json(value)
    read = from_json(encoded)
    if b"NaN" in encoded or b"Infinity" in encoded:
        json.dumps(read, allow_nan=False)
    return encoded


def _refused(why: str) -> tuple[bytes, str]:
    return results.not_kept(why), why
