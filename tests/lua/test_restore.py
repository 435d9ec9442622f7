"""restore: archived -> ready, for one group."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.operations.topics import configure
from streamdq.store.jobs.records import job_in
from streamdq.store.replies import NOT_HERE
from tests.lua.shard import START_MS, Shard
from tests.lua.test_archive import letters, receipts
from tests.lua.test_dead_letters import ALL
from tests.lua.test_kick import bury_all


def archive(shard: Shard, group: str = "default") -> list[Any]:
    """Archives what is dead; returns it as restore takes it. The receipt is `ID to GROUP`."""
    out: list[Any] = []
    for id, _, record, progress in shard.call("dead_letters", group, *ALL)[1]:
        head, rest = record.split(b"\n", 1)
        out += [id, id + f" to {group}".encode(), progress.split(b"|")[1], head[12:], rest]
    shard.call("archive", group, letters(shard, group))
    return out


def test_it_is_ready_with_all_that_it_had(shard: Shard) -> None:
    shard.enqueue("j", ttr="7s", retry="1s 2s", url="https://a.example/b", expire="1h")
    shard.retried()
    shard.bury(shard.take())
    before = shard.get("j")
    jobs = archive(shard)
    assert shard.empty()
    shard.clock.advance("3h")
    assert shard.call("restore", "default", 1, jobs) == [True]
    assert shard.counts == {"enqueued": 1, "ready:default": 1, "retried:default": 1, "moved": 1, "detached": 1}
    row = shard.take()
    assert row.past == f"3|0|0|{START_MS + 3 * 3_600_000}".encode()
    after = job_in("t", "j", row.record)
    assert before is not None
    for name in ("raw_body", "due_ms", "created_ms", "ttr_ms", "retry", "url", "expire_ms"):
        assert getattr(after, name) == getattr(before, name), name
    shard.finish(row)
    assert shard.empty()
    assert ("kicked", "j", "default") in shard.events()


def test_a_repeated_call_does_nothing_also_when_the_job_has_ended(shard: Shard) -> None:
    bury_all(shard, "a", "b")
    jobs = archive(shard)
    assert shard.call("restore", "default", 1, jobs) == [True, True]
    before = shard.counts
    assert shard.call("restore", "default", 1, jobs) == [True, True]
    assert shard.writes(shard.scripts.restore(shard.k, "default", 1, jobs))  # which WAIT behind it needs
    assert shard.counts == before
    shard.finish(*shard.claim().rows)
    assert shard.call("restore", "default", 1, jobs) == [True, True]
    assert shard.empty()
    assert receipts(shard) == [b"a of default", b"a to default", b"b of default", b"b to default"]


def test_an_id_that_is_live_again_is_left_alone(shard: Shard) -> None:
    bury_all(shard, "a", "b")
    jobs = archive(shard)
    shard.enqueue("a", url="https://new.example")
    assert shard.call("restore", "default", 1, jobs) == [False, True]
    rows = {row.id: row for row in shard.claim().rows}
    assert job_in("t", "a", rows[b"a"].record).url == "https://new.example"
    shard.finish(*rows.values())
    assert shard.empty()
    assert shard.counts == {"enqueued": 3, "done:default": 2, "dead:default": 1, "archived:default": 1}


def test_other_groups_that_are_through_do_not_see_it(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.finish(two.take("b"), group="b")
    jobs = archive(two, "a")
    assert two.empty()
    assert two.call("restore", "a", 1, jobs) == [True]
    assert two.claim(group="b").rows == []
    two.topic(groups=["a", "b", "c"])
    assert two.claim(group="c").rows == [], "nor does a group that is added meanwhile"
    two.finish(two.take("a"))
    assert two.empty()


def test_it_comes_back_to_a_job_that_another_group_still_has(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    jobs = archive(two, "a")
    assert two.call("restore", "a", 1, jobs) == [True]
    assert (two.state("j", "a"), two.state("j", "b")) == ("ready", "ready")
    two.finish(two.take("a"))
    two.finish(two.take("b"), group="b")
    assert two.empty()


def dead_in_both(two: Shard) -> tuple[list[Any], list[Any]]:
    """Archived, of group a and of group b."""
    two.enqueue("j")
    for group in ("a", "b"):
        two.bury(two.take(group), group=group)
    letters = archive(two, "a"), archive(two, "b")
    assert two.empty()
    return letters


def test_both_groups_get_it_back(two: Shard) -> None:
    first, second = dead_in_both(two)
    assert two.call("restore", "a", 1, first) == [True]
    assert two.call("restore", "b", 1, second) == [True]
    assert (two.state("j", "a"), two.state("j", "b")) == ("ready", "ready")
    assert two.counts["detached"] == 1
    assert two.call("restore", "b", 1, second) == [True], "repeated, it does nothing more"
    two.topic(groups=["a", "b", "c"])
    assert two.claim(group="c").rows == []
    two.finish(two.take("b"), group="b")
    assert two.state("j", "a") == "ready"
    two.finish(two.take("a"))
    assert two.empty()
    assert "detached" not in two.counts


def test_a_group_that_has_it_back_gets_it_no_second_time(two: Shard) -> None:
    for jobs, group in zip(dead_in_both(two), "ab", strict=True):
        assert two.call("restore", group, 1, jobs) == [True]
    jobs[1] = "another receipt"
    assert two.call("restore", "b", 1, jobs) == [False]
    assert two.counts["ready:b"] == 1


@pytest.mark.parametrize("begun", [False, True])
def test_a_group_that_is_yet_to_begin_it_keeps_it_as_it_is(two: Shard, begun: bool) -> None:
    """Redis came back from a copy of the time before the job died."""
    two.enqueue("j")
    head, rest = two.redis("HGET", two.k.jobs, "j").split(b"\n", 1)
    if begun:
        two.take("b")
    assert two.call("restore", "a", 1, ["j", "receipt", 1, head[12:], rest]) == [False]
    two.finish(two.take("a"))


def test_one_of_them_when_the_other_has_ended(two: Shard) -> None:
    first, second = dead_in_both(two)
    assert two.call("restore", "a", 1, first) == [True]
    two.finish(two.take("a"))
    assert two.empty()
    assert two.call("restore", "b", 1, second) == [True]
    two.finish(two.take("b"), group="b")
    assert two.empty()


def test_back_in_both_one_dies_again_and_the_other_is_cancelled(two: Shard) -> None:
    first, second = dead_in_both(two)
    two.call("restore", "a", 1, first)
    two.call("restore", "b", 1, second)
    two.bury(two.take("b"), group="b")
    assert two.call("cancel", "j") == 1
    assert two.claim(group="a").rows == []
    assert two.empty()
    assert not {name for name in two.counts if name.startswith("detached")}


def test_back_in_both_one_group_leaves(two: Shard) -> None:
    first, second = dead_in_both(two)
    two.call("restore", "a", 1, first)
    two.call("restore", "b", 1, second)
    two.topic(groups=["a"])
    assert two.state("j", "a") == "ready"
    two.finish(two.take("a"))
    assert two.empty()


def test_another_job_under_its_id_in_the_other_group(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.finish(two.take("b"), group="b")
    jobs = archive(two, "a")
    two.clock.advance("1s")
    two.enqueue("j")
    two.finish(two.take("a"))
    assert two.call("restore", "a", 1, jobs) == [False]
    two.finish(two.take("b"), group="b")
    assert two.empty()


def test_in_a_redis_that_never_had_it_it_is_new_to_that_group_alone(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.finish(two.take("b"), group="b")
    jobs = archive(two, "a")
    two.redis("FLUSHALL")
    two.run(two.topics.repair("t"))
    assert two.call("restore", "a", 1, jobs) == [True]
    assert two.counts == {"enqueued": 1, "base:b": 1, "ready:a": 1, "detached": 1}
    assert two.claim(group="b").rows == []
    two.finish(two.take("a"))
    assert two.empty()


def test_while_the_topic_is_paused_it_waits(shard: Shard) -> None:
    bury_all(shard, "j")
    jobs = archive(shard)
    shard.run(configure.pause(shard.store, "t"))
    assert shard.call("restore", "default", 1, jobs) == [True]
    assert shard.state("j") == "delayed"
    shard.run(configure.resume(shard.store, "t"))
    shard.move()
    shard.finish(shard.take())
    assert shard.empty()


def test_with_a_rate_it_waits_its_turn(shard: Shard) -> None:
    bury_all(shard, "j")
    jobs = archive(shard)
    shard.topic(rate=2)
    before = shard.last_wakeup()
    assert shard.call("restore", "default", 1, jobs) == [True]
    assert shard.state("j") == "delayed"
    assert shard.last_wakeup() != before


def test_each_has_the_next_number(shard: Shard) -> None:
    bury_all(shard, "c", "a", "b")
    jobs = archive(shard)
    shard.call("restore", "default", 1, jobs[:10])
    shard.call("restore", "default", 1, jobs[10:])
    assert [(member[:12], member[-1:]) for member in shard.entries(shard.k.ready_of("default"))] == [
        (b"f00000000001", b"c"), (b"f00000000002", b"a"), (b"f00000000003", b"b"),
    ]  # fmt: skip


def test_the_length_of_the_largest_record_never_falls(shard: Shard) -> None:
    bury_all(shard, "large", "s")
    jobs = archive(shard)
    shard.redis("HDEL", shard.k.settings, "largest")
    for one in (jobs[:5], jobs[5:]):
        shard.call("restore", "default", 1, one)
        assert int(shard.redis("HGET", shard.k.settings, "largest")) == shard.redis("HSTRLEN", shard.k.jobs, "large")


def test_nothing_is_written_when_the_caller_knows_other_shards_or_the_group_is_not_there(shard: Shard) -> None:
    bury_all(shard, "j")
    jobs = archive(shard)
    assert shard.call("restore", "default", 2, jobs) is None
    assert shard.call("restore", "nobody", 1, jobs) is None
    assert shard.empty()


def test_archived_again(shard: Shard) -> None:
    bury_all(shard, "j")
    for attempt in range(2, 5):
        jobs = archive(shard)
        shard.redis("DEL", shard.k.archive)
        assert shard.call("restore", "default", 1, jobs) == [True]
        row = shard.take()
        assert row.past.split(b"|")[0] == b"%d" % attempt
        shard.bury(row)
    assert shard.counts == {"enqueued": 1, "dead:default": 1, "detached": 1}


def test_where_keys_have_a_limit_it_needs_a_place(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", "b", key="m")
    shard.move()
    shard.bury(shard.take())
    jobs = archive(shard)
    shard.move()
    running = shard.take()
    assert shard.call("restore", "default", 1, jobs) == [True]
    assert shard.redis("ZCARD", shard.k.key_waiting) == 1
    assert shard.claim().rows == []
    shard.finish(running)
    shard.move()
    assert shard.take().id == b"a"


def test_in_a_previous_shard_only_what_is_there_comes_back(shard: Shard) -> None:
    bury_all(shard, "gone", "again", "taken")
    jobs = archive(shard)
    shard.enqueue("again", delay="1h")
    shard.enqueue_unique("taken", rule="60000|||")
    shard.call("cancel", "taken")
    assert sorted(shard.call("restore", "default", 1, jobs, True)) == [NOT_HERE, 0, 1]
    assert shard.get("gone") is None
    assert shard.state("taken") == "ready"
    assert shard.redis("HGET", shard.k.settings, "former_puts") == b"1"
    shard.call("restore", "default", 1, jobs, True)
    assert shard.redis("HGET", shard.k.settings, "former_puts") == b"1", "nothing came"
    assert [b"gone to default" in receipts(shard), b"taken to default" in receipts(shard)] == [False, True]


def test_in_a_previous_shard_a_receipt_tells_what_has_come_back(shard: Shard) -> None:
    bury_all(shard, "j")
    jobs = archive(shard)
    shard.call("restore", "default", 1, jobs)
    shard.finish(shard.take())
    assert shard.call("restore", "default", 1, jobs, True) == [1]
    assert shard.empty()
