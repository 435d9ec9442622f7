"""What a job waits for: the argument ``after``, and the checks on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from ..errors import InvalidInput

OnFailure = Literal["block", "run", "cancel"]
After = Any
"""A job, ``(topic, id)``, or ``{"topic": …, "id": …, "key": …}``; or an iterable of these."""

MAX_PARENTS = 100_000
NEVER_MS = 9_999_999_999_999
"""The due time of a job that waits for others, as in lua/lib/waits.lua."""
PER_FIELD = 500
"""How many of those that a job waits for are stored together, as there."""


class Parent(NamedTuple):
    """A job that another one waits for. ``key``: its own, if that is known. ``life``: what tells it from others with
    its id; "": any is meant.
    """

    topic: str
    id: str
    key: str | None = None
    life: str = ""


@dataclass(frozen=True, slots=True)
class Dependency:
    """One of the jobs that another one waits, or waited, for. ``outcome`` None: it has not ended; otherwise done, dead,
    cancelled, replaced, expired, purged, archived, left (its groups were removed) or lost.
    """

    topic: str
    id: str
    outcome: str | None


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a job waits, or waited, for. ``delay_ms``: from when the others have ended. ``blocked``: it can't start,
    because one of them has failed. ``jobs``: the first of them, in their order.
    """

    total: int
    done: int
    failed: int
    on_failure: OnFailure
    delay_ms: int
    blocked: bool
    jobs: tuple[Dependency, ...]


class Waits(NamedTuple):
    """What a new job waits for, and what becomes of it then. ``delay_ms``: from when they have ended. ``gates``: of
    a flow's own job, how many the flow has.
    """

    parents: tuple[Parent, ...]
    on_failure: OnFailure
    delay_ms: int
    gates: int = 0


def check_on_failure(on_failure: str) -> OnFailure:
    if on_failure not in get_args(OnFailure):
        raise InvalidInput(f"on_failure: {on_failure!r:.80} is none of {', '.join(get_args(OnFailure))}")
    return on_failure  # type: ignore[return-value]


def parents_of(after: After, name: str = "after") -> tuple[Parent, ...]:
    """Each once, in their order. ``name``: of the argument.

    Raises:
        InvalidInput
    """
    many = isinstance(after, Iterable) and not isinstance(after, str | Mapping) and not _is_name(after)
    found = tuple(dict.fromkeys(_parent(one, name) for one in (after if many else [after])))
    if len(found) > MAX_PARENTS:
        raise InvalidInput(
            f"{name}: {len(found)} jobs are more than {MAX_PARENTS}: let jobs in between wait for some each"
        )
    return found


def _is_name(one: object) -> bool:
    return isinstance(one, tuple) and len(one) == 2 and all(isinstance(part, str) for part in one)


def _parent(one: Any, name: str) -> Parent:
    from .flow import FlowJob
    from .job import check_id, check_key, check_topic

    if _is_name(one):
        return Parent(check_topic(one[0]), check_id(one[1]))
    if isinstance(one, Mapping) and one.keys() <= {"topic", "id", "key"}:
        topic, id, key = (one.get(part) for part in ("topic", "id", "key"))
    else:
        topic, id, key = (getattr(one, part, None) for part in ("topic", "id", "key"))
    if not isinstance(topic, str) or not isinstance(id, str):
        raise InvalidInput(f"{name}: {one!r:.80} is neither a job nor (topic, id)")
    return Parent(
        check_topic(topic),
        check_id(id),
        None if key is None else check_key(key),
        one.life if isinstance(one, FlowJob) else "",
    )
