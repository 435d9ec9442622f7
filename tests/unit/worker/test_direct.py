"""The mover's call that also claims: when it does, and what becomes of it when the mover ends first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from streamdq.config import TopicSettings
from streamdq.errors import ServerUnavailable
from streamdq.keys import ShardKeys
from streamdq.store.replies import Moved
from streamdq.worker.direct import DirectClaims
from streamdq.worker.turns import Limit
from tests.unit.fake_redis import LOST, FakeLink, session_of, topics_of
from tests.unit.virtual_time import in_virtual_time

NOW_MS = 1_800_000_000_000
MOVED = Moved(1, NOW_MS, -1, 1)


def _link() -> Any:
    return FakeLink()


class Direct:
    """The calls that it makes, the slots that it keeps free, and the jobs that it hands on."""

    def __init__(self, most: int = 3, is_turn: bool = True) -> None:
        self.link = _link()
        self.session = session_of(call_timeout_s=0.05)
        scripts, topics = topics_of(self.session, t=TopicSettings())
        self.expected = 0
        self.taken: list[Any] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.reply: list[Any] = [[1, NOW_MS, -1, 1], [1, NOW_MS, 1000, 0, [b"1-0"], [b"j"], [b"rec"], 0, b"7", 0, 0]]
        self.link.answers = {"move": lambda _: [1, NOW_MS, -1, 1], "move_and_claim": lambda _: self._answer()}
        consumer: Any = SimpleNamespace(group="g", name="me", is_turn_of=lambda _: is_turn, given=self._given)
        runner: Any = SimpleNamespace(expect=self._expect)
        self.claims = DirectClaims(
            self.link, scripts, topics, consumer, runner, lambda _: Limit(most, 2 if most else 0), self.taken.append
        )
        self.shard: ShardKeys = self.session.keys.shard("t", 0)

    async def _answer(self) -> Any:
        await self.go_on.wait()
        return self.reply

    def _expect(self, calls: int) -> Callable[[], None]:
        self.expected += calls

        def end() -> None:
            self.expected -= calls

        return end

    @staticmethod
    def _given(_shard: ShardKeys, claimed: Any, _asked: float) -> list[bytes]:
        return [row.id for row in claimed.rows]

    async def move(self) -> Moved:
        return await self.claims.move(self.shard, ("g", "h"), 64, False)

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[asyncio.Task[Moved]]:
        """A call that Redis answers only at the end of the block."""
        self.go_on.clear()
        task = asyncio.create_task(self.move())
        await asyncio.sleep(0.005)
        yield task
        self.go_on.set()


async def test_an_idle_worker_claims_in_the_same_call() -> None:
    direct = Direct()
    assert await direct.move() == MOVED
    assert direct.taken == [[b"j"]]
    (call,) = direct.link.calls["move_and_claim"]
    assert call.args[1:5] == ("g", "me", 3, 60_000)
    assert call.args[6:] == (64, "g,h", 0)
    assert not direct.link.calls["move"]


@pytest.mark.parametrize(
    "direct", [lambda: Direct(most=0), lambda: Direct(is_turn=False)], ids=["full", "not its turn"]
)
async def test_otherwise_it_only_moves(direct: Any) -> None:
    direct = direct()
    assert await direct.move() == MOVED
    assert not direct.link.calls["move_and_claim"]
    assert direct.taken == []


async def test_slots_are_kept_free_while_the_call_is_under_way() -> None:
    direct = Direct()
    async with direct.under_way() as task:
        assert direct.expected == 2
    await task
    assert direct.expected == 0


async def test_a_call_that_claims_nothing_hands_on_nothing() -> None:
    direct = Direct()
    direct.reply = [[0, NOW_MS, -1, 0], [-1]]
    assert await direct.move() == Moved(0, NOW_MS, -1, 0)
    assert direct.taken == []
    assert direct.expected == 0


async def test_a_call_that_fails_frees_the_slots() -> None:
    direct = Direct()
    direct.link.answers["move_and_claim"] = lambda _: LOST
    with pytest.raises(ServerUnavailable):
        await direct.move()
    assert direct.expected == 0
    assert direct.taken == []


async def test_when_the_mover_ends_the_claims_of_its_call_do_not_get_lost() -> None:
    direct = Direct()
    async with direct.under_way() as task:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert direct.expected == 2
    await direct.claims.settled()
    assert direct.taken == [[b"j"]]
    assert direct.expected == 0


async def test_a_worker_that_stops_waits_for_the_call() -> None:
    direct = Direct()
    async with direct.under_way():
        settled = asyncio.create_task(direct.claims.settled())
        await asyncio.sleep(0.005)
        assert not settled.done()
    await settled
    assert direct.taken == [[b"j"]]


@in_virtual_time
async def test_it_does_not_wait_for_longer_than_it_is_let() -> None:
    direct = Direct()
    async with direct.under_way() as task:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await direct.claims.settled()
        assert direct.expected == 0, "the call has ended"
        await asyncio.wait({task})
        assert task.cancelled()


async def test_without_a_call_it_waits_for_nothing() -> None:
    direct = Direct()
    await direct.claims.settled()
    await direct.move()
    await direct.claims.settled()
