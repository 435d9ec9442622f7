"""What holds for each way in which a batch of claims ends, or is touched."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamdq.operations.topics import configure
from streamdq.store.replies import ClaimedRow, Refused
from tests.lua.shard import BEGIN, START_MS, Shard

End = Callable[..., Refused]
ENDS = {"finish": "gone", "retry": "delayed", "bury": "dead", "release": "ready", "touch": "running"}
"""Each, and what the job is afterwards."""


@pytest.fixture(params=ENDS)
def end(request: pytest.FixtureRequest, shard: Shard) -> End:
    ended: End = getattr(shard, request.param)
    return ended


def after(end: End) -> str:
    return ENDS[end.__name__]


def claimed(shard: Shard, *ids: str, group: str | None = None) -> list[ClaimedRow]:
    """In this order; each second one is tried for the second time."""
    shard.enqueue(*ids)
    rows = {row.id.decode(): row for row in shard.claim(len(ids), group=group).rows}
    retried = ids[1::2]
    shard.retry(*(rows[id] for id in retried), group=group)
    shard.move()
    rows |= {row.id.decode(): row for row in shard.claim(len(ids), group=group).rows}
    return [rows[id] for id in ids]


def test_all_of_a_batch_that_are_held(shard: Shard, end: End) -> None:
    rows = claimed(shard, *"abcdef")
    assert end(*rows) == (START_MS, frozenset(), frozenset())
    assert {shard.state(id) for id in "abcdef"} == {after(end)}
    if after(end) != "running":
        assert end(*rows).stale == {0, 1, 2, 3, 4, 5}


def test_only_those_of_a_batch_that_are_held(shard: Shard, end: End) -> None:
    rows = claimed(shard, *"abcdef")
    shard.finish(rows[1], rows[2], rows[4])
    assert end(*rows).stale == {1, 2, 4}
    assert [shard.state(id) for id in "abcdef"] == [
        "gone" if id in "bce" else after(end) for id in "abcdef"
    ]  # fmt: skip


def test_each_claim_of_a_group_that_is_gone_is_refused(shard: Shard, end: End) -> None:
    rows = claimed(shard, *"abc")
    generation = shard.generation("default")
    assert generation == "1"
    shard.redis("HSET", shard.k.settings, "generation:default", "2")
    shard._generations["default"] = generation
    script = getattr(shard.scripts, end.__name__)
    width: dict[str, list[object]] = {
        "retry": ["row", 0, 1, "Oops", ""],
        "bury": ["row", "buried", "Oops", ""],
        "touch": [60_000],
    }
    more = width.get(end.__name__, ["row"])
    args = [value for row in rows for value in (row.main, row.entry, row.id, *more)]
    ttr = [60_000] if end.__name__ == "touch" else []
    refused = shard.run(script(shard.k, "default", generation, "me", *ttr, args))
    assert (refused.now_ms, refused.stale) == (START_MS, {0, 1, 2})
    assert {shard.state(id) for id in "abc"} == {"running"}


@pytest.mark.parametrize("alone", [True, False])
def test_the_shared_entry_goes_with_the_last_group_that_needs_it(shard: Shard, end: End, alone: bool) -> None:
    shard.topic(groups=["default"] if alone else ["default", "other"])
    shard.enqueue("j")
    end(shard.take())
    stays = not alone or after(end) == "running"
    assert len(shard.entries(shard.k.ready)) == int(stays)
    assert shard.counts.get("detached", 0) == int(alone and after(end) in ("delayed", "dead", "ready"))


@pytest.mark.parametrize("end", ["finish", "bury"])
def test_in_a_topic_that_had_another_group_nothing_is_trimmed(shard: Shard, end: str) -> None:
    """The other may come back for what it has not ended."""
    shard.topic(groups=["default", "other"])
    shard.enqueue("i", "j", "k")
    i, j, _ = shard.claim().rows
    shard.checked = False
    shard.redis("HSET", shard.k.settings, "overtaken", 1)
    getattr(shard, end)(j)
    getattr(shard, end)(i)
    assert len(shard.entries(shard.k.ready)) == 3


@pytest.mark.parametrize("end", ["finish", "bury"])
def test_without_any_that_overtook_it_the_last_one_leaves_no_count(shard: Shard, end: str) -> None:
    shard.enqueue("i", "j", "k")
    i, j, k = shard.claim().rows
    for row in (j, k, i):
        getattr(shard, end)(row)
        assert not shard.redis("HEXISTS", shard.k.settings, "overtaken")


@pytest.mark.parametrize("end", ["finish", "bury"])
def test_one_that_overtook_the_last_running_job_goes_with_it(shard: Shard, end: str) -> None:
    shard.enqueue(*(f"i{n:02}" for n in range(51)))
    rows = shard.claim(51).rows
    shard.finish(*rows[:49], rows[50])
    assert shard.redis("HGET", shard.k.settings, "overtaken") == b"1"
    getattr(shard, end)(rows[49])
    assert shard.entries(shard.k.ready) == []
    assert not shard.redis("HEXISTS", shard.k.settings, "overtaken")


@pytest.mark.parametrize("how", ["claim", "touch", "reclaim"])
def test_the_groups_ttr_comes_first_and_then_the_topics_and_then_the_callers(timed: Shard, how: str) -> None:
    """By how long a claim was idle, as reclaim sees it; and by the reply to a claim."""
    timed.checked = False
    timed.enqueue("j")
    row = timed.take()
    fields = {"ttr:default": 300_000, "ttr": 200_000}
    timed.redis("HSET", timed.k.settings, *[value for item in fields.items() for value in item])
    for expected in (300_000, 200_000, 110_000):
        if how == "claim":
            reply = timed.run(timed.scripts.claim(timed.k, "default", "me", 1, 110_000))
            assert reply.ttr_ms == expected
        else:
            assert expected <= _idle_after(timed, row, how) + 50_000 < expected + 40_000
        timed.redis("HDEL", timed.k.settings, next(iter(fields), "none"))
        fields.pop(next(iter(fields), "none"), None)


def _idle_after(shard: Shard, row: ClaimedRow, how: str) -> int:
    """Of a claim that has 50 s left."""
    if how == "touch":
        claim = [row.main, row.entry, row.id, 50_000]
        shard.run(shard.scripts.touch(shard.k, "default", "1", "me", 110_000, claim))
    else:
        now_ms = int(shard.redis("TIME")[0]) * 1000
        field = b"default\x1fj"
        value = shard.redis("HGET", shard.k.progress, field).split(b"|")
        value[8] = b"%d" % (now_ms + 50_000)
        shard.redis("HSET", shard.k.progress, field, b"|".join(value))
        shard.redis("XCLAIM", shard.k.ready, "default", "me", 0, row.main, "IDLE", 400_000, "JUSTID")
        settings = shard.settings.model_copy(update={"ttr_ms": 110_000})
        shard.run(shard.scripts.reclaim(shard.k, "default", settings, 100, BEGIN, 4_000))
    ((_, _, idle_ms, _),) = shard.pending(shard.k.ready)
    return int(idle_ms)


@pytest.mark.parametrize("how", ["release", "reclaim", "remove_consumer"])
@pytest.mark.parametrize("rate", [None, 1])
def test_what_ran_waits_for_a_permit_of_the_rate(shard: Shard, how: str, rate: float | None) -> None:
    shard.enqueue("j")
    row = shard.take()
    if rate:
        shard.topic(rate=rate)
    if how == "release":
        shard.release(row)
    elif how == "reclaim":
        shard.clock.advance("60s")
        shard.reclaim()
    else:
        shard.call("remove_consumer", "default", "me", 10)
    assert shard.state("j") == ("delayed" if rate else "ready")


def test_paused_topics_hold_back_what_is_released(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.run(configure.pause(shard.store, "t"))
    shard.release(row)
    assert shard.state("j") == "delayed"


def test_a_group_that_was_made_before_generations_has_number_0(shard: Shard, end: End) -> None:
    shard.enqueue("i", "j")
    shard.redis("HDEL", shard.k.settings, "generation:default")
    shard._generations.clear()
    reply = shard.claim()
    assert reply.generation == "0"
    assert end(*reply.rows).stale == frozenset()


@pytest.mark.parametrize("end", ["finish", "retry", "bury", "release"])
def test_a_claim_that_is_in_a_batch_twice_ends_once(shard: Shard, end: str) -> None:
    first, second = claimed(shard, "i", "j")
    assert getattr(shard, end)(first, second, first, second).stale == {2, 3}
    assert {shard.state(id) for id in "ij"} == {ENDS[end]}


def test_each_end_is_in_the_history_with_its_time(shard: Shard) -> None:
    for end in ("finish", "retry", "bury", "release"):
        shard.enqueue(end)
        shard.clock.advance("1s")
        more = {"delay_ms": 60_000} if end == "retry" else {}
        getattr(shard, end)(shard.take(), **more)
    assert shard.history() == [
        [f"row of {end}", str(START_MS + 1000 * (number + 1))]
        for number, end in enumerate(("finish", "retry", "bury", "release"))
    ]
    job = shard.job("release")
    assert job.groups["default"].error is None
