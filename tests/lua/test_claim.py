"""claim: ready -> running, for one consumer of one group; what is out of date is dropped."""

from __future__ import annotations

import pytest

from streamdq.errors import GroupMissing
from streamdq.job.job import NewJob
from streamdq.operations.jobs import changes
from streamdq.operations.topics import configure
from streamdq.store.jobs.records import encode
from tests.lua.shard import START_MS, Shard


def read_ahead(shard: Shard, group: str | None = None, count: int = 10) -> list[bytes | str]:
    """What a blocking read would have returned: pending in Redis, not claimed."""
    name = group or shard.group
    found: list[bytes | str] = []
    for kind, stream in (("g", shard.k.ready_of(name)), ("m", shard.k.ready)):
        reply = shard.redis("XREADGROUP", "GROUP", name, shard.consumer, "COUNT", count, "STREAMS", stream, ">")
        for entry, fields in reply[0][1] if reply else []:
            found += [kind, entry, fields[1]]
    return found


def test_a_first_attempt(shard: Shard) -> None:
    shard.enqueue("i", "j")
    reply = shard.claim(1)
    (row,) = reply.rows
    assert (reply.paused, reply.now_ms, reply.ttr_ms, reply.unread) == (False, START_MS, 60_000, 1)
    assert (row.entry, row.id, row.past) == (b"", b"i", b"")
    assert row.record == shard.redis("HGET", shard.k.jobs, "i")
    assert [(entry, consumer) for entry, consumer, *_ in shard.pending(shard.k.ready)] == [(row.main, b"me")]
    job = shard.job("i")
    progress = job.groups["default"]
    assert (progress.state, progress.attempt, progress.consumer) == ("running", 1, "me")
    assert (progress.started_ms, progress.deadline_ms) == (START_MS, START_MS + 60_000)
    assert shard.counts == {"enqueued": 2, "ready:default": 1, "running:default": 1}


def test_nothing_ready(shard: Shard) -> None:
    assert shard.claim() == (False, START_MS, 60_000, 0, [], 0, "1", 0, 0)


def test_count_is_kept_over_both_streams_and_retries_go_first(shard: Shard) -> None:
    shard.enqueue("retried")
    shard.retry(shard.take(), delay_ms=10)
    shard.clock.advance("10ms")
    shard.move()
    shard.enqueue("i", "j", "k")
    reply = shard.claim(3)
    assert [row.id for row in reply.rows] == [b"retried", b"i", b"j"]
    assert reply.unread == 1


def test_a_later_attempt_tells_its_past(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=10, steps=1)
    shard.clock.advance("10ms")
    shard.move()
    row = shard.take()
    assert (row.main, row.past) == (b"-", f"2|1|0|{START_MS + 10}".encode())
    assert [member[12:] for member in shard.entries(shard.k.ready_of("default"))] == [b"\x1fdefault\x1fj"]
    assert row.entry != b""


def test_each_group_gets_each_job(two: Shard) -> None:
    two.enqueue("j")
    assert two.take("a").id == two.take("b").id == b"j"
    assert two.counts["running:a"] == two.counts["running:b"] == 1


def test_no_two_consumers_of_a_group_get_the_same_job(shard: Shard) -> None:
    shard.enqueue("i", "j")
    assert [row.id for row in shard.claim(1, consumer="one").rows] == [b"i"]
    assert [row.id for row in shard.claim(9, consumer="two").rows] == [b"j"]


def test_a_cancelled_job_is_dropped(two: Shard) -> None:
    two.enqueue("i", "j")
    two.call("cancel", "i")
    for group in ("a", "b"):
        assert [row.id for row in two.claim(group=group).rows] == [b"j"]
        assert len(two.pending(two.k.ready, group)) == 1
    assert len(two.entries(two.k.ready)) == 1


def test_a_rescheduled_job_is_dropped_until_it_is_due(shard: Shard) -> None:
    shard.enqueue("j")
    assert shard.call("reschedule", "j", "+1000") == 1
    assert shard.claim().rows == []
    shard.clock.advance("1s")
    shard.move()
    assert shard.take().id == b"j"


