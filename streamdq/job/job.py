"""A job: what callers pass in, the checks on it, what they get back. Its stored form is in store/jobs/records.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol
from urllib.parse import urlsplit

import typing_extensions
from pydantic_core import from_json

from ..errors import BodyDamaged, BodyUnreadable, InvalidInput
from ..keys import plain
from ..times.durations import Duration, Moment, to_ms
from .retry import RetryInput
from .uniqueness import DerivedId, UniqueAfter

if TYPE_CHECKING:
    from .after import After, Dependencies, OnFailure

FLOWS = "streamdq.flows"
"""The topic of the flows' own jobs. Such a job waits for all jobs of its flow; no worker runs it."""
MAX_ID_BYTES = 255
MAX_URL_BYTES = 2048
MAX_KEY_CHARS = 200
MAX_VERSION = 10**6
"""Of a body's shape."""
ENCODED = b"\xff"
"""Begins a stored body that is not plain JSON (codec/envelope.py)."""

# Scripts use control characters as separators; braces would break the Cluster hash tag.
# "." and ".." are not allowed, because clients resolve them in a URL's path, even percent-encoded.
_ID = re.compile(r"(?!\.\.?\Z)[^\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
# A topic's name has neither spaces of any kind nor what only formats text, such as the mark that turns it round.
_TOPIC = re.compile(
    r"(?!\.\.?\Z)[^\x00-\x20\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000{}"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]+"
)
_GROUP = re.compile(r"[A-Za-z0-9._-]{1,64}")


class JobState(StrEnum):
    """The state of a job, for one group or as a whole (then that of the most active group)."""

    WAITING = "waiting"  # for other jobs (``after``)
    DELAYED = "delayed"
    READY = "ready"
    RUNNING = "running"
    DEAD = "dead"
    DONE = "done"
    ENDED = "ended"  # it is no longer in Redis, or its id alone is, which is still taken; or a group has not done it


@dataclass(frozen=True, slots=True)
class HandlerProgress:
    """How far a running handler says it is, and when it said so. ``fraction``: from 0 to 1; None: it did not say."""

    fraction: float | None
    text: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """One group's progress with a job."""

    group: str
    state: JobState
    attempt: int = 0
    step: int = 0
    crashes: int = 0
    snoozed: int = 0
    due_ms: int | None = None
    started_ms: int | None = None
    deadline_ms: int | None = None
    consumer: str | None = None
    reason: str | None = None
    error: str | None = None
    own: bool = False  # it waits in, or was claimed from, the group's own stream
    aborted: bool = False  # it runs, was aborted, and ends as cancelled
    progress: HandlerProgress | None = None  # of a running attempt


Priority = Literal["high", "normal", "low"]
"""Of a job among those of its topic that are ready."""

B = typing_extensions.TypeVar("B", default=Any)  # that of Python 3.11 has no default


@dataclass(slots=True)
class NewJob(Generic[B]):
    """A job to enqueue. ``delay`` counts from now by Redis's clock; ``at`` is a point in time; with neither, the job is
    due at once.

    ``id`` None: a random one. ``ttr``, ``retry`` None: those of the group's handler or of the topic. ``expire``: an
    attempt that would start later than this after its due time is given up instead. ``tz``, ``quiet``, ``window``,
    ``unique_for``, ``unique_after``, ``rate_of_id``, ``at_most``, ``key``, ``after``, ``on_failure``,
    ``priority``: as for ``enqueue``. ``version``: of the
    body's shape; handlers for newer versions turn it into theirs (``Worker.upcast``).
    """

    body: B
    delay: Duration | None = None
    id: str | DerivedId | None = None
    at: Moment | str | None = None
    ttr: Duration | None = None
    retry: RetryInput | None = None
    url: str | None = None
    expire: Duration | None = None
    tz: str | None = None
    quiet: str | None = None
    window: Duration | None = None
    version: int = 1
    unique_for: Duration | None = None
    rate_of_id: str | None = None
    at_most: Duration | None = None
    key: str | None = None
    unique_after: UniqueAfter = "enqueue"
    after: After | None = None
    on_failure: OnFailure = "block"
    priority: Priority | None = None


