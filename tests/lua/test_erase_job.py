"""erase_job: delayed, ready or dead -> gone, for every group, and nothing is left of it."""

from __future__ import annotations

import pytest

from streamdq.store.find.wanted import Wanted
from tests.lua.shard import Shard
from tests.lua.test_kick import bury_all


def shown(shard: Shard, *ids: str) -> list[tuple[str, str]]:
    page = shard.run(shard.scripts.find_jobs(shard.k, b"0", 100, Wanted()))
    found = {match.id: match.deliveries for match in page.matches}
    return [(id, found[id]) for id in ids]


def erase(shard: Shard, *ids: str) -> list[int]:
    codes: list[int] = shard.call("erase_job", shard.settings, shown(shard, *ids))
    return codes


def rows(shard: Shard) -> int:
    count: int = shard.redis("XLEN", shard.k.history)
    return count


def test_whatever_waits_goes_without_a_row(shard: Shard) -> None:
    shard.enqueue("delayed", delay=60_000)
    shard.enqueue("ready", "retry")
    shard.move()
    shard.retry(next(row for row in shard.claim(2).rows if row.id == b"retry"))
    shard.enqueue("new")
    before = rows(shard)
    assert erase(shard, "delayed", "retry", "new") == [1, 1, 1]
    assert [shard.state(id) for id in ("delayed", "retry", "new")] == ["gone"] * 3
    assert rows(shard) == before
    assert shard.counts["cancelled:default"] == 3


def test_one_that_waits_for_its_turn_leaves_nothing_there(shard: Shard) -> None:
    shard.prioritize()
    shard.enqueue("next", "j", priority="low")
    shard.move()
    assert shard.redis("ZCARD", shard.k.ranked_of("default")) == 1
    assert erase(shard, "j") == [1]
    assert shard.redis("EXISTS", shard.k.ranked_of("default")) == 0
    shard.finish(shard.take())
    assert shard.empty()


def test_one_that_runs_is_left_alone(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    assert erase(shard, "j") == [-1]
    shard.finish(row)


def test_a_dead_letter_goes(shard: Shard) -> None:
    bury_all(shard, "a", "b")
    assert erase(shard, "a") == [1]
    assert (shard.state("a"), shard.state("b")) == ("gone", "dead")
    assert shard.counts["purged:default"] == 1


def test_dead_in_one_group_and_waiting_in_another(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    assert erase(two, "j") == [1]
    assert two.empty()


def test_dead_in_one_group_and_done_in_another(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.finish(two.take("b"), group="b")
    assert erase(two, "j") == [1]
    assert two.empty()


def test_dead_in_all_groups(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.bury(two.take("b"), group="b")
    assert erase(two, "j") == [1]
    assert two.empty()


def test_only_as_it_was_shown(shard: Shard) -> None:
    shard.enqueue("started", "ended", delay=0)
    before = shown(shard, "started", "ended")
    for row in shard.claim(2).rows:
        shard.retry(row) if row.id == b"started" else shard.finish(row)
    assert shard.call("erase_job", shard.settings, before) == [-3, -4]
    assert shard.call("erase_job", shard.settings.model_copy(update={"shards": 2}), before) == [-2, -2]


@pytest.mark.parametrize("dies", [False, True])
def test_its_results_and_taken_ids_go_with_it(shard: Shard, dies: bool) -> None:
    shard.topic(result="1h")
    shard.enqueue_unique("j", rule="60000|||")
    if dies:
        shard.move()
        shard.bury(shard.take())
        assert shard.redis("EXISTS", shard.k.result_of("default", "j"))
    assert erase(shard, "j") == [1]
    assert not shard.redis("EXISTS", shard.k.result_of("default", "j"))
    assert not shard.redis("EXISTS", shard.k.taken, shard.k.taken_until)


def test_the_next_job_of_its_key_may_start(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("first", "second", key="k")
    assert erase(shard, "first") == [1]
    shard.move()
    assert shard.take().id == b"second"


def test_its_entries_go_with_it_and_those_of_jobs_that_are_gone(shard: Shard) -> None:
    shard.enqueue("a", "b", "gone")
    shard.move()
    shard.call("cancel", "gone")
    found = shard.redis("XRANGE", shard.k.ready, "-", "+")
    entries = {fields[1][12:].decode(): [f"|{entry.decode()}"] for entry, fields in found}
    assert shard.call("erase_job", shard.settings, [*shown(shard, "a"), ("gone", "")], entries) == [1, -4]
    assert [fields[1][12:] for _, fields in shard.redis("XRANGE", shard.k.ready, "-", "+")] == [b"b"]
    wrong = {"a": entries["b"]}
    assert shard.call("erase_job", shard.settings, [("a", "")], wrong) == [-4]
    assert shard.take().id == b"b", "an entry of another job stays"


def test_entries_of_a_groups_own(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.bury(two.take("b"), group="b")
    two.call("kick", "b", 1, ["j"])
    ((entry, _),) = two.redis("XRANGE", two.k.ready_of("b"), "-", "+")
    assert two.call("erase_job", two.settings, shown(two, "j"), {"j": [f"b|{entry.decode()}"]}) == [1]
    assert two.redis("XLEN", two.k.ready_of("b")) == 0
    assert two.empty()
