"""One slow or dead receiver among others: how many calls it gets, and that the others do not wait for it."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from streamdq.callback.breaker import FIRST_OPEN_S, LONGEST_OPEN_S, OPENS_AFTER, Endpoint, Endpoints, NotNow
from streamdq.metrics import declared
from streamdq.store.history.rows import Event, HistoryRow
from streamdq.testing import drain
from streamdq.times.clock import ManualClock
from tests.callback.conftest import caller
from tests.callback.receiver import Receiver, Request, answer, receiving
from tests.redis.harness import NAMESPACE, Space
from tests.unit.virtual_time import in_virtual_time
from tests.waiting import HANG_S, eventually, forever

FIRST_WINDOW = 2
BUSY = 20
"""Far more than a job of ten can find the one call that tries already under way."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock_s() -> Clock:
    return Clock()


@pytest.fixture
def endpoint(clock_s: Clock) -> Endpoint:
    return Endpoint(50, clock_s, NAMESPACE)


async def at_once(endpoint: Endpoint) -> list[int]:
    """As many turns as there are without waiting."""
    tickets = []
    while endpoint._free():
        tickets.append(await endpoint.enter())
    return tickets


def rows_of(space: Space) -> list[HistoryRow]:
    rows: list[HistoryRow] = []
    page = space.queue.history("t")
    while page.rows:
        rows += page.rows
        page = space.queue.history("t", page.after)
    return rows


async def call(endpoint: Endpoint, alive: bool) -> None:
    endpoint.leave(await endpoint.enter(), alive)


async def grown(endpoint: Endpoint) -> None:
    """Its window is 10."""
    for _ in range(10 - FIRST_WINDOW):
        await call(endpoint, True)


# -- the window


@in_virtual_time
async def test_the_window_grows_with_answers_up_to_the_limit_and_shrinks_with_failures(endpoint: Endpoint) -> None:
    tickets = await at_once(endpoint)
    assert len(tickets) == FIRST_WINDOW
    for ticket in tickets:
        endpoint.leave(ticket, True)
    tickets = await at_once(endpoint)
    assert len(tickets) == 2 * FIRST_WINDOW
    for ticket in tickets:
        endpoint.leave(ticket, True)
    for _ in range(100):
        await call(endpoint, True)
    tickets = await at_once(endpoint)
    assert len(tickets) == 50
    endpoint.leave(tickets.pop(), False)
    for ticket in tickets:
        endpoint.leave(ticket, None)  # tells nothing
    assert len(await at_once(endpoint)) == 25


@in_virtual_time
async def test_a_call_waits_where_its_turn_comes_soon_and_else_not(endpoint: Endpoint, clock_s: Clock) -> None:
    await grown(endpoint)
    tickets = await at_once(endpoint)
    for ticket in tickets:  # each took a twentieth of a second
        clock_s.now += 0.005
        endpoint.leave(ticket, True)
    tickets = await at_once(endpoint)
    waiter = asyncio.create_task(endpoint.enter())
    await asyncio.sleep(0)
    endpoint.leave(tickets[0], True)
    assert await waiter not in tickets
    await at_once(endpoint)
    clock_s.now += 60  # and now it hangs
    first = asyncio.create_task(endpoint.enter())
    await asyncio.sleep(0)
    with pytest.raises(NotNow) as busy:
        await endpoint.enter()
    assert busy.value.wait_s is None
    with pytest.raises(NotNow):  # one may wait, but not for long
        await first


# -- the breaker


@in_virtual_time
async def test_it_opens_for_twice_as_long_each_time_and_closes_with_an_answer(
    endpoint: Endpoint, clock_s: Clock
) -> None:
    breaks = declared.CALLBACK_BREAKS.labels(NAMESPACE)._value.get()
    for _ in range(OPENS_AFTER):
        await call(endpoint, False)
    opened: list[float] = []
    for _ in range(6):
        with pytest.raises(NotNow) as closed:
            await endpoint.enter()
        assert closed.value.wait_s is not None
        opened.append(closed.value.wait_s)
        clock_s.now += closed.value.wait_s
        tickets = await at_once(endpoint)
        assert len(tickets) == 1, "one call tries"
        endpoint.leave(tickets[0], False)
    assert opened[0] == FIRST_OPEN_S
    assert opened[-1] == LONGEST_OPEN_S
    assert all(later == min(2 * before, LONGEST_OPEN_S) for before, later in pairwise(opened))
    assert declared.CALLBACK_BREAKS.labels(NAMESPACE)._value.get() == breaks + 1
    clock_s.now += LONGEST_OPEN_S
    await call(endpoint, True)
    tickets = await at_once(endpoint)
    assert len(tickets) == 2, "gently at first"
    for ticket in tickets:
        endpoint.leave(ticket, None)
    for _ in range(OPENS_AFTER - 1):
        await call(endpoint, False)
    await call(endpoint, True)  # not in a row: it stays closed
    await call(endpoint, False)
    await call(endpoint, True)


