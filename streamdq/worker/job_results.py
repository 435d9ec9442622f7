"""What RunningJob.results gives: the results of the jobs that a job waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..operations.results.earlier import Earlier, JobResult
from ..process.loop import running_loop
from ..queue import AsyncQueue, Queue, carry_out, carry_out_async, store_of

if TYPE_CHECKING:
    from .running_job import RunningJob


class JobResults:
    """To iterate: in a ``def`` handler with ``for``, in an ``async def`` one with ``async for``. Each time reads them
    anew.
    """

    def __init__(self, job: RunningJob, group: str | None) -> None:
        self._job, self._group = job, group

    def __iter__(self) -> Iterator[JobResult]:
        if running_loop() is not None:
            raise InvalidInput("results: reading them would block the event loop; write async for, not for")
        queue = self._job.queue
        reading = self._reading(queue)
        while batch := carry_out(queue, reading.batch()):
            yield from batch

    async def __aiter__(self) -> AsyncIterator[JobResult]:
        queue = self._job.async_queue
        reading = self._reading(queue)
        while batch := await carry_out_async(queue, reading.batch()):
            for one in batch:
                yield one

    def _reading(self, queue: Queue | AsyncQueue) -> Earlier:
        from .running_job import claim_of

        return Earlier(store_of(queue), claim_of(self._job).shard, self._job.id, self._group)
