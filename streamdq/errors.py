"""Every error that streamdq raises on purpose. The message says what happened and what to do."""

from __future__ import annotations


class StreamdqError(Exception):
    """Something streamdq could not do; the base of all its errors."""


class InvalidInput(StreamdqError, ValueError):
    """An argument that can't be accepted. Nothing was written."""


class JobExists(StreamdqError):
    """The id is taken by a job that is still in the topic. Nothing was written.

    Wait until it has ended, cancel it, or enqueue with ``on_conflict="keep"`` or ``"replace"``.
    """

    def __init__(self, topic: str, id: str, why: str = "") -> None:
        super().__init__(
            f"job {id!r} is in topic {topic!r} already{why}: use another id, cancel it, "
            "or pass on_conflict='keep' or 'replace'"
        )
        self.topic = topic
        self.id = id


class UnknownTopic(StreamdqError, LookupError):
    """The topic has never been configured, enqueued to, or served by a worker."""


class UnknownGroup(StreamdqError, LookupError):
    """The topic has no such consumer group; ``configure(topic, groups=[...])`` makes one."""


class TopicNotEmpty(StreamdqError):
    """The number of shards can change only while a topic holds no jobs: ids are spread by it."""


class TooManyTopics(StreamdqError):
    """A new topic would be one more than ``STREAMDQ_MAX_TOPICS``. Nothing was written."""


class StaleClaim(StreamdqError):
    """The claim was taken over (its TTR passed) or has ended: it can't finish, retry or bury the job any more."""


class ServerError(StreamdqError):
    """Redis refused a command."""


class ServerUnavailable(ServerError, ConnectionError):
    """Redis can't be reached, or did not answer within the time a call may take."""


class TooManyCalls(ServerUnavailable):
    """All connections that this process may have were in use for as long as a call may take. Nothing was sent.

    Make fewer calls at once, or raise ``STREAMDQ_MAX_CONNECTIONS``.
    """


class ServerRefusesWrites(ServerError):
    """Redis answers but takes no writes: its disk or memory is full, or it is a replica."""


class AuthenticationFailed(ServerError):
    """Redis refused the user name or password of the URL, or one is missing."""


class GroupMissing(ServerError):
    """Redis has lost a consumer group or a stream (a flush, a failover); workers make it again by themselves."""


class UnsupportedServer(ServerError):
    """What answers is not Redis 6.2 or later, nor Valkey."""


class HistoryUnreadable(StreamdqError):
    """What was found in a history stream, or in a dump of it, is not what this version writes."""


class FolderError(StreamdqError):
    """The folder of a dump can't be read or written."""


class FolderBusy(FolderError):
    """Another process works in the folder."""


class MissingExtra(StreamdqError):
    """A package is not installed that only a part of streamdq needs."""

    def __init__(self, package: str, extra: str = "") -> None:
        what = f"'streamdq[{extra}]'" if extra else package
        super().__init__(f"this needs {package}, which is not installed: pip install {what}")


class EmbeddedError(StreamdqError):
    """The embedded Redis could not be found or started."""


class ArchiveError(StreamdqError):
    """The archive's database could not do what was asked. What it does not have for sure is still in Redis."""


class ArchiveUnavailable(ArchiveError):
    """The archive's database can't be reached, refuses the login, or is locked by another for too long."""


class ArchiveRefusesWrites(ArchiveError):
    """The archive's database takes no writes: it is full, read-only, or this user may not write."""


class ArchiveMissing(ArchiveError):
    """The database holds no archive; ``streamdq archive --to`` makes one."""


class ArchiveVersion(ArchiveError):
    """The archive's tables have another version than this streamdq knows. Nothing was read or written."""