@in_virtual_time
async def test_an_answer_to_a_call_from_before_it_opened_closes_it(endpoint: Endpoint) -> None:
    await grown(endpoint)
    *others, late = await at_once(endpoint)
    for number, ticket in enumerate(others):
        endpoint.leave(ticket, False if number < OPENS_AFTER else None)
    with pytest.raises(NotNow):
        await endpoint.enter()
    endpoint.leave(late, True)
    await call(endpoint, True)


@in_virtual_time
async def test_a_call_that_waits_when_it_opens_fails_at_once(endpoint: Endpoint) -> None:
    await grown(endpoint)
    tickets = await at_once(endpoint)
    waiter = asyncio.create_task(endpoint.enter())
    await asyncio.sleep(0)
    for ticket in tickets[:OPENS_AFTER]:
        endpoint.leave(ticket, False)
    with pytest.raises(NotNow) as reported:
        await waiter
    assert reported.value.wait_s == FIRST_OPEN_S


@given(st.integers(0, 2**32))
def test_turns_are_neither_lost_nor_given_twice(seed: int) -> None:
    """Calls that are answered, fail, wait, and are cancelled while they wait or just as they get their turn."""

    async def play() -> None:
        chance, clock = random.Random(seed), Clock()
        endpoint = Endpoint(4, clock, NAMESPACE)
        under_way = most = 0

        async def one() -> None:
            nonlocal under_way, most
            ticket = await endpoint.enter()
            under_way += 1
            most = max(most, under_way)
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                under_way -= 1
                endpoint.leave(ticket, chance.choice([True, True, False, None]))

        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(one()))
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            clock.now += chance.choice([0, 0, 0.01])
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(found, None | NotNow | asyncio.CancelledError) for found in results)
        assert most <= 4
        assert endpoint.idle

    asyncio.run(play())