def test_with_the_clock_set_back_a_retry_that_was_ready_waits_for_its_time(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=5_000)
    shard.clock.advance("5s")
    shard.move()
    shard.clock.now_ms -= 1
    assert shard.claim().rows == []
    assert shard.state("j") == "delayed"
    shard.clock.advance("1ms")
    shard.move()
    assert shard.take().past == b"2|1|0|%d" % (START_MS + 5_000)


@pytest.mark.parametrize("now_ms", [START_MS, 2_100_000_000_000])
def test_with_the_clock_set_back_a_first_attempt_waits_for_its_time(shard: Shard, now_ms: int) -> None:
    shard.clock.now_ms = now_ms
    shard.enqueue("j")
    shard.clock.now_ms -= 1
    assert shard.claim().rows == []
    assert shard.state("j") == "delayed"
    shard.clock.advance("1ms")
    shard.move()
    assert shard.take().id == b"j"


def test_a_replaced_job_is_dropped_and_the_new_one_comes(shard: Shard) -> None:
    shard.enqueue("j")
    shard.call("replace", 1, shard.jobs("j", delay="1s"))
    assert shard.claim().rows == []
    shard.clock.advance("1s")
    shard.move()
    assert shard.take().id == b"j"


def test_an_id_used_again_is_not_served_from_the_old_entry(shard: Shard) -> None:
    shard.enqueue("j")
    shard.call("cancel", "j")
    shard.enqueue("j", delay="1h")
    assert shard.claim().rows == []
    assert shard.state("j") == "delayed"


def test_an_expired_job_is_given_up(two: Shard) -> None:
    two.enqueue("j", expire="2s")
    two.clock.advance("2s")
    two.finish(two.take("a"), group="a")
    two.clock.advance("1ms")
    reply = two.claim(group="b")
    assert (reply.rows, reply.expired) == ([], 1)
    assert two.counts["expired:b"] == 1
    assert two.events() == [("expired", "j", "b")]
    assert two.get("j") is None
    assert two.empty()


def test_a_retry_expires_by_its_own_due_time(shard: Shard) -> None:
    shard.enqueue("j", expire="2s")
    shard.retry(shard.take(), delay_ms=60_000)
    shard.clock.advance("61s")
    shard.move()
    row = shard.take()
    shard.retry(row, delay_ms=1000)
    shard.clock.advance("4s")
    shard.move()
    assert shard.claim().rows == []
    assert shard.counts["expired:default"] == 1
    assert shard.empty()


@pytest.mark.parametrize(("ttr", "deadline_ms"), [("2s", 2_000), ("10m", 600_000)])
def test_a_jobs_own_ttr(shard: Shard, ttr: str, deadline_ms: int) -> None:
    shard.enqueue("j", ttr=ttr)
    shard.take()
    job = shard.job("j")
    assert job.groups["default"].deadline_ms == START_MS + deadline_ms


def test_a_shorter_ttr_begins_idle_so_that_reclaim_finds_it_in_time(timed: Shard) -> None:
    timed.enqueue("short", "usual", ttr="20s")
    timed.run(changes.cancel(timed.store, "t", "usual"))
    timed.enqueue("usual")
    timed.claim()
    idle = sorted(idle_ms for _, _, idle_ms, _ in timed.pending(timed.k.ready))
    assert idle[0] < 10_000
    assert 40_000 <= idle[1] < 50_000


def test_a_groups_own_ttr_comes_before_the_topics(two: Shard) -> None:
    two.topic(ttr="30s")
    two.run(two.topics.ensure_group("t", "a", {"ttr_ms": 5_000}))
    two.enqueue("j")
    assert (two.claim(group="a").ttr_ms, two.claim(group="b").ttr_ms) == (5_000, 30_000)


def test_a_paused_topic_is_not_read(shard: Shard) -> None:
    shard.enqueue("j")
    shard.run(configure.pause(shard.store, "t"))
    assert shard.claim() == (True, START_MS, 60_000, 0, [], 0, "1", 0, 0)
    assert shard.state("j") == "ready"
    shard.run(configure.resume(shard.store, "t"))
    assert shard.take().id == b"j"


