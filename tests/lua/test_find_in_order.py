"""find_in_order: searches delayed jobs by due time, and dead letters by burial, a page at a time."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.store.find.wanted import Wanted
from streamdq.store.replies import FoundInOrder
from tests.lua.links import Linked
from tests.lua.shard import START_MS, Shard

WANTED = Wanted()


def page(
    shard: Shard, after: tuple[Any, bytes], until: Any = "+inf", limit: int = 250, wanted: Any = WANTED, dead: str = ""
) -> FoundInOrder:
    index = shard.k.dead_of(dead) if dead else shard.k.bucket
    found: FoundInOrder = shard.run(shard.scripts.find_in_order(shard.k, index, after, until, limit, wanted))
    return found


def walk(shard: Shard, start: Any = 0, **how: Any) -> list[str]:
    ids, one = [], page(shard, (start, b""), **how)
    while one.looked:
        ids += [match.id for match in one.matches]
        one = page(shard, (one.at_ms, one.member), **how)
    return ids


def test_by_due_time_within_the_times_asked_for(shard: Shard) -> None:
    for seconds in (5, 3, 1, 4, 2):
        shard.enqueue(f"j{seconds}", delay=seconds)
    assert walk(shard) == ["j1", "j2", "j3", "j4", "j5"]
    assert walk(shard, START_MS + 2000, until=START_MS + 4000) == ["j2", "j3", "j4"]
    assert walk(shard, START_MS + 2001, until=START_MS + 3999) == ["j3"]
    assert walk(shard, START_MS + 6000) == []


def test_a_retry_is_found_by_its_own_due_time(two: Shard) -> None:
    two.enqueue("j")
    two.retry(two.take("a"), delay_ms=5000)
    assert walk(two, START_MS + 5000) == ["j"]
    assert walk(two, START_MS + 5000, wanted=Wanted(state="delayed", group="a")) == ["j"]
    assert walk(two, START_MS + 5000, wanted=Wanted(state="delayed", group="b")) == []


def test_dead_letters_by_burial(shard: Shard) -> None:
    shard.enqueue("b1", "a2", "c3")
    for row in shard.claim().rows:
        shard.bury(row)
        shard.clock.advance("1s")
    assert walk(shard, dead="default") == ["b1", "a2", "c3"]
    assert walk(shard, START_MS + 1000, dead="default") == ["a2", "c3"]
    assert walk(shard, dead="default", wanted=Wanted(state="dead", group="default", prefix="c")) == ["c3"]


def test_blocked_jobs_by_when_they_were(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p", "q")
    rows = shard.claim(2).rows
    for row, id in zip(reversed(rows), ("d", "e"), strict=True):
        linked.put(id, row.id.decode())
        shard.bury(row)
        linked.tell()
        shard.clock.advance("1s")
    wanted = Wanted(state="blocked")
    one = shard.run(shard.scripts.find_in_order(shard.k, shard.k.blocked, (0, b""), "+inf", 9, wanted))
    assert ([match.id for match in one.matches], one.looked) == (["d", "e"], 2)
    wanted = Wanted(state="delayed")
    one = shard.run(shard.scripts.find_in_order(shard.k, shard.k.blocked, (0, b""), "+inf", 9, wanted))
    assert (one.matches, one.looked) == ([], 2)


@pytest.mark.parametrize("limit", [1, 2, 3, 250])
def test_equal_times_are_walked_through_by_member(shard: Shard, limit: int) -> None:
    ids = ["Zoe", "anna", "Ärger", "_x", "ab", "abc", "b", "B", "~"]  # in no order of any language
    shard.enqueue("before", delay=1)
    shard.enqueue(*ids, delay=2)
    shard.enqueue("after", delay=3)
    assert walk(shard, limit=limit) == ["before", *ids, "after"]
    shard.clock.advance("1m")
    shard.move()
    for row in shard.claim(count=20).rows:
        shard.bury(row)
    everything = ["before", *ids, "after"]
    assert walk(shard, limit=limit, dead="default") == sorted(everything, key=str.encode)


@pytest.mark.parametrize("gone", range(6))
def test_no_other_is_skipped_if_the_last_one_leaves(shard: Shard, gone: int) -> None:
    ids = ["Ab", "a", "aB", "ab", "b", "é"]
    shard.enqueue(*ids)
    for row in shard.claim().rows:
        shard.bury(row)
    first = page(shard, (0, b""), limit=gone + 1, dead="default")
    assert first.member == ids[gone].encode()
    for id in ids[: gone + 1]:
        shard.call("purge", "default", 0, [id])
    rest = page(shard, (first.at_ms, first.member), dead="default")
    assert [match.id for match in rest.matches] == ids[gone + 1 :]


def test_a_member_that_comes_meanwhile_shifts_no_other(shard: Shard) -> None:
    shard.enqueue("b", "d")
    for row in shard.claim().rows:
        shard.bury(row)
    first = page(shard, (0, b""), limit=1, dead="default")
    shard.enqueue("a")
    shard.bury(shard.take())
    assert [m.id for m in page(shard, (first.at_ms, first.member), dead="default").matches] == ["d"]


def test_of_large_jobs_a_page_has_few(shard: Shard) -> None:
    shard.checked = False
    shard.enqueue(*[f"j{n}" for n in range(20)], delay=1)
    shard.redis("HSET", shard.k.settings, "largest", 100_000)
    assert page(shard, (0, b"")).looked == 2
    assert len(walk(shard)) == 20


def test_a_member_without_a_record_is_no_match(shard: Shard) -> None:
    shard.enqueue("i", "j", delay=1)
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "i")
    one = page(shard, (0, b""))
    assert (one.looked, [match.id for match in one.matches]) == (2, ["j"])


def test_of_a_match_as_much_as_is_wanted_and_only_with_the_texts(shard: Shard) -> None:
    shard.enqueue("one", "two", delay=1)
    (match,) = page(shard, (0, b""), wanted=Wanted("head", texts=['"id":"two"'])).matches
    assert match.id == "two"
    assert match.record.endswith(b"\nnull")
    assert page(shard, (0, b""), wanted=Wanted(texts=['"id":"two"'])).matches[0].record == b""


def test_a_job_that_only_leaving_groups_have_is_no_match(two: Shard) -> None:
    two.topic(groups=["a"])
    two.enqueue("j")
    two.retry(two.take(), delay_ms=5000)
    two.topic(groups=["a", "b"])
    assert walk(two) == ["j"]
    two.begin_to_leave("a")
    two.checked = False
    assert walk(two) == []
