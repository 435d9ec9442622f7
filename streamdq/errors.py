"""All errors that streamdq raises on purpose. A message says what happened and what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar

FORMAT = 1
"""The newest format of stored data that this version knows, as in lua/lib/stored_format.lua."""


class Portable(Exception):
    """An exception that can be pickled and copied, whatever its ``__init__`` takes. Both would call that with the
    message, and an exception that can't be unpickled breaks the pool of processes in which it was raised.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[Portable], args: tuple[Any, ...], attributes: dict[str, Any]) -> Portable:
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


class StreamdqError(Portable):
    """The base class of all errors of streamdq. ``exit_code``: the command's, when it ends with this error."""

    exit_code: ClassVar[int] = 1


class InvalidInput(StreamdqError, ValueError):
    """An argument is invalid. Nothing was written."""

    exit_code = 2


class JobExists(StreamdqError):
    """The id is taken by a job that is still in the topic. Nothing was written.

    Wait until it has ended, cancel it, or enqueue with ``on_conflict="keep"``, ``"replace"`` or ``"postpone"``; jobs
    of flows have no ``on_conflict``.
    """

    def __init__(self, topic: str, id: str, why: str = "", *, in_flow: bool = False) -> None:
        """``in_flow``: the new job was to be one of a flow."""
        other = "or cancel it" if in_flow else "cancel it, or pass on_conflict='keep', 'replace' or 'postpone'"
        super().__init__(f"job {id!r} is already in topic {topic!r}{why}: use another id, {other}")
        self.topic = topic
        self.id = id


class ParentUnknown(StreamdqError):
    """``after`` names a job that Redis does not know: it has ended and its topic keeps no results, or it never
    existed. Nothing was enqueued.
    """

    def __init__(self, topic: str, id: str) -> None:
        super().__init__(
            f"after: topic {topic!r} has no job {id!r}, and no result of it: it never existed, or it has ended. Keep "
            "that topic's results (result=), or enqueue the job that waits before the other one can end"
        )
        self.topic = topic
        self.id = id


class FlowExists(StreamdqError):
    """There is a flow with this name, whose block has ended. Nothing was written. It is forgotten some time after its
    end (``keep``).
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"flow {name!r} was enqueued before; flow_status tells how it stands")
        self.name = name


class FlowWithdrawn(StreamdqError):
    """The flow was cancelled while it was built, or another process has begun it anew, or it took more than an hour
    between two jobs. None of its jobs starts.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"flow {name!r} was cancelled while it was built, or begun anew elsewhere, or no job was added for an "
            "hour; none of its jobs starts. Build it again"
        )
        self.name = name


class IdTaken(JobExists):
    """The job that had the id has ended, and the id stays taken for a while (``unique_for``, ``rate_of_id``). Nothing
    was written. ``until_ms``: until when, by Redis's clock.
    """

    def __init__(self, topic: str, id: str, until_ms: int) -> None:
        until = datetime.fromtimestamp(until_ms / 1000, UTC).isoformat(timespec="milliseconds")
        super().__init__(topic, id)
        why = f"id {id!r} of topic {topic!r} is taken until {until}, but its job has ended (unique_for, rate_of_id)"
        self.args = (f"{why}: wait, use another id, or pass on_conflict='keep'",)
        self.until_ms = until_ms


class NoResult(InvalidInput):
    """The topic keeps no results, or not those of this group: its handler has to ask for it, ``result="1d"``."""


class ResultTimeout(StreamdqError, TimeoutError):
    """The job has not ended within the time-out. It goes on; another call can wait for its result."""


class JobFailed(StreamdqError):
    """The job is a dead letter. ``reason``: why it was buried; ``error``: of its last attempt.

    ``kick`` sends it back; then it has no result until it ends again.
    """

    def __init__(self, topic: str, id: str, reason: str, error: str) -> None:
        super().__init__(f"job {id!r} of topic {topic!r} was buried ({reason}): {error}")
        self.topic, self.id, self.reason, self.error = topic, id, reason, error


class JobCancelled(StreamdqError):
    """The job was cancelled or aborted, so it has no result."""


class JobExpired(JobCancelled):
    """The job was given up because it would have started too late (``expire``), so it has no result."""


