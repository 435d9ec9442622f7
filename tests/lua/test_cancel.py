"""cancel: delayed, or ready -> cancelled, for every group that still waits for the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamdq.config import GroupSettings, TopicSettings
from streamdq.store.find.wanted import Wanted
from streamdq.store.replies import OUTDATED
from streamdq.store.scripts import Scripts
from tests.lua.shard import Shard

CANCELLED, NOTHING, RUNNING, CHANGED, GONE = 1, 0, -1, -3, -4


def test_a_delayed_job(two: Shard) -> None:
    two.enqueue("j", delay="1s")
    assert two.call("cancel", "j") == CANCELLED
    assert two.empty()
    assert two.counts == {"enqueued": 1, "cancelled:a": 1, "cancelled:b": 1}
    assert two.events() == [("cancelled", "j", "a"), ("cancelled", "j", "b")]
    two.enqueue("j")
    assert two.state("j") == "ready"


def test_a_ready_job_never_runs(shard: Shard) -> None:
    shard.enqueue("j")
    assert shard.call("cancel", "j") == CANCELLED
    assert shard.claim().rows == []
    assert shard.empty()
    assert shard.counts == {"enqueued": 1, "cancelled:default": 1}


def test_a_moved_job_never_runs(two: Shard) -> None:
    two.enqueue("j", delay="1s")
    two.clock.advance("1s")
    two.move()
    assert two.call("cancel", "j") == CANCELLED
    assert two.claim(group="a").rows == two.claim(group="b").rows == []
    assert two.empty()


def test_a_job_that_waits_for_its_retry(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=1000)
    assert shard.call("cancel", "j") == CANCELLED
    assert shard.empty()
    assert "waiting:default" not in shard.counts
    assert "detached" not in shard.counts


def test_a_retry_that_is_ready(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    assert shard.call("cancel", "j") == CANCELLED
    assert shard.claim().rows == []
    assert shard.empty()


def test_no_such_job(shard: Shard) -> None:
    assert shard.call("cancel", "j") == NOTHING
    shard.enqueue("j", delay="1s")
    shard.call("cancel", "j")
    assert shard.call("cancel", "j") == NOTHING


def test_a_running_job_is_left_alone(two: Shard) -> None:
    two.enqueue("j")
    row = two.take("a")
    assert two.call("cancel", "j") == RUNNING
    assert two.state("j", "b") == "ready"
    assert two.finish(row).stale == frozenset()
    assert two.call("cancel", "j") == CANCELLED
    assert two.counts["cancelled:b"] == 1
    assert two.claim(group="b").rows == []
    assert two.empty()


def test_a_dead_job_is_kept(shard: Shard) -> None:
    shard.enqueue("j")
    shard.bury(shard.take())
    assert shard.call("cancel", "j") == NOTHING
    assert shard.state("j") == "dead"


def test_a_job_that_is_dead_for_one_group_and_waits_for_another_can_not_be_kicked_afterwards(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    assert two.call("cancel", "j") == CANCELLED
    assert two.counts == {"enqueued": 1, "cancelled:b": 1, "dead:a": 1, "purged:a": 1}
    assert two.claim(group="b").rows == []
    assert two.call("kick", "a", 0, ["j"]) == 0
    assert two.empty()
    assert two.redis("ZCARD", two.k.dead_of("a")) == 0


def test_settings_that_are_out_of_date_cancel_nothing(two: Shard) -> None:
    two.enqueue("j")
    both = {"a": GroupSettings(), "b": GroupSettings()}
    for old in (TopicSettings(shards=2, groups=both), TopicSettings(groups={"a": GroupSettings()})):
        assert two.run(two.scripts.cancel(two.k, old, "j")) == OUTDATED
    assert two.state("j") == "ready"


def test_after_a_cancel_the_record_is_not_held_by_history(shard: Shard) -> None:
    shard.scripts._history = 0
    shard.enqueue("j", delay=1)
    shard.call("cancel", "j")
    assert shard.redis("EXISTS", shard.k.history) == 0


def test_told_to_cover_it_writes_although_nothing_changes(shard: Shard) -> None:
    """So that WAIT behind a call that is repeated covers what the first one wrote."""
    shard.enqueue("other")
    before, durable = shard.redis("HGETALL", shard.k.counts), Scripts(shard.session, shard.session.call)
    assert shard.writes(durable.cancel(shard.k, shard.settings, "j"))
    if not shard.is_fake:
        assert not shard.writes(shard.scripts.cancel(shard.k, shard.settings, "j"))
    assert shard.redis("HGETALL", shard.k.counts) == before
    shard.check()


@pytest.mark.parametrize("running", ["a", "b"])
def test_an_attempt_of_any_group_keeps_the_job_whatever_the_others_wait_for(two: Shard, running: str) -> None:
    two.enqueue("j")
    rows = {group: two.take(group) for group in "ab"}
    other = "b" if running == "a" else "a"
    two.retry(rows[other], delay_ms=1000, group=other)
    assert two.call("cancel", "j") == -1
    assert two.call("reschedule", "j", "+1000") == -1
    assert two.finish(rows[running], group=running).stale == frozenset()


# -- as it was shown


def deliveries(shard: Shard, id: str) -> str:
    page = shard.run(shard.scripts.find_jobs(shard.k, b"0", 100, Wanted(prefix=id)))
    return next(match.deliveries for match in page.matches if match.id == id)


CHANGES: dict[str, Callable[[Shard], Any]] = {
    "rescheduled": lambda shard: shard.call("reschedule", "j", "+7000"),
    "replaced": lambda shard: shard.call("replace", 1, shard.jobs("j", delay="1s")),
    "postponed": lambda shard: shard.enqueue_unique("j", how="postpone", delay="2s"),
    "claimed": lambda shard: moved(shard).claim(),
    "retried": lambda shard: shard.retry(*moved(shard).claim().rows, delay_ms=1000),
    "handed back": lambda shard: shard.release(*moved(shard).claim().rows),
    "dead": lambda shard: shard.bury(*moved(shard).claim().rows),
    "kicked": lambda shard: (shard.bury(*moved(shard).claim().rows), shard.call("kick", "default", 1, [])),
}


def moved(shard: Shard) -> Shard:
    shard.clock.advance("1s")
    shard.move()
    return shard


@pytest.mark.parametrize("change", CHANGES)
def test_only_as_it_was_shown(shard: Shard, change: str) -> None:
    shard.enqueue("j", delay="1s")
    shown = deliveries(shard, "j")
    CHANGES[change](shard)
    before = deliveries(shard, "j")
    assert shard.run(shard.scripts.cancel_each(shard.k, shard.settings, [("j", shown)])) == [CHANGED]
    assert deliveries(shard, "j") == before


def test_a_job_that_has_come_due_is_still_the_one_that_was_shown(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    shown = deliveries(shard, "j")
    moved(shard)
    assert shard.run(shard.scripts.cancel_each(shard.k, shard.settings, [("j", shown)])) == [CANCELLED]
    assert shard.claim().rows == []
    assert shard.empty()


def test_several_that_were_shown(two: Shard) -> None:
    two.enqueue("waits", "gone", delay="1s")
    two.enqueue("runs", "dies")
    _, dies = two.claim(count=2).rows
    two.bury(dies)
    two.bury(*[row for row in two.claim(group="b").rows if row.id == b"dies"], group="b")
    shown = [(id, deliveries(two, id)) for id in ("waits", "gone", "runs", "dies")]
    two.call("cancel", "gone")
    assert two.run(two.scripts.cancel_each(two.k, two.settings, shown)) == [CANCELLED, GONE, RUNNING, NOTHING]
    two.check()


def test_what_another_group_does_is_a_change(two: Shard) -> None:
    two.enqueue("j")
    shown = deliveries(two, "j")
    two.finish(two.take("b"), group="b")
    assert two.run(two.scripts.cancel_each(two.k, two.settings, [("j", shown)])) == [CHANGED]


def test_a_script_that_the_server_has_lost_is_loaded_again(shard: Shard) -> None:
    shard.enqueue("i", "j", delay="1s")
    shown = [(id, deliveries(shard, id)) for id in ("i", "j")]
    shard.redis("SCRIPT", "FLUSH")
    assert shard.run(shard.scripts.cancel_each(shard.k, shard.settings, shown)) == [CANCELLED, CANCELLED]
