"""Whom the mover asks on behalf of jobs that wait for others: against answers from a table, in virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from streamdq.config import TopicSettings
from streamdq.mover.endings import Endings
from tests.unit.fake_redis import Call, Rig
from tests.unit.mover.buckets import now_ms
from tests.unit.steps import steps
from tests.unit.virtual_time import in_virtual_time
from tests.waiting import eventually, forever

LINKED = TopicSettings(linked=True)
DEAD = [b"L", 7, b"dead"]


class Asking(Rig):
    """Three jobs of the topic `t` each wait for a job of `lost`, whose node does not answer, and for one of `there`,
    which is dead.
    """

    def __init__(self) -> None:
        super().__init__({"t": LINKED, "lost": LINKED, "there": LINKED})
        self.lost = self.session.keys.shard("lost", 0)
        self.answer: Any = forever
        others = b"lost\x1f0\x1fL\x1fp\nthere\x1f0\x1fL\x1fp"
        waiting = [part for n in range(3) for part in (b"d%d\x1fN" % n, 0, others, b"..")]
        self.link.answers |= {
            "endings": lambda call: [now_ms(), -1, 0 if self.is_of("t", call) else -1],
            "look_after": lambda _: [now_ms(), -1, *waiting],
            "attach": lambda call: self.answer() if self.is_of("lost", call) else [DEAD] * self.size(call, 3),
            "deliver": lambda call: [1] * self.size(call, 4),
        }  # fmt: skip
        self.endings = Endings(self.link, self.store, lambda _: None, lambda _: None)
        self.endings.look_for_shards()

    def is_of(self, topic: str, call: Call) -> bool:
        return str(self.session.keys.shard(topic, 0).jobs).rpartition(":")[0] in str(call.keys[0])

    @staticmethod
    def size(call: Call, width: int) -> int:
        return (len(call.args) - 2) // width

    def asked(self, topic: str) -> list[int]:
        """How much each call asked of it."""
        return [self.size(call, 3) for call in self.link.calls["attach"] if self.is_of(topic, call)]

    async def run(self) -> None:
        await self.endings.run()


@in_virtual_time
async def test_a_node_that_does_not_answer_holds_up_no_others() -> None:
    rig = Asking()
    async with rig.running():
        await eventually(lambda: rig.link.calls["deliver"], "the others have answered")
        assert rig.asked("lost") == [3]


@in_virtual_time
async def test_what_several_jobs_ask_of_the_same_shard_goes_together() -> None:
    """Otherwise many jobs that wait for long would make an idle deployment send many commands."""
    rig = Asking()
    rig.answer = lambda: [DEAD] * 3
    async with rig.running():
        await eventually(lambda: len(rig.link.calls["deliver"]) == 2, "all have answered")
        assert (len(rig.link.calls["look_after"]), rig.asked("lost"), rig.asked("there")) == (1, [3], [3])


@in_virtual_time
async def test_a_job_hears_nothing_of_others_to_which_nothing_has_happened() -> None:
    """Of ten thousand others that wait themselves, that would be twenty calls that change nothing."""
    rig = Asking()
    rig.answer = lambda: [[b"L", 0, b""], [b"L", 0, b"unknown"], [b"L", 0, b""]]
    async with rig.running():
        await eventually(lambda: len(rig.link.calls["deliver"]) == 2, "all have answered")
        reported = {call.args[2:][::4] for call in rig.link.calls["deliver"]}
        assert reported == {("d0", "d1", "d2"), ("d1",)}


def test_the_work_for_an_ending_grows_with_its_followers_and_not_faster() -> None:
    """Up to 2,500 jobs may wait for one, and 500 for each gate of a flow."""
    few, many = (steps(partial(asyncio.run, Telling(count).look())) for count in (100, 400))
    assert many < 5 * few


class Telling(Rig):
    """A job has ended, for which so many others wait."""

    def __init__(self, count: int) -> None:
        super().__init__({"t": LINKED})
        lines = b"".join(b"0\x1ft\x1f0\x1f0\x1fN\x1fd%d\n" % n for n in range(count))
        self.link.answers |= {
            "endings": lambda _: [now_ms(), -1, -1, b"p\x1fL", b"L|1|done\n" + lines],
            "deliver": lambda call: [1] * ((len(call.args) - 2) // 4),
            "delivered": lambda _: 1,
        }

    async def look(self) -> None:
        endings = Endings(self.link, self.store, lambda _: None, lambda _: None)
        await endings._look(self.session.keys.shard("t", 0))
        assert [len(self.link.calls[name]) for name in ("endings", "delivered")] == [1, 1]

    async def run(self) -> None:
        await self.look()
