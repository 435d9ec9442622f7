"""remove_consumer: a consumer goes; what it has pending is handed back first."""

from __future__ import annotations

from typing import Any

from streamdq.operations.topics import configure
from tests.lua.shard import Shard
from tests.lua.test_claim import large


def consumers(shard: Shard, stream: str) -> set[str]:
    rows: list[Any] = shard.redis("XINFO", "CONSUMERS", stream, shard.group)
    return {dict(zip(row[::2], row[1::2], strict=True))[b"name"].decode() for row in rows}


def test_what_it_ran_is_ready_again_without_an_attempt_lost(two: Shard) -> None:
    two.enqueue("retried")
    two.retried("a")
    two.enqueue("fresh")
    rows = two.claim(group="a").rows
    assert len(rows) == 2
    two.claim(group="b")
    assert two.call("remove_consumer", "a", "me", 100) is True
    assert two.pending(two.k.ready, "a") == two.pending(two.k.ready_of("a"), "a") == []
    assert consumers(two, two.k.ready) == consumers(two, two.k.ready_of("a")) == set()
    assert two.finish(*rows).stale == {0, 1}
    errors = [job.groups["a"].error for id in ("retried", "fresh") if (job := two.get(id))]
    assert errors == [None, None], "nothing has failed since"
    again = {row.id: row.past.split(b"|")[:3] for row in two.claim(group="a", consumer="other").rows}
    assert again == {b"retried": [b"2", b"1", b"0"], b"fresh": [b"1", b"0", b"0"]}
    assert two.counts["running:b"] == 2


def test_what_it_only_read_is_handed_on(shard: Shard) -> None:
    shard.enqueue("i", "j")
    shard.redis("XREADGROUP", "GROUP", "default", "me", "COUNT", 5, "STREAMS", shard.k.ready, ">")
    shard.call("cancel", "i")
    assert shard.call("remove_consumer", "default", "me", 100) is True
    row = shard.take(consumer="other")
    assert row.id == b"j"
    shard.finish(row)
    assert shard.empty()


def test_more_than_the_limit_takes_several_calls(shard: Shard) -> None:
    shard.enqueue(*(f"j{i}" for i in range(25)))
    shard.claim(25)
    assert shard.call("remove_consumer", "default", "me", 10) is False
    assert shard.counts["running:default"] == 15
    assert consumers(shard, shard.k.ready) == {"me"}
    assert shard.call("remove_consumer", "default", "me", 10) is False
    assert shard.call("remove_consumer", "default", "me", 10) is True
    assert shard.counts == {"enqueued": 25, "ready:default": 25, "detached": 25}
    assert consumers(shard, shard.k.ready) == set()


def test_others_keep_what_they_have(shard: Shard) -> None:
    shard.enqueue("i", "j")
    shard.claim(1)
    (row,) = shard.claim(1, consumer="other").rows
    shard.call("remove_consumer", "default", "me", 100)
    assert consumers(shard, shard.k.ready) == {"other"}
    assert shard.finish(row).stale == frozenset()


def test_while_the_topic_is_paused_it_waits(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.run(configure.pause(shard.store, "t"))
    shard.call("remove_consumer", "default", "me", 100)
    assert shard.state("j") == "delayed"


def test_in_a_topic_with_a_rate_what_it_ran_waits_for_a_permit(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.topic(rate=1)
    before = shard.last_wakeup()
    shard.call("remove_consumer", "default", "me", 100)
    assert shard.state("j") == "delayed"
    assert shard.last_wakeup() != before


def test_entries_deleted_meanwhile_are_let_go(two: Shard) -> None:
    two.enqueue("j")
    entry, _ = two.redis("XREADGROUP", "GROUP", "a", "me", "STREAMS", two.k.ready, ">")[0][1][0]
    two.call("cancel", "j")
    two.redis("XDEL", two.k.ready, entry)
    two.call("remove_consumer", "a", "me", 100)
    assert two.pending(two.k.ready, "a") == []


def test_a_stranger_leaves_without_a_trace(shard: Shard) -> None:
    shard.enqueue("j")
    assert shard.call("remove_consumer", "default", "nobody", 10) is True
    assert shard.state("j") == "ready"


def test_of_large_jobs_a_few_at_once(shard: Shard) -> None:
    large(shard, 4)
    shard.checked = False
    while shard.claim().rows:
        pass
    assert shard.call("remove_consumer", "default", "me", 100) is False
    assert len(shard.pending(shard.k.ready)) == 2


def test_what_was_lost_twice_before_is_not_held_back_when_its_consumer_leaves_in_order(shard: Shard) -> None:
    shard.enqueue("j")
    for _ in range(2):
        shard.take()
        shard.clock.advance("60s")
        shard.reclaim()
        shard.clock.advance("10s")
        shard.move()
    assert shard.take().past.split(b"|")[2] == b"2"
    assert shard.call("remove_consumer", "default", "me", 10) is True
    assert shard.state("j") == "ready"


def test_entries_that_were_deleted_while_pending_do_not_hold_it_up(shard: Shard) -> None:
    shard.enqueue("i", "j")
    shard.claim()
    shard.checked = False
    shard.redis("XTRIM", shard.k.ready, "MAXLEN", 0)
    calls = [shard.call("remove_consumer", "default", "me", 1) for _ in range(3)]
    assert calls == [False, False, True]


def test_a_job_it_ran_whose_record_is_lost_is_counted_as_lost(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "j")
    assert shard.call("remove_consumer", "default", "me", 10) is True
    assert (shard.counts["lost:default"], shard.counts.get("running:default", 0)) == (1, 0)
