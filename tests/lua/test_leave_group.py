"""leave_group: removing a group from a shard, step by step."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from streamdq import NewJob
from streamdq.errors import GroupMissing
from streamdq.operations.jobs import enqueue_many
from streamdq.store.replies import Refused
from tests.lua.links import Linked
from tests.lua.shard import START_MS, Shard
from tests.lua.test_relay import relay, rows
from tests.lua.test_restore import archive


def settings_of(shard: Shard) -> dict[str, str]:
    flat = shard.redis("HGETALL", shard.k.settings)
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}


def step(shard: Shard, group: str, limit: int = 250) -> bool:
    """Whether there is more to do."""
    more: bool = shard.call("leave_group", group, limit)
    return more


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


@pytest.mark.parametrize("is_notified", [False, True])
def test_a_job_with_a_key_that_waits_for_others_ends_with_its_only_group(shard: Shard, is_notified: bool) -> None:
    shard.topic(key_concurrency=1)
    linked = Linked(shard)
    shard.enqueue("p", delay="1h")
    linked.put("d", "p", key="k")
    shard.topic(groups=["default", "other"])
    shard.begin_to_leave("default")
    if is_notified:
        shard.checked = False  # it waits for nothing, until it ends with the group
        assert linked.news("d", 0, "done", START_MS + 1) == 1
        shard.checked = True
    while step(shard, "default"):
        pass
    assert shard.get("d") is None
    assert shard.counts.get("waiting_for_jobs", 0) == 0
    assert linked.links().dependencies == {}


def test_many_jobs_take_several_steps(two: Shard) -> None:
    two.enqueue(*(f"j{i}" for i in range(1200)))
    for _ in range(3):
        two.run(two.scripts.claim(two.k, "b", "me", 400, 60_000))
    two.begin_to_leave("b")
    calls = 1
    while step(two, "b", limit=100):
        calls += 1
    assert calls > 1
    assert two.counts == {"enqueued": 1200, "ready:a": 1200}
    assert two.redis("HLEN", two.k.progress) == 0


@pytest.mark.thorough
def test_a_walk_that_was_cut_goes_on_where_it_was(two: Shard) -> None:
    two.enqueue(*(f"j{i}" for i in range(1000)))
    two.run(two.scripts.claim(two.k, "b", "me", 1000, 60_000))
    two.begin_to_leave("b")
    calls = [step(two, "b", limit=100) for _ in range(3)]
    assert calls == [True] * 3
    two.topic(groups=["a"])  # as the caller's repetition, or a mover's
    assert two.redis("HLEN", two.k.progress) == 0
    assert two.call("leave_group", "b", 100) is False, "one that comes late does nothing"
    assert not {name for name in settings_of(two) if "b" in name.partition(":")[2]}


@pytest.mark.thorough
def test_a_cursor_of_another_run_of_redis_is_not_used(two: Shard) -> None:
    two.enqueue(*(f"j{i}" for i in range(1000)))
    two.run(two.scripts.claim(two.k, "b", "me", 1000, 60_000))
    two.begin_to_leave("b")
    two.redis("HSET", two.k.settings, "left:b", "0123456789abcdef:640")
    while step(two, "b", limit=100):
        pass
    assert two.redis("HLEN", two.k.progress) == 0


def test_in_the_middle_of_it_the_other_group_works_on(two: Shard) -> None:
    two.enqueue(*(f"j{i}" for i in range(600)))
    two.run(two.scripts.claim(two.k, "b", "me", 600, 60_000))
    two.begin_to_leave("b")
    while step(two, "b", limit=50):
        two.finish(*two.claim(50, "a").rows)
    two.topic(groups=["a"])
    while rows := two.claim(200, "a").rows:
        two.finish(*rows)
    assert two.empty()


def test_no_claim_and_no_outcome_of_a_group_that_leaves(two: Shard) -> None:
    two.enqueue("done", "retried", "dead", "released", "touched", "left")
    rows = two.claim(5, "b").rows
    two.begin_to_leave("b")
    endings: list[Callable[..., Refused]] = [two.finish, two.retry, two.bury, two.release, two.touch]
    for end, row in zip(endings, rows, strict=True):
        assert end(row, group="b").stale == {0}
    with pytest.raises(GroupMissing):
        two.claim(1, "b")
    assert two.call("remove_consumer", "b", "me", 100) is True
    assert two.counts == {"enqueued": 6, "ready:a": 6}
    two.topic(groups=["a"])
    assert two.state("done", "a") == "ready"


def test_a_claim_of_a_group_that_was_made_again_is_refused(two: Shard) -> None:
    two.enqueue("done", "retried", "dead", "released", "touched")
    old = two.claim(5, "b").rows
    before = two.generation("b")
    two.topic(groups=["a"])
    two.topic(groups=["a", "b"])
    new = two.claim(5, "b").rows
    assert [row.claim for row in new] == [row.claim for row in old], "the same entries: XACK alone would accept it"
    after = two.generation("b")
    assert after != before
    endings: dict[str, tuple[Any, ...]] = {"finish": (), "retry": (0, 1, "", ""), "bury": ("", "", ""), "release": ()}
    for script, rest in endings.items():
        args = [value for row in old for value in (row.main, row.entry, row.id, "row", *rest)]
        assert two.call(script, "b", before, "me", args).stale == set(range(5))
    touches = [value for row in old for value in (row.main, row.entry, row.id, 5)]
    assert two.call("touch", "b", before, "me", 60_000, touches).stale == set(range(5))
    assert two.finish(*new, group="b").stale == frozenset()


def test_a_retry_that_waits_for_the_group_is_counted_until_it_is_gone(two: Shard) -> None:
    two.enqueue("moved", "walked")
    moved, walked = two.claim(2, "b").rows
    two.retry(moved, delay_ms=10, group="b")
    two.retry(walked, delay_ms=1000, group="b")
    two.begin_to_leave("b")
    two.clock.advance("20ms")
    two.move()
    assert two.counts["waiting:b"] == 1
    two.topic(groups=["a"])
    assert two.redis("ZCARD", two.k.bucket) == 0
    assert "waiting:b" not in two.counts


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


@pytest.fixture(params=["retry", "release"])
def detached(shard: Shard, request: pytest.FixtureRequest) -> Shard:
    """Job `x` waits for its next attempt in a group that is about to leave, and concerns no other."""
    shard.enqueue("x")
    getattr(shard, request.param)(shard.take())
    shard.topic(groups=["default", "b"])
    shard.begin_to_leave("default")
    return shard


def test_a_job_of_the_leaving_group_alone_concerns_no_other(detached: Shard) -> None:
    """It is about to end: a caller that asks before that must not take it for another group's."""
    assert detached.get("x") is None
    assert detached.call("cancel", "x") == 0
    assert detached.call("reschedule", "x", "+0") == 0
    (replaced,) = detached._step(detached.scripts.replace(detached.k, 1, detached.jobs("x"))).taken
    assert replaced == 0
    assert relay(detached, rows("x", replace=True)).codes == [0]
    assert not step(detached, "default")
    assert detached.empty()
    assert detached.counts == {"enqueued": 1, "base:b": 1}


