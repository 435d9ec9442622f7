"""streamdq: a delay queue on Redis. Jobs wait in sorted sets, and are delivered through streams when they are due."""

from .errors import JobExists, StaleClaim, StreamdqError
from .job.job import Job, JobState, NewJob
from .job.retry import Bury, Retry, RetrySchedule, Snooze
from .queue import AsyncQueue, Claim, Queue
from .version import __version__
from .worker.worker import Worker

__all__ = [
    "AsyncQueue",
    "Bury",
    "Claim",
    "Job",
    "JobExists",
    "JobState",
    "NewJob",
    "Queue",
    "Retry",
    "RetrySchedule",
    "Snooze",
    "StaleClaim",
    "StreamdqError",
    "Worker",
    "__version__",
]
