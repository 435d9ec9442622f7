"""reclaim: running -> ready, the claims of one group whose TTR has passed."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq import NewJob
from streamdq.operations.checks import audit
from streamdq.operations.jobs import enqueue_many
from streamdq.operations.topics import configure
from streamdq.store.replies import ClaimedRow
from tests.lua.shard import BEGIN, START_MS, Shard
from tests.lua.test_claim import large, read_ahead
from tests.waiting import until


def held_back(shard: Shard) -> None:
    """What was lost twice in a row waits for 10 s at most."""
    shard.clock.advance("10s")
    shard.move()


def test_a_claim_whose_ttr_passed_is_ready_again(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.clock.advance("59999ms")
    reply = shard.reclaim()
    assert (reply[:3], reply.running, reply.reclaimed) == ((START_MS + 59_999, b"0-0", b"0-0"), 1, 0)
    shard.clock.advance("1ms")
    reply = shard.reclaim()
    assert (reply[:3], reply.running, reply.reclaimed) == ((START_MS + 60_000, b"0-0", b"0-0"), 0, 1)
    assert shard.state("j") == "ready"
    assert shard.counts == {"enqueued": 1, "ready:default": 1, "reclaimed:default": 1, "detached": 1}
    assert shard.events() == [("reclaimed", "j", "default")]
    again = shard.take(consumer="other")
    assert again.past == b"2|0|1|", "due when it was due"
    for end in (shard.finish, shard.retry, shard.bury, shard.release, shard.touch):
        assert end(row).stale == {0}
    assert shard.finish(again).stale == frozenset()
    assert shard.empty()


def test_crashes_in_a_row_add_up(shard: Shard) -> None:
    shard.enqueue("j")
    for crashes in range(3):
        past = shard.take().past
        assert past == b"" if not crashes else past.split(b"|")[:3] == [b"%d" % (crashes + 1), b"0", b"%d" % crashes]
        shard.clock.advance("60s")
        shard.reclaim()
        held_back(shard)


def test_a_retried_attempt(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    row = shard.take()
    shard.clock.advance("60s")
    assert shard.reclaim().reclaimed == 1
    assert shard.finish(row).stale == {0}
    assert shard.pending(shard.k.ready_of("default")) == []
    shard.finish(shard.take())
    assert shard.empty()


def test_only_the_group_asked_for(two: Shard) -> None:
    two.enqueue("j")
    a, b = two.take("a"), two.take("b")
    two.clock.advance("60s")
    two.reclaim("a")
    assert (two.state("j", "a"), two.state("j", "b")) == ("ready", "running")
    assert two.finish(a).stale == {0}
    assert two.finish(b, group="b").stale == frozenset()
    two.finish(two.take("a"))
    assert two.empty()


@pytest.mark.parametrize(("ttr", "ms"), [("2s", 2_000), ("10m", 600_000)])
def test_a_jobs_own_ttr_decides(shard: Shard, ttr: str, ms: int) -> None:
    shard.enqueue("j", ttr=ttr)
    shard.take()
    shard.clock.advance((ms - 1) / 1000)
    assert shard.reclaim().reclaimed == 0
    shard.clock.advance("1ms")
    assert shard.reclaim().reclaimed == 1


def test_what_has_time_left_is_given_back_to_its_consumer(shard: Shard) -> None:
    shard.enqueue("j", ttr="10m")
    row = shard.take()
    shard.clock.advance("5m")
    assert shard.reclaim().running == 1
    assert [(entry, owner) for entry, owner, *_ in shard.pending(shard.k.ready)] == [(row.main, b"me")]
    assert shard.finish(row).stale == frozenset()


def test_by_redis_own_clock_a_short_ttr_is_found_in_time(timed: Shard) -> None:
    timed.enqueue("short", ttr="50ms")
    timed.enqueue("usual")
    timed.claim()
    until(lambda: timed.reclaim().reclaimed == 1, "the short TTR is found", 5)
    assert (timed.state("short"), timed.state("usual")) == ("ready", "running")


def test_by_redis_own_clock_touched_jobs_are_left_alone(timed: Shard) -> None:
    timed.run(timed.topics.ensure_group("t", "default", {"ttr_ms": 50}))
    timed.enqueue("touched", "dead")
    touched, _ = timed.claim().rows
    timed.touch(touched, ttr_ms=600_000)
    until(lambda: timed.reclaim().reclaimed == 1, "the other one is found", 5)
    assert (timed.state("touched"), timed.state("dead")) == ("running", "ready")
    assert timed.finish(touched).stale == frozenset()


def test_a_cursor_walks_through_many(shard: Shard) -> None:
    shard.enqueue(*(f"j{i}" for i in range(60)), ttr="10m")
    shard.claim(60)
    shard.clock.advance("10m")
    cursors, seen = BEGIN, 0
    for _ in range(60):
        reply = shard.reclaim(cursors=cursors, limit=7)
        cursors, seen = (reply.cursor, reply.own_cursor), seen + reply.reclaimed
        if cursors == BEGIN:
            break
    assert seen == 60


def walk(shard: Shard, limit: int = 100) -> list[int]:
    """How many claims each call took over, until there are no more."""
    cursors, taken = BEGIN, []
    for _ in range(100):
        reply = shard.reclaim(cursors=cursors, limit=limit)
        cursors = (reply.cursor, reply.own_cursor)
        taken.append(reply.reclaimed)
        if not reply.more:
            return taken
    raise AssertionError("without an end")


def claim_all(shard: Shard) -> list[ClaimedRow]:
    rows = []
    while found := shard.claim(100).rows:
        rows += found
    return rows


def large_ones(shard: Shard, count: int, **fields: Any) -> None:
    large = [NewJob("x" * 100_000, id=f"large{n}", **fields) for n in range(count)]
    shard.run(enqueue_many.enqueue_many(shard.store, "t", large))


@pytest.mark.parametrize("retried", [False, True])
def test_large_records_are_taken_over_a_few_at_once(shard: Shard, retried: bool) -> None:
    large_ones(shard, 7)
    if retried:
        shard.retry(*claim_all(shard))
        shard.move()
    assert len(claim_all(shard)) == 7
    shard.clock.advance("60s")
    assert walk(shard) == [2, 2, 2, 1]


def test_one_large_record_among_small_ones_holds_up_none(shard: Shard) -> None:
    large_ones(shard, 1)
    shard.enqueue(*(f"j{n}" for n in range(60)))
    claim_all(shard)
    shard.clock.advance("60s")
    assert walk(shard) == [61]


def test_a_look_through_claims_with_time_left_reads_no_record(shard: Shard) -> None:
    large_ones(shard, 7, ttr="10m")
    claim_all(shard)
    shard.clock.advance("60s")
    assert walk(shard) == [0]


@pytest.mark.parametrize(("new", "retried", "limit"), [(250, 0, 100), (5, 0, 2), (5, 3, 2), (3, 5, 2)])
def test_after_a_raised_ttr_there_is_more_until_all_were_looked_at(
    timed: Shard, new: int, retried: int, limit: int
) -> None:
    timed.topic(ttr="30s")
    timed.enqueue(*(f"retried{n}" for n in range(retried)))
    timed.retry(*timed.claim().rows, delay_ms=0)
    timed.move()
    timed.enqueue(*(f"new{n}" for n in range(new)))
    assert len(timed.claim(250).rows) == new + retried
    timed.topic(ttr="1h")
    assert walk(timed, limit) == [0, 0, 0]
    assert timed.redis("HGET", timed.k.settings, "recheck:default") is None
    assert walk(timed) == [0]


def test_entries_deleted_while_pending_are_let_go(two: Shard) -> None:
    two.enqueue("i", "j")
    two.claim(group="a")
    for entry, _ in two.redis("XRANGE", two.k.ready, "-", "+"):
        two.redis("XDEL", two.k.ready, entry)
    two.clock.advance("60s")
    # Redis 6.2 keeps them pending and names none; 7.0 drops them by itself.
    two.run(two.scripts.reclaim(two.k, "a", two.settings, 100, BEGIN, 4_000))
    assert two.pending(two.k.ready, "a") == []


def test_read_but_never_claimed_is_handed_on(shard: Shard) -> None:
    shard.enqueue("i", "j")
    shard.redis("XREADGROUP", "GROUP", "default", "dead", "COUNT", 1, "STREAMS", shard.k.ready, ">")
    assert shard.reclaim().reclaimed == 0
    assert shard.pending(shard.k.ready) == []
    assert shard.counts["ready:default"] == 2
    assert sorted(row.id for row in shard.claim().rows) == [b"i", b"j"]


@pytest.mark.parametrize("change", ["reclaim", "leave", "claim"])
def test_what_was_ready_and_not_claimed_needs_no_second_permit(shard: Shard, change: str) -> None:
    """It may have been read just now, and time stands still until the test goes on."""
    shard.enqueue("j")
    shard.topic(rate=1)
    reply = shard.redis("XREADGROUP", "GROUP", "default", "me", "COUNT", 1, "STREAMS", shard.k.ready, ">")
    ((entry, fields),) = reply[0][1]
    if change == "reclaim":
        shard.reclaim()
    elif change == "leave":
        shard.call("remove_consumer", "default", "me", 10)
    else:
        assert shard.claim(0, read=["m", entry, fields[1]]).rows == []
    assert shard.redis("ZCARD", shard.k.bucket) == 0
    assert shard.take().id == b"j"
    shard.clock.advance("60s")
    assert shard.reclaim().reclaimed == 1
    assert shard.redis("ZCARD", shard.k.bucket) == 1, "an attempt that ran needs one"


@pytest.mark.parametrize("change", ["reclaim", "leave"])
def test_what_was_ready_and_not_claimed_waits_for_a_paused_topic(shard: Shard, change: str) -> None:
    shard.enqueue("j")
    shard.redis("XREADGROUP", "GROUP", "default", "me", "COUNT", 1, "STREAMS", shard.k.ready, ">")
    shard.topic(rate=1)
    shard.run(configure.pause(shard.store, "t"))
    if change == "reclaim":
        shard.reclaim()
    else:
        shard.call("remove_consumer", "default", "me", 10)
    assert shard.redis("ZCARD", shard.k.bucket) == 1


def test_read_but_never_claimed_is_watched_like_a_claim(timed: Shard) -> None:
    timed.enqueue("j")
    timed.redis("XREADGROUP", "GROUP", "default", "dead", "COUNT", 1, "STREAMS", timed.k.ready, ">")
    assert timed.counts.get("running:default", 0) == 0
    assert timed.reclaim().running == 1


def test_read_never_claimed_and_cancelled_is_dropped(two: Shard) -> None:
    two.enqueue("j")
    two.redis("XREADGROUP", "GROUP", "a", "dead", "COUNT", 1, "STREAMS", two.k.ready, ">")
    two.call("cancel", "j")
    two.reclaim("a")
    assert two.empty()


def test_while_the_topic_is_paused_it_waits(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.run(configure.pause(shard.store, "t"))
    shard.clock.advance("60s")
    assert shard.reclaim().reclaimed == 1
    assert shard.state("j") == "delayed"
    shard.run(configure.resume(shard.store, "t"))
    shard.move()
    shard.finish(shard.take())
    assert shard.empty()


def test_a_ready_job_without_its_record_is_lost_at_the_second_look(shard: Shard) -> None:
    shard.enqueue("lost", "kept")
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "lost")
    assert shard.reclaim()[-2:] == (0, 0)  # nothing has been read yet
    (row,) = shard.claim().rows

    first = shard.reclaim()
    second = shard.reclaim(missing=first.missing)

    assert (row.id, first.missing, first.lost) == (b"kept", 1, 0)
    assert (second.missing, second.lost) == (0, 1)
    assert (shard.counts["lost:default"], shard.counts.get("ready:default", 0)) == (1, 0)
    assert shard.run(audit.audit(shard.store)).balances[0].imbalance == 1
    assert shard.reclaim()[-2:] == (0, 0)


def test_where_nothing_was_ever_ready_nothing_is_missing(shard: Shard) -> None:
    assert shard.reclaim().missing == 0


def test_while_a_claim_is_not_pending_nothing_is_called_missing(shard: Shard) -> None:
    """Its stream was deleted. The sum shows what is missing when the claim has ended."""
    shard.enqueue("lost", "kept")
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "lost")
    (row,) = shard.claim().rows
    shard.redis("XACK", shard.k.ready, "default", row.main)
    assert shard.reclaim().missing == 0
    shard.finish(row)
    assert shard.reclaim().missing == 1


def test_what_one_group_has_not_read_yet_is_missing_for_another_that_has(two: Shard) -> None:
    two.enqueue("lost", "kept")
    two.checked = False
    two.redis("HDEL", two.k.jobs, "lost")
    for group, missing in (("b", (0, 1)), ("a", (1, 1))):
        two.claim(group=group)
        assert tuple(two.reclaim(each).missing for each in "ab") == missing


def test_a_cancelled_jobs_entry_is_no_lost_job(shard: Shard) -> None:
    shard.enqueue("j", "other")
    shard.call("cancel", "j")
    assert shard.reclaim()[-2:] == (0, 0)
    shard.claim()
    assert shard.reclaim()[-2:] == (0, 0)


def test_read_and_not_claimed_yet_is_not_missing(timed: Shard) -> None:
    timed.enqueue("i", "j")
    timed.redis("XREADGROUP", "GROUP", "default", "me", "COUNT", 2, "STREAMS", timed.k.ready, ">")
    assert timed.reclaim()[-2:] == (0, 0)
    timed.call("cancel", "i")
    assert timed.reclaim()[-2:] == (0, 0)


def test_beside_one_that_is_read_and_not_claimed_yet_one_is_missing(timed: Shard) -> None:
    timed.enqueue("lost", "read")
    timed.checked = False
    ((entry, _), _) = timed.redis("XRANGE", timed.k.ready, "-", "+")
    timed.redis("XDEL", timed.k.ready, entry)
    timed.redis("XREADGROUP", "GROUP", "default", "me", "COUNT", 2, "STREAMS", timed.k.ready, ">")
    assert timed.reclaim().missing == 1


def test_a_retry_without_its_record_is_lost_with_its_progress(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "j")

    assert shard.claim().rows == []

    assert shard.reclaim(missing=shard.reclaim().missing).lost == 1
    assert shard.empty()


def test_a_claim_without_its_record_is_lost_when_its_ttr_passes(two: Shard) -> None:
    two.enqueue("i", "j")
    two.claim(group="a")
    two.checked = False
    two.redis("HDEL", two.k.jobs, "i", "j")
    two.clock.advance("60s")

    assert two.reclaim("a")[-2:] == (0, 2)

    assert two.counts["lost:a"] == 2
    assert two.counts.get("running:a", 0) == 0
    assert two.redis("HLEN", two.k.progress) == 0


def test_an_entry_that_another_deleted_is_a_lost_job(shard: Shard) -> None:
    shard.enqueue("j")
    shard.checked = False
    shard.redis("XTRIM", shard.k.ready, "MAXLEN", 0)

    assert shard.reclaim(missing=shard.reclaim().missing).lost == 1


def test_a_job_taken_over_is_as_old_as_before(shard: Shard) -> None:
    """A consumer that dies gives its job no more time than it had."""
    shard.enqueue("j", expire="90s")
    shard.take()
    shard.clock.advance("60s")
    shard.reclaim()
    again = shard.take()
    assert again.past == b"2|0|1|"
    shard.clock.advance("60s")
    shard.reclaim()
    held_back(shard)
    assert shard.claim().expired == 1
    assert shard.empty()


@pytest.mark.parametrize("groups", [["a"], ["a", "b"]])
def test_an_entry_out_of_date_that_was_only_read_leaves_the_stream(shard: Shard, groups: list[str]) -> None:
    """Its job was rescheduled since. Nobody else would take it off: it is pending for no one."""
    shard.topic(groups=groups)
    shard.enqueue("j")
    for group in groups:
        shard.redis("XREADGROUP", "GROUP", group, "dead", "COUNT", 1, "STREAMS", shard.k.ready, ">")
    assert shard.call("reschedule", "j", "+1000") == 1
    for group in groups:
        shard.reclaim(group)
    assert shard.entries(shard.k.ready) == []
    shard.clock.advance("1s")
    shard.move()
    for group in groups:
        shard.finish(shard.take(group), group=group)
    assert shard.empty()


def test_an_entry_that_another_group_needs_stays(two: Shard) -> None:
    two.enqueue("j")
    two.redis("XREADGROUP", "GROUP", "a", "dead", "COUNT", 1, "STREAMS", two.k.ready, ">")
    two.reclaim("a")
    assert len(two.entries(two.k.ready)) == 1
    two.finish(two.take("a"))
    two.finish(two.take("b"), group="b")
    assert two.empty()


def test_what_is_not_due_yet_goes_by_the_bucket_and_wakes_the_mover(two: Shard) -> None:
    """One group has begun with the job, so its entry stays when it is rescheduled; another has only read it."""
    two.enqueue("j")
    two.retry(two.take("a"), delay_ms=1000)
    assert two.call("reschedule", "j", "+50000") == 1
    two.topic(groups=["a", "b", "c"])
    two.redis("XREADGROUP", "GROUP", "c", "dead", "COUNT", 1, "STREAMS", two.k.ready, ">")
    two.redis("ZREMRANGEBYRANK", two.k.bucket, 0, -1)
    two.checked = False
    before = two.last_wakeup()
    two.reclaim("c")
    assert two.state("j", "c") == "delayed"
    assert two.last_wakeup() != before


def test_a_raised_ttr_holds_for_later_claims_alone(timed: Shard) -> None:
    """What runs keeps the deadline it was claimed with, also one of its own; so does what was touched."""
    timed.topic(ttr="200ms")
    timed.enqueue("before", "touched")
    timed.enqueue("longer", ttr="1h")
    rows = {row.id: row for row in timed.claim().rows}
    timed.touch(rows[b"touched"], ttr_ms=300)
    timed.topic(ttr="1h")
    timed.enqueue("after")
    after = timed.take()
    until(lambda: timed.reclaim() and timed.counts.get("reclaimed:default") == 2, "both are found", 5)
    assert [timed.state(id) for id in ("before", "touched", "longer", "after")] == [
        "ready", "ready", "running", "running",
    ]  # fmt: skip
    assert timed.redis("HGET", timed.k.settings, "recheck:default") is None
    assert timed.finish(after, rows[b"longer"]).stale == frozenset()


def test_after_a_raised_ttr_idle_times_are_right_and_left_alone(timed: Shard) -> None:
    timed.topic(ttr="30s")
    timed.enqueue(*map(str, range(250)))
    timed.claim(250)
    timed.topic(ttr="1h")
    cursors = BEGIN
    for _ in range(3):
        reply = timed.reclaim(cursors=cursors)
        cursors = (reply.cursor, reply.own_cursor)
    assert timed.redis("HGET", timed.k.settings, "recheck:default") is None
    # In 30 s they will have been idle for an hour.
    idle = [row[2] for row in timed.redis("XPENDING", timed.k.ready, "default", "-", "+", 500)]
    assert len(idle) == 250
    assert min(idle) >= 3_600_000 - 30_000
    assert max(idle) < 3_600_000
    assert timed.reclaim().reclaimed == 0


def test_a_lowered_ttr_leaves_claims_from_before_theirs(timed: Shard) -> None:
    timed.topic(ttr="1h")
    timed.enqueue("before")
    before = timed.take()
    timed.topic(ttr="50ms")
    timed.enqueue("after")
    timed.take()
    until(lambda: timed.reclaim().reclaimed == 1, "the later one is found", 5)
    assert (timed.state("before"), timed.state("after")) == ("running", "ready")
    assert timed.finish(before).stale == frozenset()


@pytest.mark.parametrize("groups", [["default"], ["default", "other"]])
def test_with_the_clock_set_back_a_claims_ttr_begins_again(shard: Shard, groups: list[str]) -> None:
    shard.topic(groups=groups)
    shard.enqueue("j")
    for group in groups:
        shard.claim(group=group)
        shard.reclaim(group)
    shard.clock.now_ms -= 3_600_000
    for group in groups:
        assert shard.reclaim(group).reclaimed == 0
    shard.clock.advance("59999ms")
    assert sum(shard.reclaim(group).reclaimed for group in groups) == 0
    shard.clock.advance("1ms")
    assert sum(shard.reclaim(group).reclaimed for group in groups) == len(groups)


def test_with_the_clock_set_back_idle_times_are_no_filter(timed: Shard) -> None:
    """Redis's own idle times count from moments that are yet to come."""
    timed.topic(ttr="1h")
    timed.enqueue("j")
    timed.take()
    hour_ago = timed.redis("TIME")[0]
    field = b"default\x1fj"
    value = timed.redis("HGET", timed.k.progress, field).split(b"|")
    timed.redis("HSET", timed.k.progress, field, b"|".join([*value[:7], b"1700000000000", b"1700000000001", value[9]]))
    timed.redis("HSET", timed.k.settings, "watch_until", (int(hour_ago) + 3600) * 1000)
    assert timed.reclaim().reclaimed == 1


