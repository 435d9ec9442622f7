"""abort: a job that waits -> cancelled; of one that runs -> told to stop, and cancelled however its attempt ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamdq.config import GroupSettings, Settings, TopicSettings
from streamdq.job.job import NewJob
from streamdq.store.jobs.records import encode
from streamdq.store.replies import OUTDATED, ClaimedRow
from streamdq.store.scripts import Scripts
from tests.lua.shard import START_MS, Shard

ABORTING, CANCELLED, NOTHING, TOGETHER = 2, 1, 0, -3


def abort(shard: Shard, id: str = "j", group: str = "") -> int:
    status: int = shard.call("abort", id, group).status
    return status


def running(shard: Shard, group: str | None = None) -> ClaimedRow:
    """A running job that was told to stop."""
    shard.enqueue("j")
    row = shard.take(group)
    assert abort(shard) == ABORTING
    return row


def is_cancelled(shard: Shard) -> None:
    assert shard.empty()
    assert shard.counts == {"enqueued": 1, "cancelled:default": 1}
    assert shard.claim().rows == []
    (row,) = [row for row in shard.history() if row[0] == "cancelled"]
    assert (row[1], row[2], row[3], row[5], row[11]) == ("j", "default", "1", "me", "aborted")


# -- jobs that wait


def test_a_delayed_job(two: Shard) -> None:
    two.enqueue("j", delay="1s")
    assert abort(two) == CANCELLED
    assert two.empty()
    assert two.counts == {"enqueued": 1, "cancelled:a": 1, "cancelled:b": 1}
    assert two.events() == [("cancelled", "j", "a"), ("cancelled", "j", "b")]


def test_a_ready_job_never_runs(shard: Shard) -> None:
    shard.enqueue("j")
    assert abort(shard) == CANCELLED
    assert shard.claim().rows == []
    assert shard.empty()


def test_a_job_that_waits_for_its_retry(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=1000)
    assert abort(shard) == CANCELLED
    assert shard.empty()


def test_no_such_job_or_one_that_has_ended(shard: Shard) -> None:
    assert abort(shard) == NOTHING
    shard.enqueue("j")
    shard.finish(shard.take())
    assert abort(shard) == NOTHING


def test_a_dead_job_is_kept(shard: Shard) -> None:
    shard.enqueue("j")
    shard.bury(shard.take())
    assert abort(shard) == NOTHING
    assert shard.state("j") == "dead"


def test_settings_that_are_out_of_date_abort_nothing(two: Shard) -> None:
    two.enqueue("j")
    both = {"a": GroupSettings(), "b": GroupSettings()}
    for old in (TopicSettings(shards=2, groups=both), TopicSettings(groups={"a": GroupSettings()})):
        assert two.run(two.scripts.abort(two.k, old, "j")).status == OUTDATED
    assert two.state("j") == "ready"


def test_told_to_cover_it_writes_although_nothing_changes(shard: Shard) -> None:
    shard.enqueue("other")
    durable = Scripts(shard.session, shard.session.call)
    assert shard.writes(durable.abort(shard.k, shard.settings, "j"))
    if not shard.is_fake:
        assert not shard.writes(shard.scripts.abort(shard.k, shard.settings, "j"))


def test_to_cover_earlier_writes_it_counts_nothing(shard: Shard) -> None:
    shard.enqueue("other")
    before = shard.redis("HGETALL", shard.k.counts)
    shard.run(Scripts(shard.session, shard.session.call).abort(shard.k, shard.settings, "j"))
    assert shard.redis("HGETALL", shard.k.counts) == before


def test_without_a_history_it_writes_none(shard: Shard) -> None:
    shard.enqueue("j")
    shard.session.settings = Settings(history_length=0)
    shard.scripts = Scripts(shard.session)
    assert abort(shard) == CANCELLED
    assert shard.events() == []


def test_a_job_that_only_a_leaving_group_has_is_not_there(shard: Shard) -> None:
    shard.topic(groups=["a"])
    shard.enqueue("j")
    shard.retry(shard.take("a"), group="a", delay_ms=1000)
    shard.topic(groups=["a", "b"])
    shard.begin_to_leave("a")
    held = shard.redis("HGET", shard.k.jobs, "j")
    shard.checked = False
    assert abort(shard) == NOTHING
    assert shard.redis("HGET", shard.k.jobs, "j") == held


def test_a_job_of_another_group_alone_goes_on(shard: Shard) -> None:
    shard.topic(groups=["a"])
    shard.enqueue("j")
    shard.retry(shard.take("a"), group="a", delay_ms=1000)
    shard.topic(groups=["a", "b"])
    assert abort(shard, group="b") == NOTHING
    assert shard.state("j", "a") == "delayed"


def test_a_group_in_which_it_is_dead_keeps_the_letter(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"), group="a")
    before = two.counts
    assert abort(two, group="a") == NOTHING
    assert two.counts == before
    assert two.state("j", "a") == "dead"


def test_of_the_groups_of_a_running_job_only_those_that_wait_are_in_the_history_at_once(two: Shard) -> None:
    two.enqueue("j")
    two.take("a")
    assert abort(two) == ABORTING
    assert two.events() == [("cancelled", "j", "b")]


# -- jobs that run


ENDS: dict[str, Callable[[Shard, ClaimedRow], Any]] = {
    "finish": lambda shard, row: shard.finish(row),
    "retry": lambda shard, row: shard.retry(row, delay_ms=1000),
    "snooze": lambda shard, row: shard.retry(row, steps=-1),
    "bury": lambda shard, row: shard.bury(row),
    "release": lambda shard, row: shard.release(row),
}


@pytest.mark.parametrize("way", ENDS)
def test_however_its_attempt_ends_it_is_cancelled(shard: Shard, way: str) -> None:
    row = running(shard)
    assert shard.state("j") == "running"
    refused = ENDS[way](shard, row)
    assert not refused.stale
    assert refused.aborted == {0}
    is_cancelled(shard)
    assert ENDS[way](shard, row).stale == {0}


@pytest.mark.parametrize("way", ENDS)
def test_an_attempt_of_the_groups_own_stream(shard: Shard, way: str) -> None:
    shard.enqueue("j")
    shard.retried()
    row = shard.take()
    assert abort(shard) == ABORTING
    assert ENDS[way](shard, row).aborted == {0}
    assert shard.empty()
    assert shard.counts == {"enqueued": 1, "cancelled:default": 1, "retried:default": 1, "moved": 1}


@pytest.mark.parametrize("way", ENDS)
def test_others_of_the_same_call_end_as_they_should(shard: Shard, way: str) -> None:
    shard.enqueue("i", "j", "k")
    i, j, k = shard.claim().rows
    abort(shard)
    args = {"finish": shard.finish, "retry": shard.retry, "bury": shard.bury, "release": shard.release}
    end = args.get(way, shard.retry)
    refused = end(i, j, k)
    assert not refused.stale
    assert refused.aborted == {1}
    assert shard.state("j") == "gone"
    state = {"finish": "gone", "bury": "dead"}.get(way)
    assert shard.state("i") == shard.state("k")
    assert state is None or shard.state("i") == state
    assert shard.counts["cancelled:default"] == 1


def test_who_names_it_twice_in_a_call_ends_it_once(shard: Shard) -> None:
    row = running(shard)
    refused = shard.finish(row, row)
    assert refused.stale == {1}
    assert refused.aborted == {0}
    is_cancelled(shard)


def test_another_consumer_does_not_end_it(shard: Shard) -> None:
    row = running(shard)
    assert shard.finish(row, consumer="you").stale == {0}
    assert shard.state("j") == "running"
    assert shard.finish(row).aborted == {0}


def test_a_touch_tells_and_gives_no_more_time(shard: Shard) -> None:
    row = running(shard)
    before = shard.job("j").groups["default"].deadline_ms
    shard.clock.advance("1s")
    refused = shard.touch(row)
    assert not refused.stale
    assert refused.aborted == {0}
    assert shard.job("j").groups["default"].deadline_ms == before
    assert shard.touch(row, consumer="you").stale == {0}
    shard.finish(row)
    is_cancelled(shard)


def test_to_abort_it_again_changes_nothing_and_tells_again(shard: Shard) -> None:
    row = running(shard)
    reply = shard.call("abort", "j")
    assert reply.status == ABORTING
    assert [(one.consumer, one.main, one.entry) for one in reply.claims] == [(b"me", row.main, row.entry)]
    shard.finish(row)
    is_cancelled(shard)


def test_cancel_reschedule_and_kick_leave_it_alone(shard: Shard) -> None:
    row = running(shard)
    assert shard.call("cancel", "j") == shard.call("reschedule", "j", "+5") == -1
    assert shard.call("kick", "default", 10, ["j"]) == 0
    assert shard.finish(row).aborted == {0}
    is_cancelled(shard)


def test_its_ttr_passes(shard: Shard) -> None:
    row = running(shard)
    shard.clock.advance("1h")
    reclaimed = shard.reclaim()
    assert (reclaimed.reclaimed, reclaimed.lost) == (0, 0)
    is_cancelled(shard)
    assert shard.finish(row).stale == {0}


def test_its_ttr_passes_in_the_groups_own_stream(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    shard.take()
    abort(shard)
    shard.clock.advance("1h")
    assert shard.reclaim().reclaimed == 0
    assert shard.empty()


def test_its_consumer_is_silent(shard: Shard) -> None:
    running(shard)
    shard.clock.advance("10s")
    assert shard.take_over().taken == 0
    is_cancelled(shard)


def test_its_consumer_is_removed(shard: Shard) -> None:
    running(shard)
    shard.call("remove_consumer", "default", "me", 10)
    is_cancelled(shard)


def test_its_claim_is_asked_for_again_as_the_reply_was_lost(shard: Shard) -> None:
    shard.enqueue("j")
    (read,) = shard.redis("XREADGROUP", "GROUP", "default", "me", "STREAMS", shard.k.ready, ">")
    entries = ["m", read[1][0][0], read[1][0][1][1]]
    (row,) = shard.claim(read=entries).rows
    assert abort(shard) == ABORTING
    assert shard.claim(read=entries).rows == []
    is_cancelled(shard)
    assert shard.finish(row).stale == {0}


def test_one_that_is_claimed_ahead_has_not_started(shard: Shard) -> None:
    shard.enqueue("i", "j")
    i, j = shard.claim(at_once=1).rows
    assert abort(shard) == ABORTING
    shard.release(j)
    (row,) = [row for row in shard.history() if row[0] == "cancelled"]
    assert row[9] == ""
    shard.finish(i)
    assert shard.empty()


def test_its_clock_is_set_back(shard: Shard) -> None:
    running(shard)
    shard.clock.now_ms -= 30_000
    assert shard.reclaim().reclaimed == 0
    assert shard.state("j") == "running"
    shard.clock.advance("2h")
    shard.reclaim()
    is_cancelled(shard)


def test_its_record_is_lost(shard: Shard) -> None:
    row = running(shard)
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "j")
    assert shard.finish(row).aborted == {0}
    assert shard.counts["cancelled:default"] == 1
    assert shard.empty()


@pytest.mark.parametrize("ended_by", ["finish", "retry", "bury", "release"])
def test_an_id_that_is_taken_from_its_end_on(shard: Shard, ended_by: str) -> None:
    job = encode(NewJob({}, id="j", unique_for="10s", unique_after="finish"), 1000)
    shard.run(shard.scripts.enqueue_unique(shard.k, 1, "keep", [*job[:3], job.rule]))
    shard.move()
    row = shard.take()
    abort(shard)
    shard.clock.advance("5s")
    getattr(shard, ended_by)(row)
    assert shard.redis("ZSCORE", shard.k.taken_until, "j") == str(START_MS + 15_000).encode()


def test_a_waiting_job_whose_id_is_taken_from_its_end_on(shard: Shard) -> None:
    job = encode(NewJob({}, id="j", unique_for="10s", unique_after="finish"), 1000)
    shard.run(shard.scripts.enqueue_unique(shard.k, 1, "keep", [*job[:3], job.rule]))
    assert abort(shard) == CANCELLED
    assert shard.redis("ZSCORE", shard.k.taken_until, "j") == str(START_MS + 10_000).encode()


def test_a_key_is_free_for_its_next_job(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("j", "k", key="shop")
    shard.move()
    row = shard.take()
    assert abort(shard, row.id.decode()) == ABORTING
    assert shard.claim().rows == []
    shard.retry(row, delay_ms=1000)
    shard.move()
    assert shard.take().id == b"k"


# -- several groups


def test_one_group_runs_and_another_waits(two: Shard) -> None:
    two.enqueue("j")
    row = two.take("a")
    assert abort(two) == ABORTING
    assert two.counts["cancelled:b"] == 1
    assert two.claim(group="b").rows == []
    assert two.finish(row, group="a").aborted == {0}
    assert two.empty()
    assert two.counts == {"enqueued": 1, "cancelled:a": 1, "cancelled:b": 1}


def test_both_groups_run(two: Shard) -> None:
    two.enqueue("j")
    a, b = two.take("a"), two.take("b", consumer="you")
    reply = two.call("abort", "j")
    assert [one.consumer for one in reply.claims] == [b"me", b"you"]
    two.retry(a, group="a")
    assert two.state("j", "b") == "running"
    two.bury(b, group="b")
    assert two.empty()
    assert two.counts == {"enqueued": 1, "cancelled:a": 1, "cancelled:b": 1}


def test_one_group_runs_and_another_waits_for_its_retry(two: Shard) -> None:
    two.enqueue("j")
    a, b = two.take("a"), two.take("b")
    two.retry(b, group="b", delay_ms=1000)
    assert abort(two) == ABORTING
    two.release(a, group="a")
    assert two.empty()


def test_one_group_runs_and_it_is_dead_in_another(two: Shard) -> None:
    two.enqueue("j")
    a = two.take("a")
    two.bury(two.take("b"), group="b")
    assert abort(two) == ABORTING
    assert two.call("kick", "b", 0, ["j"]) == 0
    two.finish(a, group="a")
    assert two.empty()
    assert two.counts == {"enqueued": 1, "cancelled:a": 1, "dead:b": 1, "purged:b": 1}


def test_one_group_has_finished(two: Shard) -> None:
    two.enqueue("j")
    two.finish(two.take("a"), group="a")
    row = two.take("b")
    assert abort(two) == ABORTING
    assert abort(two, group="a") == NOTHING
    two.finish(row, group="b")
    assert two.counts == {"enqueued": 1, "done:a": 1, "cancelled:b": 1}


def test_for_a_group_that_runs_it(two: Shard) -> None:
    two.enqueue("j")
    a, b = two.take("a"), two.take("b")
    assert abort(two, group="a") == ABORTING
    two.finish(b, group="b")
    two.finish(a, group="a")
    assert two.empty()
    assert two.counts == {"enqueued": 1, "cancelled:a": 1, "done:b": 1}


@pytest.mark.parametrize("retried", [True, False])
def test_for_a_group_that_waits_for_it(two: Shard, retried: bool) -> None:
    two.enqueue("j")
    b = two.take("b")
    if retried:
        two.retry(two.take("a"), group="a", delay_ms=1000)
    assert abort(two, group="a") == CANCELLED
    two.clock.advance("2s")
    two.move()
    assert two.claim(group="a").rows == []
    two.retry(b, group="b")
    two.move()
    two.finish(two.take("b"), group="b")
    assert two.empty()
    assert two.counts["cancelled:a"] == two.counts["done:b"] == 1


@pytest.mark.parametrize("delay", [0, "1s"])
def test_for_a_group_while_none_has_begun(two: Shard, delay: Any) -> None:
    two.enqueue("j", delay=delay)
    assert abort(two, group="a") == TOGETHER
    assert two.state("j", "a") == two.state("j", "b") != "gone"


def test_for_the_only_group(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    assert abort(shard, group="default") == CANCELLED
    assert shard.empty()


def test_for_a_group_that_there_is_not(two: Shard) -> None:
    two.enqueue("j")
    two.take("a")
    assert abort(two, group="c") == NOTHING
    assert two.state("j", "a") == "running"


def test_its_group_leaves(two: Shard) -> None:
    two.enqueue("j")
    row = two.take("a")
    two.finish(two.take("b"), group="b")
    assert abort(two) == ABORTING
    two.topic(groups=["b"])
    assert two.finish(row, group="a").stale == {0}
    assert two.claim(group="b").rows == []
    assert two.empty()
