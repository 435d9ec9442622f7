"""What is kept of how a group has ended a job, for those that wait for it (lua/lib/results.lua): text

ended_ms|outcome|payload
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from ...keys import ShardKeys
from ...link.command import Behind, Command
from ...link.session import Op, Session, checked
from ...link.tracking import CHOOSE
from ..commands import in_steps
from .progress import Progress, progress_field, progress_in


class EndState(StrEnum):
    """How a group has ended a job."""

    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    ERROR = "error"  # the job is done, and its result could not be kept


class StoredResult(NamedTuple):
    """What is kept. ``payload``: of a job that is done, its result as it is stored, b"" if none was sent; of a dead
    one, reason|error; or the error that kept the result from being kept.
    """

    outcome: EndState
    payload: bytes
    ended_ms: int = 0


class Found(NamedTuple):
    """What one shard has of a job. ``lives``: it has its record; ``progress``: of the group; ``layout``: how the
    topic's jobs are spread, as the shard knows it, "" if it does not.
    """

    kept: StoredResult | None
    lives: bool
    progress: Progress | None
    layout: str


def done(stored: bytes) -> bytes:
    """What ``finish`` is given of a result."""
    return b"done|" + stored


def not_kept(error: str) -> bytes:
    """What ``finish`` is given if the result can't be kept. ``error``: ``Class: message``."""
    return b"error|" + error.encode(errors="replace")


def kept_in(value: bytes) -> StoredResult | None:
    """None: a newer version has written it, or another client."""
    ended_ms, _, rest = value.partition(b"|")
    outcome, _, payload = rest.partition(b"|")
    try:
        return StoredResult(EndState(outcome.decode()), payload, int(ended_ms))
    except ValueError:
        return None


def of_dead(progress: Progress) -> StoredResult:
    """What is kept of a job that is dead, by the group's progress."""
    return StoredResult(EndState.DEAD, f"{progress.reason}|{progress.error}".encode())


def look(session: Session, shards: Sequence[ShardKeys], group: str, id: str) -> Op[list[Found]]:
    """What each of the shards has.

    The result is read first and last: a job that ends between these two leaves it, so a caller that finds neither
    the job nor a result then knows that there is none.
    """
    commands: list[Command] = []
    for k in shards:
        key = k.result_of(group, id)
        commands += [Command(key, ("GET", key)), *_of_job(k, group, id, Command), Command(key, ("GET", key))]
    return _found_in((yield from session.call(commands)), len(shards))


def look_and_watch(
    session: Session,
    shards: Sequence[ShardKeys],
    group: str,
    id: str,
    changed: Callable[[str], None],
    timeout_s: float,
) -> Op[list[Found]]:
    """The same; and ``changed`` is called when one of the results changes (AsyncLink.look)."""
    commands: list[Command] = []
    for k in shards:
        key = k.result_of(group, id)
        commands += [
            Command(key, ("GET", key)),  # if the slot is at another node, its reply says so
            Behind(key, CHOOSE),
            Behind(key, ("GET", key)),
            *_of_job(k, group, id, Behind),
            Behind(key, ("GET", key)),
        ]
    replies = yield from session.call(commands, timeout_s=timeout_s, changed=changed, chosen=True)
    return _found_in(replies, len(shards))


def read_when_notified(
    session: Session, k: ShardKeys, group: str, id: str, changed: Callable[[str], None], timeout_s: float
) -> Op[StoredResult | None]:
    """The result alone, over the connection that told of it, which then need not tell of its end as well."""
    key = k.result_of(group, id)
    (reply,) = yield from session.call([Command(key, ("GET", key))], timeout_s=timeout_s, changed=changed, chosen=True)
    return None if (value := checked(reply)) is None else kept_in(value)


def stored_results(session: Session, jobs: Sequence[tuple[ShardKeys, str, str]]) -> Op[list[StoredResult | None]]:
    """The result of each (shard, group, id), if there is one."""
    keys = [k.result_of(group, id) for k, group, id in jobs]
    replies = yield from in_steps(session, [Command(key, ("GET", key)) for key in keys])
    return [None if (value := checked(reply)) is None else kept_in(value) for reply in replies]


def _of_job(k: ShardKeys, group: str, id: str, kind: type[Command]) -> list[Command]:
    reads = (
        ("HEXISTS", k.jobs, id), ("HGET", k.progress, progress_field(group, id)), ("HGET", k.settings, "shards"),
    )  # fmt: skip
    return [kind(read[1], read) for read in reads]


def _found_in(replies: Sequence[Any], shards: int) -> list[Found]:
    each = len(replies) // shards
    return [_found(replies[i : i + each]) for i in range(0, len(replies), each)]


def _found(replies: Sequence[Any]) -> Found:
    for reply in replies:
        checked(reply)
    *_, lives, progress, layout, value = replies
    first = replies[0] if value is None else value
    return Found(
        None if first is None else kept_in(first),
        bool(lives),
        None if progress is None else progress_in(progress),
        (layout or b"").decode(),
    )