def test_what_was_claimed_ahead_has_neither_crashed_nor_been_tried(shard: Shard) -> None:
    shard.enqueue("i", "j")
    i, j = shard.claim(2, at_once=1).rows
    shard.clock.advance("60s")
    assert shard.reclaim().reclaimed == 2
    assert shard.counts["reclaimed:default"] == 2
    assert shard.events() == [("reclaimed", "i", "default"), ("released", "j", "default")]
    assert shard.finish(i, j).stale == {0, 1}
    crashed, untried = shard.claim(2).rows
    assert crashed.past.split(b"|")[:3] == [b"2", b"0", b"1"]
    assert untried.past.split(b"|")[:3] == [b"1", b"0", b"0"]
    # Now it is sure to be started: lost once more, it has crashed.
    shard.clock.advance("60s")
    assert shard.reclaim().reclaimed == 2
    held_back(shard)
    found = {row.id: row.past.split(b"|")[:3] for row in shard.claim(2).rows}
    assert found == {b"i": [b"3", b"0", b"2"], b"j": [b"2", b"0", b"1"]}


def test_what_was_lost_twice_in_a_row_is_held_back_each_for_another_time(shard: Shard) -> None:
    """One of them may be what consumers die of: the others are not to be claimed beside it again and again."""
    ids = [f"j{n}" for n in range(12)]
    shard.enqueue(*ids)
    orders = []
    for losses in range(1, 5):
        rows = shard.claim(20).rows
        assert len(rows) == 12
        shard.clock.advance("60s")
        assert shard.reclaim().reclaimed == 12
        if losses == 1:
            continue
        waits = shard.redis("ZRANGE", shard.k.bucket, 0, -1, "WITHSCORES")
        dues = [int(due) - shard.clock.now_ms for due in waits[1::2]]
        assert len(set(dues)) > 6
        assert max(dues) <= 10_000
        orders.append([member.rpartition(b"\x1f")[2] for member in waits[::2]])
        job = shard.job("j0")
        assert job.due_ms == START_MS, "it is as old as it was"
        held_back(shard)
    assert len({tuple(order) for order in orders}) == 3, "nor always in the same order"


