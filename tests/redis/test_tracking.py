"""Looks at a Cluster's keys that tell of the next change (link/tracking.py), on real servers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from streamdq.errors import AuthenticationFailed
from streamdq.link.command import Command
from streamdq.link.connection import AsyncLink, ConnectionLimits
from streamdq.link.failures import LinkError
from streamdq.link.session import Request, arun
from tests.migration import Migration
from tests.redis.harness import Seen
from tests.servers import Cluster, Server

pytestmark = pytest.mark.foreign_keys  # streams of its own

LIMITS = ConnectionLimits(4, 4)
TIMEOUT_S = 60.0
KEY, OTHER, ABSENT = "{m}:here", "{m}:other", "{m}:absent"


class Looker:
    """Looks at keys over one link, and notes what changes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.link = AsyncLink(cluster.url, TIMEOUT_S, LIMITS)
        self.reported = Seen()

    async def look(self, *keys: str) -> list[object]:
        """Their lengths."""
        return await self.ask([Command(key, ("XLEN", key)) for key in keys])

    async def ask(self, commands: list[Command], timeout_s: float = TIMEOUT_S) -> list[object]:
        return await arun(self.link, self.link.route(Request(commands, timeout_s, True, self.reported.add)))

    def server_of(self, key: str) -> Server:
        name = self.link.node_of(key)
        return next(node for node in self.cluster.nodes if node.address == name)


@pytest.fixture
async def looker(redis_cluster: Cluster) -> AsyncIterator[Looker]:
    looker = Looker(redis_cluster)
    yield looker
    await looker.link.close()


def add(cluster: Cluster, key: str) -> None:
    with cluster.client() as client:
        client.xadd(key, {"a": "1"})


def kill_tracking(server: Server) -> int:
    """How many connections that track keys it had."""
    with server.client() as client:
        tracking = [row["id"] for row in client.client_list() if "t" in row["flags"]]
        for id in tracking:
            client.client_kill_filter(_id=id)
    return len(tracking)


async def test_a_look_that_ends_with_an_error_tells_of_the_next_change_as_well(looker: Looker) -> None:
    """Redis refuses to tell of a stream that is missing, and remembers it all the same."""
    (reply,) = await looker.ask([Command(ABSENT, ("XINFO", "STREAM", ABSENT))])
    assert "no such key" in str(reply)
    add(looker.cluster, ABSENT)
    assert await looker.reported.count(1) == [ABSENT]


@pytest.mark.parametrize("exists", [True, False])
async def test_the_next_change_is_notified_once(looker: Looker, exists: bool) -> None:
    if exists:
        add(looker.cluster, KEY)
    assert await looker.look(KEY) == [int(exists)]
    add(looker.cluster, KEY)
    assert await looker.reported.count(1) == [KEY]
    add(looker.cluster, KEY)
    assert await looker.look(KEY) == [2 + exists]
    assert looker.reported.all == [KEY], "it was told of a change that nobody asked for"
    add(looker.cluster, KEY)
    assert await looker.reported.count(2) == [KEY, KEY]


async def test_keys_on_all_nodes_take_a_connection_each(looker: Looker) -> None:
    keys = [f"k{n}" for n in range(100)]
    assert await looker.look(*keys) == [0] * 100
    assert [kill_tracking(node) for node in looker.cluster.nodes] == [1, 1, 1]
    assert sorted(await looker.reported.count(100)) == sorted(keys)


async def test_a_lost_connection_counts_as_a_change_and_is_opened_again(looker: Looker) -> None:
    await looker.look(KEY, OTHER)
    assert kill_tracking(looker.server_of(KEY)) == 1
    assert sorted(await looker.reported.count(2)) == sorted([KEY, OTHER])
    await looker.look(KEY)
    add(looker.cluster, KEY)
    assert (await looker.reported.count(3))[2] == KEY


async def test_a_flush_is_a_change(looker: Looker) -> None:
    await looker.look(KEY, ABSENT)
    looker.server_of(KEY).flush()
    assert sorted(await looker.reported.count(2)) == sorted([KEY, ABSENT])