def test_what_was_read_before_a_pause_goes_back_and_comes_after_it(two: Shard) -> None:
    two.enqueue("j")
    two.retried("a", delay_ms=0)
    two.enqueue("i")
    read = read_ahead(two, "a")
    assert len(read) == 6
    two.run(configure.pause(two.store, "t"))
    reply = two.claim(0, "a", read=read)
    assert (reply.paused, reply.rows) == (True, [])
    assert two.state("i", "a") == two.state("j", "a") == "delayed"
    assert two.state("i", "b") == "ready"
    assert two.pending(two.k.ready, "a") == two.pending(two.k.ready_of("a"), "a") == []
    two.run(configure.resume(two.store, "t"))
    two.move()
    rows = two.claim(group="a").rows
    assert sorted((row.id, row.past.split(b"|")[0]) for row in rows) == [(b"i", b"1"), (b"j", b"2")]
    two.finish(*rows, group="a")
    two.finish(*two.claim(group="b").rows, group="b")
    assert two.empty()


def test_a_detached_job_read_before_a_pause(shard: Shard) -> None:
    shard.enqueue("j")
    read = read_ahead(shard)
    shard.run(configure.pause(shard.store, "t"))
    shard.claim(0, read=read)
    assert shard.entries(shard.k.ready) == []
    assert shard.counts["detached"] == 1
    shard.run(configure.resume(shard.store, "t"))
    shard.move()
    row = shard.take()
    assert (row.main, row.past.split(b"|")[:3]) == (b"-", [b"1", b"0", b"0"])
    shard.finish(row)
    assert shard.empty()


def test_entries_read_before_are_claimed_first_and_count_as_read(shard: Shard) -> None:
    shard.enqueue("i", "j")
    read = read_ahead(shard)
    shard.enqueue("k", "l")
    reply = shard.claim(3, read=read)
    assert [row.id for row in reply.rows] == [b"i", b"j", b"k"]
    assert reply.unread == shard.counts["ready:default"] == 1


@pytest.mark.parametrize("own", [False, True])
def test_what_was_read_before_takes_its_part_of_the_count(shard: Shard, own: bool) -> None:
    shard.enqueue("read")
    if own:
        shard.retried(delay_ms=0)
    read = read_ahead(shard)
    shard.enqueue("i", "j")
    assert [row.id for row in shard.claim(1, read=read).rows] == [b"read"]
    assert [member[12:] for member in shard.entries(shard.k.ready)][-2:] == [b"i", b"j"], "nothing was handed back"


def test_entries_read_before_and_cancelled_since_are_dropped(shard: Shard) -> None:
    shard.enqueue("j")
    read = read_ahead(shard)
    shard.call("cancel", "j")
    assert shard.claim(0, read=read).rows == []
    assert shard.empty()


@pytest.mark.parametrize("consumer", ["me", "another"])
def test_a_group_made_anew_takes_back_what_it_ran(two: Shard, consumer: str) -> None:
    two.enqueue("running", "waiting", "finished")
    running, waiting, finished = two.claim(group="a").rows
    two.retry(waiting, delay_ms=1000)
    two.finish(finished)
    two.redis("XGROUP", "DESTROY", two.k.ready, "a")
    two.run(two.topics.repair("t"))
    # The first claim reads the past anew; what is still out gets a new entry, and the old claim is refused.
    assert two.claim(group="a", consumer=consumer).rows == []
    job = two.job("running")
    assert job.groups["a"].error is None
    assert two.finish(running).stale == {0}
    row = two.take("a")
    assert row.id == b"running"
    assert row.entry != b""
    two.clock.advance("1s")
    two.move()
    two.finish(row, two.take("a"))
    two.finish(*two.claim(group="b").rows, group="b")
    assert two.empty()


def test_a_consumer_that_asks_again_gets_the_same_claim(shard: Shard) -> None:
    """The reply to its first call was lost, or that call arrives late: no attempt is lost, and what it has begun with
    the first reply may be finished.
    """
    shard.enqueue("j", ttr="5s")
    shard.retry(shard.take(), delay_ms=0)
    shard.enqueue("k", "l")
    shard.move()
    read = read_ahead(shard)
    first, counts = shard.claim(read=read), shard.counts
    shard.clock.advance("1s")
    again = shard.claim(read=read)
    assert [row.id for row in first.rows] == [b"j", b"k", b"l"]
    assert again.rows == first.rows
    assert shard.counts == counts
    assert [shard.attempt(id) for id in "jkl"] == [2, 1, 1]
    assert shard.finish(*first.rows).stale == frozenset()
    assert shard.finish(*again.rows).stale == {0, 1, 2}
    assert shard.empty()


