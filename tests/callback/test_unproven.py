"""Receivers that hang, however many there are, leave half of the slots to those that answer; so does each host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack

import pytest
from yarl import URL

from streamdq.callback.breaker import Endpoint, Endpoints, NotNow
from streamdq.callback.lookup import Lookup
from streamdq.callback.unproven import Calls, NoRoom, connecting
from tests.callback.conftest import caller
from tests.callback.receiver import Receiver, Request, receiving
from tests.callback.test_refused import to_loopback
from tests.redis.harness import NAMESPACE, Space
from tests.waiting import HANG_S, eventually, forever


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock_s() -> Clock:
    return Clock()


class Slots:
    """A worker's slots, and calls that hold them until the end of the test."""

    def __init__(self, held: ExitStack, clock: Clock, slots: int) -> None:
        self._held = held
        self.calls = Calls(slots)
        self._endpoints = Endpoints(self.calls.half, clock, NAMESPACE)

    def endpoint(self, url: str) -> Endpoint:
        return self._endpoints.at(URL(url))

    async def answers(self, url: str, alive: bool = True, address: str | None = None) -> None:
        endpoint = self.endpoint(url)
        if address is not None:
            with self.calls.slot(endpoint, URL(url)):
                connecting(address)
        for _ in range(10):  # its window is as large as can be
            endpoint.leave(await endpoint.enter(), alive, answered=True)
            if not alive:
                break

    async def call(self, url: str, address: str | None = None) -> int:
        """Takes a slot and, unless ``address`` is None, makes a connection; returns the ticket."""
        endpoint = self.endpoint(url)
        with ExitStack() as stack:
            call = stack.enter_context(self.calls.slot(endpoint, URL(url)))
            ticket = await endpoint.enter()
            try:
                call.begin()
                if address is not None:
                    connecting(address)
            except (NotNow, NoRoom):
                endpoint.leave(ticket, None)
                raise
            self._held.push(stack.pop_all())
        return ticket


@pytest.fixture
def slots(clock_s: Clock) -> Iterator[Slots]:
    with ExitStack() as held:
        yield Slots(held, clock_s, 16)


async def test_all_unproven_calls_together_have_half_of_the_slots(slots: Slots) -> None:
    await slots.answers("https://fine.example")
    for number in range(8):
        await slots.call(f"https://{number}.example")
    with pytest.raises(NotNow) as none:
        await slots.call("https://new.example")
    assert none.value.wait_s is None
    for _ in range(8):
        await slots.call("https://fine.example")
    await slots.answers("https://0.example", alive=False)
    await slots.call("https://new.example")


async def test_ports_of_one_host_share_its_room(slots: Slots) -> None:
    await slots.call("https://a.example:1001")
    with pytest.raises(NotNow):
        await slots.call("https://a.example:1001")
    await slots.call("https://a.example:1002")
    with pytest.raises(NotNow):
        await slots.call("https://a.example:1003")
    await slots.answers("https://a.example:1003")
    await slots.call("https://a.example:1003")


async def test_other_ports_that_hang_leave_the_usual_ones_their_share(slots: Slots) -> None:
    for port in (1001, 1002):
        await slots.call(f"https://a.example:{port}", "192.0.2.1")
        await slots.call(f"https://b.example:{port}", "192.0.2.2")
    with pytest.raises(NotNow):
        await slots.call("https://a.example:1003")
    with pytest.raises(NoRoom):
        await slots.call("https://c.example:1003", "192.0.2.1")
    await slots.call("https://a.example", "192.0.2.1")
    await slots.call("https://c.example", "192.0.2.1")
    with pytest.raises(NoRoom):
        await slots.call("https://d.example", "192.0.2.1")


