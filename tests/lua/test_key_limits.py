"""Limits of keys: after any calls in any order, no key is over its limit, none is stuck, and all accounts balance."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from streamdq.store.replies import ClaimedRow
from tests.lua.shard import Shard
from tests.turns import others_later

KEYS = ("a", "b b", "c")
GROUPS = ("default", "two")
PACES = {0: None, "2/s": 500, "40/s": 25}  # key_rate, and ms from a start to the next
LAG_MS = 50


def of_keys(shard: Shard) -> tuple[str, ...]:
    k = shard.k
    return (
        k.key_waiting, k.key_admitted, k.key_tickets, k.key_unstarted, k.key_counts, k.key_paused, k.key_next_start,
    )  # fmt: skip


class Walk:
    """Random calls on a shard. It knows which attempts run."""

    def __init__(self, shard: Shard, seed: int) -> None:
        self.shard, self.random = shard, random.Random(seed)
        self.running: list[tuple[str, ClaimedRow]] = []
        self.paused: set[str] = set()
        self.number = 0
        self.limit = self.random.choice((1, 1, 2, 3))
        self.key_of: dict[bytes, str | None] = {}  # of those that were put in while there was a limit
        self.more: dict[bytes, int] = {}  # places that were taken when the limit was lowered
        self.groups = GROUPS[: self.random.choice((1, 2))]
        self.order = self.random.choice((True, False, "pass"))
        self.rate = self.random.choice((0, *PACES))
        self.next_ms: dict[tuple[str, str], float] = {}  # from when on the next one of a key may start
        shard.topic(groups=self.groups, key_concurrency=self.limit, key_order=self.order, key_rate=self.rate, ttr="10s")

    def step(self) -> None:
        calls: dict[str, int] = {
            "enqueue": 8, "unique": 2, "claim": 8, "finish": 5, "retry": 3, "bury": 2, "release": 2, "kick": 2,
            "cancel": 2, "reschedule": 3, "purge": 1, "replace": 2, "later": 6, "reclaim": 2, "take_over": 1,
            "pause": 1, "expire": 1, "remove": 1, "relimit": 2, "regroup": 1, "postpone": 2,
            "pause_key": 3, "abort": 4,
        }  # fmt: skip
        (name,) = self.random.choices(list(calls), list(calls.values()))
        getattr(self, name)()
        self.check()

    def check(self) -> None:
        out: Counter[tuple[str, str]] = Counter()
        for group, row in self.running:
            key = self.key_of[row.id]
            if key is not None:
                out[group, key] += 1
        if self.limit == 0:
            return
        places = self.places()
        self.more = {name: min(number, places[name]) for name, number in self.more.items()}
        for (group, key), count in out.items():
            assert count <= max(self.limit, self.more.get(f"{group}\x1f{key}".encode(), 0)), out

    def places(self) -> Counter[bytes]:
        tickets = self.shard.redis("ZRANGE", self.shard.k.key_admitted, 0, -1)
        return Counter(ticket.rpartition(b"\x1f")[0] for ticket in tickets)

    def some(self) -> tuple[str, ClaimedRow] | None:
        if not self.running:
            return None
        return self.running.pop(self.random.randrange(len(self.running)))

    def any_id(self) -> str:
        return f"j{self.random.randint(max(0, self.number - 15), self.number)}"

    def group(self) -> str:
        return self.random.choice(self.groups)

    def new(self, **more: Any) -> None:
        key = self.random.choice((*KEYS, None))
        ids = [f"j{self.number + n}" for n in range(1, self.random.choice((2, 4)))]
        self.number += len(ids)
        self.key_of |= {id.encode(): self._limited(key) for id in ids}
        self.shard.enqueue(*ids, delay=self.random.choice((0, 0, "1s", "20s")), key=key, **more)

    def _limited(self, key: str | None) -> str | None:
        return key if self.limit or self.rate else None

    def enqueue(self) -> None:
        self.new()

    def expire(self) -> None:
        self.new(expire="1s")

    def unique(self) -> None:
        key, id = self.random.choice(KEYS), self.any_id()
        self._put_over(
            id, key, lambda args: self.shard.scripts.enqueue_unique(self.shard.k, 1, "replace", [*args, "|||"])
        )

    def postpone(self) -> None:
        key, id = self.random.choice(KEYS), self.any_id()
        if self.limit == 0 and not self.rate:
            return
        self._put_over(
            id, key, lambda args: self.shard.scripts.enqueue_unique(self.shard.k, 1, "postpone", [*args, "|||"])
        )

    def replace(self) -> None:
        key, id = self.random.choice(KEYS), self.any_id()
        self._put_over(id, key, lambda args: self.shard.scripts.replace(self.shard.k, 1, args))

    def _put_over(self, id: str, key: str, script: Any) -> None:
        args = self.shard.jobs(id, key=key, delay=self.random.choice((0, "5s")))
        before = self.shard.get(id)
        reply = self.shard.run(script(args))
        job = self.shard.get(id)
        # An earlier one that is postponed is limited from now on, if its key is another one.
        limited = self.key_of.get(id.encode()) is not None or (before is not None and before.key != key)
        if not reply.taken or (limited and job is not None and job.key == key):  # it was replaced, or postponed
            self.key_of[id.encode()] = self._limited(key)
        self.shard.check()

    def claim(self) -> None:
        self.shard.move()
        group = self.group()
        consumer = self.random.choice(("me", "you"))
        rows = self.shard.claim(self.random.choice((1, 3, 10)), group, consumer).rows
        assert not {self.key_of[row.id] for row in rows} & self.paused
        self.running += [(group, row) for row in rows]
        for row in rows:
            self._started(group, row.id)

    def _started(self, group: str, id: bytes) -> None:
        key, pace, now = self.key_of[id], PACES[self.rate], self.shard.clock.now_ms
        if key is None or pace is None:
            return
        free = self.next_ms.get((group, key), now)
        assert now >= free - LAG_MS, (group, id, key, now, free)
        self.next_ms[group, key] = max(free, now - LAG_MS) + pace

    def finish(self) -> None:
        if found := self.some():
            self.shard.finish(found[1], group=found[0])

    def retry(self) -> None:
        if found := self.some():
            delay_ms, steps = self.random.choice((0, 500, 5000)), self.random.choice((1, -1))
            self.shard.retry(found[1], group=found[0], delay_ms=delay_ms, steps=steps)

    def bury(self) -> None:
        if found := self.some():
            self.shard.bury(found[1], group=found[0])

    def release(self) -> None:
        if found := self.some():
            self.shard.release(found[1], group=found[0])

    def kick(self) -> None:
        self.shard.call("kick", self.group(), 3, [])

    def purge(self) -> None:
        self.shard.call("purge", self.group(), 1, [])

    def cancel(self) -> None:
        self.shard.call("cancel", self.any_id())

    def abort(self) -> None:
        self.shard.call("abort", self.any_id(), self.random.choice(("", self.group())))

    def reschedule(self) -> None:
        self.shard.call("reschedule", self.any_id(), self.random.choice(("+0", "+3000", "+30000")))

    def pause(self) -> None:
        self.shard.redis("HSET", self.shard.k.settings, "paused", int(self.random.random() < 0.4))

    def pause_key(self) -> None:
        key, paused = self.random.choice(KEYS), self.random.random() < 0.5 and bool(self.limit or self.rate)
        while self.shard.call("pause_key", self.shard.settings, key, paused) == 0:
            pass
        (self.paused.add if paused else self.paused.discard)(key)

    def relimit(self) -> None:
        self.limit = self.random.choice((0, 1, 1, 2, 3))
        order = self.random.choice((False, True, "pass"))
        self.rate = self.random.choice((0, *PACES))
        if self.limit == 0 and not self.rate:
            self.key_of = dict.fromkeys(self.key_of)
        self.shard.topic(key_concurrency=self.limit, key_order=order, key_rate=self.rate)
        self.more = dict(self.places())
        self.next_ms.clear()

    def regroup(self) -> None:
        self.groups = self.random.choice((GROUPS, GROUPS[:1]))
        self.shard.topic(groups=self.groups)
        self.running = [(group, row) for group, row in self.running if group in self.groups]

    def later(self) -> None:
        self.shard.clock.advance(self.random.choice((100, 1500, 4000)) / 1000)
        self._forget_late()

    def _forget_late(self) -> None:
        """Attempts whose TTR may have passed are not relied on any more: they are taken over now."""
        for group in self.groups:
            self.shard.reclaim(group)
        self._still()

    def reclaim(self) -> None:
        self.shard.reclaim(self.group())
        self._still()

    def take_over(self) -> None:
        self.shard.take_over("you", self.group(), silent_ms=0)
        self._still()

    def remove(self) -> None:
        self.shard.call("remove_consumer", self.group(), "you", 100)
        self._still()

    def _still(self) -> None:
        """Only what is still running by the progress; what was handed over is not."""
        kept = []
        for group, row in self.running:
            value = self.shard.redis("HGET", self.shard.k.progress, f"{group}\x1f{row.id.decode()}")
            parts = value.split(b"|") if value else [b""]
            if parts[0] == b"r" and parts[4] == row.main and parts[6] == row.entry:
                kept.append((group, row))
        self.running = kept

    def drain(self) -> None:
        """In the end all jobs can be done: no key is stuck."""
        self.shard.redis("HSET", self.shard.k.settings, "paused", 0)
        for key in KEYS:
            self.shard.call("pause_key", self.shard.settings, key, False)
        for _ in range(1000):
            if self.shard.redis("HLEN", self.shard.k.jobs) == 0:
                break
            while self.running:
                self.finish()
            self.shard.clock.advance(40)
            self.shard.move()
            for group in self.groups:
                self.shard.reclaim(group)
                self.shard.call("purge", group, 100, [])
                rows = self.shard.claim(50, group).rows
                self.running += [(group, row) for row in rows]
                self.check()
        assert self.shard.empty()
        self.shard.topic(key_rate=0)
        for key in of_keys(self.shard):
            assert self.shard.redis("EXISTS", key) == 0


LATER = pytest.mark.thorough


@pytest.mark.parametrize("seed", others_later(range(25), 0))
def test_any_calls_in_any_order(shard: Shard, seed: int) -> None:
    walk = Walk(shard, seed)
    for _ in range(120):
        walk.step()
    walk.drain()


@pytest.mark.parametrize("how", ["enqueue", "replace", "keep"])
def test_a_call_lines_up_a_bounded_number(two: Shard, how: str) -> None:
    two.topic(key_concurrency=1)
    jobs = two.jobs(*(f"j{n}" for n in range(100)), key="a")
    if how == "keep":
        reply = two.repeat_unique(jobs)
    else:
        reply = two.run(getattr(two.scripts, how)(two.k, 1, jobs))
        two.check()
    assert reply.looked == 50
    assert two.counts["enqueued"] == two.redis("HLEN", two.k.jobs) == 50


def test_one_that_was_put_in_before_the_limit_is_limited_once_it_is_rescheduled(two: Shard) -> None:
    two.enqueue("before", "ready", delay=0, key="a")
    two.topic(key_concurrency=1)
    two.move()
    for id in ("before", "ready"):
        assert two.call("reschedule", id, "+1000") == 1
    assert two.redis("ZCARD", two.k.key_waiting) == 2
    two.clock.advance(1)
    two.move()
    assert [row.id for row in two.claim().rows] == [b"before"]
    assert [row.id for row in two.claim(group="b").rows] == [b"before"]


def test_a_place_goes_on_after_a_second_group_was_removed(two: Shard) -> None:
    """The job's entry in the shared stream stays, though only one group is left."""
    two.enqueue("a", key="k")
    two.bury(two.take())
    two.topic(groups=["a"], key_concurrency=1)
    two.call("kick", "a", 10, ["a"])
    two.enqueue("next", key="k")
    two.move()
    two.finish(two.take())
    two.move()
    two.finish(two.take())
    assert two.empty()
    assert two.redis("EXISTS", *of_keys(two)) == 0