def test_a_short_ttr_holds_nothing_back_for_long(shard: Shard) -> None:
    shard.topic(ttr="100ms")
    shard.enqueue("j")
    for _ in range(2):
        shard.take()
        shard.clock.advance("100ms")
        shard.reclaim()
    shard.clock.advance("400ms")
    shard.move()
    assert shard.take().past.split(b"|")[2] == b"2"


def test_the_limit_is_kept_and_there_is_more(shard: Shard) -> None:
    shard.enqueue(*(f"j{n}" for n in range(6)))
    shard.retry(*shard.claim(3).rows, delay_ms=0)
    shard.move()
    assert len(shard.claim(6).rows) == 6
    shard.clock.advance("60s")
    reply = shard.reclaim(limit=1)
    assert (reply.reclaimed, reply.more, reply.running) == (2, 1, 4), "one of each stream"
    reply = shard.reclaim(limit=2)
    assert (reply.reclaimed, reply.more, reply.running) == (4, 0, 0)


def test_it_tells_what_runs_and_what_is_ready(shard: Shard) -> None:
    shard.enqueue("i", "j", "k", "l")
    shard.retry(*shard.claim(1).rows, delay_ms=0)
    shard.move()
    assert len(shard.claim(2).rows) == 2
    reply = shard.reclaim()
    assert (reply.running, reply.ready, reply.more) == (2, 2, 0)
    shard.checked = False
    shard.redis("HDEL", shard.k.counts, "ready:default")
    assert shard.reclaim().ready == 0


