"""The codec of deliveries, as members of a bucket and entries of a ready stream: sequence, group, and job id. Also of
the lanes of keys.
"""

from __future__ import annotations

from typing import NamedTuple

_DIGITS = 12
_SEPARATOR = "\x1f"


class Member(NamedTuple):
    """One delivery. A group's own delivery (a retry, a kicked or handed-over job) names the group."""

    sequence: str  # in hex; orders deliveries due in the same millisecond
    group: str | None
    id: str


def member_in(member: bytes) -> Member:
    """Decodes a bucket's member, or the value of an entry of a ready stream. What another client put there is decoded
    as the delivery of a job that does not exist.
    """
    text = member.decode(errors="replace")
    sequence, rest = text[:_DIGITS], text[_DIGITS:]
    before, *own = rest.split(_SEPARATOR, 2)
    if not before and len(own) == 2:  # no id begins with it
        group, id = own
        return Member(sequence, group, id)
    return Member(sequence, None, rest)


def id_in(raw: bytes) -> str:
    """A job's id. One that another client made need not be UTF-8: it is shown, and no job is found by it."""
    return raw.decode(errors="replace")


def lane_of(group: str, key: str = "") -> str:
    """How a key's lane is named where jobs wait for keys; without a key, how the names of the group's lanes begin."""
    return f"{group}{_SEPARATOR}{key}"


def lane_in(text: bytes) -> tuple[str, str]:
    """The group and the key of a lane, or of the ticket of a job in it."""
    group, key, *_ = f"{text.decode()}{_SEPARATOR}".split(_SEPARATOR, 2)
    return group, key