async def test_one_host_has_half_of_the_slots_though_its_ports_are_proven(slots: Slots) -> None:
    for port in (1001, 1002, 1003):
        await slots.answers(f"https://a.example:{port}")
    for port in (1001, 1001, 1001, 1001, 1002, 1002, 1002, 1002):
        await slots.call(f"https://a.example:{port}")
    for _ in range(2):
        with pytest.raises(NotNow) as full:
            await slots.call("https://a.example:1003")
        assert full.value.wait_s is None
    await slots.answers("https://fine.example")
    for _ in range(8):
        await slots.call("https://fine.example")


@pytest.mark.parametrize("kept", [False, True])
async def test_one_address_has_half_of_the_slots_though_its_names_are_proven(slots: Slots, kept: bool) -> None:
    """Also if the connections to it were made before."""
    for number in range(9):
        await slots.answers(f"https://{number}.example", address="192.0.2.1" if kept else None)
    for number in range(8):
        await slots.call(f"https://{number}.example", None if kept else "192.0.2.1")
    with pytest.raises((NotNow, NoRoom)):
        await slots.call("https://8.example", None if kept else "192.0.2.1")
    await slots.answers("https://fine.example")
    await slots.call("https://fine.example", "192.0.2.2")


async def test_calls_that_wait_for_their_turn_do_not_count(clock_s: Clock) -> None:
    calls = Calls(4)
    endpoints = Endpoints(1, clock_s, NAMESPACE)
    for port in (1001, 1002):
        endpoint = endpoints.at(URL(f"https://a.example:{port}"))
        endpoint.leave(await endpoint.enter(), True)
    first, second = (URL(f"https://a.example:{port}") for port in (1001, 1002))
    with ExitStack() as waiting:
        for _ in range(2):
            waiting.enter_context(calls.slot(endpoints.at(first), first))
        waiting.enter_context(calls.slot(endpoints.at(second), second)).begin()


async def test_a_receiver_that_has_answered_once_has_few_calls(clock_s: Clock) -> None:
    endpoint = Endpoint(50, clock_s, NAMESPACE)
    endpoint.leave(await endpoint.enter(), True)
    for _ in range(3):
        await endpoint.enter()
    clock_s.now += 0.5  # none of them is answered: a call that waits would never begin
    with pytest.raises(NotNow):
        await endpoint.enter()


async def test_a_call_that_reached_another_address_was_made(slots: Slots) -> None:
    for number in range(2):
        await slots.call(f"https://{number}.example", "192.0.2.1")
    url = URL("https://both.example")
    with slots.calls.slot(slots.endpoint(str(url)), url) as call:
        with pytest.raises(NoRoom):
            connecting("192.0.2.1")
        assert call.no_room
        connecting("192.0.2.2")
        assert not call.no_room


@pytest.mark.parametrize(
    ("addresses", "another"),
    [
        (["192.0.2.1", "192.0.2.1"], "192.0.2.2"),
        (["2001:db8::1", "2001:db8::ffff:2"], "2001:db8:0:1::1"),
        (["192.0.2.1", "::ffff:192.0.2.1"], "192.0.2.2"),
    ],
)
async def test_names_of_one_address_share_its_room(slots: Slots, addresses: list[str], another: str) -> None:
    for number, address in enumerate(addresses):
        await slots.call(f"https://{number}.example", address)
    with pytest.raises(NoRoom):
        await slots.call("https://new.example", addresses[0])
    await slots.call("https://other.example", another)
    await slots.answers("https://fine.example")
    await slots.call("https://fine.example", addresses[0])


async def test_a_receiver_that_begins_to_hang_is_no_longer_proven(slots: Slots, clock_s: Clock) -> None:
    await slots.answers("https://a.example")
    endpoint = slots.endpoint("https://a.example")

    def proven() -> bool:
        return endpoint.proven

    tickets = [await slots.call("https://a.example") for _ in range(5)]
    clock_s.now += 0.9
    assert proven()
    clock_s.now += 0.2
    assert not proven()
    with pytest.raises(NotNow):
        await slots.call("https://a.example")
    endpoint.leave(tickets[0], True)
    assert proven()
    endpoint.leave(tickets[1], False)
    assert not proven(), "no answer"
    endpoint.leave(tickets[2], None)
    assert not proven()
    endpoint.leave(tickets[3], False, answered=True)
    assert proven(), "a 503 is an answer"


