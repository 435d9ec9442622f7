"""A rate of keys: starts of a key are spread evenly, and whatever happens to a job, the next one comes."""

from __future__ import annotations

import pytest

from streamdq.store.replies import ClaimedRow
from tests.lua.shard import Shard
from tests.lua.test_claim import read_ahead

PACE_S = 0.2


@pytest.fixture
def paced(shard: Shard) -> Shard:
    shard.topic(key_rate="5/s")
    return shard


def started(shard: Shard, count: int = 10) -> list[bytes]:
    shard.move()
    return [row.id for row in shard.claim(count).rows]


def unbegun(shard: Shard) -> int:
    return int(shard.redis("ZCARD", shard.k.key_unstarted))


def test_one_starts_at_a_time(paced: Shard) -> None:
    paced.enqueue("a", "b", "c", key="k")
    paced.enqueue("d", key="other")
    paced.enqueue("e")
    assert started(paced) == [b"a", b"d", b"e"]
    assert started(paced) == []
    paced.clock.advance(PACE_S - 0.001)
    assert started(paced) == []
    paced.clock.advance(0.001)
    assert started(paced) == [b"b"]
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"c"]


def test_it_wakes_the_mover_for_the_next_one(paced: Shard) -> None:
    paced.enqueue("a", "b", "c", key="k")
    assert started(paced) == [b"a"]
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"b"]
    assert paced.wakeup_ms() == paced.clock.now_ms + 200


def test_what_comes_late_is_made_up_for_only_in_part(paced: Shard) -> None:
    """A start that is 50 ms late delays no other. If nobody claimed for a second, no heap starts then."""
    paced.enqueue(*"abcdef", key="k")
    assert started(paced) == [b"a"]
    paced.clock.advance(PACE_S + 0.05)
    assert started(paced) == [b"b"]
    paced.clock.advance(PACE_S - 0.05)
    assert started(paced) == [b"c"]
    paced.clock.advance(1)
    assert started(paced) == [b"d"]
    paced.clock.advance(PACE_S - 0.05)
    assert started(paced) == [b"e"]
    paced.clock.advance(PACE_S - 0.001)
    assert started(paced) == []
    paced.clock.advance(0.001)
    assert started(paced) == [b"f"]


def test_a_quick_pace_is_kept_though_claims_take_a_while(shard: Shard) -> None:
    shard.topic(key_rate="1000/s")
    for part in range(0, 150, 75):
        shard.enqueue(*(f"j{n:03}" for n in range(part, part + 75)), key="k")
    assert unbegun(shard) == 50
    shard.checked = False  # it takes its time
    at, begun = shard.clock.now_ms, 0
    while begun < 150:
        shard.clock.advance(0.01)
        rows = started(shard, 100)
        assert rows == [f"j{begun + n:03}".encode() for n in range(len(rows))]
        begun += len(rows)
    assert 150 <= shard.clock.now_ms - at <= 160


def test_many_that_are_due_at_the_same_time_are_spread(shard: Shard) -> None:
    shard.topic(key_rate="100/s")
    shard.enqueue(*(f"j{n:02}" for n in range(50)), key="k", delay="1h")
    assert unbegun(shard) == 5
    shard.clock.advance("1h")
    assert len(started(shard)) == 5  # what may start in 50 ms
    for _ in range(20):
        shard.clock.advance(0.01)
        assert len(started(shard)) <= 1
    assert shard.redis("ZCARD", shard.k.key_waiting) == 50 - 5 - 16 - 5


@pytest.mark.parametrize("how", ["cancel", "reschedule", "expire"])
def test_one_that_never_starts_keeps_nobody_waiting(paced: Shard, how: str) -> None:
    paced.enqueue("a", key="k")
    paced.enqueue("b", key="k", expire="1s" if how == "expire" else None)
    paced.enqueue("c", key="k")
    assert started(paced) == [b"a"]
    paced.clock.advance(PACE_S / 2)
    if how == "cancel":
        assert paced.call("cancel", "b") == 1
    elif how == "reschedule":
        assert paced.call("reschedule", "b", "+60000") == 1
    else:
        paced.clock.advance(2)
        assert started(paced) == []
    paced.clock.advance(PACE_S / 2)
    assert started(paced) == [b"c"]
    assert unbegun(paced) == (how == "reschedule")


