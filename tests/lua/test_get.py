"""get: one job and where it stands with every group."""

from __future__ import annotations

from streamdq.store.jobs.progress import Phase
from streamdq.store.replies import FoundJob
from tests.lua.shard import Shard


def test_no_such_job(shard: Shard) -> None:
    assert shard.call("get", "j") == FoundJob(b"", False, [])


def test_outdated_settings_are_refused(shard: Shard) -> None:
    shard.enqueue("j")
    assert shard.call("get", "j", shard.settings).record
    assert shard.call("get", "j", shard.settings.model_copy(update={"shards": 2})) is None


def test_each_state(two: Shard) -> None:
    two.enqueue("j", delay="1s")
    record = two.redis("HGET", two.k.jobs, "j")
    assert two.call("get", "j") == (record, True, [("a", None, False), ("b", None, False)])
    two.clock.advance("1s")
    two.move()
    assert two.call("get", "j") == (record, False, [("a", None, False), ("b", None, False)])
    two.retry(two.take("a"), delay_ms=1000)
    two.bury(two.take("b"), group="b")
    got, delayed, groups = two.call("get", "j")
    assert (got, delayed) == (record, False)
    assert [(name, p.phase, waits) for name, p, waits in groups] == [
        ("a", Phase.WAITING, True), ("b", Phase.DEAD, False)
    ]  # fmt: skip
    two.clock.advance("1s")
    two.move()
    assert not two.call("get", "j").groups[0].waits
    assert (two.state("j", "a"), two.state("j", "b")) == ("ready", "dead")


def test_a_group_added_later_is_not_asked_about_a_job_that_another_has_alone(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=1000)
    shard.topic(groups=["default", "late"])
    job = shard.job("j")
    assert list(job.groups) == ["default"]