async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
    await forever()


async def test_a_worker_whose_receivers_nearly_all_hang_calls_the_one_that_answers(
    space: Space, receiver: Receiver
) -> None:
    async with AsyncExitStack() as stack:
        hosts = [f"127.0.0.{number}" for number in (2, 2, 2, 3, 4, 5)]
        hanging = [await stack.enter_async_context(receiving(host=host)) for host in hosts]
        await stack.enter_async_context(space.serving(caller(space, "t", concurrency=8, timeout_s=600)))
        space.queue.enqueue("t", 1, url=receiver.url)
        await eventually(lambda: space.stats().done == 1, "it answers")
        for host, dead in zip(hosts, hanging, strict=True):
            dead.speak = hang
            for _ in range(20):
                space.queue.enqueue("t", 1, url=f"http://{host}:{dead.port}/", retry="1h", ttr="1h")
        await eventually(lambda: sum(dead.open for dead in hanging) == 4, "half of the slots")
        for _ in range(30):
            space.queue.enqueue("t", 1, url=receiver.url)
        await eventually(lambda: space.stats().done == 31, "they are done")
        assert sum(len(dead.requests) for dead in hanging) == 4
        assert max(len(dead.requests) for dead in hanging) == 1
        assert sum(len(dead.requests) for dead in hanging[:3]) <= 2


async def test_a_worker_whose_receivers_at_one_host_answer_and_then_hang_calls_others(
    space: Space, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang_s = "streamdq.callback.breaker._LEAST_HANG_S"
    async with receiving(host="127.0.0.2") as one, receiving(host="127.0.0.2") as two:
        urls = [f"http://127.0.0.2:{found.port}/" for found in (one, two)]
        worker = caller(space, "t", concurrency=8, timeout_s=600)
        async with space.serving(worker):
            for url in (*urls, receiver.url):
                space.queue.enqueue("t", 1, url=url)
            await eventually(lambda: space.stats().done == 3, "all answer")
            monkeypatch.setattr(hang_s, HANG_S)  # until they have as many calls as they can get
            one.speak = two.speak = hang
            for number in range(40):
                space.queue.enqueue("t", 1, url=urls[number % 2], retry="1h", ttr="1h")
            await eventually(lambda: one.open + two.open == 4, "half of the slots")
            monkeypatch.setattr(hang_s, 1.0)
            for _ in range(30):
                space.queue.enqueue("t", 1, url=receiver.url)
            await eventually(lambda: space.stats().done == 33, "they are done")
            assert len(one.requests) + len(two.requests) == 2 + 4
        assert worker._endpoints._limit == 4, "calls beyond half of the slots wait for their turn"


async def test_a_call_without_room_at_its_address_waits_and_uses_up_nothing(
    space: Space, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lookup, "resolve", to_loopback)
    answers = asyncio.Event()

    async def late(_request: Request, writer: asyncio.StreamWriter) -> None:
        await answers.wait()
        writer.write(receiver.reply)

    receiver.speak = late
    names = ["a.example", "b.example", "c.example"]
    async with space.serving(caller(space, "t", allow=" ".join(names), timeout_s=600)):
        for name in names[:2]:
            space.queue.enqueue("t", 1, id=name, url=f"http://{name}:{receiver.port}/", retry="1h", ttr="1h")
        await receiver.count(2)
        space.queue.enqueue("t", 1, id="c.example", url=f"http://c.example:{receiver.port}/", retry="1h")
        await eventually(lambda: space.job("c.example").groups["default"].snoozed > 0, "it is put off")
        progress = space.job("c.example").groups["default"]
        assert (progress.attempt, progress.step, len(receiver.requests)) == (0, 0, 2)
        answers.set()
        await eventually(lambda: space.stats().done == 3, "all are done")
