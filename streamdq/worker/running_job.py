"""The job that a handler gets, and what its worker does for it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import StaleClaim
from ..job.job import Job
from ..operations.attempts.claimed import ClaimedJob
from ..operations.attempts.progress_reports import report_of
from ..times.durations import Duration

if TYPE_CHECKING:
    from ..operations.attempts.added import AsyncJobFlow, JobFlow
    from ..queue import AsyncQueue, Queue
    from .job_results import JobResults
    from .queues import HandlerQueues


class _Noted:
    """What can be awaited after a report: nothing, but a handler that only computes lets others go on."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_NOTED = _Noted()


@dataclass(slots=True)
class RunningJob(Job):
    """The job that a handler or a middleware gets: a ``Job``, and what its attempt can do while it runs."""

    aborted: bool = field(default=False, init=False, repr=False, compare=False)
    """Somebody has aborted the job: its handler should stop, as its attempt ends as cancelled in any case."""
    _held: ClaimedJob | None = field(default=None, init=False, repr=False, compare=False)
    _services: Services | None = field(default=None, init=False, repr=False, compare=False)

    def touch(self, ttr: Duration | None = None) -> None:
        """The running attempt's TTR starts again (or ``ttr`` does). Any thread may call it; it returns at once. If
        another worker has taken the job over, the handler is cancelled.

        Raises:
            StaleClaim: the attempt has ended, or no worker here runs this job.
        """
        held, services = self._running("touch")
        services.touch(held, ttr)

    def progress(self, fraction: float | None = None, text: str = "") -> Awaitable[None]:
        """Says how far the running attempt is: ``await job.progress(0.4, "page 12 of 30")``, in a ``def`` handler
        without ``await``. Any thread may call it, as often as it likes. The latest of a second is written to Redis.
        ``queue.get``, the command line, the HTTP API and the page show it until the attempt ends. ``text``: up to 200
        characters. It is stored as it is, also if the body is encrypted.

        Raises:
            StaleClaim: as ``touch``.
            InvalidInput: the fraction is not from 0 to 1.
        """
        held, services = self._running("progress")
        services.report(held, report_of(fraction, text))
        return _NOTED

    def time_left_s(self) -> float:
        """How many seconds the running attempt has until its handler is cancelled: slightly before its TTR has passed
        (10 % of it, at most 0.2 s). ``touch`` gives it more.

        Raises:
            StaleClaim: as ``touch``.
        """
        held, _ = self._running("time_left_s")
        return max(0.0, held.cut_at - time.monotonic())

    @property
    def queue(self) -> Queue:
        """For follow-up jobs in a ``def`` handler: a queue on the worker's server, in its namespace, with its codecs.
        The worker closes it.

        Raises:
            StaleClaim: as ``touch``.
            InvalidInput: it would block the event loop; use ``async_queue``.
        """
        return self._running("queue")[1].queues.blocking()

    @property
    def async_queue(self) -> AsyncQueue:
        """Like ``queue``, for an ``async def`` handler: ``await job.async_queue.enqueue("order.ship", body)``.

        Raises:
            StaleClaim: as ``touch``.
            InvalidInput: this is not the worker's event loop; use ``queue``.
        """
        return self._running("async_queue")[1].queues.awaited()

    def results(self, *, group: str | None = None) -> JobResults:
        """The jobs that this job waited for (``after``), in their order, each with its outcome and its result:
        ``for part in job.results():``, in an ``async def`` handler ``async for``. They are read while you iterate, a
        hundred at a time. ``group``: whose results, if several groups of a topic keep theirs.

        Raises, also while you iterate:
            StaleClaim: as ``touch``.
        """
        from .job_results import JobResults

        self._running("results")
        return JobResults(self, group)

    @property
    def flow(self) -> JobFlow:
        """The flow of the job, to add jobs to it in a ``def`` handler:
        ``job.flow.enqueue("part.check", body, before=join)``.

        Raises:
            StaleClaim: as ``touch``.
            InvalidInput: it would block the event loop; use ``async_flow``.
        """
        from ..queue import flow_of

        held, services = self._running("flow")
        return flow_of(services.queues.blocking(), held)

    @property
    def async_flow(self) -> AsyncJobFlow:
        """Like ``flow``, for an ``async def`` handler: ``await job.async_flow.enqueue(…)``.

        Raises:
            StaleClaim: as ``touch``.
            InvalidInput: this is not the worker's event loop; use ``flow``.
        """
        from ..queue import async_flow_of

        held, services = self._running("async_flow")
        return async_flow_of(services.queues.awaited(), held)

    def _running(self, what: str) -> tuple[ClaimedJob, Services]:
        held, services = self._held, self._services
        if held is None or services is None or held.ended:
            raise StaleClaim(f"job {self.id!r} is not running here; {what} belongs in its handler")
        return held, services


@dataclass(frozen=True, slots=True)
class Services:
    """What a worker does for the jobs that it runs."""

    touch: Callable[[ClaimedJob, Duration | None], None]
    report: Callable[[ClaimedJob, str], None]
    queues: HandlerQueues


def claim_of(job: RunningJob) -> ClaimedJob:
    """The claim behind a job that is running here.

    Raises:
        StaleClaim: its attempt has ended.
    """
    return job._running("results")[0]


def begin_attempt(held: ClaimedJob, services: Services) -> None:
    """From now on, the job can do what a running one can."""
    job: Any = held.job  # a RunningJob: consumer.py makes it one, and to check that here costs each job 0.1 µs
    job._held, job._services = held, services


def end_attempt(held: ClaimedJob) -> None:
    """It no longer can. The attempt and its job no longer refer to each other, so that they need no garbage
    collection.
    """
    job: Any = held.job
    job._held = job._services = None


def may_start(held: list[ClaimedJob], bodies: list[Any]) -> tuple[list[ClaimedJob], list[Any]]:
    """The jobs that may still start, and their bodies; they have begun. This is checked at the last moment, because the
    process may have been stopped since the claim: now another worker may have the jobs, or they were cancelled, or
    their topic was paused.
    """
    now, on_time = time.monotonic(), True
    for one in held:
        one.begun = now < one.start_by
        on_time = on_time and one.begun
    if on_time:
        return held, bodies
    left = [(one, body) for one, body in zip(held, bodies, strict=True) if one.begun]
    return [one for one, _ in left], [body for _, body in left]
