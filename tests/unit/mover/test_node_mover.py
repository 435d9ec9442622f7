"""When a shard is looked at, and what follows from what is found: against buckets kept here, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from redis.exceptions import ResponseError

from streamdq.config import MAX_BATCH, GroupSettings, TopicSettings
from streamdq.keys import ShardKeys
from streamdq.mover import node_mover as module
from streamdq.mover.node_mover import NodeMover
from streamdq.store.replies import RATED
from streamdq.times.clock import ManualClock, RedisClock
from tests.unit.fake_redis import LOST, Call, Rig
from tests.unit.mover.buckets import EPOCH_MS, Buckets, now_ms
from tests.unit.virtual_time import in_virtual_time

TOPIC = TopicSettings(groups={"g": GroupSettings()}, ttr_ms=1000)
SLACK_MS = 2  # a look is never early, and late by the millisecond that replies are rounded to


class Moving(Rig):
    """A NodeMover, the buckets that it empties, when it looked at each and moved something, and what it told others."""

    def __init__(self, clock: RedisClock | None = None, **topics: TopicSettings) -> None:
        super().__init__(topics or {"t": TOPIC}, clock)
        self.buckets = Buckets()
        self.looks: list[tuple[str, int]] = []
        self.moved: list[tuple[str, int, int]] = []  # topic, when, how many
        self.open = 0
        self.missed: list[ShardKeys] = []
        self.rated: list[ShardKeys] = []
        self.link.answers |= {
            "move": self.move, "reclaim": lambda _: [now_ms(), b"0-0", b"0-0", 0, 0, 0, 0, [], 0, 0],
            "ZRANGE": self.buckets.heads, "HMGET": lambda _: [b"0"], "HGET": lambda _: b"0",
            "TIME": lambda _: [now_ms() // 1000, now_ms() % 1000 * 1000],
        }  # fmt: skip
        self.mover = NodeMover(
            self.link,
            self.store,
            self.missed.append,
            self.rated.append,
            lambda *_: None,
        )

    def shard(self, topic: str = "t") -> ShardKeys:
        return self.session.keys.shard(topic, 0)

    def add(self, topic: str, *in_ms: int) -> None:
        self.buckets.add(self.shard(topic).bucket, *in_ms)

    def move(self, call: Call) -> Any:
        """Answers the script."""
        bucket = call.keys[0]
        topic = bucket.split("{")[1].split(":")[0]
        self.looks.append((topic, now_ms()))
        if count := self.buckets.move(bucket, int(call.args[1])):
            self.moved.append((topic, now_ms(), count))
        return [count, now_ms(), min(self.buckets.due(bucket), default=-1), self.open]

    async def run(self) -> None:
        await self.mover.run()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Every shard has been looked at once when it begins."""
        for topic in self.topics.known:
            self.mover.look_at(self.shard(topic))
        async with super().running():
            await asyncio.sleep(0.001)
            yield


@in_virtual_time
async def test_it_sleeps_to_each_due_moment_and_looks_at_no_other() -> None:
    rig = Moving()
    rig.add("t", 5, 300, 300, 700)
    began = now_ms()
    async with rig.running():
        await asyncio.sleep(1)
    moved = [(when - began, count) for _, when, count in rig.moved]
    assert [count for _, count in moved] == [1, 2, 1]
    for (when, _), due in zip(moved, (5, 300, 700), strict=True):
        assert due <= when <= due + SLACK_MS
    assert len(rig.looks) == 4, "one to begin with, and one for each due moment"


@in_virtual_time
async def test_where_nothing_waits_it_does_not_look_again() -> None:
    rig = Moving()
    async with rig.running():
        await asyncio.sleep(600)
    assert len(rig.looks) == 1


@in_virtual_time
async def test_of_many_due_at_once_the_first_few_go_first_so_that_they_start_before_all_are_moved() -> None:
    rig = Moving()
    rig.add("t", *[0] * 1_501)
    began = now_ms()
    async with rig.running():
        rig.add("t", 50)
        rig.mover.look_at(rig.shard())
        await asyncio.sleep(0.1)
    counts = [count for when, count in ((when - began, count) for _, when, count in rig.moved) if when == 0]
    assert counts == [8, 32, 128, MAX_BATCH, MAX_BATCH, 333]
    assert [count for _, _, count in rig.moved][len(counts) :] == [1], "no batch goes over into the next moment"