async def test_a_table_of_keys_that_is_full_costs_looks_and_nothing_else(looker: Looker) -> None:
    server = looker.server_of(KEY) if await looker.look(KEY) else None
    assert server is not None
    with server.client() as client:
        most = client.config_get("tracking-table-max-keys")["tracking-table-max-keys"]
        client.config_set("tracking-table-max-keys", 2)
        try:
            keys = [f"{{m}}:{n}" for n in range(20)]
            await looker.look(*keys)
            reported = await looker.reported.count(18)
        finally:
            client.config_set("tracking-table-max-keys", most)
    assert set(reported) <= {KEY, *keys}


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Nothing is answered."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def test_a_call_under_way_fails_with_its_connection(looker: Looker) -> None:
    await looker.look(KEY)
    with stopped(looker.server_of(KEY)):
        under_way = asyncio.create_task(looker.look(OTHER))
        await asyncio.sleep(0.05)
        looker.link._tracking[looker.link.node_of(KEY)].close()
        with pytest.raises(LinkError) as failed:
            await under_way
    assert failed.value.sent
    assert looker.reported.all == [KEY]


async def test_a_server_that_hangs_costs_the_time_out_and_the_connection(looker: Looker) -> None:
    await looker.look(KEY)
    with stopped(looker.server_of(KEY)), pytest.raises(LinkError):
        await looker.ask([Command(OTHER, ("XLEN", OTHER))], 0.2)
    assert looker.reported.all == [KEY]
    assert await looker.look(KEY) == [0]


async def test_a_slot_moves_while_its_keys_are_watched(looker: Looker) -> None:
    move = Migration(looker.cluster, "m")
    add(looker.cluster, KEY)
    await looker.look(KEY)
    move.begin()
    move.move_all()
    assert await looker.reported.count(1) == [KEY]
    assert await looker.look(KEY, ABSENT) == [1, 0]  # where the slot is going to
    assert move.asked() >= 2
    with move.target.client() as client:
        client.execute_command("ASKING")
        client.execute_command("XADD", ABSENT, "*", "a", "1")
    assert (await looker.reported.count(2))[1] == ABSENT
    move.end()
    add(looker.cluster, KEY)
    assert (await looker.reported.count(3))[2] == KEY
    assert await looker.look(KEY) == [2]


async def test_a_slot_that_has_moved_is_a_change_of_its_keys(looker: Looker) -> None:
    """Also of those that do not exist, as soon as any call learns of it."""
    move = Migration(looker.cluster, "m")
    add(looker.cluster, KEY)
    await looker.look(ABSENT)
    move.begin()
    move.move_all()
    move.end()
    assert looker.reported.all == []
    await arun(looker.link, looker.link.route(Request([Command(KEY, ("XLEN", KEY))], TIMEOUT_S)))
    assert looker.reported.all == [ABSENT]


async def test_the_error_names_the_right_that_a_user_lacks(looker: Looker) -> None:
    for node in looker.cluster.nodes:
        with node.client() as client:
            client.acl_setuser("poor", enabled=True, passwords=["+x"], keys=["*"], commands=["+cluster|slots", "+xlen"])
    link = AsyncLink(looker.cluster.url.replace("://", "://poor:x@"), TIMEOUT_S, LIMITS)
    try:
        with pytest.raises(AuthenticationFailed, match="doctor --acl"):
            await arun(link, link.route(Request([Command(KEY, ("XLEN", KEY))], TIMEOUT_S, True, looker.reported.add)))
    finally:
        await link.close()
        for node in looker.cluster.nodes:
            with node.client() as client:
                client.acl_deluser("poor")


async def test_a_client_that_learns_the_slots_is_notified_of_keys_that_have_moved(looker: Looker) -> None:
    """Nobody has called anything there since."""
    move = Migration(looker.cluster, "m")
    await looker.look(ABSENT)
    move.begin()
    move.move_all()
    move.end()
    assert looker.reported.all == []
    await looker.link.learn_slots()
    assert looker.reported.all == [ABSENT]
    await looker.look(ABSENT)
    add(looker.cluster, ABSENT)
    assert await looker.reported.count(2) == [ABSENT, ABSENT]