@pytest.mark.parametrize("again", ["enqueued", "rescheduled"])
def test_what_has_the_id_of_a_job_that_ended_since_stays(detached: Shard, again: str) -> None:
    """The old job has ended by hand; the new one is none of the leaving group's, whose progress is still here."""
    record = detached.redis("HGET", detached.k.jobs, "x")
    detached.redis("HDEL", detached.k.jobs, "x")
    detached.redis("HINCRBY", detached.k.counts, "detached", -1)
    detached.enqueue("x", delay="1s")
    if again == "rescheduled":
        assert detached.call("reschedule", "x", "+2000") == 1
    assert detached.redis("HGET", detached.k.jobs, "x") != record
    assert detached.state("x", "b") == "delayed"
    assert not step(detached, "default")
    assert detached.state("x", "b") == "delayed"
    assert detached.call("cancel", "x") == 1
    assert detached.empty()


def test_large_records_end_a_few_at_once(two: Shard) -> None:
    large = [NewJob("x" * 100_000, id=f"j{n}") for n in range(10)]
    two.run(enqueue_many.enqueue_many(two.store, "t", large))
    while rows := two.claim(group="b").rows:
        two.retry(*rows, delay_ms=1000, group="b")
    while rows := two.claim(group="a").rows:
        two.finish(*rows, group="a")
    two.begin_to_leave("b")
    left = []
    while step(two, "b"):
        left.append(two.redis("HLEN", two.k.jobs))
        assert two.counts.get("waiting:b", 0) == two.redis("ZCARD", two.k.bucket)
    assert left == [7, 4, 1]
    assert two.empty()


