"""One shard of one topic and its scripts, with a clock that stands still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from streamdq.config import MAX_BATCH, Settings, TopicSettings, topic_patch
from streamdq.job.job import Job, NewJob
from streamdq.link.connection import Link
from streamdq.link.opening import open_session
from streamdq.link.session import Op, run
from streamdq.operations.checks import audit
from streamdq.operations.jobs.get import job_of
from streamdq.operations.topics import configure
from streamdq.store.commands import one
from streamdq.store.jobs.records import encode
from streamdq.store.redis_store import RedisStore
from streamdq.store.replies import Claimed, ClaimedRow, Enqueued, Moved, Reclaimed, Refused, TakenOver
from streamdq.store.topics.changes import expect_priorities
from streamdq.times.clock import ManualClock, RedisClock
from tests.lua.coherence import contradictions, read
from tests.lua.cut_short import CutShort, missed
from tests.lua.moving import MovingSlot

START_MS = 1_700_000_000_000
BEGIN = (b"0-0", b"0-0")


class Shard:
    """Calls scripts on one shard. After every call the accounts must balance, and no job may be orphaned."""

    def __init__(self, url: str, real_time: bool = False) -> None:
        url, _, how = url.partition("#")
        self.url = url
        self.clock = ManualClock(START_MS)
        clock = RedisClock() if real_time else self.clock
        self.link, self.session = open_session(url, "lua", Settings(call_timeout_s=30.0), clock, Link)
        self.store = RedisStore(self.session)
        self.scripts, self.topics = self.store.scripts, self.store.topics
        self.k = self.session.keys.shard("t", 0)
        self.is_fake = self.session.is_fake
        self.moving = MovingSlot(url, self.k.jobs) if self.session.is_cluster else None
        self.cutting = CutShort(url, self._after_cut) if how == "cut" else None
        self.cuts: Counter[str] = Counter()
        self.group, self.consumer = "default", "me"
        self.checked = True
        self._generations: dict[str, str] = {}
        self._consumers: dict[tuple[bytes, bytes, str], str] = {}  # by main, entry and group
        self.topic()

    def run(self, op: Op[Any]) -> Any:
        """On a Cluster, all scripts that wait while their slot moves are refused at first, because it does. With a URL
        that ends with `#cut`, all that write are ended half way at first, unless nothing is checked.
        """
        if self.moving is not None:
            op = self.moving.refused_at_first(op)
        elif self.cutting is not None and self.checked:
            op = self.cutting.cut_first(op)
        return run(self.link, op)

    def _after_cut(self, name: str, writes: int) -> None:
        """If a job was lost or is stuck, the audit says so."""
        self.cuts[name] += 1
        if run(self.link, audit.audit(self.store)).balanced and "t" in self.topics.known:
            groups = [*self.settings.group_names, *self.settings.leaving]  # the shard may still have those
            stored = run(self.link, read(self.session, self.k, groups))
            wrong = contradictions(stored, float(self.clock.argument()))
            found = missed(wrong, stored.records, leaving=name == "leave_group")
            assert not found, (name, writes, found)

    def _step(self, op: Op[Any]) -> Any:
        reply = self.run(op)
        if self.checked:
            self.check()
        return reply

    def check(self) -> None:
        """enqueued = done + dead + cancelled + expired + live for each group, no orphans, and all keys fit together."""
        found = self.run(audit.audit(self.store))
        assert found.balanced, found
        if "t" in self.topics.known:
            wrong = contradictions(
                self.run(read(self.session, self.k, self.settings.group_names)), float(self.clock.argument())
            )
            assert not wrong, wrong

    def redis(self, *command: Any) -> Any:
        return self.run(one(self.session, self.k.jobs, *command))

    # -- the topic

    def topic(self, **changes: Any) -> TopicSettings:
        """Creates or changes the topic, like Queue.configure."""
        settings: TopicSettings = self._step(configure.configure(self.store, "t", create=True, **changes))
        return settings

    def prioritize(self) -> None:
        """As the first job with a priority does."""
        self._step(expect_priorities(self.topics, "t"))

    def begin_to_leave(self, group: str) -> None:
        """As the first step of removing the group, after which the caller was killed."""
        settings = self.run(self.scripts.register_topic("t", topic_patch({}, {}, [group])))
        assert group in settings.leaving
        self.topics.known["t"] = settings
        assert group in self.call("configure_shard", settings).leaving

    @property
    def settings(self) -> TopicSettings:
        return self.topics.known["t"]

    # -- transitions

    def jobs(self, *ids: str, delay: Any = 0, **fields: Any) -> list[Any]:
        """Jobs in the form that enqueue and replace take."""
        out: list[Any] = []
        for id in ids:
            out += encode(NewJob({"id": id}, id=id, delay=None if "at" in fields else delay, **fields), 1000)[:3]
        return out

    def enqueue(self, *ids: str, delay: Any = 0, **fields: Any) -> Enqueued:
        reply: Enqueued = self._step(self.scripts.enqueue(self.k, 1, self.jobs(*ids, delay=delay, **fields)))
        return reply

    def enqueue_unique(
        self, *ids: str, how: str = "keep", rule: str = "|||", delay: Any = 0, **fields: Any
    ) -> Enqueued:
        """``rule``: 'unique_for_ms|times|per_ms|at_most_ms'."""
        return self.repeat_unique(self.jobs(*ids, delay=delay, **fields), how, rule)

    def repeat_unique(self, jobs: Sequence[Any], how: str = "keep", rule: str = "|||") -> Enqueued:
        """The same with jobs as ``jobs`` returns them, so that a call can be repeated."""
        args = [value for i in range(0, len(jobs), 3) for value in (*jobs[i : i + 3], rule)]
        reply: Enqueued = self._step(self.scripts.enqueue_unique(self.k, 1, how, args))
        return reply

    def move(self, limit: int = MAX_BATCH) -> Moved:
        ranked = self.settings.prioritized
        reply: Moved = self._step(self.scripts.move(self.k, self.settings.group_names, limit, prioritized=ranked))
        return reply

    def claim(
        self,
        count: int = 10,
        group: str | None = None,
        consumer: str | None = None,
        read: Sequence[Any] = (),
        at_once: int = MAX_BATCH,
    ) -> Claimed:
        name, consumer = group or self.group, consumer or self.consumer
        ttr_ms, ranked = self.settings.ttr_of(name), self.settings.prioritized
        reply: Claimed = self._step(self.scripts.claim(self.k, name, consumer, count, ttr_ms, read, at_once, ranked))
        self._consumers |= {(row.main, row.entry, name): consumer for row in reply.rows}
        return reply

    def take(self, group: str | None = None, consumer: str | None = None) -> ClaimedRow:
        """Claims the one job that is ready."""
        (row,) = self.claim(group=group, consumer=consumer).rows
        return row

    def retried(self, group: str | None = None, delay_ms: int = 0, **how: Any) -> None:
        """The one job that is ready fails, and is ready for its next attempt if that is due."""
        self.retry(self.take(group), group=group, delay_ms=delay_ms, **how)
        self.move()

    # The consumer that claimed the first of the rows ends them, unless a consumer is named.

    def finish(self, *rows: ClaimedRow, group: str | None = None, consumer: str | None = None) -> Refused:
        return self._end(self.scripts.finish, rows, group, consumer)

    def release(self, *rows: ClaimedRow, group: str | None = None, consumer: str | None = None) -> Refused:
        return self._end(self.scripts.release, rows, group, consumer)

    def retry(
        self,
        *rows: ClaimedRow,
        delay_ms: int = 0,
        steps: int = 1,
        group: str | None = None,
        consumer: str | None = None,
        error: str = "Oops: again",
        failure: str = "",
    ) -> Refused:
        return self._end(self.scripts.retry, rows, group, consumer, delay_ms, steps, error, failure)

    def bury(
        self,
        *rows: ClaimedRow,
        group: str | None = None,
        consumer: str | None = None,
        reason: str = "exhausted",
        error: str = "Oops: enough",
        failure: str = "",
    ) -> Refused:
        return self._end(self.scripts.bury, rows, group, consumer, reason, error, failure)

    def _end(
        self, script: Any, rows: Sequence[ClaimedRow], group: str | None, consumer: str | None, *rest: Any
    ) -> Refused:
        args = [value for row in rows for value in (row.main, row.entry, row.id, f"row of {row.id.decode()}", *rest)]
        name, consumer = group or self.group, consumer or self._claimed_by(rows, group)
        reply: Refused = self._step(script(self.k, name, self.generation(name), consumer, args))
        return reply

    def touch(
        self, *rows: ClaimedRow, ttr_ms: int = 60_000, group: str | None = None, consumer: str | None = None
    ) -> Refused:
        name, consumer = group or self.group, consumer or self._claimed_by(rows, group)
        args = [value for row in rows for value in (row.main, row.entry, row.id, ttr_ms)]
        reply: Refused = self._step(
            self.scripts.touch(self.k, name, self.generation(name), consumer, self.settings.ttr_of(name), args)
        )
        return reply

    def _claimed_by(self, rows: Sequence[ClaimedRow], group: str | None) -> str:
        known = [self._consumers.get((row.main, row.entry, group or self.group)) for row in rows[:1]]
        return (known and known[0]) or self.consumer

    def reclaim(
        self, group: str | None = None, cursors: tuple[bytes, bytes] = BEGIN, limit: int = 100, missing: int = 0
    ) -> Reclaimed:
        reply: Reclaimed = self._step(
            self.scripts.reclaim(self.k, group or self.group, self.settings, limit, cursors, 4_000, missing)
        )
        return reply

    def take_over(
        self, consumer: str | None = None, group: str | None = None, silent_ms: int = 3_000, limit: int = 100
    ) -> TakenOver:
        reply: TakenOver = self._step(
            self.scripts.take_over(
                self.k, group or self.group, self.settings, consumer or self.consumer, silent_ms, limit, 5.0
            )
        )
        return reply

    def generation(self, group: str) -> str:
        """The group's generation as claim returns it, now or when the group last existed."""
        found = self.redis("HGET", self.k.settings, f"generation:{group}")
        if found is not None:
            self._generations[group] = found.decode()
        return self._generations.get(group, "0")

    def writes(self, op: Op[Any]) -> bool:
        """Whether it writes anything, by the server's own count, which fakeredis does not have."""
        before = self._changes()
        run(self.link, op)
        return self.is_fake or self._changes() > before

    def _changes(self) -> int:
        if self.is_fake:
            return 0
        return int(self.redis("INFO", "persistence").split(b"rdb_changes_since_last_save:")[1].split()[0])

    def call(self, name: str, *args: Any) -> Any:
        """Any other script, by name."""
        if name in ("cancel", "abort", "reschedule"):
            args = (self.settings, *args)
        return self._step(getattr(self.scripts, name)(self.k, *args))

    # -- the state

    def get(self, id: str) -> Job | None:
        return job_of("t", id, self.run(self.scripts.get(self.k, id)))

    def job(self, id: str) -> Job:
        """One that is there."""
        job = self.get(id)
        assert job is not None
        return job

    def state(self, id: str, group: str | None = None) -> str:
        """The job's state in the group: delayed, ready, running, dead, done, or gone."""
        job = self.get(id)
        return job.groups[group or self.group].state.value if job else "gone"

    def attempt(self, id: str, group: str | None = None) -> int:
        return self.job(id).groups[group or self.group].attempt

    @property
    def counts(self) -> dict[str, int]:
        """The counters that are not 0, except those that number deliveries and history rows."""
        flat = self.redis("HGETALL", self.k.counts)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return {
            name.decode(): int(value)
            for name, value in pairs
            if int(value) != 0 and name not in (b"sequence", b"history")
        }

    def entries(self, stream: str) -> list[bytes]:
        """The members in a ready stream, oldest first."""
        return [fields[1] for _, fields in self.redis("XRANGE", stream, "-", "+")]

    def pending(self, stream: str, group: str | None = None) -> list[Any]:
        """[entry, consumer, idle_ms, deliveries] of each pending entry."""
        rows: list[Any] = self.redis("XPENDING", stream, group or self.group, "-", "+", 100)
        return rows

    def last_wakeup(self) -> bytes | None:
        """The id of the last wakeup; it changes with each."""
        entries = self.redis("XRANGE", self.k.wake, "-", "+")
        assert len(entries) <= 1
        return entries[0][0] if entries else None

    def wakeup_ms(self) -> int | None:
        """The due time in the last wakeup."""
        entries = self.redis("XRANGE", self.k.wake, "-", "+")
        return int(entries[0][1][1]) if entries else None

    def history(self) -> list[list[str]]:
        """The rows, split into fields; rows from these tests are `row of ID` and a time."""
        return [row.decode().split("\x1f") for row in self.entries(self.k.history)]

    def failures(self) -> list[tuple[str, str]]:
        """What is kept of failed attempts: the id of the row in the history, and the text."""
        entries = self.redis("XRANGE", self.k.failures, "-", "+")
        return [(id.decode(), fields[1].decode()) for id, fields in entries]

    def events(self) -> list[tuple[str, str, str]]:
        """(event, id, group) of the rows that scripts wrote on their own."""
        return [(row[0], row[1], row[2]) for row in self.history() if len(row) > 2]

    def empty(self) -> bool:
        """Whether no data of any job is left."""
        kept = [
            self.redis("HLEN", self.k.jobs), self.redis("HLEN", self.k.progress), self.redis("ZCARD", self.k.bucket)
        ]  # fmt: skip
        streams = (self.k.ready, *map(self.k.ready_of, self.settings.group_names))
        kept += [self.redis("XLEN", stream) for stream in streams]
        kept += [self.redis("ZCARD", self.k.ranked_of(group)) for group in self.settings.group_names]
        for group in self.settings.group_names:
            kept += [len(self.pending(stream, group)) for stream in (self.k.ready, self.k.ready_of(group))]
        return not any(kept)

    def close(self) -> None:
        self.link.close()
        for opened in (self.moving, self.cutting):
            if opened is not None:
                opened.close()
