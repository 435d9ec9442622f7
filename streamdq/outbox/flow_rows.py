"""What a flow's row of the outbox holds, as a relay reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic_core import from_json

from ..errors import InvalidInput
from ..job.after import NEVER_MS, Parent, Waits, check_on_failure
from ..job.job import check_id, check_key, check_own_topic
from ..store.jobs.records import Encoded, rest_of, url_and_key


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
            key = url_and_key(said["url"] or "")[1]
            parents = tuple(made[one] if isinstance(one, int) else Parent(*one) for one in said["after"])
            nonce = os.urandom(5).hex()
            fields = {name: said[name] for name in ("ttr_ms", "expire_ms", "retry", "url", "body")}
            waits = Waits(parents, said["on_failure"], said["delay_ms"])
            job = Encoded(said["id"], str(NEVER_MS), rest_of(**fields, nonce=nonce), nonce, key=key, waits=waits)
            made.append(Parent(said["topic"], job.id, key, nonce))
            yield said["topic"], job


def flow_in(body: str) -> RowOfFlow:
    """Raises:
    InvalidInput: the body is not that of a flow's row.
    """
    try:
        found = RowOfFlow(**from_json(body))
        for number, said in enumerate(found.jobs):
            _check(said, number)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise InvalidInput(f"body: is not that of a flow: {error}") from None
    return found


def _check(said: dict[str, Any], number: int) -> None:
    from .checks import check_fields

    check_own_topic(said["topic"])
    check_id(said["id"])
    check_on_failure(said["on_failure"])
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