def test_an_earlier_job_comes_first_though_another_one_was_to_start(paced: Shard) -> None:
    paced.enqueue("a", key="k")
    assert started(paced) == [b"a"]
    paced.enqueue("late", key="k", delay="100ms")
    paced.enqueue("early", key="k", delay="50ms")
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"early"]
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"late"]


def test_no_more_run_at_once_than_may(shard: Shard) -> None:
    shard.topic(key_rate="5/s", key_concurrency=2)
    shard.enqueue(*"abcd", key="k")
    running: list[ClaimedRow] = []
    for _ in range(4):
        shard.move()
        running += shard.claim().rows
        shard.clock.advance(PACE_S)
    assert [row.id for row in running] == [b"a", b"b"]
    shard.finish(running[0])
    assert started(shard) == [b"c"]


@pytest.mark.parametrize("order", [True, "pass"])
def test_a_retry_is_a_start_too(shard: Shard, order: bool | str) -> None:
    shard.topic(key_rate="1/m", key_order=order)
    shard.enqueue("a", key="k")
    shard.move()
    row = shard.take()
    shard.retry(row, delay_ms=1000)
    shard.clock.advance("59s")
    assert started(shard) == []
    shard.clock.advance("1s")
    assert started(shard) == [b"a"]


def test_groups_have_paces_of_their_own(two: Shard) -> None:
    two.topic(key_rate="5/s")
    two.enqueue("x", "y", key="k")
    for group in ("a", "b"):
        two.move()
        assert [row.id for row in two.claim(group=group).rows] == [b"x"]
    two.clock.advance(PACE_S)
    two.move()
    assert [row.id for row in two.claim(group="b").rows] == [b"y"]


def test_one_that_is_handed_back_waits_like_the_others(paced: Shard) -> None:
    paced.enqueue("a", "b", key="k")
    paced.move()
    paced.release(paced.take())
    assert started(paced) == []
    assert paced.state("a") == "delayed"
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"a"]
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"b"]


def test_a_claim_whose_reply_was_lost_is_one_start(paced: Shard) -> None:
    paced.enqueue("a", "b", key="k")
    paced.move()
    own = paced.k.ready_of("default")
    ((_, ((entry, (_, member)),)),) = paced.redis("XREADGROUP", "GROUP", "default", "me", "STREAMS", own, ">")
    for _ in range(2):
        assert [row.id for row in paced.claim(read=["g", entry, member], consumer="me").rows] == [b"a"]
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"b"]


def test_a_retry_that_holds_its_key_waits_for_those_that_have_started(shard: Shard) -> None:
    shard.topic(key_rate="5/s", key_order=True, key_concurrency=2)
    shard.enqueue("a", "b", key="k")
    shard.move()
    shard.retry(shard.take(), delay_ms=250)
    shard.clock.advance(PACE_S)
    assert started(shard) == [b"b"]
    shard.clock.advance(0.05)
    assert started(shard) == []
    assert shard.state("a") == "delayed"
    assert shard.wakeup_ms() == shard.clock.now_ms + 149  # just before another one might start
    shard.clock.advance(PACE_S - 0.05)
    assert started(shard) == [b"a"]


def test_none_is_claimed_ahead(paced: Shard) -> None:
    """Its start would come later than the claim that is counted."""
    paced.enqueue("a", key="k")
    paced.enqueue("b", key="l")
    paced.move()
    claimed = paced.claim(10, at_once=1)
    assert [row.id for row in claimed.rows] == [b"a"]
    assert claimed.refused == 1
    assert [row.id for row in paced.claim(10, at_once=1).rows] == [b"b"]


def test_it_waits_for_no_clock_that_was_ahead(paced: Shard) -> None:
    paced.enqueue("a", "b", "c", key="k")
    assert started(paced) == [b"a"]
    paced.clock.now_ms -= 3_600_000
    paced.enqueue("now", key="k")
    assert paced.call("cancel", "b") == 1
    paced.clock.advance(2 * PACE_S)
    assert started(paced) == [b"now"]


@pytest.mark.parametrize("rate", ["10/s", 0])
def test_a_higher_rate_holds_at_once(shard: Shard, rate: str | int) -> None:
    shard.topic(key_rate="1/h")
    shard.enqueue("a", "b", "c", key="k")
    assert started(shard) == [b"a"]
    shard.topic(key_rate=rate)
    shard.clock.advance(0.15)
    assert started(shard) == ([b"b"] if rate else [b"b", b"c"])
    shard.clock.advance(0.1)
    assert started(shard) == ([b"c"] if rate else [])
    assert unbegun(shard) == 0