def test_a_record_that_is_larger_than_a_call_should_read_is_taken_over_all_the_same(shard: Shard) -> None:
    large(shard, 1, 600_000)
    shard.take()
    shard.clock.advance("60s")
    assert shard.reclaim().reclaimed == 1


@pytest.mark.parametrize(("watch_ms", "until_ms"), [(0, None), (1, START_MS + 1), (4_000, START_MS + 4_000)])
def test_it_notes_until_when_the_caller_looks_in_any_case(shard: Shard, watch_ms: int, until_ms: int | None) -> None:
    shard.run(shard.scripts.reclaim(shard.k, "default", shard.settings, 100, BEGIN, watch_ms))
    noted = shard.redis("HGET", shard.k.settings, "watch_until")
    assert noted == (None if until_ms is None else b"%d" % until_ms)


def test_only_when_the_clock_was_set_back_every_group_is_looked_through_again(two: Shard) -> None:
    two.enqueue("j")
    two.claim(group="a")
    two.reclaim("a")
    two.clock.advance("1h")
    two.reclaim("a")
    assert not two.redis("HEXISTS", two.k.settings, "recheck:b")
    two.clock.now_ms -= 3_600_000
    two.run(two.scripts.reclaim(two.k, "a", two.settings, 100, BEGIN, 0))
    found = two.redis("HMGET", two.k.settings, "recheck:a", "recheck:b", "watch_until")
    assert found == [None, b"0|0", None], "group a was looked through just now"


