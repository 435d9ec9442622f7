"""archive: dead -> archived, for one group."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lua.shard import START_MS, Shard
from tests.lua.test_dead_letters import ALL
from tests.lua.test_kick import bury_all


def letters(shard: Shard, group: str = "default") -> list[Any]:
    """The group's dead letters as archive takes them; the receipt is `ID of GROUP`."""
    out: list[Any] = []
    for id, buried_ms, _, progress in shard.call("dead_letters", group, *ALL)[1]:
        parts = progress.split(b"|")
        out += [id, id + f" of {group}".encode(), buried_ms, parts[5], parts[1]]
    return out


def receipts(shard: Shard) -> list[bytes]:
    return sorted(shard.redis("HKEYS", shard.k.archive))


def test_it_is_gone_counted_as_dead_and_its_id_is_free(shard: Shard) -> None:
    bury_all(shard, "j")
    assert shard.call("archive", "default", letters(shard)) == [True]
    assert shard.empty()
    assert shard.counts == {"enqueued": 1, "dead:default": 1, "archived:default": 1}
    assert receipts(shard) == [b"j of default"]
    shard.enqueue("j")
    assert shard.take().past == b""


def test_a_repeated_call_says_the_same_and_does_nothing(shard: Shard) -> None:
    bury_all(shard, "a", "b")
    found = letters(shard)
    assert shard.call("archive", "default", found) == [True, True]
    before = shard.counts
    assert shard.call("archive", "default", found) == [True, True]
    assert shard.counts == before


def test_a_letter_kicked_meanwhile_stays(shard: Shard) -> None:
    bury_all(shard, "j")
    found = letters(shard)
    shard.call("kick", "default", 0, ["j"])
    assert shard.call("archive", "default", found) == [False]
    assert shard.state("j") == "ready"
    assert receipts(shard) == []


def test_a_letter_buried_again_meanwhile_stays(shard: Shard) -> None:
    """Even in the same millisecond: the clock stands still."""
    shard.enqueue("j")
    shard.bury(shard.take())
    found = letters(shard)
    shard.call("kick", "default", 0, ["j"])
    shard.bury(shard.take())
    assert shard.call("archive", "default", found) == [False]
    assert shard.state("j") == "dead"
    assert shard.call("archive", "default", letters(shard)) == [True]


@pytest.mark.parametrize("changed", [{2: START_MS + 1}, {3: "f00000000009"}, {4: 2}])
def test_a_letter_that_differs_in_anything_stays(shard: Shard, changed: dict[int, Any]) -> None:
    shard.enqueue("j")
    shard.bury(shard.take())
    found = dict(enumerate(letters(shard)))
    assert shard.call("archive", "default", list((found | changed).values())) == [False]
    assert shard.call("archive", "default", list(found.values())) == [True]


def test_a_letter_whose_progress_is_lost_stays(shard: Shard) -> None:
    bury_all(shard, "j")
    found = letters(shard)
    shard.checked = False
    shard.redis("DEL", shard.k.progress)
    assert shard.call("archive", "default", found) == [False]


def test_another_job_under_its_id_stays(shard: Shard) -> None:
    shard.enqueue("j")
    shard.bury(shard.take())
    found = letters(shard)
    shard.call("purge", "default", 0, ["j"])
    shard.enqueue("j")
    shard.bury(shard.take())
    assert shard.call("archive", "default", found) == [False]
    assert shard.state("j") == "dead"


@pytest.mark.parametrize("later", ["finish", "bury"])
def test_the_other_group_keeps_the_job(two: Shard, later: str) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    assert two.call("archive", "a", letters(two, "a")) == [True]
    assert (two.state("j", "a"), two.state("j", "b")) == ("ended", "ready")
    if later == "bury":
        two.bury(two.take("b"), group="b")
        assert two.call("archive", "b", letters(two, "b")) == [True]
    else:
        two.finish(two.take("b"), group="b")
    assert two.empty()


def test_a_group_that_is_removed_takes_its_counter_along(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.call("archive", "a", letters(two, "a"))
    two.topic(groups=["b"])
    assert "archived:a" not in two.counts
    two.finish(two.take("b"), group="b")
    assert two.empty()


def test_an_id_that_stays_taken_after_the_end_is_taken_from_then_on(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="f60000|||")
    shard.move()
    shard.bury(shard.take())
    lives = shard.redis("ZSCORE", shard.k.taken_until, "j")
    assert shard.call("archive", "default", letters(shard)) == [True]
    assert shard.redis("HEXISTS", shard.k.jobs, "j") == 0
    assert shard.redis("ZSCORE", shard.k.taken_until, "j") != lives
    assert shard.enqueue_unique("j").taken != {}