class Decoder(Protocol):
    """Reads stored bodies that are not plain JSON."""

    def decode(self, topic: str, id: str, raw: bytes) -> bytes: ...

    def version_in(self, raw: bytes) -> int: ...

    def trace_in(self, raw: bytes) -> str | None: ...

    def hides(self, raw: bytes) -> bool: ...

    def blocks(self, raw: bytes) -> bool: ...


class _HasBody:
    """The body of a job. The slots are of encoded bodies: for others they stay empty, which costs these nothing."""

    __slots__ = ("_decoder", "_json")

    topic: str
    id: str
    raw_body: bytes
    _decoder: Decoder
    _json: bytes | BodyUnreadable  # decoded before, or why it can't be

    @property
    def body(self) -> Any:
        """The body, decoded from JSON.

        Raises:
            BodyUnreadable: as ``json``.
            BodyDamaged: the stored body is no JSON.
        """
        json = self.json
        try:
            return from_json(json, allow_inf_nan=False)
        except ValueError:
            what = f"the body of job {self.id!r} in topic {self.topic!r} can't be read"
            raise BodyDamaged("it is not JSON", what) from None

    @property
    def json(self) -> bytes:
        """The body as JSON.

        Raises:
            BodyUnreadable: it is stored in a way that this process can't read; a key may be missing.
        """
        if self.raw_body[:1] != ENCODED:
            return self.raw_body
        if not hasattr(self, "_json"):
            if not hasattr(self, "_decoder"):
                raise BodyUnreadable("this job was not read from a queue, which knows the codecs of its body")
            self._json = self._decoder.decode(self.topic, self.id, self.raw_body)
        if isinstance(self._json, BodyUnreadable):
            raise self._json
        return self._json

    @property
    def why_unreadable(self) -> str:
        """Why this process can't read the body; '' if it can. It may read it from where it is, as ``body`` does."""
        try:
            self.body  # noqa: B018
        except BodyUnreadable as error:
            return error.why
        return ""

    def fetch(self) -> None:
        """Reads the body from where it is, so that ``json`` and ``body`` don't block later. It may block itself."""
        try:
            self.json  # noqa: B018
        except BodyUnreadable as error:
            self._json = error

    @property
    def is_elsewhere(self) -> bool:
        """Whether the body is in a file, and has not been read yet."""
        if not hasattr(self, "_decoder") or hasattr(self, "_json"):
            return False
        return self._decoder.blocks(self.raw_body)

    @property
    def version(self) -> int:
        """Of the body's shape, as it was enqueued."""
        return self._decoder.version_in(self.raw_body) if hasattr(self, "_decoder") else 1

    @property
    def trace(self) -> str | None:
        """The W3C ``traceparent`` of the span in which the job was enqueued, if it carries one
        (``streamdq.telemetry``).
        """
        return self._decoder.trace_in(self.raw_body) if hasattr(self, "_decoder") else None

    @property
    def is_hidden(self) -> bool:
        """Whether the body is encrypted."""
        return hasattr(self, "_decoder") and self._decoder.hides(self.raw_body)

    def read_by(self, decoder: Decoder | None, json: bytes = b"") -> None:
        """Tells how to read an encoded body. ``json``: what it decodes to, if that is known."""
        if decoder is not None:
            self._decoder = decoder
        if json:
            self._json = json