def test_with_the_clock_set_back_a_claim_starts_now_and_one_that_was_ahead_stays_so(shard: Shard) -> None:
    shard.enqueue("i", "j")
    shard.claim(2, at_once=1)
    shard.clock.now_ms -= 3_600_000
    shard.reclaim()
    fields = shard.redis("HMGET", shard.k.progress, b"default\x1fi", b"default\x1fj")
    now_ms = shard.clock.now_ms
    assert [field.split(b"|")[7:9] for field in fields] == [
        [b"%d" % now_ms, b"%d" % (now_ms + 60_000)], [b"-%d" % now_ms, b"%d" % (now_ms + 60_000)],
    ]  # fmt: skip


def test_a_look_through_that_begins_in_the_middle_is_not_complete(shard: Shard) -> None:
    shard.enqueue("i", "j")
    _, second = shard.claim().rows
    shard.topic(ttr="1h")
    reply = shard.reclaim(cursors=(second.main, b"0-0"))
    assert (reply.cursor, reply.more) == (b"0-0", 1)
    assert shard.redis("HGET", shard.k.settings, "recheck:default") == b"0|2"
    assert shard.reclaim().more == 0
    assert not shard.redis("HEXISTS", shard.k.settings, "recheck:default")


@pytest.mark.parametrize(
    ("own", "before", "after"),
    [(False, b"2|1", None), (True, b"1|2", None), (False, b"0|2", b"1|2"), (True, b"2|0", b"2|1")],
)
def test_a_raised_ttr_is_dealt_with_when_both_streams_were_looked_at_once(
    shard: Shard, own: bool, before: bytes, after: bytes | None
) -> None:
    """The one that needs two calls counts as complete if it was so before."""
    shard.enqueue(*(f"j{n}" for n in range(5)))
    if own:
        shard.retry(*shard.claim().rows)
        shard.move()
    assert len(shard.claim().rows) == 5
    shard.redis("HSET", shard.k.settings, "recheck:default", before)
    assert shard.reclaim(limit=3).more == 1
    assert shard.redis("HGET", shard.k.settings, "recheck:default") == after


