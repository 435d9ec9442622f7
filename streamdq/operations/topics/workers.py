"""Who works: the consumers of all groups, as the streams know them, and what each runs now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...config import TopicSettings
from ...errors import ServerUnavailable
from ...keys import ShardKeys
from ...link.consumers import begun_ms
from ...link.session import Op, returned, together
from ...store import namespace, stream_entries
from ...store.jobs import lookup
from ...store.jobs.members import member_in
from ...store.jobs.progress import Phase
from ...store.redis_store import RedisStore
from ...store.topics import group_consumers
from ...store.topics.group_consumers import GroupConsumer

MOST_STREAMS = 40_000
"""That are looked at: two for each group in a shard."""

_MOST_BUSY = 200  # streams whose running jobs are listed
_JOBS = 100  # of each, the first claimed
_FINDER = "_reclaim"
ALIVE_MS = 150_000


class GroupStream(NamedTuple):
    """A stream of a group: the shared one, or its own."""

    shard: ShardKeys
    group: str
    key: str


class Running(NamedTuple):
    """A job that runs."""

    topic: str
    group: str
    id: str
    attempt: int
    started_ms: int
    deadline_ms: int


@dataclass(slots=True)
class Working:
    """A consumer. ``since_ms``: by its host's clock; None: not known. ``seen_ms``: its last heartbeat, by Redis's
    clock. ``claims``: how many jobs it holds; ``jobs``: those that run, as far as they were read. ``hung``: how many of
    its ``slots`` are taken by threads that go on beyond their TTR.
    """

    name: str
    host: str
    pid: int | None
    since_ms: int | None
    seen_ms: int = 0
    claims: dict[tuple[str, str], int] = field(default_factory=dict)  # by topic and group
    jobs: list[Running] = field(default_factory=list)
    mover: bool = False
    hung: int = 0  # threads that go on beyond their TTR
    slots: int = 0  # only known if some are hung

    @property
    def held(self) -> int:
        return sum(self.claims.values())


@dataclass(frozen=True, slots=True)
class Workers:
    """``whole``: whether all streams were looked at."""

    now_ms: int
    found: list[Working]
    whole: bool


def workers(store: RedisStore, topics: Mapping[str, TopicSettings]) -> Op[Workers]:
    """All consumers of these topics, which must be known."""
    streams = _streams(store, topics)
    asked = streams[:MOST_STREAMS]
    now_ms = yield from namespace.now_ms(store.session)
    found: dict[str, Working] = {}
    busy = []
    for stream, rows in (yield from _consumers(store, asked)):
        for row in rows:
            _note(found, stream, row, now_ms)
        if any(row.pending for row in rows):
            busy.append(stream)
    for name, job in (yield from _running(store, busy[:_MOST_BUSY])):
        if name in found:
            found[name].jobs.append(job)
    yield from _read_heartbeats(store, found, now_ms)
    return Workers(now_ms, sorted(found.values(), key=lambda one: one.name), len(asked) == len(streams))


def _streams(store: RedisStore, topics: Mapping[str, TopicSettings]) -> list[GroupStream]:
    return [
        GroupStream(shard, group, stream)
        for name, settings in topics.items()
        for shard in store.topics.shards(name)
        for group in settings.group_names
        for stream in (shard.ready, shard.ready_of(group))
    ]


def _read_heartbeats(store: RedisStore, found: dict[str, Working], now_ms: int) -> Op[None]:
    mover = yield from namespace.mover_at_work(store.session)
    alive = yield from namespace.alive(store.session)
    heartbeats = yield from namespace.heartbeats_of(store.session, list(found))
    hung = yield from namespace.hung_of(store.session, list(found))
    for worker, heartbeat_ms, (threads, slots) in zip(found.values(), heartbeats, hung, strict=True):
        lives = worker.name in alive and not worker.held  # one that holds claims has to send heartbeats
        worker.seen_ms = now_ms if lives else max(worker.seen_ms, heartbeat_ms or 0)
        worker.hung, worker.slots = threads, slots
        worker.mover = worker.name == mover
        worker.jobs.sort(key=lambda job: job.started_ms)


def _note(found: dict[str, Working], stream: GroupStream, row: GroupConsumer, now_ms: int) -> None:
    if row.name == _FINDER:
        return
    one = found.get(row.name)
    if one is None:
        host, pid, since_ms = begun_ms(row.name)
        one = found[row.name] = Working(row.name, host, pid, since_ms)
    one.seen_ms = max(one.seen_ms, now_ms - row.idle_ms)
    at = stream.shard.topic, stream.group
    one.claims[at] = one.claims.get(at, 0) + row.pending


def _consumers(store: RedisStore, streams: Sequence[GroupStream]) -> Op[list[tuple[GroupStream, list[GroupConsumer]]]]:
    nodes: dict[str, list[GroupStream]] = {}
    for stream in streams:
        nodes.setdefault(store.session.last_node_of(stream.key), []).append(stream)
    results = yield from together(
        [group_consumers.consumers(store.session, [(one.key, one.group) for one in part]) for part in nodes.values()]
    )
    found: list[tuple[GroupStream, list[GroupConsumer]]] = []
    for part, result in zip(nodes.values(), results, strict=True):
        if isinstance(result, ServerUnavailable) and len(nodes) > 1:
            continue  # a node of a Cluster is lost: the others' workers are shown
        found += zip(part, returned(result), strict=True)
    return found


def _running(store: RedisStore, streams: Sequence[GroupStream]) -> Op[Iterable[tuple[str, Running]]]:
    """The consumer and the job of the first claims in each stream."""
    pending = yield from _pending(store, streams)
    entries = yield from stream_entries.entries_at(store.session, [(stream.key, id) for stream, id in pending])
    there = [(stream, member_in(entry.value).id) for (stream, _), entry in zip(pending, entries, strict=True) if entry]
    known = yield from lookup.progress(store.session, [(stream.shard, stream.group, id) for stream, id in there])
    return [
        (one.consumer, Running(stream.shard.topic, stream.group, id, one.attempt, one.started_ms, one.deadline_ms))
        for (stream, id), one in zip(there, known, strict=True)
        if one and one.phase is Phase.RUNNING and not one.ahead
    ]


def _pending(store: RedisStore, streams: Sequence[GroupStream]) -> Op[list[tuple[GroupStream, str]]]:
    """The first pending entries of each stream."""
    pending = []
    for group in dict.fromkeys(stream.group for stream in streams):
        own = [stream for stream in streams if stream.group == group]
        rows = yield from stream_entries.pending(store.session, [(stream.key, "-") for stream in own], group, _JOBS)
        pending += [(stream, entry.id) for stream, entries in zip(own, rows, strict=True) for entry in entries]
    return pending