def test_one_that_is_ready_keeps_its_turn_when_the_rate_is_changed(paced: Shard) -> None:
    paced.enqueue("a", "b", key="k")
    paced.move()
    paced.topic(key_rate="1/h")
    assert unbegun(paced) == 1
    assert started(paced) == [b"a"]
    assert started(paced) == []


def test_what_has_started_counts_though_the_rate_is_changed(paced: Shard) -> None:
    paced.enqueue("a", "b", key="k")
    assert started(paced) == [b"a"]
    paced.topic(key_rate="4/s")
    assert started(paced) == []
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"b"]


def test_without_a_rate_nothing_is_to_start_in_turn(paced: Shard) -> None:
    """Otherwise it would keep others waiting once there is a rate again, until it has ended."""
    paced.enqueue("a", "b", key="k")
    paced.move()
    paced.topic(key_rate=0)
    assert unbegun(paced) == 0
    assert started(paced) == [b"a", b"b"]


def test_a_first_rate_holds_for_what_is_not_due(shard: Shard) -> None:
    shard.topic(key_concurrency=100)
    shard.enqueue(*(f"j{n:02}" for n in range(80)), key="k", delay="1h")
    shard.topic(key_rate="5/s")
    assert unbegun(shard) == shard.redis("ZCARD", shard.k.bucket) == 1
    shard.clock.advance("1h")
    assert started(shard) == [b"j00"]


def test_what_is_kept_of_starts_goes(shard: Shard) -> None:
    shard.topic(key_rate="5/s")
    shard.checked = False
    for n in range(700):
        shard.enqueue(f"j{n}", key=f"key {n}")
    shard.move(1000)
    while rows := shard.claim(200).rows:
        shard.finish(*rows)
    shard.checked = True
    assert shard.redis("ZCARD", shard.k.key_next_start) == 700
    shard.clock.advance(1)
    shard.enqueue("one", key="k")
    shard.move()
    shard.finish(shard.take())
    assert shard.redis("ZCARD", shard.k.key_next_start) == 699
    shard.topic(key_rate=0)
    assert shard.redis("ZCARD", shard.k.key_next_start) == 0
    assert shard.empty()


def test_even_if_it_is_of_a_single_start_it_goes(paced: Shard) -> None:
    for key in ("k", "other"):
        paced.enqueue(key, key=key)
        paced.move()
        paced.finish(paced.take())
        assert paced.redis("ZCARD", paced.k.key_next_start) == 1
        paced.clock.advance(1)


def test_what_was_ready_before_the_first_rate_comes_out_again_one_by_one(shard: Shard) -> None:
    shard.topic(key_concurrency=100)
    shard.enqueue(*(f"j{n:02}" for n in range(20)), key="k")
    shard.move()
    shard.topic(key_rate="5/s")
    assert started(shard, 30) == [b"j00"]
    for n in range(1, 20):
        assert shard.redis("ZCARD", shard.k.bucket) == 1
        shard.clock.advance(PACE_S)
        assert started(shard, 30) == [f"j{n:02}".encode()]


def test_a_retry_that_holds_its_key_comes_before_those_that_wait(shard: Shard) -> None:
    shard.topic(key_rate="5/s", key_order=True, key_concurrency=30)
    shard.enqueue("a", "b", key="k")
    shard.move()
    row = shard.take()
    shard.clock.advance(PACE_S)
    assert started(shard) == [b"b"]
    shard.enqueue(*(f"j{n:02}" for n in range(20)), key="k")
    shard.retry(row, delay_ms=50)
    shard.clock.advance(0.05)
    assert started(shard) == []
    shard.clock.advance(PACE_S - 0.05)
    assert started(shard) == [b"a"]
    shard.clock.advance(PACE_S)
    assert started(shard) == [b"j00"]


def test_one_that_started_while_there_was_no_rate_keeps_nobody_waiting(shard: Shard) -> None:
    """The process that removed the rate was killed before the shard knew; then there is one again."""
    shard.topic(key_rate="5/s")
    shard.enqueue("a", "b", "c", key="k")
    shard.move()
    limit = shard.redis("HGET", shard.k.settings, "key_limit")
    shard.redis("HSET", shard.k.settings, "key_limit", "0", "limit_applied_to", "")
    assert [row.id for row in shard.claim().rows] == [b"a"]
    shard.redis("HSET", shard.k.settings, "key_limit", limit, "limit_applied_to", "")
    while shard.run(shard.scripts.apply_key_limit(shard.k, 10)):
        pass
    assert started(shard) == [b"b"]
    shard.clock.advance(PACE_S)
    assert started(shard) == [b"c"]


