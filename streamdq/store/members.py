"""The codec of deliveries, as members of a bucket and entries of a ready stream: sequence, group, and job id."""

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
    """Decodes a bucket's member, or the value of an entry of a ready stream."""
    text = member.decode()
    sequence, rest = text[:_DIGITS], text[_DIGITS:]
    if not rest.startswith(_SEPARATOR):  # no id begins with it
        return Member(sequence, None, rest)
    _, group, id = rest.split(_SEPARATOR, 2)
    return Member(sequence, group, id)