def test_a_consumer_that_asks_again_gets_the_same_claim_by_redis_time(timed: Shard) -> None:
    timed.enqueue("j", ttr="5s")  # the first part of whose idle time is set when it is claimed
    timed.retry(timed.take(), delay_ms=0)
    timed.enqueue("k")
    timed.move()
    read = read_ahead(timed)
    first = timed.claim(read=read)
    assert timed.claim(read=read).rows == first.rows
    assert timed.finish(*first.rows).stale == frozenset()
    assert timed.empty()


def test_a_consumer_that_asks_again_after_a_touch_gets_the_same_claim(timed: Shard) -> None:
    """The touch has set the entry's idle time, as reclaim does for a job with a longer TTR than its group's."""
    timed.enqueue("j")
    read = read_ahead(timed)
    first = timed.claim(read=read)
    timed.touch(*first.rows)
    assert timed.claim(read=read).rows == first.rows
    assert timed.finish(*first.rows).stale == frozenset()
    assert timed.empty()


def test_a_call_that_comes_late_takes_no_time_from_a_handler_that_was_given_more(shard: Shard) -> None:
    shard.enqueue("j", ttr="5s")
    shard.retry(shard.take(), delay_ms=0)
    shard.enqueue("k")
    shard.move()
    read = read_ahead(shard)
    first = shard.claim(read=read)
    shard.touch(*first.rows, ttr_ms=3_600_000)
    counts = shard.counts
    assert shard.claim(read=read).rows == []
    assert shard.counts == counts
    shard.clock.advance("59m")
    assert shard.reclaim().reclaimed == 0
    assert shard.finish(*first.rows).stale == frozenset()
    assert shard.empty()


def test_a_group_made_anew_leaves_alone_what_runs_from_its_own_stream(two: Shard) -> None:
    two.enqueue("j")
    two.retried("a")
    running = two.take("a")
    two.redis("XGROUP", "DESTROY", two.k.ready, "a")
    two.run(two.topics.repair("t"))
    assert two.claim(group="a").rows == []
    assert two.finish(running).stale == set()
    two.finish(two.take("b"), group="b")
    assert two.empty()


def test_a_group_made_anew_takes_back_what_the_same_consumer_reads_again(timed: Shard) -> None:
    """It does not ask for its claim again: it runs the job, and has read the entry a second time."""
    timed.enqueue("j")
    running = timed.claim(read=read_ahead(timed)).rows
    timed.redis("XGROUP", "DESTROY", timed.k.ready, "default")
    timed.run(timed.topics.repair("t"))
    assert timed.claim(read=read_ahead(timed)).rows == []
    assert timed.finish(*running).stale == {0}
    timed.finish(timed.take())
    assert timed.empty()


def test_a_job_lost_while_it_ran_is_counted_though_its_group_reads_it_again(shard: Shard) -> None:
    shard.enqueue("j")
    shard.claim()
    shard.checked = False  # the accounts show a lost job as missing
    shard.redis("HDEL", shard.k.jobs, "j")
    shard.redis("XGROUP", "DESTROY", shard.k.ready, "default")
    shard.run(shard.topics.repair("t"))
    assert shard.claim().rows == []
    shard.clock.advance("61s")
    assert shard.reclaim().lost == 1
    assert shard.counts == {"enqueued": 1, "lost:default": 1}
    assert shard.empty()