@in_virtual_time
async def test_a_wakeup_wakes_it_before_its_time() -> None:
    rig = Moving()
    rig.add("t", 1000)
    async with rig.running():
        await asyncio.sleep(0.1)
        rig.add("t", 50)
        rig.mover.look_at(rig.shard())
        began = now_ms()
        await asyncio.sleep(0.1)
    assert [(when - began) in range(50, 51 + SLACK_MS) for _, when, _ in rig.moved] == [True]


@in_virtual_time
async def test_a_wakeup_that_comes_while_it_looks_is_not_lost() -> None:
    """The look's reply lacks what was put in behind it, and says that nothing waits."""
    rig = Moving()
    rig.link.takes_s = 0.01  # the reply is made when the call arrives, and travels for so long
    async with rig.running():
        assert len(rig.looks) == 1
        rig.add("t", 0)
        rig.mover.look_at(rig.shard())
        began = now_ms()
        await asyncio.sleep(0.1)
    assert [(when - began) <= 10 for _, when, _ in rig.moved] == [True]


@in_virtual_time
async def test_a_shard_that_fails_is_tried_at_growing_intervals_and_holds_up_no_other() -> None:
    rig = Moving(bad=TOPIC, good=TOPIC)
    move = rig.move
    broken = True

    def refused(call: Call) -> Any:
        if "bad" in call.keys[0] and broken:
            rig.looks.append(("bad", now_ms()))
            return ResponseError("OOM command not allowed")  # plain reads are answered meanwhile
        return move(call)

    rig.link.answers["move"] = refused
    rig.add("bad", 0)
    rig.add("good", 400)
    async with rig.running():
        await asyncio.sleep(10)
        broken = False
        await asyncio.sleep(2.1)
        rig.add("bad", 0)
        broken = True
        rig.mover.look_at(rig.shard("bad"))
        await asyncio.sleep(0.06)
    tries = [when for topic, when in rig.looks if topic == "bad"]
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[:7] == pytest.approx([50, 100, 200, 400, 800, 1600, 2000], abs=1)
    assert max(pauses[:9]) <= 2001
    assert pauses[-1] == pytest.approx(50, abs=1), "after a success the first pause is short again"
    assert [topic for topic, _, _ in rig.moved] == ["good", "bad"]
    assert rig.missed == [], "what a shard holds that failed was told of"


@in_virtual_time
async def test_a_reply_that_is_lost_is_a_failure_like_any_other() -> None:
    rig = Moving()
    move, lost = rig.move, 3
    rig.session.settings = rig.session.settings.model_copy(update={"call_timeout_s": 0.001})

    def sometimes(call: Call) -> Any:
        nonlocal lost
        lost -= 1
        return LOST if lost >= 0 else move(call)

    rig.link.answers["move"] = sometimes
    rig.add("t", 0)
    async with rig.running():
        await asyncio.sleep(1)
    assert [count for _, _, count in rig.moved] == [1]


@in_virtual_time
async def test_a_shard_with_other_groups_is_asked_with_these() -> None:
    """A group is just being added: the registry that is known here does not have it yet."""
    rig = Moving()
    move = rig.move
    rig.link.answers["move"] = lambda call: move(call) if call.args[2] == "g,h" else [-1, now_ms(), -1, 0, b"g,h"]
    rig.add("t", 0)
    async with rig.running():
        pass
    assert [call.args[2] for call in rig.link.calls["move"]] == ["g", "g,h"]
    assert len(rig.moved) == 1


@in_virtual_time
async def test_a_topic_with_a_rate_is_handed_on() -> None:
    rig = Moving(slow=TOPIC.model_copy(update={"rate": 5.0}))
    rig.add("slow", 0)
    async with rig.running():
        assert (rig.rated, rig.looks) == ([rig.shard("slow")], [])
        await rig.mover.move_permitted(rig.shard("slow"), 3)
    (call,) = rig.link.calls["move"]
    assert (call.args[1], call.args[3]) == (3, 1), "so many, and permitted"


