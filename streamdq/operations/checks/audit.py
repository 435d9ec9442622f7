"""The audit: proves that enqueued = done + dead + cancelled + expired + live, and that no job is orphaned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...keys import ShardKeys, candidate_shards
from ...link.session import Op
from ...store import stream_entries
from ...store.batches import most_jobs
from ...store.counters import GroupCounter, ShardCounter
from ...store.jobs import lookup, ordered
from ...store.jobs.members import id_in
from ...store.redis_store import RedisStore
from ...store.replies import ShardStats
from ..known import topic_names

_PAGE = 250
_STEP = 50  # shards: a millisecond of Redis's time
_COUNTERS = (
    GroupCounter.DONE, GroupCounter.DEAD, GroupCounter.CANCELLED, GroupCounter.EXPIRED, GroupCounter.READY,
    GroupCounter.RUNNING,
)  # fmt: skip
"""What a balance has by the same name."""
_OF_KEYS = {
    "free": "waits for its key, which has a free place",
    "ended": "has ended, and has a place of its key",
}


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
        self.delayed += counts.of_group(GroupCounter.WAITING_FOR_KEY, self.group)
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


class _Suspect(NamedTuple):
    """``entry``: that it should have in a ``stream``, if that is missing; else what tells it from a later job of this
    id, if anything does.
    """

    id: str
    what: str
    entry: bytes = b""
    stream: str = ""


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
    """Adds the shards to their topics' accounts. Returns those that are not empty, or whose keys may have places."""
    asked = [(shard, [balance.group for balance in accounts[shard.topic]]) for shard in shards]
    found = yield from store.scripts.stats_of(asked)
    for shard, stats in zip(shards, found, strict=True):
        for balance in accounts[shard.topic]:
            balance.add(stats)
    limited = {topic for topic in accounts if store.topics.settings_of(topic).key_limited}
    return [
        shard
        for shard, stats in zip(shards, found, strict=True)
        if stats.jobs or stats.waiting or shard.topic in limited
    ]


def _orphans(store: RedisStore, shard: ShardKeys) -> Op[list[Orphan]]:
    suspects, _ = yield from _suspects(store, shard)
    if not suspects:
        return []
    # Jobs may have moved during the walk, and the number of shards may have changed. A job that goes on is not out of
    # place in the same way the second time.
    yield from store.topics.refresh()
    again, ends = yield from _suspects(store, shard)
    suspects &= again
    for stream, end in ends.items():
        suspects -= yield from _found_after_all(store, shard, stream, end, suspects)
    found = dict.fromkeys((suspect.id, suspect.what) for suspect in sorted(suspects))
    return [Orphan(shard.topic, id, what) for id, what in found]


def _found_after_all(
    store: RedisStore, shard: ShardKeys, stream: str, end: str, suspects: Iterable[_Suspect]
) -> Op[set[_Suspect]]:
    """Those that are not missing in the stream. A job may leave it and come back with the same entry's value: it is
    handed back in a paused topic, or waits for its key. But what comes, comes at the end. So its entry is missing if it
    was not there up to ``end``, and if at one moment it should be there, and is not behind that.
    """
    asked = [suspect for suspect in suspects if suspect.stream == stream]
    found: set[_Suspect] = set()
    for start in range(0, len(asked), _PAGE):
        part, after = asked[start : start + _PAGE], end
        while True:
            ids = [suspect.id for suspect in part]
            wanted, came = yield from store.scripts.audit_entries(shard, stream, after, _PAGE, ids)
            there = {text for entry in came for text in entry}
            missing = {(id, entry) for id, _, entry in wanted if entry not in there}
            found |= {suspect for suspect in part if (suspect.id, suspect.entry) not in missing}
            if len(came) < _PAGE:
                break
            after = came[-1][0].decode()
    return found


