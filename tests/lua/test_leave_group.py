"""leave_group: removing a group from a shard, step by step."""

from __future__ import annotations

from tests.lua.shard import Shard


def steps(shard: Shard, group: str, limit: int = 250) -> int:
    """Removes the group as Topics.configure does; how many calls it took."""
    cursor, calls = b"0", 0
    while calls == 0 or cursor != b"0":
        cursor = shard.run(shard.scripts.leave_group(shard.k, group, cursor, limit))
        calls += 1
        assert calls < 1000
    return calls


def test_what_only_it_held_open_ends(two: Shard) -> None:
    two.enqueue("both", "waits", "runs", "dies", "alone", "untouched")
    rows = {row.id.decode(): row for row in two.claim(5, "b").rows}
    two.finish(*two.claim(5, "a").rows)
    two.finish(rows["both"], group="b")
    two.retry(rows["waits"], delay_ms=1000, group="b")
    two.bury(rows["dies"], group="b")
    two.topic(groups=["a"])
    # a had finished them: nothing is left but what a still has to do
    assert two.state("untouched", "a") == "ready"
    assert two.redis("HLEN", two.k.jobs) == 1
    assert two.redis("ZCARD", two.k.bucket) == 0
    assert two.finish(rows["runs"], group="b").stale == {0}
    two.finish(two.take("a"))
    assert two.empty()
    assert two.counts.keys() <= {"enqueued", "done:a", "moved"}
    assert two.redis("EXISTS", two.k.ready_of("b"), two.k.dead_of("b")) == 0


def test_the_groups_that_stay_go_on(two: Shard) -> None:
    two.enqueue("delayed", delay="1s")
    two.enqueue("running", "waiting")
    running, waiting = two.claim(group="a").rows
    two.retry(waiting, delay_ms=500)
    two.topic(groups=["a"])
    assert two.finish(running).stale == frozenset()
    two.clock.advance("1s")
    assert two.move().moved == 2
    two.finish(*two.claim(group="a").rows)
    assert two.empty()


def test_many_jobs_take_several_steps(two: Shard) -> None:
    two.enqueue(*(f"j{i}" for i in range(1200)))
    for _ in range(3):
        two.run(two.scripts.claim(two.k, "b", "me", 400, 60_000))
    assert steps(two, "b", limit=100) > 1
    assert two.counts == {"enqueued": 1200, "ready:a": 1200}
    assert two.redis("HLEN", two.k.progress) == 0


def test_in_the_middle_of_it_the_other_group_works_on(two: Shard) -> None:
    two.enqueue(*(f"j{i}" for i in range(600)))
    cursor = two.run(two.scripts.leave_group(two.k, "b", b"0", 50))
    while cursor != b"0":
        rows = two.run(two.scripts.claim(two.k, "a", "me", 50, 60_000)).rows
        args = [value for row in rows for value in (row.main, row.entry, row.id, "row")]
        assert not two.run(two.scripts.finish(two.k, "a", args)).stale
        cursor = two.run(two.scripts.leave_group(two.k, "b", cursor, 50))
    two.topic(groups=["a"])
    while rows := two.claim(200, "a").rows:
        two.finish(*rows)
    assert two.empty()


def test_a_group_of_the_same_name_begins_with_what_is_there(two: Shard) -> None:
    two.enqueue("old")
    two.bury(two.take("b"), group="b")
    two.topic(groups=["a"])
    two.enqueue("new", delay="1s")
    two.topic(groups=["a", "b"])
    assert [row.id for row in two.claim(group="b").rows] == [b"old"]
    assert two.state("new", "b") == "delayed"


def test_a_job_that_is_dead_for_the_group_that_stays_is_kept(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.topic(groups=["a"])
    assert two.state("j", "a") == "dead"
    assert two.call("purge", "a", 0, ["j"]) == 1
    assert two.empty()
