"""The codec of records: the value of a job in the hash ``jobs``. Only this module and the scripts know its layout.

A record consists of lines: sequence (12 hex digits) and due_ms, created_ms, ttr_ms, expire_ms, nonce, retry, url, and
the body: JSON without line breaks, or an encoded body (codec/envelope.py), which may contain any byte. A field that the
job does not have is an empty line. The line of the url goes on with a separator and the first letter of the priority,
if that is not normal, and with another one and the key, if the job has a key.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from typing import Any, NamedTuple

from ...codec.bodies import Seal
from ...codec.envelope import Envelope, as_text, check_version, from_text
from ...errors import InvalidInput
from ...job.after import NEVER_MS, Waits, check_on_failure, parents_of
from ...job.body import encode_body
from ...job.job import (
    ENCODED,
    Decoder,
    Job,
    NewJob,
    Priority,
    check_id,
    check_key,
    check_priority,
    check_ttr,
    check_url,
)
from ...job.retry import RetrySchedule
from ...job.uniqueness import DerivedId, rule_of
from ...times.durations import Duration, Moment, moment_ms, to_ms

# Ids are base64 with characters that need no escape in a URL. "-" is avoided: options begin with it on a command line.
_SEPARATOR, _OF_PRIORITY = "\x1f", "\x1d"
_PRIORITIES: dict[str, Priority] = {"h": "high", "l": "low"}
_NONE: tuple[None, None, None] = (None, None, None)
_IN_IDS = bytes.maketrans(b"+/", b"_.")


class Encoded(NamedTuple):
    """A new job in the form that enqueue and replace take. They put sequence, due_ms and created_ms before ``rest``."""

    id: str
    when: str  # '+delay_ms', or due_ms
    rest: bytes
    nonce: str  # tells a repeated call from another caller's
    json: bytes = b""  # the body before it was encoded, if it was
    rule: str = (
        ""  # for how long the id is taken, and how often it may be used (unique.py); '' = as long as the job lives
    )
    key: str | None = None
    has_new_id: bool = False  # which nobody but this call can have used
    waits: Waits | None = None  # for these; then ``when`` is not used
    priority: Priority | None = None  # None: normal

    @property
    def is_plain(self) -> bool:
        """Whether its id alone decides where it goes, and whether it is taken; it waits for nothing, and is normal."""
        return self.rule == "" and self.key is None and self.waits is None and self.priority is None

    @property
    def has_rate(self) -> bool:
        return self.rule != "" and self.rule.split("|")[1] != ""

    @property
    def has_at_most(self) -> bool:
        return self.rule != "" and not self.rule.endswith("|")

    def job(self, topic: str, now_ms: int, decoder: Decoder | None = None) -> Job:
        """The job that was enqueued at ``now_ms``. ``decoder``: as for job_in."""
        when = self.when
        due_ms = now_ms + int(when) if when[0] == "+" else int(when)
        ttr, expire, _nonce, retry, line, body = self.rest.split(b"\n", 5)
        url, key, priority = line_fields(line.decode()) if line else _NONE
        job = Job(
            topic, self.id, body, due_ms, now_ms,
            int(ttr) if ttr else None, retry.decode() if retry else None, url,
            int(expire) if expire else None, key=key, priority=priority,
        )  # fmt: skip
        if body[:1] == ENCODED:
            job.read_by(decoder, self.json)
        return job


class Record(NamedTuple):
    """Every field of a record."""

    sequence: str  # of the delivery that every group gets
    due_ms: int
    created_ms: int
    ttr_ms: int | None
    expire_ms: int | None
    nonce: str
    retry: str | None
    url: str | None
    body: bytes
    key: str | None = None
    priority: Priority | None = None

    def from_created(self) -> bytes:
        """The record from created_ms on, in the form that restore takes."""
        ttr, expire = ("" if ms is None else ms for ms in (self.ttr_ms, self.expire_ms))
        line = url_line(self.url, self.key, self.priority)
        head = f"{self.created_ms}\n{ttr}\n{expire}\n{self.nonce}\n{self.retry or ''}\n{line}\n"
        return head.encode() + self.body


def encode(new: NewJob, max_body_bytes: int, seal: Seal | None = None) -> Encoded:
    """Checks and encodes a new job. ``seal``: makes what is stored of its body; None: it is stored as its JSON.

    Raises:
        InvalidInput: a field is invalid.
    """
    random = b2a_base64(os.urandom(15), newline=False).translate(_IN_IDS).decode()
    plain = body = encode_body(new.body, max_body_bytes)
    if new.id is None:
        id, nonce = random[:14], random[14:18]  # nobody else has this id
    else:  # 60 bits, or one of 17 million jobs that find their id taken would take the other job for itself
        id, nonce = _id_of(new.id, plain), random[:10]
    ttr = expire = retry = ""
    if new.ttr is not None:
        ttr = str(check_ttr(new.ttr))
    if new.expire is not None:
        expire = str(to_ms(new.expire, "expire"))
    if new.retry is not None:
        retry = RetrySchedule.of(new.retry).encode()
    if new.window is not None:
        raise InvalidInput("window: only enqueue and enqueue_many look for the best moment")
    waits = waits_of(new)
    when = str(NEVER_MS) if waits else encode_when(new.delay, new.at, new.tz, new.quiet)
    if seal is not None:
        body = seal(id, check_version(new.version), plain)
    elif new.version != 1:
        body = Envelope(check_version(new.version), (), plain).sealed()
    rest = f"{ttr}\n{expire}\n{nonce}\n{retry}\n{_line_of(new)}\n".encode() + body
    rule = rule_of(new.id, new.unique_for, new.rate_of_id, new.at_most, new.unique_after)
    priority = _priority_of(new)
    return Encoded(
        id, when, rest, nonce, b"" if body is plain else plain, rule, new.key, new.id is None, waits, priority
    )


def as_waiting(job: Encoded, waits: Waits, nonce: str | None = None) -> Encoded:
    """The same job, which waits for these. ``nonce``: another one."""
    if nonce is None:
        return job._replace(waits=waits)
    ttr, expire, _, rest = job.rest.split(b"\n", 3)
    return job._replace(waits=waits, nonce=nonce, rest=b"\n".join((ttr, expire, nonce.encode(), rest)))


def waits_of(new: NewJob) -> Waits | None:
    """What the new job waits for; None: nothing.

    Raises:
        InvalidInput: an argument is invalid, or does not go together with ``after``.
    """
    if new.after is None:
        return None
    for name in ("at", "tz", "quiet", "window", "unique_for", "rate_of_id", "at_most"):
        if getattr(new, name) is not None:
            raise InvalidInput(
                f"{name}: does not go together with after, nor with a flow; pass a delay, which counts from the start"
            )
    parents, on_failure = parents_of(new.after), check_on_failure(new.on_failure)
    return Waits(parents, on_failure, 0 if new.delay is None else to_ms(new.delay)) if parents else None


def _id_of(id: str | DerivedId, body: bytes) -> str:
    return id.of(body) if isinstance(id, DerivedId) else check_id(id)


def _line_of(new: NewJob) -> str:
    url = None if new.url is None else check_url(new.url)
    return url_line(url, None if new.key is None else check_key(new.key), _priority_of(new))


def body_of(job: Encoded) -> bytes:
    """What is stored of its body."""
    return job.rest.split(b"\n", 5)[5]


def with_body(job: Encoded, body: bytes) -> Encoded:
    """The same job with another stored body."""
    *head, old = job.rest.split(b"\n", 5)
    plain = job.json or old
    return job._replace(rest=b"\n".join([*head, body]), json=plain)


def fields_in(rest: bytes) -> dict[str, Any]:
    """The fields of an Encoded's ``rest`` by name, for places that keep each by itself. ``url``: the line of a record
    that has the key as well.
    """
    *head, body = rest.split(b"\n", 5)
    ttr, expire, nonce, retry, url = (field.decode() for field in head)
    return {
        "ttr_ms": int(ttr) if ttr else None, "expire_ms": int(expire) if expire else None, "nonce": nonce,
        "retry": retry or None, "url": url or None, "body": as_text(body),
    }  # fmt: skip


def rest_of(
    ttr_ms: int | None, expire_ms: int | None, nonce: str, retry: str | None, url: str | None, body: str
) -> bytes:
    """The reverse of fields_in."""
    ttr, expire = ("" if ms is None else ms for ms in (ttr_ms, expire_ms))
    return f"{ttr}\n{expire}\n{nonce}\n{retry or ''}\n{url or ''}\n".encode() + from_text(body)


def encode_when(
    delay: Duration | None, at: Moment | str | None, tz: str | None = None, quiet: str | None = None
) -> str:
    """The form that the scripts take: ``+delay_ms``, or an absolute ``due_ms``."""
    if at is None:
        if quiet is not None:
            raise InvalidInput("quiet: pass at as well; only enqueue and enqueue_many know when a delay ends")
        if tz is not None:
            raise InvalidInput("tz: pass at or quiet as well")
        return "+0" if delay is None else f"+{to_ms(delay)}"
    if delay is not None:
        raise InvalidInput("pass delay or at, not both")
    if tz is None and quiet is None and not isinstance(at, str):
        return str(moment_ms(at))
    from ...schedules.civil import civil_moment_ms  # time zones, which few jobs need

    return str(civil_moment_ms(at, tz, quiet))


def job_in(topic: str, id: str, record: bytes, decoder: Decoder | None = None, kind: type[Job] = Job) -> Job:
    """The job in a record. It does not go through ``record_in``, because every claim calls it. ``decoder``: reads its
    body, if that is not plain JSON. ``kind``: the class that it is made of.
    """
    head, created, ttr, expire, _nonce, retry, line, body = record.split(b"\n", 7)
    url, key, priority = line_fields(line.decode()) if line else _NONE
    job = kind(
        topic, id, body, int(head[12:]), int(created),
        int(ttr) if ttr else None, retry.decode() if retry else None, url,
        int(expire) if expire else None, key=key, priority=priority,
    )  # fmt: skip
    if body[:1] == ENCODED:
        job.read_by(decoder)
    return job


def body_in(record: bytes) -> bytes:
    """What is stored of the body in a record."""
    return record.split(b"\n", 7)[7]


def record_in(record: bytes) -> Record:
    head, created, ttr, expire, nonce, retry, line, body = record.split(b"\n", 7)
    url, key, priority = line_fields(line.decode())
    return Record(
        head[:12].decode(), int(head[12:]), int(created), int(ttr) if ttr else None, int(expire) if expire else None,
        nonce.decode(), retry.decode() or None, url, body, key, priority,
    )  # fmt: skip


def _priority_of(new: NewJob) -> Priority | None:
    return None if new.priority is None else check_priority(new.priority)


def url_line(url: str | None, key: str | None, priority: Priority | None = None) -> str:
    """The line of a record that has the url, the priority and the key."""
    line = (url or "") if priority is None else f"{url or ''}{_OF_PRIORITY}{priority[0]}"
    return line if key is None else f"{line}{_SEPARATOR}{key}"


def line_fields(line: str) -> tuple[str | None, str | None, Priority | None]:
    """The reverse of url_line."""
    url, _, key = line.partition(_SEPARATOR)
    url, _, letter = url.partition(_OF_PRIORITY)
    return url or None, key or None, _PRIORITIES.get(letter)


def url_and_key(line: str) -> tuple[str | None, str | None]:
    """The line's parts before and behind the separator: ``url_line`` makes it of them again. The first one has the
    priority, too.
    """
    url, _, key = line.partition(_SEPARATOR)
    return url or None, key or None


def url_and_priority(url: str | None) -> tuple[str | None, Priority | None]:
    """What the first of these parts holds."""
    found, _, priority = line_fields(url or "")
    return found, priority


def nonce_of(record: bytes) -> str:
    return record.split(b"\n", 5)[4].decode()


def ended_until_ms(record: bytes) -> int | None:
    """Until when the id is taken, if this is what enqueue_unique returns of a job that has ended; otherwise None."""
    return int(record[:12], 16) if record.endswith(b"\nnull") else None