@pytest.mark.parametrize("why", ["no room", "paused", "early", "expired", "key paused"])
def test_what_may_not_start_any_more_is_left_alone_when_a_consumer_asks_again(shard: Shard, why: str) -> None:
    """It may run by the first answer, if it is the first call that comes late, after the second."""
    shard.topic(key_concurrency=1)
    shard.enqueue("before", "j", key="k", expire="5s")
    shard.move()
    shard.finish(shard.take())
    shard.move()
    read = read_ahead(shard)
    first = shard.claim(read=read)
    counts = shard.counts
    if why == "paused":
        shard.redis("HSET", shard.k.settings, "paused", 1)
    elif why == "key paused":
        shard.call("pause_key", shard.settings, "k", True)
    elif why != "no room":
        shard.clock.now_ms += 6_000 if why == "expired" else -6_000
    again = shard.claim(0 if why == "no room" else 10, read=read)
    assert ([row.id for row in first.rows], again.rows, again.expired) == ([b"j"], [], 0)
    assert shard.counts == counts
    assert shard.finish(*first.rows).stale == frozenset()


def test_what_may_not_start_any_more_when_a_consumer_asks_again_is_taken_over_after_its_ttr(shard: Shard) -> None:
    shard.enqueue("j")
    read = read_ahead(shard)
    shard.claim(read=read)
    assert shard.claim(0, read=read).rows == []
    shard.clock.advance("60s")
    assert shard.reclaim().reclaimed == 1
    assert [row.id for row in shard.claim().rows] == [b"j"]


def test_the_first_claim_after_a_quiet_time_wakes_the_mover(shard: Shard) -> None:
    shard.enqueue("i", "j", "k")
    before = shard.last_wakeup()
    shard.claim(1)
    first = shard.last_wakeup()
    assert first != before
    shard.claim(1)
    assert shard.last_wakeup() == first
    shard.reclaim()  # from now on the mover watches by itself
    shard.finish(*shard.claim(1).rows)
    assert shard.last_wakeup() == first


@pytest.mark.parametrize("size", [1, 600_000])
@pytest.mark.parametrize("lost", ["group", "stream"])
def test_a_missing_group_is_an_error_that_says_so(shard: Shard, lost: str, size: int) -> None:
    large(shard, 1, size)
    if lost == "group":
        shard.redis("XGROUP", "DESTROY", shard.k.ready, "default")
    else:
        shard.redis("DEL", shard.k.ready_of("default"))
    with pytest.raises(GroupMissing):
        shard.claim()


def test_with_the_clock_set_back_the_first_claim_wakes_the_mover_all_the_same(shard: Shard) -> None:
    """That somebody watches the shard was written by a clock that was an hour ahead."""
    shard.enqueue("j")
    shard.reclaim()
    shard.clock.now_ms -= 3_600_000
    shard.call("cancel", "j")
    shard.enqueue("k")
    before = shard.last_wakeup()
    shard.claim()
    assert shard.last_wakeup() != before


# -- claimed ahead


def test_what_is_not_started_at_once_is_claimed_without_a_start(shard: Shard) -> None:
    shard.enqueue("i", "j", "k", ttr="90s")
    shard.enqueue("l")
    rows = shard.claim(4, at_once=2).rows
    assert [row.id for row in rows] == [b"i", b"j", b"k", b"l"]
    started = [job.groups["default"].started_ms for id in "ijkl" if (job := shard.get(id))]
    assert started == [START_MS, START_MS, None, None]
    assert shard.state("k") == shard.state("l") == "running"
    deadlines = [job.groups["default"].deadline_ms for id in "kl" if (job := shard.get(id))]
    assert deadlines == [START_MS + 90_000, START_MS + 60_000]
    shard.touch(rows[2])
    job = shard.job("k")
    assert job.groups["default"].started_ms == START_MS, "whoever touches it runs it"
    shard.finish(*rows)
    assert shard.empty()


def test_what_was_lost_with_a_consumer_is_not_claimed_ahead(shard: Shard) -> None:
    shard.enqueue("i", "j", "k")
    shard.claim(3, at_once=1)
    shard.clock.advance("60s")
    shard.reclaim()
    shard.enqueue("new", "newer")
    reply = shard.claim(5, at_once=2)
    assert [row.id for row in reply.rows] == [b"i", b"j", b"new", b"newer"]
    assert (reply.unread, reply.refused) == (1, 1)
    reply = shard.claim(4, at_once=0)
    assert (reply.rows, reply.unread, reply.refused) == ([], 1, 1)
    row = shard.take()
    assert (row.id, row.past.split(b"|")[0]) == (b"k", b"1")


