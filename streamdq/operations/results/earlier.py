"""The results of the jobs that a job waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import (
    InvalidInput,
    JobCancelled,
    JobExpired,
    JobFailed,
    NoResult,
    ResultTimeout,
    StaleClaim,
    StreamdqError,
    UnknownGroup,
    UnknownTopic,
)
from ...job.after import PER_FIELD
from ...keys import ShardKeys
from ...link.session import Op, returned, together
from ...store.jobs import linked, results
from ...store.jobs.links import StoredParent
from ...store.jobs.results import EndState, StoredResult
from ...store.redis_store import RedisStore
from .value import value
from .wanted import Wanted, failure_in, gone, group_of

_AT_ONCE = 100
"""Results in one call: 6 MiB, if all are as large as they may be."""
_FILES_AT_ONCE = 8
_KEPT_AS: dict[str | None, EndState] = {
    "dead": EndState.DEAD, "purged": EndState.DEAD, "archived": EndState.DEAD, "cancelled": EndState.CANCELLED,
    "expired": EndState.EXPIRED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job has ended that another one waited for. ``outcome``: done, dead, cancelled, replaced, expired, purged,
    archived, left (its groups were removed) or lost; None: it goes on, as it was kicked since.
    """

    topic: str
    id: str
    outcome: str | None
    _value: Any
    _why_not: StreamdqError | None

    @property
    def result(self) -> Any:
        """What its handler returned, as JSON values; it was read before.

        Raises:
            JobFailed, JobCancelled, JobExpired: it was not done.
            NoResult, ResultTimeout, ResultGone, ResultNotKept, ResultTooLarge: as for ``Queue.result``.
            BodyUnreadable, BodyDamaged: it can't be read here.
        """
        if self._why_not is not None:
            raise self._why_not
        return self._value


class Earlier:
    """Reads them in batches, in their order."""

    def __init__(self, store: RedisStore, shard: ShardKeys, id: str, group: str | None) -> None:
        self._store = store
        self._shard, self._id, self._group = shard, id, group
        self._name, self._total, self._next = "", -1, 0
        self._part: list[StoredParent] = []
        self._groups: dict[str, str | StreamdqError] = {}  # of each topic, whose results are read, or why none are

    def batch(self) -> Op[list[JobResult]]:
        """The next ones; [] at the end.

        Raises:
            StaleClaim: the job that waited is gone.
        """
        if self._total < 0:
            yield from self._begin()
        if self._next == self._total:
            return []
        n, i = divmod(self._next, PER_FIELD)
        if i == 0 or not self._part:
            self._part = yield from linked.parents_part(self._store.session, self._shard, self._name, n)
        some = self._part[i : i + _AT_ONCE]
        if not some:
            raise self._stale()
        self._next += len(some)
        return (yield from self._read(some))

    def _begin(self) -> Op[None]:
        head = yield from linked.parents_head(self._store.session, self._shard, self._id)
        if head is None:
            raise self._stale()
        self._name, self._total, has_gate = head
        self._next = int(has_gate)

    def _stale(self) -> StaleClaim:
        return StaleClaim(f"job {self._id!r} has ended elsewhere, so what it waited for is no longer known")

    def _read(self, jobs: Sequence[StoredParent]) -> Op[list[JobResult]]:
        for topic in {one.topic for one in jobs} - self._groups.keys():
            self._groups[topic] = yield from self._group_of(topic)
        kept = yield from self._kept(jobs)
        judged = [self._judged(one, stored) for one, stored in zip(jobs, kept, strict=True)]
        blocks = self._store.session.bodies.blocks
        away = [i for i, stored in enumerate(kept) if stored is not None and blocks(stored.payload)]
        found: dict[int, JobResult] = {}
        for begin in range(0, len(away), _FILES_AT_ONCE):
            part = away[begin : begin + _FILES_AT_ONCE]
            replies = yield from together([judged[i] for i in part])
            found.update(zip(part, map(returned, replies), strict=True))
        for i in sorted(set(range(len(judged))) - found.keys()):
            found[i] = yield from judged[i]
        return [found[i] for i in range(len(judged))]

    def _kept(self, jobs: Sequence[StoredParent]) -> Op[list[StoredResult | None]]:
        shard_of, places = self._store.session.keys.shard, dict[int, tuple[ShardKeys, str, str]]()
        for i, one in enumerate(jobs):
            if isinstance(group := self._groups[one.topic], str):
                places[i] = shard_of(one.topic, one.shard), group, one.id
        found = yield from results.stored_results(self._store.session, list(places.values()))
        known = dict(zip(places, found, strict=True))
        return [known.get(i) for i in range(len(jobs))]

    def _group_of(self, topic: str) -> Op[str | StreamdqError]:
        for anew in (False, True):
            try:
                settings = yield from self._store.topics.get(topic, anew=anew)
                return group_of(settings, self._group, topic)
            except (InvalidInput, NoResult, UnknownGroup, UnknownTopic) as error:
                why = error
        return why

    def _judged(self, one: StoredParent, kept: StoredResult | None) -> Op[JobResult]:
        try:
            found = yield from self._value(one, kept)
        except StreamdqError as error:
            return JobResult(one.topic, one.id, one.outcome, None, error)
        return JobResult(one.topic, one.id, one.outcome, found, None)

    def _value(self, one: StoredParent, kept: StoredResult | None) -> Op[Any]:
        group = self._groups[one.topic]
        if one.outcome != "done":
            raise failure_of(one, kept)
        if not isinstance(group, str):
            raise group
        if kept is None:
            raise gone(one.topic, one.id)
        return (yield from value(self._store, Wanted(one.topic, one.id, None, group), group, kept))


def failure_of(one: StoredParent, kept: StoredResult | None) -> StreamdqError:
    """What is raised for a job that is not done."""
    if kept is not None and kept.outcome is _KEPT_AS.get(one.outcome):  # otherwise of a later job with its id
        known = failure_in(one.topic, one.id, kept)
        if known is not None:
            return known
    how = f"job {one.id!r} of topic {one.topic!r}"
    if one.outcome in ("dead", "purged", "archived"):
        return JobFailed(one.topic, one.id, one.outcome, "")
    if one.outcome == "expired":
        return JobExpired(f"{how} was given up, as it would have started too late (expire)")
    if one.outcome in ("cancelled", "replaced"):
        return JobCancelled(f"{how} was {one.outcome}")
    if one.outcome is None:
        return ResultTimeout(f"{how} has not ended: it was kicked since")
    return gone(one.topic, one.id)