@in_virtual_time
async def test_all_that_is_permitted_moves_though_one_call_moves_fewer() -> None:
    rig = Moving(slow=TOPIC.model_copy(update={"rate": 5.0}))
    move = rig.move

    def at_most_two(call: Call) -> Any:
        return move(call._replace(args=(call.args[0], min(2, int(call.args[1])), *call.args[2:])))

    rig.link.answers["move"] = at_most_two
    rig.add("slow", *[0] * 9)
    async with rig.running():
        await rig.mover.move_permitted(rig.shard("slow"), 5)
    assert [count for _, _, count in rig.moved] == [2, 2, 1]


@in_virtual_time
async def test_a_rate_that_only_the_shard_knows_of_is_learned() -> None:
    rig = Moving()
    rated = TOPIC.model_copy(update={"rate": 5.0, "version": 7})
    rig.link.answers["move"] = lambda _: [RATED, now_ms(), -1, 0]
    rig.link.answers["HGET"] = lambda call: rated.model_dump_json().encode() if "t" in call.args else b"7"
    async with rig.running():
        pass
    assert (rig.rated, rig.topics.known["t"].rate) == ([rig.shard()], 5.0)


@in_virtual_time
async def test_a_deleted_topic_is_not_looked_at_any_more() -> None:
    rig = Moving()
    rig.add("t", 100)
    async with rig.running():
        del rig.topics.known["t"]
        rig.mover.keep(set())
        await asyncio.sleep(60)
        assert rig.shard() not in rig.mover
    assert len(rig.looks) == 1


@in_virtual_time
async def test_a_shard_that_is_dropped_while_another_is_moved_is_not_looked_at() -> None:
    rig = Moving(t=TOPIC, other=TOPIC)

    def dropping(call: Call) -> Any:
        rig.mover.keep({rig.shard()})
        return rig.move(call)

    async with rig.running():
        rig.looks.clear()
        rig.link.answers["move"] = dropping
        rig.mover.look_everywhere()
        await asyncio.sleep(1)
    assert [topic for topic, _ in rig.looks] == ["t"]


@pytest.mark.parametrize(
    ("disturb", "within_s"),
    [
        (lambda _: None, module._QUIET_S),
        (lambda rig: rig.mover.on_wakeup(rig.shard()), module._BEAT_S),
        (lambda rig: rig.mover.check_versions(), module._BEAT_S),
    ],
    ids=["out of the blue", "after a wakeup", "after trouble"],
)
@in_virtual_time
async def test_a_head_without_a_wakeup_is_found(disturb: Callable[[Moving], None], within_s: float) -> None:
    rig = Moving()
    async with rig.running():
        await asyncio.sleep(60)
        assert rig.missed == []
        disturb(rig)
        await asyncio.sleep(0.01)
        rig.add("t", 0)
        began = now_ms()
        await asyncio.sleep(within_s + 0.02)
        assert rig.missed == [rig.shard()]
    ((_, when, count),) = rig.moved
    assert (when - began <= within_s * 1000, count) == (True, 1)


@in_virtual_time
async def test_a_wakeup_during_a_pass_over_many_shards_is_followed_by_another() -> None:
    rig = Moving(None, **{f"t{n}": TOPIC for n in range(3 * module._HEADS)})
    async with rig.running():
        await asyncio.sleep(60)
        rig.mover.on_wakeup(rig.shard("t0"))
        await asyncio.sleep(2.5 * module._BEAT_S)  # meanwhile it has looked at most of them
        rig.mover.on_wakeup(rig.shard("t0"))
        await asyncio.sleep(0.01)
        for n in range(3 * module._HEADS):
            rig.add(f"t{n}", 0)
        await asyncio.sleep(4.1 * module._BEAT_S)
        assert len(rig.moved) == 3 * module._HEADS


@in_virtual_time
async def test_a_look_that_fails_is_made_up_for() -> None:
    rig = Moving()
    heads = rig.link.answers["ZRANGE"]
    async with rig.running():
        await asyncio.sleep(60)
        rig.link.answers["ZRANGE"] = lambda _: LOST
        rig.mover.on_wakeup(rig.shard())
        await asyncio.sleep(2 * module._BEAT_S)
        rig.add("t", 0)
        rig.link.answers["ZRANGE"] = heads
        await asyncio.sleep(2 * module._BEAT_S + 2)
        assert rig.missed == [rig.shard()]


