"""reschedule: delayed, or ready -> delayed with another due time."""

from __future__ import annotations

import pytest

from streamdq.store.find.wanted import Wanted
from streamdq.store.scripts import Scripts
from tests.lua.shard import START_MS, Shard

MOVED, NOTHING, RUNNING, OUTDATED = 1, 0, -1, -2


def due_ms(shard: Shard, id: str = "j") -> int:
    job = shard.job(id)
    return job.due_ms


@pytest.mark.parametrize("when", ["+2000", str(START_MS + 2000)])
def test_a_delayed_job(two: Shard, when: str) -> None:
    two.enqueue("j", delay="1s")
    assert two.call("reschedule", "j", when) == MOVED
    assert due_ms(two) == START_MS + 2000
    two.clock.advance("1999ms")
    assert two.move()[:3] == (0, START_MS + 1999, START_MS + 2000)
    two.clock.advance("1ms")
    assert two.move().moved == 1
    two.finish(two.take("a"), group="a")
    two.finish(two.take("b"), group="b")
    assert two.empty()


def test_a_ready_job(two: Shard) -> None:
    two.enqueue("j", delay="1s", ttr="7s")
    two.clock.advance("1s")
    two.move()
    assert two.call("reschedule", "j", "+1000") == MOVED
    assert two.claim(group="a").rows == two.claim(group="b").rows == []
    assert (two.state("j", "a"), two.state("j", "b")) == ("delayed", "delayed")
    two.clock.advance("1s")
    two.move()
    row = two.take("a")
    assert (row.past, row.record.split(b"\n")[2]) == (b"", b"7000")
    two.finish(row)
    two.finish(two.take("b"), group="b")
    assert two.empty()


def test_to_the_past_means_now(shard: Shard) -> None:
    shard.enqueue("j", delay="1h")
    assert shard.call("reschedule", "j", str(START_MS - 5)) == MOVED
    assert shard.move().moved == 1


def test_twice_in_a_row_the_last_word_counts(shard: Shard) -> None:
    shard.enqueue("j", delay="1h")
    shard.call("reschedule", "j", "+1000")
    shard.call("reschedule", "j", "+3000")
    shard.clock.advance("2s")
    assert shard.move().moved == 0
    shard.clock.advance("1s")
    assert shard.move().moved == 1
    assert shard.redis("ZCARD", shard.k.bucket) == 0


def test_a_job_that_waits_for_its_retry_keeps_its_count(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=1000)
    assert shard.call("reschedule", "j", "+500") == MOVED
    shard.clock.advance("500ms")
    assert shard.move().moved == 1
    row = shard.take()
    assert row.past == f"2|1|0|{START_MS + 500}".encode()
    shard.finish(row)
    assert shard.empty()