def lost_again(shard: Shard, ttr: str) -> list[int]:
    """For how long each job is held back that is lost now."""
    shard.claim(100)
    shard.clock.advance(ttr)
    shard.reclaim()
    flat = shard.redis("ZRANGE", shard.k.bucket, 0, -1, "WITHSCORES")
    waits = [int(due) - shard.clock.now_ms for due in flat[1::2]]
    shard.clock.advance("10s")
    shard.move()
    return waits


def test_a_job_is_not_held_back_for_the_same_time_each_time(shard: Shard) -> None:
    shard.enqueue("j")
    assert lost_again(shard, "60s") == []
    waits = [wait for _ in range(6) for wait in lost_again(shard, "60s")]
    assert len(waits) >= 5
    assert len(set(waits)) > 3


def test_nothing_is_held_back_for_longer_than_four_ttrs(shard: Shard) -> None:
    shard.topic(ttr="100ms")
    shard.enqueue(*(f"j{n}" for n in range(60)))
    lost_again(shard, "100ms")
    waits = lost_again(shard, "100ms")
    assert 350 < max(waits) <= 400


@pytest.mark.parametrize("change", ["reclaim", "leave"])
def test_a_retry_that_was_read_and_never_claimed_is_handed_on(two: Shard, change: str) -> None:
    two.enqueue("j")
    two.retry(two.take("a"), delay_ms=5_000)
    two.clock.advance("5s")
    two.move()
    read = read_ahead(two, "a")
    if change == "reclaim":
        assert two.reclaim("a").reclaimed == 0
    else:
        assert two.call("remove_consumer", "a", "me", 10) is True
    assert two.pending(two.k.ready_of("a"), "a") == []
    assert len(two.entries(two.k.ready_of("a"))) == 1
    row = two.take("a")
    assert row.entry != read[1], "it has a new entry"
    assert row.past == b"2|1|0|%d" % (START_MS + 5_000), "due when it was due"