@pytest.mark.parametrize("read", [True, False])
def test_a_place_goes_on_if_its_job_is_lost(shard: Shard, read: bool) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("lost", "next", key="k")
    shard.move()
    shard.checked = False  # the accounts show a lost job as missing
    if read:  # by a consumer that is gone before it claims what it has read
        shard.redis("XREADGROUP", "GROUP", "default", "gone", "STREAMS", shard.k.ready_of("default"), ">")
    shard.redis("HDEL", shard.k.jobs, "lost")
    if read:
        shard.call("remove_consumer", "default", "gone", 10)
    else:
        assert shard.claim().rows == []
    shard.move()
    assert shard.take().id == b"next"


def test_who_is_postponed_to_another_key_waits_for_that_one(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", key="k")
    shard.enqueue("b", "b2", key="other")
    shard.move()
    shard.enqueue_unique("a", how="postpone", delay=5, key="other")
    shard.move()
    (row,) = shard.claim().rows
    assert row.id == b"b"
    for id in (b"b2", b"a"):
        shard.finish(row)
        shard.move()
        row = shard.take()  # it was due before, and stays so
        assert row.id == id


@pytest.mark.parametrize(("delay", "key"), [(60, "k"), (60, "other"), (60, None), (0, None)])
def test_a_waiting_job_of_a_key_is_postponed(two: Shard, delay: int, key: str | None) -> None:
    """One that is due stays due; another one gets its new time, whether it has a place or not."""
    two.topic(key_concurrency=1)
    two.enqueue("first", "second", delay=delay, key="k")
    two.move()
    two.enqueue_unique("first", "second", how="postpone", delay=90, key=key)
    two.clock.advance(delay)
    two.move()
    for group in ("a", "b"):
        assert len(two.claim(group=group).rows) == (0 if delay else 2)
    two.clock.advance(90)
    two.move()
    for group in ("a", "b"):
        assert len(two.claim(group=group).rows) == (1 if key else 2 if delay else 0)


def test_a_key_over_its_limit_lets_nobody_in(shard: Shard) -> None:
    """The limit was lowered while two were due, and then the clock was set back."""
    shard.topic(key_concurrency=2)
    shard.enqueue("a", "b", key="k")
    shard.topic(key_concurrency=1)
    shard.clock.now_ms -= 3_600_000
    shard.enqueue("c", key="k")
    shard.move()
    assert [row.id for row in shard.claim().rows] == [b"c"]
    shard.enqueue("d", key="k")
    shard.move()
    assert shard.claim().rows == []


def test_what_is_ready_keeps_its_place_when_the_clock_is_set_back(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", key="k")
    shard.move()
    shard.clock.now_ms -= 3_600_000
    shard.enqueue("b", key="k")
    assert [ticket[-1:] for ticket in shard.redis("ZRANGE", shard.k.key_admitted, 0, -1)] == [b"a"]
    shard.clock.now_ms += 3_600_000
    assert [row.id for row in shard.claim().rows] == [b"a"]


def test_it_wakes_the_mover_for_what_is_due_before_all_others(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", key="k", delay="10s")
    assert shard.wakeup_ms() == shard.clock.now_ms + 10_000
    before = shard.last_wakeup()
    shard.enqueue("b", key="l", delay="10s")
    shard.enqueue("c", key="m", delay="20s")
    shard.enqueue("d", key="k", delay="30s")
    assert shard.last_wakeup() == before
    shard.enqueue("e", key="n", delay="5s")
    assert shard.wakeup_ms() == shard.clock.now_ms + 5_000


@pytest.mark.parametrize(("limit", "key"), [(0, None), (0, "k"), (1, None), (1, "k")])
@pytest.mark.parametrize("begun", [True, False])
def test_who_was_rescheduled_is_postponed_if_no_attempt_has_begun(
    shard: Shard, begun: bool, limit: int, key: str | None
) -> None:
    shard.topic(key_concurrency=limit)
    shard.enqueue("a", key=key)
    shard.move()
    row = shard.take()
    if begun:
        shard.retry(row, delay_ms=1000)
    else:
        shard.release(row)
    assert shard.call("reschedule", "a", "+60000") == 1
    at_ms = shard.clock.now_ms
    shard.enqueue_unique("a", how="postpone", delay=90, key=key)
    job = shard.job("a")
    assert job.groups["default"].due_ms == job.due_ms == at_ms + (60_000 if begun else 90_000)
    shard.clock.advance(60)
    shard.move()
    assert len(shard.claim().rows) == begun
    shard.clock.advance(30)
    shard.move()
    assert len(shard.claim().rows) == 1 - begun


def test_a_begun_job_that_is_postponed_to_a_key_waits_for_it_with_each_group(two: Shard) -> None:
    """A group that has not begun it has nothing but the first due time."""
    two.topic(key_concurrency=1)
    first_ms = two.clock.now_ms
    two.enqueue("j")
    two.retry(two.take(), delay_ms=60_000)
    two.enqueue_unique("j", how="postpone", delay="1h", key="k")
    job = two.job("j")
    begun, other = job.groups["a"], job.groups["b"]
    assert (begun.attempt, begun.step, begun.error, begun.due_ms) == (1, 1, "Oops: again", first_ms + 60_000)
    assert (other.attempt, other.step, other.crashes, other.error, other.due_ms) == (0, 0, 0, None, first_ms)
    two.move()
    assert [row.id for row in two.claim(group="b").rows] == [b"j"]
    assert two.claim().rows == []
    two.clock.advance(60)
    two.move()
    (row,) = two.claim().rows
    assert row.parts()[2] is not None, "the second attempt"


@pytest.mark.parametrize("key", ["k", None])
def test_who_is_postponed_comes_before_who_is_rescheduled_after_it(shard: Shard, key: str | None) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("z", "a", delay=60, key=key)
    shard.enqueue_unique("z", how="postpone", delay=90, key="k")
    assert shard.call("reschedule", "a", "+90000") == 1
    shard.clock.advance(90)
    shard.move(1)
    assert [row.id for row in shard.claim().rows] == [b"z"]


@pytest.mark.parametrize("delay", [0, 60])
def test_who_had_no_key_is_postponed_to_one(shard: Shard, delay: int) -> None:
    """If it is due, it stays so."""
    shard.topic(key_concurrency=1)
    shard.enqueue("a", delay=delay)
    shard.enqueue_unique("a", how="postpone", delay=90, key="k")
    shard.clock.advance(delay)
    shard.move()
    assert len(shard.claim().rows) == (delay == 0)
    shard.clock.advance(90)
    shard.move()
    assert len(shard.claim().rows) == (delay > 0)


def test_a_call_postpones_so_many_jobs_with_keys_at_most(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    ids = [f"j{n:03}" for n in range(120)]
    shard.enqueue(*ids[:60], delay=60, key="k")
    shard.enqueue(*ids[60:], delay=60, key="k")
    assert shard.enqueue_unique(*ids, how="postpone", delay=90, key="k").looked == 100


def test_no_new_job_waits_while_the_last_ones_are_admitted(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", "b", delay=60, key="k")
    shard.enqueue("c", delay=60)
    shard.redis("HSET", shard.k.settings, "key_limit", 0, "limit_applied_to", "")
    for id in "abc":
        shard.enqueue_unique(id, how="postpone", delay=90, key="other")
    assert shard.redis("ZCARD", shard.k.key_waiting) == shard.redis("HLEN", shard.k.key_tickets) == 0
    shard.clock.advance(90)
    shard.move()
    assert len(shard.claim().rows) == 3


@pytest.mark.parametrize("key", ["k", None])
def test_who_came_before_the_limit_is_postponed_without_a_place(shard: Shard, key: str | None) -> None:
    shard.enqueue("a", delay=60, key="k")
    shard.topic(key_concurrency=1)
    shard.enqueue_unique("a", how="postpone", delay=90, key=key)
    assert shard.redis("HLEN", shard.k.key_tickets) == 0
    shard.clock.advance(90)
    shard.move()
    assert shard.take().id == b"a"


def test_no_job_waits_for_one_that_is_not_due_any_more_as_the_clock_was_set_back(shard: Shard) -> None:
    shard.topic(key_order=True)
    shard.enqueue("ready", key="k")
    shard.move()
    shard.clock.now_ms -= 3_600_000
    shard.enqueue("sooner", key="k")  # the other one is in the stream, and so it keeps its place
    assert shard.claim().rows == []
    shard.move()
    shard.finish(shard.take())
    assert (shard.state("sooner"), shard.state("ready")) == ("gone", "delayed")
    shard.clock.advance("1h")
    shard.move()
    assert shard.take().id == b"ready"
