"""stats: a shard's counters and sizes at one moment."""

from __future__ import annotations

from streamdq.operations.topics import configure
from tests.lua.shard import START_MS, Shard


def test_an_empty_shard(shard: Shard) -> None:
    stats = shard.call("stats", ("default",))
    assert stats[:5] == (START_MS, -1, 0, 0, False)
    assert stats.dead_now == {"default": 0}
    assert stats.groups == ("default",)


def test_a_busy_shard(two: Shard) -> None:
    two.enqueue("dead", "running", "waiting")
    dead, _, waiting = two.claim(group="a").rows
    two.bury(dead)
    two.retry(waiting, delay_ms=500)
    two.enqueue("delayed", delay="1s")
    two.run(configure.pause(two.store, "t"))
    stats = two.call("stats", ("a", "b"))
    assert stats[:5] == (START_MS, START_MS + 500, 4, 2, True)
    assert stats.delayed == 1
    assert stats.dead_now == {"a": 1, "b": 0}
    assert {name: value for name, value in stats.counts.values.items() if name in two.counts} == two.counts


def test_when_something_was_last_moved(shard: Shard) -> None:
    assert shard.call("stats", ("default",)).moved_at_ms == 0
    shard.enqueue("j", delay="1s")
    shard.move()
    assert shard.call("stats", ("default",)).moved_at_ms == 0
    shard.clock.advance("2s")
    shard.move()
    assert shard.call("stats", ("default",)).moved_at_ms == START_MS + 2000


def test_of_several_shards_at_once_also_when_the_server_has_yet_to_learn_it(shard: Shard) -> None:
    shard.enqueue("j")
    wanted = [(shard.session.keys.shard("t", number), ("default",)) for number in (0, 1)]
    shard.redis("SCRIPT", "FLUSH")
    for _ in range(2):
        both = shard.run(shard.scripts.stats_of(wanted))
        assert [(stats.jobs, stats.groups) for stats in both] == [(1, ("default",)), (0, ())]