def test_a_walk_among_much_of_another_group_comes_to_its_end(two: Shard) -> None:
    two.checked = False
    ids = [f"j{n}" for n in range(600)]
    two.enqueue(*ids)
    two.claim(600, "b")
    two.claim(5, "a")
    two.begin_to_leave("a")
    for _ in range(60):
        if not step(two, "a", 50):
            break
    assert not two.redis("HEXISTS", two.k.settings, "leaving")
    assert two.redis("HLEN", two.k.progress) == 600


def test_a_walk_notes_its_cursor_with_the_run_of_redis_that_it_is_good_for(two: Shard) -> None:
    two.checked = False
    two.enqueue(*(f"j{n}" for n in range(600)))
    two.claim(600, "b")
    two.begin_to_leave("b")
    assert step(two, "b", 50)
    info = b"run_id:" if two.is_fake else two.redis("INFO", "server")
    (run,) = re.findall(rb"run_id:(\w*)", info)
    assert re.fullmatch(rf"{run.decode()}:[1-9]\d*", settings_of(two)["left:b"])


def test_a_job_that_was_rescheduled_before_its_group_began_to_leave_ends_with_it(shard: Shard) -> None:
    shard.enqueue("x", delay="1s")
    assert shard.call("reschedule", "x", "+2000") == 1
    shard.clock.advance("2s")
    shard.move()
    shard.retry(shard.take(), delay_ms=500)
    shard.topic(groups=["default", "b"])
    shard.begin_to_leave("default")
    assert not step(shard, "default")
    assert shard.empty()


def test_a_job_that_only_the_leaving_group_has_begun_still_concerns_the_other(two: Shard) -> None:
    two.enqueue("j")
    two.take("b")
    two.begin_to_leave("b")
    assert two.state("j", "a") == "ready"
    assert two.call("reschedule", "j", "+1000") == 1
    assert two.state("j", "a") == "delayed"


def test_what_no_group_has_begun_is_still_there_while_one_leaves(two: Shard) -> None:
    two.enqueue("i", "j")
    two.begin_to_leave("a")
    assert two.state("i", "b") == "ready"
    assert two.call("cancel", "i") == 1
    while step(two, "a"):
        pass
    assert [row.id for row in two.claim(group="b").rows] == [b"j"]


def test_one_of_several_that_leave_is_gone_without_a_trace_and_the_others_still_leave(shard: Shard) -> None:
    shard.topic(groups=["a", "b", "c", "default"])
    shard.enqueue("j")
    for group in ("a", "b", "c"):
        shard.retry(shard.take(group), delay_ms=1000, group=group)
        shard.begin_to_leave(group)
    for group, left in (("a", "b,c"), ("b", "c"), ("c", None)):
        while step(shard, group):
            pass
        assert settings_of(shard).get("leaving") == left
        assert f"left_at:{group}" not in settings_of(shard)
        assert f"waiting:{group}".encode() not in shard.redis("HKEYS", shard.k.counts)
    assert shard.state("j") == "ready"


def test_what_it_alone_had_not_begun_ends(two: Shard) -> None:
    two.enqueue("j")
    two.finish(two.take("b"), group="b")
    two.begin_to_leave("a")
    assert not step(two, "a")
    assert two.empty()


def test_a_step_that_comes_when_the_group_is_there_again_does_nothing(two: Shard) -> None:
    two.topic(groups=["a"])
    two.topic(groups=["a", "b"])
    two.enqueue("j")
    row = two.take("b")
    assert not step(two, "b")
    assert two.state("j", "b") == "running"
    assert two.finish(row, group="b").stale == frozenset()


def test_what_was_restored_for_several_groups_still_concerns_those_that_stay(two: Shard) -> None:
    two.enqueue("j")
    for group in ("a", "b"):
        two.bury(two.take(group), group=group)
    archived = {group: archive(two, group) for group in ("a", "b")}
    for group, jobs_of_group in archived.items():
        assert two.call("restore", group, 1, jobs_of_group) == [True]
    two.begin_to_leave("a")
    assert two.call("reschedule", "j", "+1000") == 1
    while step(two, "a"):
        pass
    two.clock.advance("1s")
    two.move()
    two.finish(two.take("b"), group="b")
    assert two.empty()


