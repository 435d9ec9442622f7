"""What a flow's row of the outbox holds, as a relay reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic_core import from_json

from ..errors import InvalidInput
from ..job.after import NEVER_MS, Parent, Waits, check_on_failure
from ..job.job import check_id, check_key, check_own_topic
from ..store.jobs.records import Encoded, rest_of, url_and_key, url_and_priority
from ..times.durations import MAX_DELAY_MS


class RowOfFlow(NamedTuple):
    """What a flow's row holds."""

    jobs: list[dict[str, Any]]
    deadline_ms: int | None
    keep_ms: int

    def each(self) -> Iterator[tuple[str, Encoded]]:
        """Its jobs, each with its topic. Their nonces are new: those of an earlier attempt to build the flow may still
        be cancelled.
        """
        made: list[Parent] = []
        for said in self.jobs:
            url, key = url_and_key(said["url"] or "")
            priority = url_and_priority(url)[1]
            parents = tuple(made[one] if isinstance(one, int) else Parent(*one) for one in said["after"])
            nonce = os.urandom(5).hex()
            fields = {name: said[name] for name in ("ttr_ms", "expire_ms", "retry", "url", "body")}
            waits = Waits(parents, said["on_failure"], said["delay_ms"])
            rest = rest_of(**fields, nonce=nonce)
            job = Encoded(said["id"], str(NEVER_MS), rest, nonce, key=key, waits=waits, priority=priority)
            made.append(Parent(said["topic"], job.id, key, nonce))
            yield said["topic"], job


def flow_in(body: str) -> RowOfFlow:
    """Raises:
    InvalidInput: the body is not that of a flow's row.
    """
    try:
        found = RowOfFlow(**from_json(body))
        _check_ms("keep_ms", found.keep_ms, 0)
        if found.deadline_ms is not None:
            _check_ms("deadline_ms", found.deadline_ms, 1)
        for number, said in enumerate(found.jobs):
            _check(said, number)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise InvalidInput(f"body: is not that of a flow: {error}") from None
    return found


def _check_ms(name: str, value: object, least: int) -> None:
    if type(value) is not int or not least <= value <= MAX_DELAY_MS:
        raise ValueError(f"{name}: {value!r:.80} is not a number of milliseconds from {least} to {MAX_DELAY_MS}")


def _check(said: dict[str, Any], number: int) -> None:
    from .checks import check_fields

    check_own_topic(said["topic"])
    check_id(said["id"])
    check_on_failure(said["on_failure"])
    _check_ms("delay_ms", said["delay_ms"], 0)
    url, key = url_and_key(said["url"] or "")
    if key is not None:
        check_key(key)
    check_fields({**said, "url": url, "job_key": key, "nonce": ""})
    for one in said["after"]:
        if isinstance(one, int):
            if not 0 <= one < number:
                raise ValueError(f"job {number} waits for number {one}")
        else:
            topic, id, key = one
            check_own_topic(topic)
            check_id(id)
            if key is not None:
                check_key(key)