@pytest.mark.parametrize("change", ["cancelled", "rescheduled"])
def test_a_retry_that_was_read_and_is_out_of_date_leaves_its_stream(two: Shard, change: str) -> None:
    two.enqueue("j")
    two.retried("a", delay_ms=0)
    read_ahead(two, "a")
    if change == "cancelled":
        two.call("cancel", "j")
    else:
        two.call("reschedule", "j", "+1000")
    two.reclaim("a")
    assert two.entries(two.k.ready_of("a")) == two.pending(two.k.ready_of("a"), "a") == []


def test_an_old_entry_of_a_job_that_runs_by_another_one_is_dropped(two: Shard) -> None:
    """The group reads the past anew, and who has read it is gone."""
    two.enqueue("j")
    two.retried("a", delay_ms=0)
    row = two.take("a")
    two.redis("XGROUP", "SETID", two.k.ready, "a", 0)
    two.redis("XREADGROUP", "GROUP", "a", "gone", "COUNT", 1, "STREAMS", two.k.ready, ">")
    two.clock.advance("60s")
    assert two.reclaim("a").reclaimed == 1, "the one that ran"
    assert two.pending(two.k.ready, "a") == []
    assert two.finish(row).stale == {0}
    assert two.take("a").past.split(b"|")[:3] == [b"3", b"1", b"1"]