@dataclass(slots=True)
class Job(_HasBody):
    """A job as Redis holds it; what a handler gets is a ``RunningJob``, which can do more. Times are Redis's; ``*_ms``
    are Unix milliseconds, durations milliseconds.

    ``raw_body``: as it is stored, perhaps compressed or encrypted; ``json`` and ``body`` are what was enqueued.
    """

    topic: str
    id: str
    raw_body: bytes
    due_ms: int
    created_ms: int
    ttr_ms: int | None = None
    retry: str | None = None
    url: str | None = None
    expire_ms: int | None = None
    state: JobState = JobState.DELAYED
    attempt: int = 0
    step: int = 0
    snoozed: int = 0
    groups: Mapping[str, GroupProgress] = field(default_factory=dict)
    key: str | None = None
    waits_for: Dependencies | None = None  # of a job that waits for others, as ``get`` finds it
    priority: Priority | None = None  # None: normal

    @property
    def due(self) -> datetime:
        return datetime.fromtimestamp(self.due_ms / 1000, UTC)

    @property
    def created(self) -> datetime:
        return datetime.fromtimestamp(self.created_ms / 1000, UTC)


def _shown(value: object) -> str:
    """The start of a refused value; only a text is in quotes, so that 5 and '5' look different."""
    return repr(value[:80]) if isinstance(value, str) else repr(value)[:80]


# Each returns the name as a plain ``str``: a member of ``class Topics(str, Enum)`` is written into keys by its
# ``__format__``, as ``Topics.CLOSE``, and would then be another topic.


def check_topic(topic: str) -> str:
    if not isinstance(topic, str):
        raise InvalidInput(f"topic: {_shown(topic)} is not text: pass a name; that of a Topic is its .name")
    if not _TOPIC.fullmatch(topic) or len(topic.encode()) > MAX_ID_BYTES:
        raise InvalidInput(
            f"topic: {_shown(topic)} is not a valid name; use 1 to {MAX_ID_BYTES} bytes without spaces, "
            "control or format characters or braces, and not . or .."
        )
    return plain(topic)


def check_own_topic(topic: str) -> str:
    """The same for a topic of which the caller wants to enqueue or run jobs."""
    if topic == FLOWS:
        raise InvalidInput(f"topic: {FLOWS} is kept for flows; choose another name")
    return check_topic(topic)


def check_group(group: str) -> str:
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise InvalidInput(f"group: {_shown(group)} is not a valid name; use 1 to 64 of A-Z a-z 0-9 . _ -")
    return plain(group)


def check_id(id: str) -> str:
    if not isinstance(id, str) or not _ID.fullmatch(id) or not id.strip() or len(id.encode()) > MAX_ID_BYTES:
        raise InvalidInput(
            f"id: {_shown(id)} is not a valid id; use 1 to {MAX_ID_BYTES} bytes of text without control "
            "characters, and not . or .."
        )
    return plain(id)


def check_key(key: str) -> str:
    if not isinstance(key, str) or not _ID.fullmatch(key) or not key.strip() or len(key) > MAX_KEY_CHARS:
        raise InvalidInput(
            f"key: {_shown(key)} is not a valid key; use 1 to {MAX_KEY_CHARS} characters of text without control "
            "characters, and not . or .."
        )
    return plain(key)


def check_priority(priority: Priority | None) -> Priority | None:
    """None stands for normal."""
    if priority in (None, "normal"):
        return None
    if priority in ("high", "low"):
        return priority
    raise InvalidInput(f"priority: {_shown(priority)} is not high, normal or low")


def check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname)
    except (ValueError, AttributeError, TypeError):
        fine = False
    if fine and "@" in parts.netloc:
        raise InvalidInput(
            "url: has a user name or a password, which Redis, the history and the page would show; sign callbacks "
            "instead (docs/callbacks.md)"
        )
    if not fine or not re.fullmatch(r"[\x21-\x7e]+", url) or len(url) > MAX_URL_BYTES:
        raise InvalidInput(f"url: {str(url)[:80]!r} is not an http or https URL of at most {MAX_URL_BYTES} characters")
    return plain(url)


def check_ttr(ttr: Duration) -> int:
    ms = to_ms(ttr, "ttr")
    if ms < 1:
        raise InvalidInput("ttr: must be at least 1 ms; it is the time a handler may take")
    return ms