async def test_hosts_that_are_idle_are_forgotten(clock_s: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.callback.breaker._MOST_ENDPOINTS", 3)
    endpoints = Endpoints(10, clock_s, NAMESPACE)
    busy = endpoints.at(URL("https://busy.example/a"))
    await busy.enter()
    for number in range(100):
        endpoints.at(URL(f"https://{number}.example/"))
        assert len(endpoints._known) <= 3
    assert endpoints.at(URL("https://busy.example/b")) is busy
    assert endpoints.at(URL("https://busy.example:8443/b")) is not busy


async def test_made_up_urls_do_not_erase_what_is_known_of_others(
    clock_s: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.callback.breaker._MOST_ENDPOINTS", 8)
    endpoints = Endpoints(10, clock_s, NAMESPACE)
    fine, dead = URL("https://fine.example"), URL("https://dead.example")
    await call(endpoints.at(fine), True)
    for _ in range(OPENS_AFTER):
        await call(endpoints.at(dead), False)
    for port in range(100):
        endpoints.at(URL(f"https://made-up.example:{1024 + port}"))
    assert endpoints.at(fine).proven
    with pytest.raises(NotNow):
        await endpoints.at(dead).enter()
    for port in range(100):  # called indeed: then the least recently used go
        await call(endpoints.at(URL(f"https://real.example:{1024 + port}")), False)
        assert endpoints.at(fine).proven
        assert len(endpoints._known) <= 8
    await endpoints.at(dead).enter()


# -- with a worker


async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
    await forever()


async def test_a_receiver_that_hangs_does_not_delay_another(space: Space, receiver: Receiver) -> None:
    """Far more jobs for the one that hangs than there are slots are due before those for the other, which are all done
    while every call to the first is still waiting for its answer.
    """
    async with receiving() as dead:
        dead.speak = hang
        for number in range(100):
            space.queue.enqueue("t", 1, id=f"dead-{number}", url=dead.url, retry="1h", ttr="1h")
        async with space.serving(caller(space, "t", concurrency=20, timeout_s=600)):
            await dead.count(1)
            for number in range(30):
                space.queue.enqueue("t", 1, id=f"fine-{number}", url=receiver.url)
            await receiver.count(30)
            await eventually(lambda: space.stats().done == 30, "they are done")
            assert len(dead.requests) == dead.open == 1, "no call to it has ended, and no more were begun"


async def test_while_it_is_dead_its_jobs_wait_and_use_up_no_step(
    stepped: Space, clock: ManualClock, receiver: Receiver
) -> None:
    """It comes back within the ten minutes or so that a step waits for it: all are delivered, none was used up."""
    came_back_ms = clock.now_ms + 4 * 60_000

    async def dead_for_a_while(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200 if clock.now_ms >= came_back_ms else 503))

    receiver.speak = dead_for_a_while
    for number in range(40):
        stepped.queue.enqueue("t", 1, id=f"j{number}", url=receiver.url, retry="10m 1h")
    await drain(caller(stepped, "t"), clock, "2h", within_s=HANG_S)
    assert stepped.stats().done == 40
    rows = rows_of(stepped)
    done_ms = max(row.finished_ms for row in rows if row.event == Event.DONE)
    failed = [row for row in rows if row.event == Event.RETRY]
    snoozed = [row for row in rows if row.event == Event.RELEASED]
    assert {row.error for row in failed} == {"CallbackRejected"}
    assert {row.error for row in snoozed} == {"CallbackSnoozed"}
    assert len(snoozed) > 40
    attempts: dict[str, list[int]] = {}
    for row in rows:
        if row.event != Event.RELEASED:
            attempts.setdefault(row.id, []).append(row.attempt)
    assert all(seen == list(range(1, len(seen) + 1)) for seen in attempts.values()), "only calls are attempts"
    assert {len(seen) for seen in attempts.values()} <= {1, 2}
    assert len(failed) < 20, "few were called while it was dead"
    assert done_ms - came_back_ms < 15 * 60_000
    first_ms = min(row.finished_ms for row in rows if row.event == Event.DONE)
    assert first_ms - came_back_ms < 2 * LONGEST_OPEN_S * 1000, "as soon as it is back"


@pytest.mark.thorough
async def test_jobs_of_a_receiver_that_stays_dead_end_as_dead_letters(
    stepped: Space, clock: ManualClock, receiver: Receiver
) -> None:
    receiver.reply = answer(500)
    for number in range(10):
        stepped.queue.enqueue("t", 1, id=f"j{number}", url=receiver.url, retry="15s 3m")
    await drain(caller(stepped, "t"), clock, "3h")
    stats = stepped.stats()
    assert (stats.dead, stats.delayed, stats.ready) == (10, 0, 0)
    ended = [stepped.job(f"j{number}").groups["default"] for number in range(10)]
    assert {progress.reason for progress in ended} == {"exhausted"}
    assert {progress.attempt for progress in ended} == {3}, "one for each step, and the first"
    assert all(0 < progress.snoozed <= 30 + BUSY for progress in ended)


async def test_connections_to_one_receiver_are_limited(
    space: Space, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.callback.client._KEEP_S", 600.0)
    many = asyncio.Event()

    async def together(_request: Request, writer: asyncio.StreamWriter) -> None:
        if receiver.open >= FIRST_WINDOW:
            many.set()
        await many.wait()
        writer.write(answer(200))

    async with space.serving(caller(space, "t", concurrency=100, per_host=15)):
        space.queue.enqueue("t", 1, id="first", url=receiver.url)
        await eventually(lambda: space.stats().done == 1, "it answers")
        receiver.speak = together
        for number in range(100):
            space.queue.enqueue("t", 1, id=f"j{number}", url=receiver.url)
        await eventually(lambda: space.stats().done == 101, "all are done")
    assert FIRST_WINDOW <= receiver.most_open <= 15
    assert receiver.connections <= 15