def _suspects(store: RedisStore, shard: ShardKeys) -> Op[tuple[set[_Suspect], dict[str, str]]]:
    """And up to which entry each stream was read that lacks some. Streams are read after the jobs, because jobs move
    from the bucket to a stream.
    """
    in_streams: dict[str, dict[bytes, str]] = {}  # stream -> {entry that should be in it: the job's id}
    groups = len(store.topics.settings_of(shard.topic).groups)
    most = most_jobs(_PAGE, 2 * groups)  # twice: it also parses each progress
    suspects: set[_Suspect] = set()
    cursor = b"0"
    while True:
        cursor, page, keys, lost = yield from store.scripts.audit_jobs(shard, cursor, most)
        for id, group, entry in page:
            in_streams.setdefault(shard.ready_of(group) if group else shard.ready, {})[entry] = id
        suspects |= {_Suspect(id, "is in a shard where no call looks for it") for id in _elsewhere(store, shard, keys)}
        suspects |= {_Suspect(id, "waits for other jobs, and nothing tells for which") for id in lost}
        if cursor == b"0":
            break
    suspects |= yield from _without_record(store, shard)
    suspects |= yield from _stuck(store, shard)
    suspects |= yield from _dead_without_record(store, shard)
    ends: dict[str, str] = {}
    for stream, entries in in_streams.items():
        end = yield from _strike_off(store, stream, entries)
        if entries:
            ends[stream] = end
        what = f"ready or running, but not in {stream.rpartition('}:')[2]}"
        suspects |= {_Suspect(id, what, entry, stream) for entry, id in entries.items()}
    return suspects, ends


def _elsewhere(store: RedisStore, shard: ShardKeys, keys: Iterable[tuple[bytes, bytes]]) -> Iterator[str]:
    """The jobs that belong to other shards, by all numbers of shards that count."""
    settings = store.topics.settings_of(shard.topic)
    for id, key in keys:
        try:
            candidates = candidate_shards(id.decode(), settings.shards, settings.former, key.decode() or None)
        except UnicodeDecodeError:  # another client has put it there
            continue
        if shard.shard not in candidates:
            yield id.decode()


def _dead_without_record(store: RedisStore, shard: ShardKeys) -> Op[set[_Suspect]]:
    suspects: set[_Suspect] = set()
    for group in store.topics.settings_of(shard.topic).group_names:
        rank, page = 0, [""]
        while page:
            (found,) = yield from ordered.by_rank(store.session, [(shard.dead_of(group), rank)], _PAGE)
            page = [id_in(id) for _, id in found]
            there = yield from lookup.records_there(store.session, shard, page)
            lost = [(id, at) for id, (at, _), is_there in zip(page, found, there, strict=True) if not is_there]
            suspects |= {_Suspect(id, "is dead, but has no record", b"%d" % at) for id, at in lost}
            rank += len(page)
    return suspects


def _without_record(store: RedisStore, shard: ShardKeys) -> Op[set[_Suspect]]:
    suspects: set[_Suspect] = set()
    cursor = b"0"
    while True:
        cursor, ids = yield from store.scripts.audit_bucket(shard, cursor, _PAGE)
        suspects |= {_Suspect(id, "waits in the bucket, but has no record") for id in ids}
        if cursor == b"0":
            return suspects


def _stuck(store: RedisStore, shard: ShardKeys) -> Op[set[_Suspect]]:
    """Jobs whose key would never let them start, and those that keep a place of their key for ever."""
    suspects: set[_Suspect] = set()
    last = b""
    while True:
        last, page = yield from store.scripts.audit_keys(shard, last, _PAGE)
        suspects |= {_Suspect(id, _OF_KEYS[reason]) for reason, id in page}
        if not last:
            return suspects


def _strike_off(store: RedisStore, stream: str, wanted: dict[bytes, str]) -> Op[str]:
    """Removes the entries that are in the stream. Returns the last one that was read."""
    start, end = "-", "0-0"
    while wanted:
        (entries,) = yield from stream_entries.entries(store.session, [(stream, start)], _PAGE)
        for entry in entries:
            wanted.pop(entry.id.encode(), None)
            wanted.pop(entry.value, None)
        end = entries[-1].id if entries else end
        if len(entries) < _PAGE:
            break
        start = f"({end}"
    return end