class ResultGone(StreamdqError, LookupError):
    """There is neither the job nor a result. It was never enqueued, its result has expired, its topic or group was
    deleted, or Redis has lost it.
    """


class ResultNotKept(StreamdqError):
    """The job is done, but what its handler returned could not be kept, for example because it is not JSON. ``error``:
    why.
    """

    def __init__(self, topic: str, id: str, error: str) -> None:
        super().__init__(f"job {id!r} of topic {topic!r} is done, but its result was not kept: {error}")
        self.topic, self.id, self.error = topic, id, error


class ResultTooLarge(ResultNotKept):
    """The job is done, but its result was too large to be kept: more than 64 KiB, without a storage of large bodies."""


class NotSent(StreamdqError):
    """A pipeline did not send the job: its block has not ended, or it raised an exception."""


class UnknownTopic(StreamdqError, LookupError):
    """The topic does not exist: nobody has configured it, enqueued to it or served it."""

    exit_code = 2


class UnknownGroup(StreamdqError, LookupError):
    """The topic has no such consumer group. ``configure(topic, groups=[...])`` creates one."""

    exit_code = 2


class ScheduleMissing(StreamdqError, LookupError):
    """The topic has no such schedule."""


class TopicNotEmpty(StreamdqError):
    """The topic holds jobs, so it can't be deleted, and its number of shards can't change."""


class TopicServed(TopicNotEmpty):
    """The topic has consumers, so it can't be deleted: they would make it again."""


class TooManyTopics(StreamdqError):
    """A new topic would exceed ``STREAMDQ_MAX_TOPICS``. Nothing was written."""


class WrongLoop(StreamdqError, RuntimeError):
    """An AsyncQueue was used in another event loop than at first. Nothing was sent to Redis.

    Make one in each event loop, ``async with AsyncQueue() as queue:``, or share a Queue between threads.
    """


class StaleClaim(StreamdqError):
    """The claim has ended, or was taken over after its TTR passed. It can no longer finish, retry or bury the job."""


class JobAborted(StaleClaim):
    """Somebody has aborted the job: its attempt ends as cancelled, and the job is not tried again."""


class ServerError(StreamdqError):
    """Redis refused a command."""

    exit_code = 3


class ServerUnavailable(ServerError, ConnectionError):
    """Redis can't be reached, or did not answer within the time a call may take."""


class TooManyCalls(ServerUnavailable):
    """No connection became free within the time that a call may take. Nothing was sent to Redis.

    Make fewer calls at once, or raise ``STREAMDQ_MAX_CONNECTIONS``.
    """


class NotDurable(ServerError):
    """Redis made the change, but did not confirm the wanted durability in time. A failover or a crash may undo it.

    Repeat the call with the same id: then its success covers this change as well. For an enqueue, pass
    ``on_conflict="keep"``, because the job may be there. ``level``: the wanted durability. ``id``: the job's, if the
    call was ``enqueue``; it may have been generated.
    """

    def __init__(self, level: str, why: str, id: str | None = None) -> None:
        again = "the same id (an enqueue with on_conflict='keep')" if id is None else f"id={id!r}, on_conflict='keep'"
        super().__init__(
            f"durable={level!r}: {why}; Redis made the change, but a failover or a crash may undo it: repeat the call "
            f"with {again}"
        )
        self.level = level
        self.why = why
        self.id = id


class DurabilityUnsupported(ServerError):
    """This Redis can't give the wanted durability. Nothing was written.

    ``disk`` needs an append-only file, and Redis 7.2 or 8, whose ``WAITAOF`` can be relied on. Another server needs
    ``appendfsync always``, and has to let this user read that (``CONFIG GET``).
    """


class ServerRefusesWrites(ServerError):
    """Redis answers but refuses writes: its disk or memory is full, or it is a replica."""


class AuthenticationFailed(ServerError):
    """Redis refused the user name or password of the URL, or needs one."""


class GroupMissing(ServerError):
    """Redis has lost a consumer group or a stream, as after a flush or a failover. Workers create it again."""


class UnsupportedServer(ServerError):
    """The server is neither Redis 6.2 or later nor Valkey."""


