"""stats: a shard's counters and sizes at one moment."""

from __future__ import annotations

from streamdq.operations.topics import configure
from streamdq.store.history.rows import dumps_in
from tests.lua.links import Linked
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
    two.call("register_dump", "d1", "0-0", 0)
    stats = two.call("stats", ("a", "b"))
    assert stats[:5] == (START_MS, START_MS + 500, 4, 2, True)
    assert stats.delayed == 1
    assert stats.dead_now == {"a": 1, "b": 0}
    assert [dump.id for dump in dumps_in(stats.dumps)] == ["d1"]
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


def test_jobs_that_wait_for_others(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p", "q", delay="1s")
    assert shard.call("stats", ["default"]).links == (0, 0, 0)
    for id in ("d", "e"):
        linked.put(id, "p")
    assert shard.call("stats", ["default"]).links == (0, 0, START_MS), "none is to be told"
    shard.call("cancel", "p")
    shard.clock.advance("2s")
    found = shard.call("stats", ["default"])
    assert found.links == (0, 1, START_MS)
    assert found.counts.values["waiting_for_jobs"] == 2
    linked.tell()
    assert shard.call("stats", ["default"]).links == (2, 0, START_MS + 2000)


def test_no_job_is_due_if_all_wait_for_others(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p")
    linked.put("d", "p")
    assert shard.call("stats", ["default"]).first_due_ms == -1