def read_by_another(shard: Shard, stream: str) -> None:
    read = shard.redis("XREADGROUP", "GROUP", "a", "gone", "COUNT", 1, "STREAMS", stream, ">")
    assert len(read[0][1]) == 1


def test_an_old_entry_of_a_job_that_the_group_has_ended_is_dropped(two: Shard) -> None:
    two.enqueue("j")
    two.finish(two.take("a"))
    two.redis("XGROUP", "SETID", two.k.ready, "a", 0)
    read_by_another(two, two.k.ready)
    assert two.reclaim("a").reclaimed == 0
    assert two.pending(two.k.ready, "a") == []
    assert (two.state("j", "a"), two.state("j", "b")) == ("done", "ready")


def test_an_old_entry_of_a_job_that_was_handed_back_is_dropped(two: Shard) -> None:
    two.enqueue("j")
    two.claim(0, "a", read=read_ahead(two, "a"))
    two.redis("XGROUP", "SETID", two.k.ready, "a", 0)
    read_by_another(two, two.k.ready)
    two.reclaim("a")
    assert len(two.entries(two.k.ready_of("a"))) == two.counts["ready:a"] == 1


def test_a_second_entry_of_a_retry_that_runs_is_dropped(two: Shard) -> None:
    two.enqueue("j")
    two.retried("a", delay_ms=0)
    own = two.k.ready_of("a")
    row = two.take("a")
    two.redis("XADD", own, "*", "j", two.entries(own)[0])
    read_by_another(two, own)
    two.reclaim("a")
    assert [entry for entry, *_ in two.pending(own, "a")] == [row.entry]
    assert two.finish(row).stale == frozenset()


def test_a_first_delivery_handed_back_read_again_and_out_of_date_leaves_its_stream(two: Shard) -> None:
    two.enqueue("j")
    two.claim(0, "a", read=read_ahead(two, "a"))
    read_by_another(two, two.k.ready_of("a"))
    assert two.call("reschedule", "j", "+1000") == 1
    two.reclaim("a")
    assert two.entries(two.k.ready_of("a")) == []


def test_while_the_topic_is_paused_a_retry_keeps_its_due_time(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=5_000)
    shard.clock.advance("5s")
    shard.move()
    shard.take()
    shard.redis("HSET", shard.k.settings, "paused", 1)
    shard.clock.advance("60s")
    assert shard.reclaim().reclaimed == 1
    shard.redis("HSET", shard.k.settings, "paused", 0)
    shard.move()
    assert shard.take().past == b"3|1|1|%d" % (START_MS + 5_000)


def test_what_was_lost_twice_before_is_not_held_back_again_if_it_was_only_read(shard: Shard) -> None:
    shard.enqueue("j")
    for _ in range(2):
        shard.take()
        shard.clock.advance("60s")
        shard.reclaim()
        held_back(shard)
    read_ahead(shard)
    shard.reclaim()
    assert shard.take().past.split(b"|")[2] == b"2"


def test_what_was_read_already_counts_for_how_many_are_read_next(shard: Shard) -> None:
    shard.checked = False
    for number in range(4):
        shard.run(enqueue_many.enqueue_many(shard.store, "t", [NewJob("x" * 100_000, id=f"large{number}")]))
        if number == 0:
            shard.enqueue("small")
    assert len(claim_all(shard)) == 5
    shard.clock.advance("60s")
    assert walk(shard)[:2] == [3, 2], "a large one and the small one, and one more"


def test_a_consumer_with_claims_of_both_kinds_is_named_once(shard: Shard) -> None:
    shard.enqueue("i")
    shard.retried(delay_ms=0)
    shard.enqueue("j")
    assert len(shard.claim().rows) == 2
    assert shard.reclaim().consumers == [b"me"]


def test_a_retry_that_nobody_has_read_yet_is_not_missing(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried(delay_ms=0)
    assert shard.reclaim().missing == 0
