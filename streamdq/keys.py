"""Every Redis key of streamdq. Nothing else builds keys; scripts get them in KEYS.

All keys of one topic shard carry the hash tag ``{topic:shard}``, so that a script stays in one Cluster slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from zlib import crc32

DEFAULT_GROUP = "default"
"""The consumer group of who names none."""


def plain(text: str) -> str:
    """The text of a ``str`` whose class may write itself otherwise. A key made of a member of
    ``class Topics(str, Enum)`` would have ``Topics.CLOSE`` in it.
    """
    return text if type(text) is str else str.__str__(text)


@dataclass(frozen=True)
class NamespaceKeys:
    """Keys of the whole namespace; one slot."""

    namespace: str

    @cached_property
    def topics(self) -> str:
        """HASH topic -> JSON of its settings: the registry."""
        return f"{{{self.namespace}}}:topics"

    @cached_property
    def mover(self) -> str:
        """STRING, expires: the consumer whose mover is active."""
        return f"{{{self.namespace}}}:mover"

    @cached_property
    def standbys(self) -> str:
        """ZSET, expires: the consumers whose movers wait for the lease -> when each looks at it next, ms."""
        return f"{{{self.namespace}}}:standbys"

    @cached_property
    def mover_stopped(self) -> str:
        """STREAM, one entry: the active mover has stopped, and its lease is free."""
        return f"{{{self.namespace}}}:mover_stopped"

    @cached_property
    def heartbeats(self) -> str:
        """ZSET, expires: consumers -> when each sent its last heartbeat, ms."""
        return f"{{{self.namespace}}}:heartbeats"

    def hung(self, consumer: str) -> str:
        """STRING, expires: how many threads of this worker hang beyond their TTR, and how many slots it has."""
        return f"{{{self.namespace}}}:hung:{consumer}"

    @cached_property
    def wake(self) -> str:
        """STREAM, at most 256 entries: wakes every process when the registry changes."""
        return f"{{{self.namespace}}}:wake"

    @cached_property
    def aborts(self) -> str:
        """STREAM, at most 256 entries, expires: tells workers which of the attempts that they run were aborted."""
        return f"{{{self.namespace}}}:aborts"

    @cached_property
    def secret(self) -> str:
        """STRING: the secret that all HTTP servers sign claims with, the previous one, and when it was replaced."""
        return f"{{{self.namespace}}}:secret"

    @cached_property
    def probe(self) -> str:
        """STRING, expires: written to check that Redis accepts writes."""
        return f"{{{self.namespace}}}:probe"

    def session(self, digest: str) -> str:
        """STRING, expires: the token behind a session of the web page, by the hash of the session's cookie."""
        return f"{{{self.namespace}}}:session:{digest}"

    def sessions(self, digest: str) -> str:
        """ZSET, expires: the sessions of a token, by its hash: the key of each -> until when it lasts, in seconds."""
        return f"{{{self.namespace}}}:sessions:{digest}"

    @cached_property
    def dumps(self) -> str:
        """HASH dump's id, or id:topic -> '': the dumps that new shards are kept for, of all topics or of one."""
        return f"{{{self.namespace}}}:dumps"

    def shard(self, topic: str, shard: int) -> ShardKeys:
        return _shard_keys(self.namespace, topic, shard)