@pytest.mark.parametrize(("topics", "a_second"), [(1, 0.2), (20, 0.8), (100, 0.8)])
@in_virtual_time
async def test_while_no_wakeup_comes_it_asks_little_however_many_topics_there_are(topics: int, a_second: float) -> None:
    rig = Moving(None, **{f"t{n}": TOPIC for n in range(topics)})
    async with rig.running():
        await asyncio.sleep(60)
        before = sum(map(len, rig.link.calls.values()))
        await asyncio.sleep(600)
        asked = sum(map(len, rig.link.calls.values())) - before
        looked = {call.args[0] for call in rig.link.calls["ZRANGE"][-topics:]}
    assert asked / 600 < a_second
    assert len(looked) == topics, "all have their turn"
    assert rig.link.calls["HGET"]


@in_virtual_time
async def test_when_the_clock_was_set_forward_all_shards_are_looked_at() -> None:
    count = 3 * module._QUIET_SHARDS
    rig = Moving(None, **{f"t{n}": TOPIC for n in range(count)})
    for n in range(count):
        rig.add(f"t{n}", 3_000_000)
    async with rig.running():
        await asyncio.sleep(60)
        ahead_ms = 3_600_000
        rig.link.answers["TIME"] = lambda _: [(now_ms() + ahead_ms) // 1000, now_ms() % 1000 * 1000]
        rig.looks.clear()
        await asyncio.sleep(module._QUIET_S + 2 * module._BEAT_S)
        assert {topic for topic, _ in rig.looks} == {f"t{n}" for n in range(count)}


@in_virtual_time
async def test_a_head_seen_while_its_shard_is_looked_at_was_not_missed() -> None:
    rig = Moving()
    move = rig.move

    async def slow(call: Call) -> Any:
        await asyncio.sleep(2 * module._BEAT_S)
        return move(call)

    async with rig.running():
        rig.link.answers["move"] = slow
        rig.add("t", 0)
        rig.mover.look_at(rig.shard())
        await asyncio.sleep(3 * module._BEAT_S)
    assert rig.missed == []
    assert [topic for topic, _, _ in rig.moved] == ["t"]
    assert len(rig.looks) == 2, "one to begin with, and the one after the wakeup"


@in_virtual_time
async def test_a_wakeup_that_is_missed_after_a_failure_is_found_once_the_shard_works_again() -> None:
    rig = Moving()
    move = rig.move
    rig.link.answers["move"] = lambda _: ResponseError("OOM command not allowed")
    async with rig.running():
        await asyncio.sleep(10)
        rig.link.answers["move"] = move
        await asyncio.sleep(2.1)
        rig.add("t", 0)
        await asyncio.sleep(module._QUIET_S + 0.01)
        assert rig.missed == [rig.shard()]
    assert [topic for topic, _, _ in rig.moved] == ["t"]


@in_virtual_time
async def test_what_was_moved_is_watched_for_claims_that_are_lost() -> None:
    rig = Moving()
    rig.open = 1
    rig.add("t", 0)
    async with rig.running():
        await asyncio.sleep(1)
        assert len(rig.link.calls["reclaim"]) in (2, 3), "twice a second"
        rig.open = 0
        await asyncio.sleep(20)
        asked = len(rig.link.calls["reclaim"])
        await asyncio.sleep(60)
    assert len(rig.link.calls["reclaim"]) == asked, "nothing runs: nobody asks"


@in_virtual_time
async def test_by_a_manual_clock_it_looks_when_the_clock_moves() -> None:
    clock = ManualClock(EPOCH_MS)
    rig = Moving(clock)
    rig.link.answers["move"] = lambda _: [0, clock.now_ms, EPOCH_MS + 90_000, 0]
    async with rig.running():
        await asyncio.sleep(3600)
        assert len(rig.link.calls["move"]) == 1
        clock.on_change(rig.mover.look_everywhere)
        clock.advance("60s")
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
    assert [call.args[0] for call in rig.link.calls["move"]] == [str(EPOCH_MS), str(EPOCH_MS + 60_000)]
