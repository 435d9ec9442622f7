"""take_over: running -> ready, the claims of a consumer that has sent no heartbeat for long enough."""

from __future__ import annotations

import pytest

from streamdq.job.job import NewJob
from streamdq.operations.topics import configure
from streamdq.store.jobs.records import encode
from tests.lua.shard import Shard
from tests.waiting import until


def test_its_claims_are_ready_again_long_before_their_ttr(shard: Shard) -> None:
    shard.enqueue("j", ttr="1h")
    row = shard.take()
    shard.clock.advance("3s")
    assert shard.take_over() == (1, 0, 0, 0)
    assert shard.counts == {"enqueued": 1, "ready:default": 1, "reclaimed:default": 1, "detached": 1}
    assert shard.events() == [("reclaimed", "j", "default")]
    job = shard.job("j")
    assert job.groups["default"].error == "lost: no heartbeat from me"
    again = shard.take(consumer="other")
    assert again.past == b"2|0|1|", "a crash, and due when it was due"
    for end in (shard.finish, shard.retry, shard.bury, shard.release, shard.touch):
        assert end(row).stale == {0}
    assert shard.finish(again).stale == frozenset()
    assert shard.empty()


def test_what_it_claimed_a_short_while_ago_stays(shard: Shard) -> None:
    """It may have been idle until then."""
    shard.enqueue("old", "new", delay=0)
    (old,) = shard.claim(1).rows
    shard.clock.advance("1ms")
    (new,) = shard.claim(1).rows
    shard.clock.advance("2999ms")
    assert shard.take_over() == (1, 0, 0, 1)
    assert shard.finish(old).stale == {0}
    assert shard.touch(new).stale == frozenset()
    shard.clock.advance("1ms")
    assert shard.take_over() == (1, 0, 0, 0)
    assert shard.take_over() == (0, 0, 0, 0)


