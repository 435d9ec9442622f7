"""Flows in the outbox: each is one row, of the topic of flows, with all its jobs as its body. So a relay never sees a
part of one; and a relay that does not know flows yet refuses the row.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pydantic_core import to_json

from ..errors import InvalidInput
from ..job.after import After, OnFailure, Parent, Waits, check_on_failure
from ..job.flow import FLOWS, FlowJob
from ..job.job import NewJob, Priority, check_id, check_own_topic
from ..job.retry import RetryInput
from ..operations.jobs.enqueue import NO_BODY
from ..operations.jobs.enqueue_many import as_new_job
from ..options import suggesting
from ..store.jobs.records import Encoded, encode, fields_in, rest_of
from ..times.durations import Duration, to_ms
from .handles import Steps, is_async, run
from .producer import bodies_in, insertion, space_of

if TYPE_CHECKING:
    from sqlalchemy import Insert

MOST_BYTES = 4 * 1024 * 1024
"""Of a flow's row."""


class OutboxFlow:
    """A flow that is added to the outbox when its block ends. Use it in ``with``, or with asyncio in ``async with``."""

    def __init__(self, db: Any, name: str, *, deadline: Duration | None, keep: Duration, namespace: str | None) -> None:
        self.name = check_id(name)
        self._db, self._space = db, space_of(namespace)
        self._deadline_ms = None if deadline is None else max(1, to_ms(deadline, "deadline"))
        self._keep_ms = to_ms(keep, "keep")
        self._jobs: list[dict[str, Any]] = []
        self._numbers: dict[Parent, int] = {}
        self._bytes = 0

    @suggesting
    def enqueue(
        self,
        topic: str,
        body: Any = NO_BODY,
        *,
        delay: Duration | None = None,
        id: str | None = None,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        url: str | None = None,
        expire: Duration | None = None,
        version: int = 1,
        key: str | None = None,
        priority: Priority | None = None,
        after: After | None = None,
        on_failure: OnFailure = "block",
    ) -> FlowJob:
        """Adds a job. The arguments are those of the ``enqueue`` of ``Queue.flow``. ``after``: jobs of this flow, or
        jobs that are in Redis by the time when the flow is relayed. Not awaited, with asyncio either.

        Raises:
            InvalidInput: an argument is invalid, or the flow is larger than 4 MB.
        """
        new = NewJob(
            body, delay, id, ttr=ttr, retry=retry, url=url, expire=expire, version=version, key=key,
            priority=priority, after=after, on_failure=on_failure,
        )  # fmt: skip
        return self._add(check_own_topic(topic), new)

    def enqueue_many(self, topic: str, jobs: Iterable[NewJob | Mapping[str, Any]]) -> list[FlowJob]:
        """Adds any number of jobs. ``jobs``: as for ``Queue.enqueue_many``. Raises the same as ``enqueue``."""
        topic = check_own_topic(topic)
        return [self._add(topic, as_new_job(job)) for job in jobs]

    def _add(self, topic: str, new: NewJob) -> FlowJob:
        bodies, is_root = bodies_in(self._space), new.after is None
        checked = replace(new, after=(FLOWS, self.name)) if is_root else new
        job = encode(checked, bodies.most_json_bytes, bodies.seal(topic))
        waits = job.waits or Waits((), check_on_failure(new.on_failure), 0 if new.delay is None else to_ms(new.delay))
        others = () if is_root else waits.parents
        if any(one.topic == FLOWS for one in others):
            raise InvalidInput("after: no job can wait for a flow; let it wait for the flow's last job")
        after = [self._numbers.get(one, [one.topic, one.id, one.key]) for one in others]
        fields = fields_in(job.rest)
        del fields["nonce"]  # a new one each time that the flow is built
        said = {
            "topic": topic, "id": job.id, **fields, "after": after, "on_failure": waits.on_failure,
            "delay_ms": waits.delay_ms,
        }  # fmt: skip
        self._bytes += len(to_json(said)) + 1
        if self._bytes > MOST_BYTES:
            raise InvalidInput(
                f"flow: its jobs take more than {MOST_BYTES} bytes; let one of them build a flow of them"
            )
        added = Parent(topic, job.id, job.key, job.nonce)
        self._numbers[added] = len(self._jobs)
        self._jobs.append(said)
        return FlowJob(*added)

    def _insert(self) -> Insert:
        body = {"jobs": self._jobs, "deadline_ms": self._deadline_ms, "keep_ms": self._keep_ms}
        rest = rest_of(None, None, os.urandom(5).hex(), None, None, to_json(body).decode())
        return insertion(self._space, FLOWS, Encoded(self.name, "+0", rest, ""), "reject")

    def __enter__(self) -> Self:
        if is_async(self._db):
            raise InvalidInput("outbox.flow: with asyncio, write async with outbox.flow(…)")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._jobs:
            run(self._db, _inserted(self._insert()))

    async def __aenter__(self) -> Self:
        if not is_async(self._db):
            raise InvalidInput("outbox.flow: without asyncio, write with outbox.flow(…)")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._jobs:
            done: Coroutine[Any, Any, None] = run(self._db, _inserted(self._insert()))
            await done


def _inserted(insert: Insert) -> Steps[None]:
    yield insert


def flow(
    db: Any, name: str, *, deadline: Duration | None = None, keep: Duration = "1d", namespace: str | None = None
) -> OutboxFlow:
    """For jobs that start together, in the transaction of ``db``: ``with outbox.flow(session, "report-7") as flow:``,
    and in the block ``flow.enqueue``. The end of the block adds the flow to the outbox, unless it raises or has no job.
    After the commit, a relay puts all its jobs into Redis, and starts them. ``db``, ``namespace``: as for ``enqueue``.
    ``deadline``: counts from the moment when it is relayed. ``keep``: as for ``Queue.flow``. If there is a flow with
    this name, the row stays in the table as ``refused``.

    Raises:
        InvalidInput: an argument is invalid; nothing was written.
    """
    return OutboxFlow(db, name, deadline=deadline, keep=keep, namespace=namespace)