class NewerFormat(StreamdqError):
    """A newer version of streamdq has written the data in Redis. Nothing was written.

    Upgrade this process; ``docs/upgrading.md`` says in which order. ``format``: what Redis has; text, if that is no
    whole number.
    """

    exit_code = 3

    def __init__(self, format: float | str) -> None:
        super().__init__(
            f"a newer version of streamdq wrote the data in Redis: it has format {format}, and this version reads "
            f"formats up to {FORMAT}. Upgrade streamdq here; see docs/upgrading.md"
        )
        self.format = int(format) if str(format).isdecimal() else str(format)


class HistoryUnreadable(StreamdqError):
    """A history stream or a dump holds something that this version can't read."""


class FolderError(StreamdqError):
    """The folder of a dump can't be read or written."""


class FolderBusy(FolderError):
    """Another process is using the folder."""


class HandlerProcessDied(StreamdqError):
    """The process of a handler with ``process=True`` has crashed, or was killed, perhaps because memory was full. Its
    attempt has failed, and is retried like any other.
    """


class HandlersHung(StreamdqError):
    """A worker has ended by itself; start it again. For STREAMDQ_HUNG_EXIT_S, handlers hung beyond their TTR in all of
    its slots, or one blocked its event loop. The log says where they hang. Nothing is lost: their attempts had ended.
    """

    exit_code = 4

    def __init__(self, slots: int, for_s: float) -> None:
        super().__init__(
            f"handlers hang beyond their TTR in all {slots:,} slots of this worker, or block its event loop, "
            f"for {for_s:g} s: start it again; the log says where they hang"
        )


class BodyUnreadable(StreamdqError):
    """This process can't read the body of a job: a key or a codec is missing, or the body's version is newer than the
    handler's. A process that is configured for it can.

    A worker that meets such a body hands the job back and tries again later. ``why``: what is missing.
    """

    def __init__(self, why: str, what: str = "") -> None:
        super().__init__(f"{what}: {why}" if what else why)
        self.why = why


class BodyDamaged(BodyUnreadable):
    """The stored body of a job was damaged, changed or exchanged: no process can read it. A worker buries the job."""


class BodyStorageUnavailable(StreamdqError):
    """The storage of large bodies can't be reached, or refuses. When an enqueue raises this, nothing was enqueued."""

    exit_code = 3


class MissingExtra(StreamdqError):
    """An optional package is needed and not installed."""

    exit_code = 2

    def __init__(self, package: str, extra: str = "") -> None:
        name = package.partition(".")[0]  # an ImportError names the module
        what = f"'streamdq[{extra}]'" if extra else name
        super().__init__(f"this needs {name}, which is not installed: pip install {what}")


class ExtensionBroken(StreamdqError):
    """A command or codec of another package is needed and can't be loaded."""

    exit_code = 2


class EmbeddedError(StreamdqError):
    """The embedded Redis could not be found or started."""

    exit_code = 3


class ArchiveError(StreamdqError):
    """The archive's database failed. A dead letter that it may not have is still in Redis."""

    exit_code = 3


class ArchiveUnavailable(ArchiveError):
    """The archive's database can't be reached, refuses the login, or was locked for too long."""


class ArchiveRefusesWrites(ArchiveError):
    """The archive's database refuses writes: it is full or read-only, or this user may not write."""


class ArchiveMissing(ArchiveError):
    """The database has no archive. ``streamdq archive --to`` creates one."""

    exit_code = 2


class ArchiveVersion(ArchiveError):
    """This version of streamdq does not know the version of the archive's tables. Nothing was read or written."""


class OutboxError(StreamdqError):
    """The outbox's database failed. Rows that were not relayed are still in it."""

    exit_code = 3


class OutboxUnavailable(OutboxError):
    """The outbox's database can't be reached, refuses the login, or was locked for too long."""


class OutboxRefusesWrites(OutboxError):
    """The outbox's database refuses writes: it is full or read-only, or this user may not write."""


class OutboxMissing(OutboxError):
    """The database has no outbox. ``streamdq outbox create`` makes one."""

    exit_code = 2


class OutboxRelaying(OutboxError):
    """A relay is putting the row's job into Redis: nothing can be changed until it has. Try again in a moment."""


class OutboxVersion(OutboxError):
    """This version of streamdq does not know the version of the outbox's tables. Nothing was read or written."""