@pytest.mark.parametrize("how", ["finished", "cancelled", "left"])
def test_what_ended_while_the_group_leaves_is_counted_once(two: Shard, how: str) -> None:
    """It came back for several groups, and so it is detached: the leaving one's progress is all that is left of it."""
    two.topic(groups=["a", "b", "c"])
    two.enqueue("j", "stays")
    two.finish(*two.claim(group="c").rows, group="c")
    for group in ("a", "b"):
        two.bury(*two.claim(group=group).rows, group=group)
    archived = {group: archive(two, group) for group in ("a", "b")}
    for group, jobs_of_group in archived.items():
        two.call("restore", group, 1, jobs_of_group)
    two.begin_to_leave("a")
    if how == "finished":
        two.finish(*(row for row in two.claim(group="b").rows if row.id == b"j"), group="b")
    elif how == "cancelled":
        assert two.call("cancel", "j") == 1
    else:
        two.begin_to_leave("b")
        while step(two, "b"):
            pass
    left = two.counts.get("detached", 0)
    assert left == two.redis("HLEN", two.k.jobs)
    while step(two, "a"):
        pass
    assert two.counts.get("detached", 0) == left


@pytest.mark.parametrize("other", ["has not begun", "has ended"])
def test_what_is_left_of_a_job_whose_record_is_lost_goes_as_well(two: Shard, other: str) -> None:
    two.enqueue("j")
    two.take("a")
    if other == "has ended":
        two.finish(two.take("b"), group="b")
    two.begin_to_leave("a")
    two.checked = False
    two.redis("HDEL", two.k.jobs, "j")
    while step(two, "a"):
        pass
    assert two.redis("HLEN", two.k.progress) == 0
    assert two.redis("XLEN", two.k.ready) == (other == "has not begun")  # b's next claim drops it


def test_a_lost_record_of_the_leaving_group_alone_is_not_counted_any_more(detached: Shard) -> None:
    detached.checked = False
    detached.redis("HDEL", detached.k.jobs, "x")
    while step(detached, "default"):
        pass
    assert detached.counts.get("detached", 0) == 0
    assert detached.redis("HLEN", detached.k.progress) == 0


def test_a_lost_record_is_not_counted_where_the_counters_are_lost_too(detached: Shard) -> None:
    detached.checked = False
    detached.redis("HDEL", detached.k.jobs, "x")
    detached.redis("DEL", detached.k.counts)
    while step(detached, "default"):
        pass
    assert "detached" not in detached.counts


def test_of_what_waits_for_a_place_of_its_key_nothing_is_left(two: Shard) -> None:
    two.topic(key_concurrency=1)
    two.enqueue("x", "y", "z", key="m")
    assert two.counts["waiting_for_key:b"] == 2
    two.begin_to_leave("b")
    while step(two, "b"):
        pass
    assert b"waiting_for_key:b" not in two.redis("HKEYS", two.k.counts)
    assert {ticket.split(b"\x1f")[0] for ticket in two.redis("ZRANGE", two.k.key_waiting, 0, -1)} == {b"a"}


def test_an_id_that_stays_taken_after_the_end_of_its_job_is_so_from_then_on(two: Shard) -> None:
    two.enqueue_unique("j", rule="f60000|||")
    two.move()
    two.finish(two.take("b"), group="b")
    assert float(two.redis("ZSCORE", two.k.taken_until, "j")) > 1e15
    two.begin_to_leave("a")
    while step(two, "a"):
        pass
    assert float(two.redis("ZSCORE", two.k.taken_until, "j")) == START_MS + 60_000


def test_a_new_job_stays_that_has_the_id_of_one_that_two_leaving_groups_had(shard: Shard) -> None:
    """The old one had a key; of the groups that leave, one has done it, and the other has not begun it."""
    shard.topic(groups=["a", "b", "c"], key_concurrency=5)
    shard.enqueue("j", key="k")
    shard.move()
    shard.finish(shard.take("c"), group="c")
    shard.begin_to_leave("b")
    shard.begin_to_leave("c")
    shard.finish(shard.take("a"), group="a")
    assert shard.get("j") is None
    linked = Linked(shard)
    shard.enqueue("j", delay="1s")
    linked.put("d", "j")
    for group in "bc":
        while step(shard, group):
            pass
    assert shard.state("j", "a") == "delayed"
    assert [text for text in linked.links().followers.values() if b"+" in text.split(b"\n")[0]] == []
