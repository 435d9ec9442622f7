"""Whom the mover asks on behalf of jobs that wait for others: against answers from a table, in virtual time."""

from __future__ import annotations

from typing import Any

from streamdq.config import TopicSettings
from streamdq.mover.endings import Endings
from tests.unit.fake_redis import Call, Rig
from tests.unit.mover.buckets import now_ms
from tests.unit.virtual_time import in_virtual_time
from tests.waiting import eventually, forever

LINKED = TopicSettings(linked=True)


class Asking(Rig):
    """Three jobs of the topic `t` each wait for a job of `lost`, whose node does not answer, and for one of `there`."""

    def __init__(self) -> None:
        super().__init__({"t": LINKED, "lost": LINKED, "there": LINKED})
        self.lost = self.session.keys.shard("lost", 0)
        self.answer: Any = forever
        others = b"lost\x1f0\x1fL\x1fp\nthere\x1f0\x1fL\x1fp"
        waiting = [part for n in range(3) for part in (b"d%d\x1fN" % n, 0, others, b"..")]
        self.link.answers |= {
            "endings": lambda call: [now_ms(), -1, 0 if self.is_of("t", call) else -1],
            "look_after": lambda _: [now_ms(), -1, *waiting],
            "attach": lambda call: self.answer() if self.is_of("lost", call) else [[b"L", 0, b""]] * self.size(call, 3),
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
    rig.answer = lambda: [[b"L", 0, b""]] * 3
    async with rig.running():
        await eventually(lambda: len(rig.link.calls["deliver"]) == 2, "all have answered")
        assert (len(rig.link.calls["look_after"]), rig.asked("lost"), rig.asked("there")) == (1, [3], [3])
