"""The codec of deliveries, as members of a bucket and entries of a ready stream: sequence, group, and job id. Also of
the names under which jobs wait for their keys.
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


def group_key(group: str, key: str = "") -> str:
    """How a key is named where the group's jobs wait for it; without a key, how all of the group's names begin."""
    return f"{group}{_SEPARATOR}{key}"


def split_group_key(text: bytes) -> tuple[str, str]:
    """The group and the key of such a name, or of a ticket, which begins with one."""
    group, key, *_ = f"{text.decode()}{_SEPARATOR}".split(_SEPARATOR, 2)
    return group, key