def test_a_call_claims_sixty_at_most(paced: Shard) -> None:
    """With many keys, each start lets another job out."""
    paced.enqueue(*(f"j{n}" for n in range(70)))
    assert [len(started(paced, count)) for count in (5, 100, 100)] == [5, 60, 5]


def test_of_more_that_were_read_the_rest_stays_read(paced: Shard) -> None:
    paced.enqueue(*(f"j{n}" for n in range(70)))
    paced.move()
    paced.checked = False
    read = read_ahead(paced, count=62)
    first = paced.claim(100, read=read)
    assert (len(first.rows), first.unlooked) == (60, 2)
    rest = paced.claim(100, read=read[-3 * first.unlooked :])
    assert (len(rest.rows), rest.unlooked) == (10, 0)


def test_without_a_pace_a_call_claims_more(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue(*(f"j{n}" for n in range(70)))
    shard.move()
    shard.checked = False
    reply = shard.claim(70, read=read_ahead(shard, count=62))
    assert (len(reply.rows), reply.unlooked) == (70, 0)


def test_after_the_clock_was_set_back_the_pace_goes_on_from_there(paced: Shard) -> None:
    paced.enqueue("a", key="k")
    assert started(paced) == [b"a"]
    paced.clock.now_ms -= 3_600_000
    paced.enqueue("b", "c", key="k")
    assert paced.wakeup_ms() == paced.clock.now_ms + 200
    assert started(paced) == []
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"b"]
    assert paced.wakeup_ms() == paced.clock.now_ms + 200


def test_a_start_as_early_as_can_be_counts_from_its_time(paced: Shard) -> None:
    """What was handed back may start again 50 ms early; the next one comes a pace after the time that was its own."""
    paced.enqueue("a", key="k")
    paced.move()
    paced.release(paced.take())
    paced.clock.advance(PACE_S - 0.05)
    paced.take()
    paced.enqueue("b", key="k")
    assert paced.wakeup_ms() == paced.clock.now_ms + 250


def test_what_is_due_and_was_not_moved_counts_as_before_when_the_rate_changes(paced: Shard) -> None:
    paced.enqueue("a", "b", key="k")
    paced.topic(key_rate="10/s")
    assert paced.redis("ZCARD", paced.k.key_waiting) == 1
    assert unbegun(paced) == 1


def test_a_start_counts_though_the_rate_is_changed_while_nothing_waits(paced: Shard) -> None:
    paced.enqueue("a", key="k")
    assert started(paced) == [b"a"]
    paced.topic(key_rate="10/s")
    paced.enqueue("b", key="k")
    assert paced.wakeup_ms() == paced.clock.now_ms + 100


def test_what_runs_is_not_asked_to_give_way(paced: Shard) -> None:
    """It is due after both; the one that is out is the one that gives way to an earlier one."""
    paced.enqueue("runs", key="k")
    assert started(paced) == [b"runs"]
    paced.enqueue("late", key="k", at=paced.clock.now_ms - 1000)
    paced.enqueue("early", key="k", at=paced.clock.now_ms - 2000)
    paced.clock.advance(PACE_S)
    assert started(paced) == [b"early"]


def test_who_is_sent_back_beside_one_that_waits_for_its_turn_stays_ready(shard: Shard) -> None:
    shard.topic(key_rate="5/s", key_order=True, key_concurrency=2)
    shard.enqueue("a", "b", key="k")
    shard.move()
    shard.retry(shard.take(), delay_ms=250)
    shard.clock.advance(PACE_S)
    assert started(shard) == [b"b"]
    shard.clock.advance(0.05)
    shard.move()
    shard.enqueue("c", key="l")
    shard.enqueue("d", key="m")
    shard.move()
    assert [row.id for row in shard.claim(10, at_once=1).rows] == [b"c"]
    assert [shard.state(id) for id in "acd"] == ["delayed", "running", "ready"]


def test_a_job_without_a_key_and_with_a_ttr_of_its_own_starts_as_elsewhere(paced: Shard) -> None:
    paced.enqueue("a", ttr="5s")
    assert started(paced) == [b"a"]
