"""A delivery as it stands in a bucket and in a ready stream: which one it is, whose, and of which job."""

from __future__ import annotations

from typing import NamedTuple

_DIGITS = 12
_SEPARATOR = "\x1f"


class Member(NamedTuple):
    """One delivery. A group's own (a retry, a kicked job, what was handed over) names the group."""

    sequence: str  # in hex; the order among those due in one millisecond
    group: str | None
    id: str


def member_in(member: bytes) -> Member:
    """The delivery in a bucket's member, or in an entry of a ready stream."""
    text = member.decode()
    sequence, rest = text[:_DIGITS], text[_DIGITS:]
    if not rest.startswith(_SEPARATOR):  # with which no id begins
        return Member(sequence, None, rest)
    _, group, id = rest.split(_SEPARATOR, 2)
    return Member(sequence, group, id)
