"""Who moves what is due, in virtual time: movers alone, each in a process of its own, and everything that may happen to
the active one. Exact, for several and for many.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from streamdq.link.address import Target
from streamdq.link.opening import open_session
from streamdq.mover.mover import Mover
from streamdq.process.loop import supervise
from streamdq.store.redis_store import RedisStore
from tests.simulation import troubles
from tests.simulation.deployment import Deployment
from tests.simulation.link import SimulatedLink
from tests.simulation.loop import Process

URL = "redis://simulated:6379/0"
REPLACED_S = 2.5
LOOKS_PER_S, RENEWALS_PER_S = 1.1, 1.0
STEP_S = 0.005


class Movers:
    def __init__(self, here: Deployment) -> None:
        self.here = here
        self.of: dict[Process, Mover] = {}

    def start(self) -> Process:
        process = Process(f"process{len(self.of)}")
        self.here.loop.spawn(process, lambda: self._run(process))
        return process

    async def _run(self, process: Process) -> None:
        link_class: Any = lambda *_: SimulatedLink(self.here.network, Target("node", URL))  # noqa: E731
        link, session = open_session(URL, self.here.settings.namespace, self.here.settings, None, link_class)
        stopping = asyncio.Event()
        mover = Mover(link, RedisStore(session), session.consumer, stopping)
        self.of[process] = mover
        await supervise("mover", mover.run, stopping, session.keys.namespace)

    async def start_many(self, count: int) -> None:
        for _ in range(count):
            self.start()
        await asyncio.sleep(2 * count + 5)

    def leading(self) -> list[Process]:
        """Those that live and believe to be active."""
        return [
            process for process, mover in self.of.items() if mover.leading and process.alive and not process.stopped
        ]

    async def replaced_s(self, gone: Process) -> float:
        """How long it takes until another one is active."""
        began = self.here.loop.time()
        while not [process for process in self.leading() if process is not gone]:
            await asyncio.sleep(STEP_S)
            assert self.here.loop.time() - began < 30, "nobody moves"
        return self.here.loop.time() - began

    async def until_one_leads(self) -> Process:
        """Waits until exactly one is active, by itself and by the lease."""
        await asyncio.sleep(10)
        (one,) = self.leading()
        assert self.here.store.ask("GET", self.here.keys.mover) == self.of[one]._name.encode()
        return one


def run(script: Any, **settings: Any) -> None:
    async def with_movers(here: Deployment) -> None:
        await here.async_queue.configure("t", create=True)
        await script(Movers(here))

    Deployment(with_movers, **settings).run()


@pytest.mark.parametrize("count", [2, 8, pytest.param(200, marks=pytest.mark.thorough)])
def test_standbys_look_once_a_second_in_all(count: int) -> None:
    async def script(movers: Movers) -> None:
        await movers.start_many(count)
        await asyncio.sleep(60)
        assert (
            await movers.here.commands_per_s(60) <= LOOKS_PER_S + RENEWALS_PER_S + 0.6
        )  # what the active one does besides
        assert {mover.election.processes for mover in movers.of.values() if not mover.leading} == {count}

    run(script)


@pytest.mark.parametrize("count", [2, 8, *(pytest.param(count, marks=pytest.mark.thorough) for count in (3, 30))])
def test_a_killed_mover_is_replaced_whenever_it_is_killed(count: int) -> None:
    async def script(movers: Movers) -> None:
        chance = Random(count)
        await movers.start_many(count)
        for _ in range(20):
            await asyncio.sleep(chance.uniform(0, 3))
            (mover,) = movers.leading()
            movers.here.loop.kill(mover)
            assert await movers.replaced_s(mover) <= REPLACED_S
            movers.start()
            await asyncio.sleep(2 * count + 5)

    run(script)


@pytest.mark.parametrize("count", [2, 30])
def test_one_that_stops_is_replaced_at_once(count: int) -> None:
    async def script(movers: Movers) -> None:
        await movers.start_many(count)
        (mover,) = movers.leading()
        movers.of[mover]._stopping.set()
        assert await movers.replaced_s(mover) <= 0.1
        await movers.until_one_leads()

    run(script)


def test_all_that_are_left_stop_one_after_the_other() -> None:
    async def script(movers: Movers) -> None:
        await movers.start_many(6)
        for _ in range(5):
            (mover,) = movers.leading()
            movers.of[mover]._stopping.set()
            assert await movers.replaced_s(mover) <= 0.1

    run(script)


@pytest.mark.parametrize("stopped_s", [0.5, 1.5, 60.0])
def test_one_that_is_stopped_and_goes_on_gives_way(stopped_s: float) -> None:
    async def script(movers: Movers) -> None:
        await movers.start_many(4)
        (mover,) = movers.leading()
        movers.here.loop.stop_process(mover)
        if stopped_s > REPLACED_S:
            assert await movers.replaced_s(mover) <= REPLACED_S
        await asyncio.sleep(stopped_s)
        movers.here.loop.continue_process(mover)
        await movers.until_one_leads()

    run(script)


def test_a_stopped_standby_misses_its_turn_and_gets_another() -> None:
    async def script(movers: Movers) -> None:
        await movers.start_many(4)
        standby = next(process for process in movers.of if process not in movers.leading())
        movers.here.loop.stop_process(standby)
        await asyncio.sleep(60)
        assert {mover.election.processes for process, mover in movers.of.items() if process is not standby} >= {3}
        movers.here.loop.continue_process(standby)
        await movers.until_one_leads()
        assert movers.of[standby].election.processes == 4

    run(script)


def test_a_lost_lease_is_taken_again() -> None:
    async def script(movers: Movers) -> None:
        await movers.start_many(4)
        movers.here.store.ask("DEL", movers.here.keys.mover)
        await movers.until_one_leads()

    run(script)


@pytest.mark.parametrize("lost", [0, 3, 20])
def test_a_failover(lost: int) -> None:
    async def script(movers: Movers) -> None:
        await movers.start_many(4)
        movers.here.network.drop_all()
        movers.here.store.take_over(min(lost, len(movers.here.store.log)))
        await movers.until_one_leads()
        (mover,) = movers.leading()
        movers.here.loop.kill(mover)
        assert await movers.replaced_s(mover) <= REPLACED_S

    run(script)


@pytest.mark.parametrize("seconds", [-3600.0, -5.0, 5.0, 3600.0])
def test_the_clock_is_set_and_the_mover_killed(seconds: float) -> None:
    async def script(movers: Movers) -> None:
        await movers.start_many(4)
        movers.here.clock_s += seconds
        (mover,) = movers.leading()
        movers.here.loop.kill(mover)
        assert await movers.replaced_s(mover) <= REPLACED_S + 1.5  # a lease begins again, at a standby's look
        await movers.until_one_leads()

    run(script)


def test_replies_are_lost() -> None:
    async def script(movers: Movers) -> None:
        await movers.start_many(4)
        for fault in ("lose_reply", "lose_request"):
            setattr(movers.here.network.faults, fault, 0.3)
            await asyncio.sleep(30)
        troubles.heal(movers.here)
        await movers.until_one_leads()

    run(script)