def test_what_was_lost_while_it_ran_is_not_claimed_ahead(shard: Shard) -> None:
    shard.enqueue("i", "j")
    shard.claim(2)
    shard.clock.advance("60s")
    shard.reclaim()
    reply = shard.claim(2, at_once=0)
    assert (reply.rows, reply.unread, reply.refused) == ([], 2, 2)
    assert [row.id for row in shard.claim(2, at_once=1).rows] == [b"i"]


def test_what_was_handed_back_or_retried_may_be_claimed_ahead(shard: Shard) -> None:
    shard.enqueue("i", "j")
    i, j = shard.claim(2).rows
    shard.release(i)
    shard.retry(j, delay_ms=0)
    shard.move()
    reply = shard.claim(2, at_once=0)
    assert (len(reply.rows), reply.refused) == (2, 0)


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_what_was_read_beyond_the_room_is_handed_back(two: Shard, count: int) -> None:
    two.enqueue("retried")
    two.retry(two.take("a"), delay_ms=10)
    two.clock.advance("10ms")
    two.move()
    two.enqueue("i", "j", "k")
    read = read_ahead(two, "a")
    assert len(read) == 3 * 4
    reply = two.claim(count, group="a", read=read)
    assert [row.id for row in reply.rows] == [b"retried", b"i", b"j", b"k"][:count]
    assert (reply.unread, reply.refused) == (4 - count, 0)
    others = two.claim(9, group="a", consumer="other").rows
    assert {row.id for row in others} | {row.id for row in reply.rows} == {b"retried", b"i", b"j", b"k"}
    assert {row.past.split(b"|")[0] for row in others if row.id != b"retried"} <= {b"1"}
    retried = next(row for row in (*reply.rows, *others) if row.id == b"retried")
    assert retried.past == b"2|1|0|%d" % (START_MS + 10), "due when it was due"
    two.finish(*reply.rows, *others, group="a")
    two.finish(*two.claim(9, group="b").rows, group="b")
    assert two.claim(9, group="b").rows == []


def test_while_the_topic_is_paused_what_was_read_waits(shard: Shard) -> None:
    shard.enqueue("i")
    read = read_ahead(shard)
    shard.run(configure.pause(shard.store, "t"))
    assert shard.claim(0, read=read).rows == []
    assert shard.state("i") == "delayed"


def test_of_many_kicked_jobs_no_more_are_claimed_than_of_those_that_come_due(shard: Shard) -> None:
    shard.checked = False
    shard.enqueue(*[f"kicked-{n:02}" for n in range(30)])
    shard.bury(*shard.claim(count=30).rows)
    shard.call("kick", "default", 30, [])
    shard.enqueue(*[f"due-{n}" for n in range(30)])
    ids = [row.id.decode() for row in shard.claim(count=10).rows]
    assert ids == [*[f"kicked-{n:02}" for n in range(5)], *[f"due-{n}" for n in range(5)]]
    ids = [row.id.decode() for row in shard.claim(count=11).rows]
    assert ids == [*[f"kicked-{n:02}" for n in range(5, 11)], *[f"due-{n}" for n in range(5, 10)]]


@pytest.mark.parametrize(("due", "kicked"), [(2, 8), (8, 2), (0, 10), (10, 0)])
def test_what_one_stream_does_not_have_the_other_gives(shard: Shard, due: int, kicked: int) -> None:
    shard.enqueue(*[f"kicked-{n}" for n in range(kicked)])
    if kicked:
        shard.bury(*shard.claim().rows)
        shard.call("kick", "default", 30, [])
    if due:
        shard.enqueue(*[f"due-{n}" for n in range(due)])
    assert len(shard.claim(count=10).rows) == 10


def test_a_single_slot_is_for_both_streams_in_turn(shard: Shard) -> None:
    shard.enqueue("kicked-1", "kicked-2")
    shard.bury(*shard.claim().rows)
    shard.call("kick", "default", 30, [])
    shard.enqueue("due-1", "due-2")
    seen = []
    for _ in range(4):
        seen.append(shard.claim(1).rows[0].id.decode().partition("-")[0])
        shard.clock.now_ms += 1
    assert seen == ["kicked", "due", "kicked", "due"]