class ShardKeys:
    """Keys of one shard of one topic; one slot."""

    __slots__ = (
        "absent",
        "archive",
        "blocked",
        "bucket",
        "counts",
        "dependencies",
        "dependents",
        "endings",
        "failures",
        "flow_times",
        "flows",
        "followers",
        "history",
        "jobs",
        "key_admitted",
        "key_counts",
        "key_next_start",
        "key_paused",
        "key_tickets",
        "key_unstarted",
        "key_waiting",
        "namespace",
        "outbox",
        "prefix",
        "progress",
        "ready",
        "receipts",
        "schedules",
        "settings",
        "shard",
        "taken",
        "taken_until",
        "ticks",
        "topic",
        "wake"
    )  # fmt: skip

    def __init__(self, namespace: str, topic: str, shard: int) -> None:
        self.namespace = namespace
        self.topic = topic = plain(topic)
        self.shard = shard
        self.prefix = f"{namespace}:{{{topic}:{shard}}}"
        self.jobs = f"{self.prefix}:jobs"  # HASH id -> record
        self.bucket = f"{self.prefix}:bucket"  # ZSET waiting jobs -> due_ms
        self.ready = f"{self.prefix}:ready"  # STREAM due jobs, for every group
        self.progress = f"{self.prefix}:progress"  # HASH group, id -> how far the group is with the job
        self.counts = f"{self.prefix}:counts"  # HASH the conservation counters
        self.settings = f"{self.prefix}:settings"  # HASH the topic's settings that the scripts need
        self.history = f"{self.prefix}:history"  # STREAM ended attempts and rare events, capped
        self.failures = f"{self.prefix}:failures"  # STREAM what failed, under the row's id; capped, expires
        self.archive = f"{self.prefix}:archive"  # HASH receipts of jobs that an archive has just taken or put back
        self.outbox = f"{self.prefix}:outbox"  # HASH receipts of jobs from a database's outbox
        self.receipts = f"{self.prefix}:receipts"  # ZSET claims recently ended over HTTP, and how -> when
        self.taken = f"{self.prefix}:taken"  # HASH id -> for how long it is taken, whatever becomes of its job
        self.taken_until = f"{self.prefix}:taken_until"  # ZSET id -> when that is over
        self.schedules = f"{self.prefix}:schedules"  # HASH id -> schedule; of the topic's first shard alone
        self.ticks = f"{self.prefix}:ticks"  # ZSET id of a schedule -> when it is looked at next
        self.followers = f"{self.prefix}:followers"  # HASH job -> who waits for it, and how it has ended
        self.flows = f"{self.prefix}:flows"  # HASH flow -> how far it is built
        self.flow_times = f"{self.prefix}:flow_times"  # ZSET the same flows -> when the mover looks at them next, ms
        self.endings = f"{self.prefix}:endings"  # ZSET jobs that have ended -> when their followers are notified, ms
        self.dependencies = f"{self.prefix}:dependencies"  # HASH job that waits for others -> these
        self.dependents = f"{self.prefix}:dependents"  # ZSET the same jobs -> when the mover looks at them next, ms
        self.blocked = (
            f"{self.prefix}:blocked"  # ZSET those that can't start, as another job has failed -> since when, ms
        )
        self.key_tickets = f"{self.prefix}:key_tickets"  # HASH group, id -> ticket of a job that is limited by its key
        self.key_waiting = f"{self.prefix}:key_waiting"  # ZSET tickets of the jobs that wait for their keys
        self.key_admitted = f"{self.prefix}:key_admitted"  # ZSET tickets of the jobs that do not
        self.key_unstarted = f"{self.prefix}:key_unstarted"  # ZSET of the latter, those that have yet to start
        self.key_counts = f"{self.prefix}:key_counts"  # ZSET group, key -> how many wait
        self.key_paused = f"{self.prefix}:key_paused"  # ZSET paused keys
        self.key_next_start = f"{self.prefix}:key_next_start"  # ZSET group, key -> when the next job may start, ms
        self.wake = f"{self.prefix}:wake"  # STREAM, one entry: wakes the mover when an earlier job arrives
        self.absent = absent_beside(
            self.wake
        )  # never exists: Redis refuses a script that names it while its slot moves

    def __str__(self) -> str:
        return f"{self.topic}:{self.shard}"

    def ready_of(self, group: str) -> str:
        """STREAM of one group's retries and kicked jobs."""
        return f"{self.ready}:{plain(group)}"

    def ranked_of(self, group: str) -> str:
        """ZSET due jobs that wait for their turn, in a topic with priorities -> priority and due_ms."""
        return f"{self.prefix}:ranked:{plain(group)}"

    def result_of(self, group: str, id: str) -> str:
        """STRING, expires: how the group has ended the job, and the result."""
        return f"{self.prefix}:result:{plain(group)}:{plain(id)}"

    def dead_of(self, group: str) -> str:
        """ZSET id -> buried at, ms."""
        return f"{self.prefix}:dead:{plain(group)}"


def absent_beside(key: str) -> str:
    """The key of the same slot that never exists. While a Cluster's slot moves, Redis runs a script only if all of its
    keys are there; so one that names this key as well does not begin before the slot has moved (store/assembly.py).
    """
    return f"{key[: key.index('}') + 1]}:absent"


@lru_cache(maxsize=65_536)
def _shard_keys(namespace: str, topic: str, shard: int) -> ShardKeys:
    return ShardKeys(namespace, topic, shard)


def shard_of(id: str, shards: int, key: str | None = None) -> int:
    """The number of the job's shard, by its key if it has one; the same on all hosts, in all processes and versions."""
    return crc32((id if key is None else key).encode()) % shards if shards > 1 else 0


def candidate_shards(id: str, shards: int, former: Sequence[int], key: str | None = None) -> tuple[int, ...]:
    """The numbers of the shards that may have the job, if the topic had other numbers of shards before, ``former``: its
    shards of then, oldest first, and last the one that it belongs to now.
    """
    current = shard_of(id, shards, key)
    if not former:
        return (current,)
    before = dict.fromkeys(shard_of(id, count, key) for count in former)
    return (*(number for number in before if number != current), current)
