"""Whom the mover asks on behalf of jobs that wait for others: against answers from a table, in virtual time."""

from __future__ import annotations

from typing import Any

from streamdq.config import TopicSettings
from streamdq.mover.endings import Endings
from tests.unit.fake_redis import LOST, Call, Rig
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
            "attach": lambda call: self.answer() if self.is_of("lost", call) else [[b"L", 0, b""]],
            "deliver": lambda _: [1],
        }  # fmt: skip
        self.endings = Endings(self.link, self.session, self.scripts, self.topics, lambda _: None)
        self.endings.look_for_shards()

    def is_of(self, topic: str, call: Call) -> bool:
        return str(self.session.keys.shard(topic, 0).jobs).rpartition(":")[0] in str(call.keys[0])

    def asked(self, topic: str) -> set[str]:
        """The jobs on behalf of which it was asked."""
        return {call.args[-1].split("\x1f")[-1] for call in self.link.calls["attach"] if self.is_of(topic, call)}

    async def run(self) -> None:
        await self.endings.run()


@in_virtual_time
async def test_a_node_that_does_not_answer_holds_up_no_others() -> None:
    rig = Asking()
    async with rig.running():
        await eventually(lambda: len(rig.asked("there")) == 3, "the others are asked")
        assert rig.asked("lost") == {"d0"}


@in_virtual_time
async def test_a_look_waits_for_it_only_once() -> None:
    rig = Asking()
    rig.answer = lambda: LOST
    async with rig.running():
        await eventually(lambda: rig.endings._timers.is_uncertain(rig.session.keys.shard("t", 0)), "it looks")
        await eventually(lambda: not rig.endings._timers.is_uncertain(rig.session.keys.shard("t", 0)), "it has looked")
        assert rig.asked("lost") == {"d0"}
