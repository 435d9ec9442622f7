"""Several processes and one dead receiver: what one finds out, the others know."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from yarl import URL

from streamdq.callback.breaker import FIRST_OPEN_S, OPENS_AFTER, Endpoint, Endpoints, NotNow
from streamdq.callback.shared import LOOK_EVERY_S, MOST, Shared
from streamdq.config import Settings
from streamdq.keys import NamespaceKeys
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.times.clock import ManualClock
from tests.callback.conftest import caller
from tests.callback.receiver import Receiver, answer
from tests.redis.harness import NAMESPACE, Space
from tests.servers import Server, free_port
from tests.waiting import HANG_S, eventually

URL_ = URL("https://dead.example/hook")
KEY = NamespaceKeys(NAMESPACE).breakers
HOLD_S = 16.0


class Process:
    """What one process knows. By a clock that all share with Redis."""

    def __init__(self, url: str, clock: ManualClock, call_timeout_s: float) -> None:
        self._link, session = open_session(url, NAMESPACE, Settings(call_timeout_s=call_timeout_s), clock, AsyncLink)
        self._clock = clock
        self.endpoints = Endpoints(50, lambda: clock.now_ms / 1000, NAMESPACE)
        self.shared = Shared(self._link, session, lambda: clock.now_ms, HOLD_S, self.endpoints.seen)
        self.endpoints.share(self.shared)

    @property
    def endpoint(self) -> Endpoint:
        return self.endpoints.at(URL_)

    async def look(self) -> None:
        """As it would after a second."""
        self.shared._looked = -math.inf
        await self.shared.look()
        await self.shared.told()

    async def call(self, alive: bool) -> None:
        self.endpoint.leave(await self.endpoint.enter(), alive)
        await self.shared.told()

    async def find_dead(self) -> None:
        for _ in range(OPENS_AFTER):
            await self.call(alive=False)

    async def refused(self) -> float | None:
        """How long it is to wait; None: somebody is at it."""
        with pytest.raises(NotNow) as busy:
            await self.endpoint.enter()
        return busy.value.wait_s

    async def close(self) -> None:
        await self.shared.close()
        await self._link.close()


@asynccontextmanager
async def processes(
    url: str, clock: ManualClock, count: int, call_timeout_s: float = HANG_S
) -> AsyncIterator[list[Process]]:
    opened = [Process(url, clock, call_timeout_s) for _ in range(count)]
    try:
        yield opened
    finally:
        for each in opened:
            await each.close()


@pytest.fixture(autouse=True)
def _redis_has_time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.callback.shared._ANSWER_S", HANG_S)


@pytest.fixture
async def three(redis_server: Server, clock: ManualClock) -> AsyncIterator[list[Process]]:
    async with processes(redis_server.url, clock, 3) as opened:
        yield opened


async def test_what_one_finds_dead_no_other_calls(three: list[Process]) -> None:
    first, second, third = three
    await first.find_dead()
    assert await first.refused() == FIRST_OPEN_S
    for other in (second, third):
        await other.look()
        assert await other.refused() == FIRST_OPEN_S


async def test_one_of_all_tries_and_an_answer_frees_the_others(three: list[Process], clock: ManualClock) -> None:
    first, second, third = three
    await first.find_dead()
    await second.look()
    clock.advance(FIRST_OPEN_S)
    ticket = await second.endpoint.enter()
    assert await first.refused() is None, "another tries it"
    await third.look()
    assert await third.refused() is None
    second.endpoint.leave(ticket, True)
    await second.shared.told()
    for other in (first, third):
        await other.look()
        await other.call(alive=True)


async def test_a_call_that_fails_again_keeps_all_off_for_twice_as_long(
    three: list[Process], clock: ManualClock
) -> None:
    first, second, third = three
    await first.find_dead()
    for open_s in (2 * FIRST_OPEN_S, 4 * FIRST_OPEN_S):
        clock.advance(open_s / 2)
        await second.look()
        await second.call(alive=False)
        assert await second.refused() == open_s
        assert await first.refused() == open_s
        await third.look()
        assert await third.refused() == open_s


async def test_who_dies_while_it_tries_is_not_waited_for_for_good(three: list[Process], clock: ManualClock) -> None:
    first, second, _ = three
    await first.find_dead()
    await second.look()
    clock.advance(FIRST_OPEN_S)
    await first.endpoint.enter()  # and nothing more is heard of it
    assert await second.refused() is None
    clock.advance(HOLD_S)
    await second.call(alive=True)


async def test_who_has_just_had_an_answer_does_not_believe_it(three: list[Process], clock: ManualClock) -> None:
    """The other one may have lost its network."""
    cut_off, fine, _ = three
    await fine.call(alive=True)
    await cut_off.find_dead()
    await fine.look()
    await fine.call(alive=True)
    clock.advance(FIRST_OPEN_S - 1)
    await fine.call(alive=False)
    await fine.look()
    assert await fine.refused() == 1.0, "one call failed here as well"


async def test_without_redis_each_goes_by_what_it_finds(clock: ManualClock) -> None:
    async with processes(f"redis://127.0.0.1:{free_port()}", clock, 1, call_timeout_s=0.3) as (alone,):
        await alone.look()
        await alone.find_dead()
        assert await alone.refused() == FIRST_OPEN_S
        clock.advance(FIRST_OPEN_S)
        await alone.call(alive=True)
        await alone.call(alive=True)


async def test_it_expires_and_is_bounded(redis_server: Server, three: list[Process]) -> None:
    first, second, _ = three
    for number in range(MOST + 20):
        first.shared.opened(f"https://{number}.example:443", FIRST_OPEN_S)
        if number % 20 == 19:  # each has a second
            await first.shared.told()
    with redis_server.client() as client:
        assert client.hlen(KEY) == MOST
        assert 0 < client.pttl(KEY) <= 200_000
    await second.look()
    assert len(second.endpoints._known) == MOST


def calls(client: redis.Redis) -> dict[str, int]:
    stats: dict[str, Any] = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()}


async def test_healthy_receivers_cost_one_read_a_second_at_most(
    redis_server: Server, three: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("streamdq.callback.shared.time", SimpleNamespace(monotonic=lambda: now))
    process = three[0]
    await process.look()
    with redis_server.client() as client:
        client.config_resetstat()
        for _ in range(50):
            await process.shared.look()
            await process.call(alive=True)
            now += LOOK_EVERY_S / 8
        counted = calls(client)
    assert counted["hgetall"] == 6
    assert counted.keys() <= {"hgetall", "info", "config|resetstat", "config"}


async def test_a_second_worker_does_not_call_a_dead_receiver(stepped: Space, receiver: Receiver) -> None:
    receiver.reply = answer(503)
    stepped.queue.enqueue("t", 1, id="first", url=receiver.url, retry="1h")
    with redis.Redis.from_url(stepped.url) as client:
        async with stepped.serving(caller(stepped, "t")):
            await stepped.becomes("first", "delayed")
            for number in range(OPENS_AFTER - 1):
                stepped.queue.enqueue("t", 1, id=f"a{number}", url=receiver.url, retry="1h")
                await stepped.becomes(f"a{number}", "delayed")
            await eventually(lambda: client.exists(KEY), "it is found dead")
    found = len(receiver.requests)
    for number in range(20):
        stepped.queue.enqueue("u", 1, id=f"b{number}", url=receiver.url, retry="1h")
    async with stepped.serving(caller(stepped, "u")):
        await eventually(lambda: stepped.stats("u").snoozed == 20, "the other worker leaves it alone")
    assert len(receiver.requests) == found
