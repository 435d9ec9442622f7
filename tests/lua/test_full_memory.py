"""At its memory limit, Redis refuses a script whose first write adds data, and lets one go on that has removed some. So
producers are refused, and what drains the queue must go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from streamdq.errors import ServerRefusesWrites
from streamdq.operations.topics import configure
from tests.lua.shard import Shard
from tests.lua.test_claim import large, read_ahead
from tests.servers import Server


@pytest.fixture
def shard(redis_server: Server) -> Iterator[Shard]:
    opened = Shard(redis_server.url)
    yield opened
    opened.close()


@contextmanager
def full(shard: Shard) -> Iterator[None]:
    shard.redis("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(ServerRefusesWrites):
            shard.enqueue("refused")
        yield
    finally:
        shard.redis("CONFIG", "SET", "maxmemory", 0)


def test_due_jobs_become_ready(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    shard.clock.advance("1s")
    with full(shard):
        assert shard.move().moved == 1
    assert shard.state("j") == "ready"


@pytest.mark.parametrize("held", [False, True])
def test_a_mover_gets_the_lease(shard: Shard, held: bool) -> None:
    if held:
        shard.run(shard.scripts.lease("me", 5_000, 0.5))
    with full(shard):
        assert shard.run(shard.scripts.lease("me", 5_000, 0.5)) == (True, 0, 1)


def test_a_standby_gets_its_turn(shard: Shard) -> None:
    shard.run(shard.scripts.lease("other", 60_000, 0.5))
    with full(shard):
        assert shard.run(shard.scripts.lease("me", 5_000, 0.5)) == (False, 500, 2)
        assert shard.run(shard.scripts.lease("another", 5_000, 0.5)) == (False, 1_000, 3)


def test_a_rate_goes_on_to_permit(shard: Shard) -> None:
    shard.topic(rate=10)
    for _ in range(2):
        with full(shard):
            assert shard.run(shard.scripts.permit(shard.k, 1))[0] == 1
        shard.clock.advance("1s")


def test_ready_jobs_are_claimed(shard: Shard) -> None:
    shard.enqueue("j")
    with full(shard):
        assert shard.take().id == b"j"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_what_a_blocking_read_returned_is_claimed_or_goes_back(shard: Shard, count: int) -> None:
    shard.enqueue("i", "j")
    read = read_ahead(shard)
    with full(shard):
        assert len(shard.claim(count, read=read).rows) == count
    assert len(shard.claim().rows) == 2 - count


@pytest.mark.parametrize("count", [0, 2])
def test_a_consumer_that_asks_again_is_answered(shard: Shard, count: int) -> None:
    shard.enqueue("i", "j")
    read = read_ahead(shard)
    shard.claim(2, read=read)
    with full(shard):
        assert len(shard.claim(count, read=read).rows) == count


def test_of_large_jobs_that_a_blocking_read_returned_some_are_claimed(shard: Shard) -> None:
    large(shard, 4)
    shard.checked = False
    read = read_ahead(shard)
    with full(shard):
        first = shard.claim(read=read)
        assert (len(first.rows), first.unlooked) == (2, 2)


ENDS: dict[str, Callable[[Shard], object]] = {
    "finish": lambda shard: shard.finish(shard.take()),
    "retry": lambda shard: shard.retry(shard.take()),
    "bury": lambda shard: shard.bury(shard.take()),
    "release": lambda shard: shard.release(shard.take()),
    "cancel": lambda shard: shard.call("cancel", "j"),
    "leave": lambda shard: (shard.take(), shard.call("remove_consumer", "default", "me", 10)),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_attempts_end(shard: Shard, end: Callable[[Shard], object]) -> None:
    shard.enqueue("j")
    with full(shard):
        end(shard)
    assert shard.state("j") != "running"


def test_a_claim_whose_ttr_passed_is_taken_over(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.clock.advance("60s")
    with full(shard):
        assert shard.reclaim().reclaimed == 1
    assert shard.state("j") == "ready"


def test_dead_letters_go(shard: Shard) -> None:
    shard.enqueue("j")
    shard.bury(shard.take())
    with full(shard):
        assert shard.call("purge", "default", 1, []) == 1
    assert shard.empty()


def test_a_paused_topic_goes_on(shard: Shard) -> None:
    shard.enqueue("j")
    shard.run(configure.pause(shard.store, "t"))
    with full(shard):
        shard.run(configure.resume(shard.store, "t"))
        assert shard.take().id == b"j"


def test_a_dump_goes_on_so_that_history_can_be_trimmed(shard: Shard) -> None:
    for id in "ij":
        shard.enqueue(id)
        shard.finish(shard.take())
    first, last = (entry for entry, _ in shard.redis("XRANGE", shard.k.history, "-", "+"))
    registered = shard.call("register_dump", "d", first.decode(), 1, first.decode())
    with full(shard):
        shard.call("register_dump", "d", last.decode(), 2, first.decode())
    assert registered.written == 2
    assert shard.redis("HGET", shard.k.settings, "dumps") == b"d:%b:2" % last