def test_a_touched_claim_goes_too(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.clock.advance("2s")
    shard.touch(row, ttr_ms=3_600_000)
    shard.clock.advance("1s")
    assert shard.take_over().taken == 1


def test_others_keep_what_they_have(two: Shard) -> None:
    two.enqueue("i", "j")
    (mine,) = two.claim(1).rows
    (others,) = two.claim(1, consumer="other").rows
    of_b = two.claim(2, group="b").rows
    two.clock.advance("3s")
    assert two.take_over().taken == 1
    assert two.finish(mine).stale == {0}
    assert two.finish(others).stale == frozenset()
    assert two.finish(*of_b, group="b").stale == frozenset()


def test_both_streams_and_no_more_than_the_limit_at_once(shard: Shard) -> None:
    shard.enqueue(*(f"again-{i}" for i in range(4)))
    shard.retry(*shard.claim().rows)
    shard.move()
    shard.enqueue(*(f"first-{i}" for i in range(4)))
    assert len(shard.claim().rows) == 8
    shard.clock.advance("3s")
    assert shard.take_over(limit=3) == (6, 0, 1, 0)
    assert shard.take_over(limit=3) == (2, 0, 0, 0)
    assert len(shard.claim(consumer="other").rows) == 8
    assert not shard.pending(shard.k.ready)


def test_there_is_no_more_to_do_when_all_that_was_looked_at_stays(shard: Shard) -> None:
    shard.enqueue("i", "j", "k")
    shard.claim()
    assert shard.take_over(limit=3) == (0, 0, 0, 3)


def test_what_stays_in_one_stream_does_not_end_the_other(shard: Shard) -> None:
    shard.enqueue(*(f"again-{i}" for i in range(4)))
    shard.retry(*shard.claim().rows)
    shard.move()
    assert len(shard.claim().rows) == 4
    shard.clock.advance("3s")
    shard.enqueue("i", "j", "k")
    shard.claim()
    assert shard.take_over(limit=3) == (3, 0, 1, 3)


def test_no_more_bytes_than_fit_one_call(shard: Shard) -> None:
    body = "x" * 100_000
    for i in range(8):
        job = encode(NewJob(body, id=f"j{i}", delay=0), 1_000_000)[:3]
        shard.run(shard.scripts.enqueue(shard.k, 1, list(job)))
    while shard.claim().rows:
        pass
    shard.clock.advance("3s")
    taken = []
    while True:
        reply = shard.take_over()
        taken.append(reply.taken)
        if not reply.more:
            break
    assert sum(taken) == 8
    assert max(taken) <= 3


def test_claimed_ahead_it_goes_back_as_if_it_had_not_been(shard: Shard) -> None:
    shard.enqueue("begun", "ahead")
    shard.claim(2, at_once=1)
    shard.clock.advance("3s")
    assert shard.take_over().taken == 2
    assert {(event, id) for event, id, _ in shard.events()} == {("reclaimed", "begun"), ("released", "ahead")}
    past = {row.id: row.past.split(b"|")[:3] for row in shard.claim(consumer="other").rows}
    assert past == {b"begun": [b"2", b"0", b"1"], b"ahead": [b"1", b"0", b"0"]}


def test_lost_twice_in_a_row_it_is_held_back(shard: Shard) -> None:
    shard.enqueue("j")
    for _ in range(2):
        shard.take()
        shard.clock.advance("6s")
        assert shard.take_over().taken == 1
    assert shard.counts.get("waiting:default", 0) + shard.counts.get("ready:default", 0) == 1
    shard.clock.advance("10s")
    shard.move()
    assert shard.take(consumer="other").past.split(b"|")[2] == b"2"


@pytest.mark.parametrize(
    ("of_group", "of_topic", "of_caller", "most"),
    [
        (100, 60_000, 60_000, 400),
        (None, 100, 60_000, 400),
        (2_000, 100, 100, 8_000),
        (None, 2_000, 100, 8_000),
        (None, None, 100, 400),
    ],
)
def test_lost_twice_in_a_row_nothing_is_held_back_for_longer_than_four_ttrs(
    shard: Shard, of_group: int | None, of_topic: int | None, of_caller: int, most: int
) -> None:
    shard.run(shard.topics.ensure_group("t", "default", {"ttr_ms": of_group}))
    shard.topic(ttr=(of_topic or 60_000) / 1000)
    if of_topic is None:
        shard.redis("HDEL", shard.k.settings, "ttr")
    caller = shard.settings.model_copy(update={"groups": {}, "ttr_ms": of_caller})
    shard.enqueue(*(f"j{n}" for n in range(60)))
    for silence in ("3s", "6s"):  # the second time it may be silent for twice as long
        shard.claim(60)
        shard.clock.advance(silence)
        shard.run(shard.scripts.take_over(shard.k, "default", caller, "me", 3_000, 100, 5.0))
    waits = shard.redis("ZRANGE", shard.k.bucket, 0, -1, "WITHSCORES")[1::2]
    assert most * 0.8 < max(int(due) - shard.clock.now_ms for due in waits) <= most


def test_no_more_rows_of_history_are_kept_than_the_cap_says(shard: Shard) -> None:
    shard.scripts._history = 0
    shard.enqueue("j")
    shard.take()
    shard.clock.advance("3s")
    assert shard.take_over().taken == 1
    assert shard.history() == []


def test_a_touched_claim_goes_too_though_its_entry_is_not_idle(timed: Shard) -> None:
    timed.enqueue("j")
    timed.touch(timed.take())
    assert timed.take_over(silent_ms=0).taken == 1


def test_with_another_clock_than_redis_has_what_was_read_goes_at_once(shard: Shard) -> None:
    shard.enqueue("j")
    shard.redis("XREADGROUP", "GROUP", "default", "me", "COUNT", 1, "STREAMS", shard.k.ready, ">")
    assert shard.take_over() == (0, 0, 0, 0)
    assert shard.pending(shard.k.ready) == []
    assert shard.take(consumer="other").id == b"j"


def test_read_and_never_claimed(timed: Shard) -> None:
    timed.enqueue("j")
    timed.redis("XREADGROUP", "GROUP", "default", "me", "COUNT", 1, "STREAMS", timed.k.ready, ">")
    assert timed.take_over(silent_ms=60_000) == (0, 0, 0, 1), "just now"
    until(lambda: timed.take_over(silent_ms=60_000).kept == 0, "a live consumer had claimed it by now")
    row = timed.take(consumer="other")
    assert row.past.split(b"|")[:3] == [b"1", b"0", b"0"], "it never began"
    timed.finish(row)
    assert timed.empty()


def test_while_the_topic_is_paused_it_waits(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.run(configure.pause(shard.store, "t"))
    shard.clock.advance("3s")
    assert shard.take_over().taken == 1
    assert shard.state("j") == "delayed"


def test_of_a_topic_with_a_rate_it_waits_for_a_permit(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.topic(rate=1)
    shard.clock.advance("3s")
    assert shard.take_over().taken == 1
    assert shard.state("j") == "delayed"


def test_a_record_that_is_gone_is_lost(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.clock.advance("3s")
    shard.redis("HDEL", shard.k.jobs, "j")
    shard.checked = False
    assert shard.take_over() == (0, 1, 0, 0)
    assert shard.counts["lost:default"] == 1


def test_an_entry_deleted_meanwhile_is_let_go(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.clock.advance("3s")
    shard.checked = False
    shard.redis("XDEL", shard.k.ready, row.main)
    shard.take_over()
    assert shard.pending(shard.k.ready) == []


@pytest.mark.parametrize("group", ["default", "gone"])
def test_a_stranger_or_a_group_that_is_gone(shard: Shard, group: str) -> None:
    shard.enqueue("j")
    assert shard.take_over("nobody", group) == (0, 0, 0, 0)
    assert shard.state("j") == "ready"


def test_claimed_before_the_clock_was_set_back_it_is_left_to_its_ttr(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.clock.now_ms -= 3_600_000
    assert shard.take_over() == (0, 0, 0, 1)
    shard.checked = True
    shard.reclaim()
    shard.clock.advance("3s")
    assert shard.take_over().taken == 1, "reclaim has noticed"


def test_reclaim_tells_whose_claims_there_are(two: Shard) -> None:
    two.enqueue("i", "j", "k")
    two.retry(two.claim(1, consumer="first").rows[0])
    two.move()
    (row,) = two.claim(1, consumer="second").rows
    two.claim(1, group="b", consumer="of-b")
    two.claim(1, consumer="third")
    assert sorted(two.reclaim("a").consumers) == [b"second", b"third"]
    assert two.reclaim("b").consumers == [b"of-b"]
    two.finish(row)
    two.clock.advance("60s")
    assert two.reclaim("a").consumers == []
    assert two.reclaim("b").consumers == []


# Keys


def admitted(shard: Shard) -> list[str]:
    """The jobs that have a place of their key."""
    return [ticket.decode()[-1] for ticket in shard.redis("ZRANGE", shard.k.key_admitted, 0, -1)]


@pytest.mark.parametrize("how", ["take_over", "reclaim"])
def test_the_place_of_a_job_that_is_lost_goes_to_the_next_one(shard: Shard, how: str) -> None:
    shard.topic(key_concurrency=1, ttr="10s")
    shard.enqueue("a", "b", key="m")
    shard.move()
    shard.take()
    shard.clock.advance("11s")
    shard.redis("HDEL", shard.k.jobs, "a")
    shard.checked = False
    getattr(shard, how)()
    assert admitted(shard) == ["b"]
    shard.move()
    assert shard.take().id == b"b"


@pytest.mark.parametrize("how", ["take_over", "reclaim"])
def test_one_that_is_taken_over_keeps_its_place(shard: Shard, how: str) -> None:
    shard.topic(key_concurrency=1, ttr="10s")
    shard.enqueue("a", "b", key="m")
    shard.move()
    shard.take()
    shard.clock.advance("11s")
    getattr(shard, how)()
    assert admitted(shard) == ["a"]
    assert shard.take().id == b"a"


def read(shard: Shard) -> None:
    """Its retry is ready, and its consumer reads it and does not claim it."""
    shard.move()
    shard.redis("XREADGROUP", "GROUP", "default", "me", "STREAMS", shard.k.ready_of("default"), ">")


def progress(shard: Shard, id: str) -> bytes:
    found: bytes = shard.redis("HGET", shard.k.progress, f"default\x1f{id}")
    return found


def test_a_retry_that_was_read_keeps_its_place_and_its_progress(shard: Shard) -> None:
    shard.topic(key_concurrency=1, key_order=True)
    shard.enqueue("a", "b", key="m")
    shard.move()
    shard.retry(shard.take())
    read(shard)
    shard.clock.advance("3s")
    before = progress(shard, "a").split(b"|")[:4]
    shard.take_over()
    assert admitted(shard) == ["a"]
    assert progress(shard, "a").split(b"|")[:4] == before
    assert shard.take().id == b"a"


def test_what_a_job_waits_for_now_is_not_forgotten_with_an_old_entry(shard: Shard) -> None:
    """It was read, and then rescheduled; its record is gone."""
    shard.enqueue("j")
    shard.retry(shard.take())
    read(shard)
    shard.call("reschedule", "j", "+60000")
    shard.redis("HDEL", shard.k.jobs, "j")
    shard.checked = False
    shard.clock.advance("3s")
    shard.take_over()
    assert progress(shard, "j") is not None, "what is in the bucket finds it"


def test_another_ones_claim_is_not_forgotten_with_an_entry_that_is_there_twice(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    row = shard.take()
    twice = shard.redis("XRANGE", shard.k.ready_of("default"), row.entry, row.entry)[0][1]
    shard.checked = False
    shard.redis("XADD", shard.k.ready_of("default"), "*", *twice)
    shard.redis("XREADGROUP", "GROUP", "default", "other", "STREAMS", shard.k.ready_of("default"), ">")
    shard.redis("HDEL", shard.k.jobs, "j")
    shard.clock.advance("3s")
    shard.take_over("other")
    assert progress(shard, "j").startswith(b"r")