def large(shard: Shard, count: int, size: int = 100_000) -> None:
    jobs = [value for n in range(count) for value in encode(NewJob("x" * size, id=f"j{n}"), size + 100)[:3]]
    shard.call("enqueue", 1, jobs)


def test_of_large_jobs_only_so_many_are_claimed_at_once(shard: Shard) -> None:
    large(shard, 7)
    assert [len(shard.claim(count=200).rows) for _ in range(5)] == [2, 2, 2, 1, 0]


@pytest.mark.parametrize("count", [1, 200])
def test_a_job_that_is_larger_than_a_call_should_read_is_claimed_alone(shard: Shard, count: int) -> None:
    large(shard, 2, 600_000)
    assert [len(shard.claim(count=count).rows) for _ in range(3)] == [1, 1, 0]


def test_what_was_claimed_before_takes_no_room_from_what_is_claimed_now(shard: Shard) -> None:
    large(shard, 1, 250_000)
    shard.claim(200)
    shard.call("enqueue", 1, [v for id in "ab" for v in encode(NewJob("x" * 100_000, id=id), 100_100)[:3]])
    assert [row.id for row in shard.claim(200).rows] == [b"a", b"b"]


def test_jobs_that_are_not_too_large_together_are_claimed_at_once_when_they_were_read(shard: Shard) -> None:
    large(shard, 6, 60_000)
    reply = shard.claim(count=6, read=read_ahead(shard))
    assert (len(reply.rows), reply.unlooked) == (6, 0)


def test_after_one_large_job_small_ones_are_claimed_together_all_the_same(shard: Shard) -> None:
    large(shard, 1)
    shard.finish(shard.take())
    shard.enqueue(*[f"j{n}" for n in range(100)])
    assert len(shard.claim(count=100).rows) == 100


def test_of_large_jobs_that_were_read_blocked_the_rest_stays_read(shard: Shard) -> None:
    large(shard, 5)
    shard.checked = False
    read = read_ahead(shard)
    first = shard.claim(count=10, read=read)
    assert (len(first.rows), first.unlooked) == (2, 3)
    second = shard.claim(count=10, read=read[-3 * first.unlooked :])
    assert (len(second.rows), second.unlooked) == (2, 1)
    third = shard.claim(count=10, read=read[-3 * second.unlooked :])
    assert (len(third.rows), third.unlooked) == (1, 0)
    shard.finish(*first.rows, *second.rows, *third.rows)
    assert shard.empty()


@pytest.mark.parametrize("size", [100_000, 600_000])
def test_large_kicked_jobs_leave_room_for_large_ones_that_come_due(shard: Shard, size: int) -> None:
    large(shard, 4, size)
    while rows := shard.claim().rows:
        shard.bury(*rows)
    shard.call("kick", "default", 1, [])
    shard.call("kick", "default", 1, [])
    jobs = [value for n in range(2) for value in encode(NewJob("x" * size, id=f"due{n}"), size + 100)[:3]]
    shard.call("enqueue", 1, jobs)
    seen = []
    for _ in range(2 if size < 500_000 else 4):
        seen.append([row.id.decode()[0] for row in shard.claim(count=2).rows])
        shard.clock.now_ms += 1
    assert seen == ([["j", "d"]] * 2 if size < 500_000 else [["j"], ["d"]] * 2)


def test_small_jobs_of_both_streams_are_claimed_by_halves_after_one_large_job(shard: Shard) -> None:
    large(shard, 1)
    shard.finish(shard.take())
    shard.checked = False
    shard.enqueue(*[f"kicked-{n}" for n in range(20)])
    shard.bury(*shard.claim(count=20).rows)
    shard.call("kick", "default", 20, [])
    while shard.counts.get("dead:default"):
        shard.call("kick", "default", 20, [])
    shard.enqueue(*[f"due-{n}" for n in range(20)])
    ids = [row.id.decode() for row in shard.claim(count=20).rows]
    assert [sum(id.startswith(kind) for id in ids) for kind in ("kicked", "due")] == [10, 10]


@pytest.mark.parametrize("count", [0, 1])
def test_a_group_that_the_topic_does_not_have_is_an_error(shard: Shard, count: int) -> None:
    with pytest.raises(GroupMissing):
        shard.claim(count, group="unknown")
    with pytest.raises(GroupMissing):
        shard.run(shard.scripts.claim(shard.k, "unknown", "me", count, 60_000))


