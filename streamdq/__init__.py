"""streamdq: a delay queue on Redis. Jobs wait in sorted sets, and are delivered through streams when they are due."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .config import (
        Settings,
    )
    from .errors import (
        ArchiveError,
        ArchiveMissing,
        ArchiveRefusesWrites,
        ArchiveUnavailable,
        ArchiveVersion,
        AuthenticationFailed,
        BodyDamaged,
        BodyStorageUnavailable,
        BodyUnreadable,
        DurabilityUnsupported,
        EmbeddedError,
        ExtensionBroken,
        FolderBusy,
        FolderError,
        GroupMissing,
        HandlersHung,
        HistoryUnreadable,
        IdTaken,
        InvalidInput,
        JobAborted,
        JobExists,
        MissingExtra,
        NewerFormat,
        NotDurable,
        NotSent,
        OutboxError,
        OutboxMissing,
        OutboxRefusesWrites,
        OutboxUnavailable,
        OutboxVersion,
        ScheduleMissing,
        ServerError,
        ServerRefusesWrites,
        ServerUnavailable,
        StaleClaim,
        StreamdqError,
        TooManyCalls,
        TooManyTopics,
        TopicNotEmpty,
        TopicServed,
        UnknownGroup,
        UnknownTopic,
        UnsupportedServer,
        WrongLoop,
    )
    from .job.job import (
        Job,
        JobState,
        NewJob,
    )
    from .job.retry import (
        Bury,
        Retry,
        RetrySchedule,
        Snooze,
    )
    from .operations.jobs.abort import AbortResult
    from .queue import (
        AsyncClaim,
        AsyncQueue,
        Claim,
        NoClaim,
        Queue,
    )
    from .topic import Topic
    from .worker.middleware import Attempt, AttemptEnd, CallNext
    from .worker.running_job import RunningJob
    from .worker.worker import (
        Worker,
    )

__all__ = [
    "AbortResult",
    "ArchiveError",
    "ArchiveMissing",
    "ArchiveRefusesWrites",
    "ArchiveUnavailable",
    "ArchiveVersion",
    "AsyncClaim",
    "AsyncQueue",
    "Attempt",
    "AttemptEnd",
    "AuthenticationFailed",
    "BodyDamaged",
    "BodyStorageUnavailable",
    "BodyUnreadable",
    "Bury",
    "CallNext",
    "Claim",
    "DurabilityUnsupported",
    "EmbeddedError",
    "ExtensionBroken",
    "FolderBusy",
    "FolderError",
    "GroupMissing",
    "HandlersHung",
    "HistoryUnreadable",
    "IdTaken",
    "InvalidInput",
    "Job",
    "JobAborted",
    "JobExists",
    "JobState",
    "MissingExtra",
    "NewJob",
    "NewerFormat",
    "NoClaim",
    "NotDurable",
    "NotSent",
    "OutboxError",
    "OutboxMissing",
    "OutboxRefusesWrites",
    "OutboxUnavailable",
    "OutboxVersion",
    "Queue",
    "Retry",
    "RetrySchedule",
    "RunningJob",
    "ScheduleMissing",
    "ServerError",
    "ServerRefusesWrites",
    "ServerUnavailable",
    "Settings",
    "Snooze",
    "StaleClaim",
    "StreamdqError",
    "TooManyCalls",
    "TooManyTopics",
    "Topic",
    "TopicNotEmpty",
    "TopicServed",
    "UnknownGroup",
    "UnknownTopic",
    "UnsupportedServer",
    "Worker",
    "WrongLoop",
    "__version__",
]
_MODULES = {
    ".config": ("Settings",),
    ".errors": (
        "ArchiveError",
        "ArchiveMissing",
        "ArchiveRefusesWrites",
        "ArchiveUnavailable",
        "ArchiveVersion",
        "AuthenticationFailed",
        "BodyDamaged",
        "BodyStorageUnavailable",
        "BodyUnreadable",
        "DurabilityUnsupported",
        "EmbeddedError",
        "ExtensionBroken",
        "FolderBusy",
        "FolderError",
        "GroupMissing",
        "HandlersHung",
        "HistoryUnreadable",
        "IdTaken",
        "InvalidInput",
        "JobAborted",
        "JobExists",
        "MissingExtra",
        "NewerFormat",
        "NotDurable",
        "NotSent",
        "OutboxError",
        "OutboxMissing",
        "OutboxRefusesWrites",
        "OutboxUnavailable",
        "OutboxVersion",
        "ScheduleMissing",
        "ServerError",
        "ServerRefusesWrites",
        "ServerUnavailable",
        "StaleClaim",
        "StreamdqError",
        "TooManyCalls",
        "TooManyTopics",
        "TopicNotEmpty",
        "TopicServed",
        "UnknownGroup",
        "UnknownTopic",
        "UnsupportedServer",
        "WrongLoop",
    ),
    ".job.job": (
        "Job",
        "JobState",
        "NewJob",
    ),
    ".job.retry": (
        "Bury",
        "Retry",
        "RetrySchedule",
        "Snooze",
    ),
    ".operations.jobs.abort": ("AbortResult",),
    ".queue": (
        "AsyncClaim",
        "AsyncQueue",
        "Claim",
        "NoClaim",
        "Queue",
    ),
    ".topic": ("Topic",),
    ".worker.middleware": ("Attempt", "AttemptEnd", "CallNext"),
    ".worker.running_job": ("RunningJob",),
    ".worker.worker": ("Worker",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a module when the first of its names is used: a program that only enqueues does without the worker, and a
    worker without what only a Queue can do.
    """
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULE_OF[name], __name__)
    globals().update({one: getattr(module, one) for one in _MODULES[_MODULE_OF[name]]})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
