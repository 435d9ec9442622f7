"""A primary becomes a replica, and its address leads to the new one: open connections still reach the old one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from streamdq import AsyncQueue, Queue
from streamdq.errors import ServerError, ServerRefusesWrites
from tests.conftest import EACH_BINARY
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space
from tests.redis.proxies import Proxy, proxy
from tests.servers import Binary, Server
from tests.waiting import until


class Address:
    """Where clients connect to, as a name or a virtual address that is given to another server."""

    def __init__(self, old: Server, new: Server, address: Proxy) -> None:
        self.old, self.new = old, new
        self.url = address.url
        self._address = address

    def fail_over(self) -> None:
        with self.old.client() as old, self.new.client() as new:
            new.replicaof("NO", "ONE")
            old.replicaof("127.0.0.1", self.new.port)
        self._address.lead_to(self.new.port)


@pytest.fixture(params=EACH_BINARY)
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    binary: Binary = request.param
    at_once = {"repl-diskless-sync-delay": "0"}
    with Server(binary, options=at_once) as old, Server(binary, options=at_once) as new, proxy(old.port) as front:
        with new.client() as client:
            client.replicaof("127.0.0.1", old.port)
            until(lambda: client.info("replication")["master_link_status"] == "up", "the replica follows")
        yield Address(old, new, front)


def test_a_queue_finds_the_new_primary(address: Address) -> None:
    with Queue(address.url, NAMESPACE, settings=SETTINGS) as queue:
        queue.enqueue("t", 1)
        address.fail_over()
        with pytest.raises(ServerRefusesWrites):
            queue.enqueue("t", 2)
        queue.enqueue("t", 2)


async def test_an_async_queue_finds_the_new_primary(address: Address) -> None:
    """With one error, however many connections were open."""
    async with AsyncQueue(address.url, NAMESPACE, settings=SETTINGS) as queue:
        await asyncio.gather(*(queue.enqueue("t", n) for n in range(20)))
        address.fail_over()
        with pytest.raises(ServerRefusesWrites):
            await queue.enqueue("t", 1)
        await asyncio.gather(*(queue.enqueue("t", n) for n in range(20)))


async def test_a_worker_finds_the_new_primary(address: Address, seen: Seen) -> None:
    with contextlib.closing(Space(address.url)) as space:
        worker = space.recording(seen)
        async with space.serving(worker):
            space.queue.enqueue("t", "before")
            await seen.count(1)
            address.fail_over()
            for _ in range(2):
                with contextlib.suppress(ServerError):
                    space.queue.enqueue("t", "after", id="j")
                    break
            await seen.count(2)
    assert seen.all == ["before", "after"]