def test_what_a_group_made_anew_ran_waits_for_a_permit_of_the_rate(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.topic(rate=1)
    shard.redis("XGROUP", "DESTROY", shard.k.ready, "default")
    shard.run(shard.topics.repair("t"))
    assert shard.claim(consumer="another").rows == []
    assert shard.state("j") == "delayed"


def test_the_first_claim_wakes_the_mover_for_the_end_of_its_ttr_unless_the_mover_watches(shard: Shard) -> None:
    shard.topic(ttr="30s")
    shard.enqueue("i", "j")
    shard.finish(shard.claim(1).rows[0])
    assert shard.wakeup_ms() == START_MS + 30_000
    shard.reclaim()
    before = shard.last_wakeup()
    shard.claim(1)
    assert shard.last_wakeup() == before


@pytest.mark.parametrize(("ahead_ms", "wakes"), [(-1, True), (0, False), (10_000, False), (10_001, True)])
def test_the_mover_watches_a_shard_for_ten_seconds_ahead_at_most(shard: Shard, ahead_ms: int, wakes: bool) -> None:
    """What is noted further ahead was noted before the clock was set back."""
    shard.enqueue("j")
    shard.redis("HSET", shard.k.settings, "watch_until", START_MS + ahead_ms)
    before = shard.last_wakeup()
    shard.claim()
    assert (shard.last_wakeup() != before) is wakes


def test_what_another_consumer_has_pending_is_none_of_its_own(shard: Shard) -> None:
    """It was stopped between its read and this call, and the entry was handed over."""
    shard.enqueue("i", "j")
    read = read_ahead(shard)
    shard.redis("XCLAIM", shard.k.ready, "default", "another", 0, read[1])
    assert [row.id for row in shard.claim(0, consumer="another", read=read[:3]).rows] == []
    assert [row.id for row in shard.claim(1, read=read[3:]).rows] == [b"j"]


def test_what_another_consumer_took_over_since_it_was_read_stays_with_that_one(shard: Shard) -> None:
    shard.enqueue("i")
    read = read_ahead(shard)
    shard.redis("XCLAIM", shard.k.ready, "default", "another", 0, read[1])
    assert shard.claim(1, read=read).rows == []
    assert [consumer for _, consumer, *_ in shard.pending(shard.k.ready)] == [b"another"]


JUNK = [b"", b"x", b"\x1f", b"\xff\x00" * 20, b"000000000001\x1f", b"000000000001\x1fnobody"]


@pytest.mark.parametrize("own", [False, True], ids=["ready", "ready:GROUP"])
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_another_client_put_into_a_stream_is_dropped(shard: Shard, own: bool, junk: bytes) -> None:
    stream = shard.k.ready_of("default") if own else shard.k.ready
    shard.redis("XADD", stream, "*", "j", junk)
    shard.redis("XADD", stream, "*", "k", junk, "l", "more")
    shard.enqueue("i")
    assert [row.id for row in shard.claim().rows] == [b"i"]
    assert len(shard.pending(stream)) == (not own)
    assert shard.redis("XLEN", stream) == (not own)


@pytest.mark.parametrize("first", [True, False], ids=["first", "retried"])
def test_what_another_client_put_into_the_groups_stream_for_a_job_is_dropped(shard: Shard, first: bool) -> None:
    shard.enqueue("i")
    if not first:
        shard.retried()
    sequence = shard.redis("HGET", shard.k.jobs, "i")[:12]
    shard.redis("XADD", shard.k.ready_of("default"), "*", "j", sequence + b"\x1fdefault\x1fi")
    row = shard.take()
    assert row.id == b"i"
    shard.finish(row)
    assert shard.empty()


def test_what_another_client_repeated_of_a_running_attempt_is_dropped(shard: Shard) -> None:
    shard.enqueue("i")
    shard.retried()
    own = shard.k.ready_of("default")
    (delivery,) = shard.entries(own)
    row = shard.take()
    shard.redis("XADD", own, "*", "j", delivery)
    assert shard.claim(consumer="another").rows == []
    assert shard.finish(row).stale == frozenset()
    assert shard.empty()