def test_a_retry_that_is_ready(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    assert shard.call("reschedule", "j", "+1000") == MOVED
    assert shard.claim().rows == []
    shard.clock.advance("1s")
    shard.move()
    shard.finish(shard.take())
    assert shard.empty()


def test_one_group_is_through_and_the_other_waits(two: Shard) -> None:
    two.enqueue("j")
    two.finish(two.take("a"))
    assert two.call("reschedule", "j", "+1000") == MOVED
    assert (two.state("j", "a"), two.state("j", "b")) == ("done", "delayed")
    assert two.claim(group="b").rows == []
    two.clock.advance("1s")
    two.move()
    assert two.claim(group="a").rows == []
    row = two.take("b")
    assert row.past.split(b"|")[0] == b"1"
    two.finish(row, group="b")
    assert two.empty()


def test_one_group_waits_for_its_retry_and_the_other_has_not_begun(two: Shard) -> None:
    two.enqueue("j")
    two.retry(two.take("a"), delay_ms=10_000)
    assert two.call("reschedule", "j", "+1000") == MOVED
    two.clock.advance("1s")
    assert two.move().moved == 2
    two.finish(two.take("a"))
    two.finish(two.take("b"), group="b")
    assert two.empty()


def test_a_group_added_later_gets_a_rescheduled_job_when_it_is_due(two: Shard) -> None:
    two.enqueue("j")
    two.retry(two.take("a"), delay_ms=10_000)
    two.call("reschedule", "j", "+1000")
    two.topic(groups=["a", "b", "late"])
    assert two.claim(group="late").rows == []
    two.clock.advance("1s")
    assert two.move().moved == 3
    for group in ("a", "b", "late"):
        two.finish(two.take(group), group=group)
    assert two.empty()


def test_no_such_job_and_dead_jobs(shard: Shard) -> None:
    assert shard.call("reschedule", "j", "+1") == NOTHING
    shard.enqueue("j")
    shard.bury(shard.take())
    assert shard.call("reschedule", "j", "+1") == NOTHING
    assert shard.state("j") == "dead"


@pytest.mark.parametrize("other", ["ready", "delayed"])
def test_a_running_job_is_left_alone(two: Shard, other: str) -> None:
    two.enqueue("j")
    row = two.take("a")
    if other == "delayed":
        two.retry(two.take("b"), delay_ms=5_000, group="b")
    assert two.call("reschedule", "j", "+1000") == RUNNING
    assert two.state("j", "b") == other
    assert two.finish(row).stale == frozenset()


@pytest.mark.parametrize(("when", "wakes"), [("+500", True), ("+2000", False)])
def test_it_notifies_the_mover_of_a_new_earliest(shard: Shard, when: str, wakes: bool) -> None:
    shard.enqueue("first", delay="1s")
    shard.enqueue("j", delay="3s")
    before = shard.last_wakeup()
    shard.call("reschedule", "j", when)
    assert (shard.last_wakeup() != before) is wakes


def test_told_to_cover_it_writes_although_nothing_changes(shard: Shard) -> None:
    """So that WAIT behind a call that is repeated covers what the first one wrote."""
    shard.enqueue("other")
    before, durable = shard.counts, Scripts(shard.session, shard.session.call)
    assert shard.writes(durable.reschedule(shard.k, shard.settings, "j", "+5"))
    if not shard.is_fake:
        assert not shard.writes(shard.scripts.reschedule(shard.k, shard.settings, "j", "+5"))
    assert shard.counts == before
    assert not shard.redis("HEXISTS", shard.k.counts, "")
    shard.check()


def test_settings_out_of_date_change_nothing(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    other = shard.settings.model_copy(update={"shards": 2})
    assert shard.run(shard.scripts.reschedule(shard.k, other, "j", "+5000")) == OUTDATED
    assert shard.redis("ZRANGE", shard.k.bucket, 0, -1, "WITHSCORES")[1] == str(START_MS + 1000).encode()


def test_each_time_it_gets_the_next_number(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    for number in (1, 2):
        assert shard.call("reschedule", "j", "+5000") == MOVED
        assert shard.redis("ZRANGE", shard.k.bucket, 0, -1) == [b"f%011xj" % number]


def test_a_group_that_had_not_begun_still_has_no_attempt_behind_it(two: Shard) -> None:
    two.enqueue("j")
    two.retry(two.take("a"), delay_ms=10_000)
    assert two.call("reschedule", "j", "+1000") == MOVED
    job = two.job("j")
    group = job.groups["b"]
    assert (group.state, group.attempt, group.step, group.error) == ("delayed", 0, 0, None)
    two.clock.advance("1s")
    two.move()
    assert two.take("b").past == f"1|0|0|{START_MS + 1000}".encode()


def test_as_early_as_another_job_needs_no_wakeup(shard: Shard) -> None:
    shard.enqueue("first", delay="1s")
    shard.enqueue("j", delay="3s")
    before = shard.last_wakeup()
    assert shard.call("reschedule", "j", "+1000") == MOVED
    assert shard.last_wakeup() == before
    assert shard.call("reschedule", "j", "+999") == MOVED
    assert shard.wakeup_ms() == START_MS + 999


def test_without_the_limit_that_there_was_a_job_with_a_key_has_no_place(shard: Shard) -> None:
    for limit in (1, 0):
        shard.topic(key_concurrency=limit)
    shard.enqueue("j", key="k", delay="1h")
    assert shard.call("reschedule", "j", "+1000") == MOVED
    assert shard.redis("HLEN", shard.k.key_tickets) == shard.redis("HLEN", shard.k.progress) == 0


# -- as it was shown


def test_only_as_it_was_shown(shard: Shard) -> None:
    shard.enqueue("same", "changed", "gone", "runs", delay="1s")
    page = shard.run(shard.scripts.find_jobs(shard.k, b"0", 10, Wanted()))
    shown = sorted((match.id, match.deliveries) for match in page.matches)
    shard.call("reschedule", "changed", "+5000")
    shard.call("cancel", "gone")
    assert shard.run(shard.scripts.reschedule_each(shard.k, shard.settings, "+9000", shown)) == [-3, -4, 1, 1]
    shard.check()
    assert [job.due_ms - START_MS for id in ("changed", "runs", "same") if (job := shard.get(id))] == [5000, 9000, 9000]
    again = shard.run(shard.scripts.reschedule_each(shard.k, shard.settings, "+1000", shown))
    assert again == [-3, -4, -3, -3], "what has been rescheduled is no longer as it was shown"
