"""get: one job and where it stands with every group."""

from __future__ import annotations

from tests.lua.shard import Shard


def test_no_such_job(shard: Shard) -> None:
    assert shard.call("get", "j") == []


def test_each_state(two: Shard) -> None:
    two.enqueue("j", delay="1s")
    record = two.redis("HGET", two.k.jobs, "j")
    assert two.call("get", "j") == [record, 1, b"a", b"", 0, b"b", b"", 0]
    two.clock.advance("1s")
    two.move()
    assert two.call("get", "j") == [record, 0, b"a", b"", 0, b"b", b"", 0]
    two.retry(two.take("a"), delay_ms=1000)
    two.bury(two.take("b"), group="b")
    got, delayed, _, a, a_waits, _, b, b_waits = two.call("get", "j")
    assert (got, delayed, a[:2], a_waits, b[:2], b_waits) == (record, 0, b"w|", 1, b"d|", 0)
    two.clock.advance("1s")
    two.move()
    assert two.call("get", "j")[4] == 0
    assert (two.state("j", "a"), two.state("j", "b")) == ("ready", "dead")


def test_a_group_added_later_is_not_asked_about_a_job_that_another_has_alone(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=1000)
    shard.topic(groups=["default", "late"])
    job = shard.get("j")
    assert job is not None
    assert list(job.groups) == ["default"]
