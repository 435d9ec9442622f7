"""The audit: proves that enqueued = done + dead + cancelled + expired + live, and that no job is orphaned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..keys import ShardKeys
from ..link.session import Op
from ..store import reads
from ..store.batches import most_jobs
from ..store.counters import GroupCounter, ShardCounter
from ..store.members import member_in
from ..store.redis_store import RedisStore
from ..store.replies import ShardStats
from .inspect import topic_names

_PAGE = 250
_STEP = 50  # shards: a millisecond of Redis's time
_COUNTERS = (
    GroupCounter.DONE, GroupCounter.DEAD, GroupCounter.CANCELLED, GroupCounter.EXPIRED, GroupCounter.READY,
    GroupCounter.RUNNING,
)  # fmt: skip
"""What a balance has by the same name."""


@dataclass(slots=True)
class Balance:
    """One group's account of one topic: enqueued = done + dead + cancelled + expired + live."""

    topic: str
    group: str
    enqueued: int = 0
    done: int = 0
    dead: int = 0  # given up and not kicked, purged ones included
    cancelled: int = 0
    expired: int = 0
    delayed: int = 0
    ready: int = 0
    running: int = 0

    def add(self, shard: ShardStats) -> None:
        """Adds one shard's part, if it has the group."""
        if self.group not in shard.groups:
            return
        counts = shard.counts
        self.enqueued += counts.of_shard(ShardCounter.ENQUEUED) - counts.of_group(GroupCounter.BASE, self.group)
        self.delayed += shard.delayed + counts.of_group(GroupCounter.WAITING, self.group)
        self.delayed += counts.of_group(GroupCounter.ASIDE, self.group)
        for counter in _COUNTERS:
            if count := counts.of_group(counter, self.group):
                setattr(self, counter, getattr(self, counter) + count)

    @property
    def live(self) -> int:
        return self.delayed + self.ready + self.running

    @property
    def imbalance(self) -> int:
        """0, or how many jobs are missing (above 0) or too many."""
        return self.enqueued - self.done - self.dead - self.cancelled - self.expired - self.live


@dataclass(frozen=True, slots=True)
class Orphan:
    """A job that nothing will ever deliver, or a remainder of a job that no longer exists."""

    topic: str
    id: str
    what: str


@dataclass(slots=True)
class Audit:
    """All balances, and all orphans. ``left``: how many jobs are still live."""

    balances: list[Balance] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        return not self.orphans and all(balance.imbalance == 0 for balance in self.balances)

    @property
    def left(self) -> int:
        return sum(balance.live for balance in self.balances)


def audit(store: RedisStore, topic: str | None = None) -> Op[Audit]:
    """Balances every topic and group from the counters, each shard at one moment, and walks through every job to
    find orphans. It is correct while workers are busy, too: a suspect is checked again before it is reported. It reads
    pages of 250; its memory grows with the ready jobs, not with the waiting ones.
    """
    found, names = Audit(), (yield from topic_names(store, topic))
    accounts = {name: [Balance(name, group) for group in store.topics.settings_of(name).group_names] for name in names}
    shards = [shard for name in names for shard in store.topics.all_shards(name)]
    for start in range(0, len(shards), _STEP):
        for shard in (yield from _balanced(store, shards[start : start + _STEP], accounts)):
            found.orphans += yield from _orphans(store, shard)
    found.balances = [balance for name in names for balance in accounts[name]]
    return found


def _balanced(
    store: RedisStore, shards: Sequence[ShardKeys], accounts: Mapping[str, Sequence[Balance]]
) -> Op[list[ShardKeys]]:
    """Adds the shards to their topics' accounts. Returns those that are not empty."""
    asked = [(shard, [balance.group for balance in accounts[shard.topic]]) for shard in shards]
    found = yield from store.scripts.stats_of(asked)
    for shard, stats in zip(shards, found, strict=True):
        for balance in accounts[shard.topic]:
            balance.add(stats)
    return [shard for shard, stats in zip(shards, found, strict=True) if stats.jobs or stats.waiting]


def _orphans(store: RedisStore, shard: ShardKeys) -> Op[list[Orphan]]:
    suspects = yield from _suspects(store, shard)
    # Jobs may have moved during the walk. Those that are still out of place the second time are orphans.
    again = (yield from _suspects(store, shard)) if suspects else {}
    return [Orphan(shard.topic, id, what) for id, what in suspects.items() if again.get(id) == what]


def _suspects(store: RedisStore, shard: ShardKeys) -> Op[dict[str, str]]:
    """{id: what is wrong with it}. Streams are read after the jobs, because jobs move from the bucket to a stream."""
    in_streams: dict[str, set[str]] = {}  # stream -> ids that should be in it
    groups = len(store.topics.settings_of(shard.topic).groups)
    most = most_jobs(_PAGE, 2 * groups)  # twice: it also parses each progress
    cursor = b"0"
    while True:
        cursor, page = yield from store.scripts.audit_jobs(shard, cursor, most)
        for id, group in page:
            in_streams.setdefault(shard.ready_of(group) if group else shard.ready, set()).add(id)
        if cursor == b"0":
            break
    suspects = yield from _without_record(store, shard)
    for stream, ids in in_streams.items():
        yield from _strike_off(store, stream, ids)
        suspects |= dict.fromkeys(ids, f"ready or running, but not in {stream.rpartition('}:')[2]}")
    return suspects


def _without_record(store: RedisStore, shard: ShardKeys) -> Op[dict[str, str]]:
    suspects: dict[str, str] = {}
    cursor = b"0"
    while True:
        cursor, ids = yield from store.scripts.audit_bucket(shard, cursor, _PAGE)
        suspects |= dict.fromkeys(ids, "waits in the bucket, but has no record")
        if cursor == b"0":
            return suspects


def _strike_off(store: RedisStore, stream: str, ids: set[str]) -> Op[None]:
    """Removes the ids that are in the stream."""
    start = "-"
    while ids:
        (entries,) = yield from reads.entries(store.session, [(stream, start)], _PAGE)
        ids.difference_update(member_in(entry.value).id for entry in entries)
        if len(entries) < _PAGE:
            return
        start = f"({entries[-1].id}"
