"""list_ids: which ids a shard has anything of, in pages."""

from __future__ import annotations

from typing import Any

from streamdq.config import Layout
from tests.lua.shard import Shard

WIDE = Layout(4, (1,), 17)


def page(shard: Shard, kind: str = "jobs", cursor: bytes = b"0", spread: Any = 1, limit: int = 500) -> Any:
    found = shard.call("list_ids", spread, kind, cursor, limit)
    return found and (found.following, found.ids)


def puts(shard: Shard) -> bytes:
    found: bytes = shard.call("list_ids", 1, "jobs", b"0", 10).puts
    return found


def test_it_lists_jobs_with_their_keys(shard: Shard) -> None:
    shard.enqueue("a", url="https://x/")
    shard.enqueue("b", key="customer 7", url="https://x/")
    shard.enqueue("c", key="k", delay="1h")
    cursor, ids = page(shard)
    assert (cursor, sorted(ids)) == (b"0", [("a", ""), ("b", "customer 7"), ("c", "k")])


def test_what_is_in_a_body_is_no_key(shard: Shard) -> None:
    shard.enqueue("a")
    record = shard.redis("HGET", shard.k.jobs, "a")
    shard.redis("HSET", shard.k.jobs, "a", record + b"\n" * 7 + b"\x1fk\n")
    assert page(shard)[1] == [("a", "")]


def test_a_caller_that_knows_another_number_of_shards_is_refused(shard: Shard) -> None:
    assert page(shard, spread=2) is None
    assert page(shard, spread=WIDE.text) is None
    shard.call("configure_shard", shard.settings.model_copy(update={"version": 10**15, **WIDE._asdict()}))
    assert page(shard) is None
    assert page(shard, spread=WIDE.text) == (b"0", [])


def test_pages(shard: Shard) -> None:
    ids = [f"job {number}" for number in range(700)]
    for start in range(0, 700, 100):
        shard.enqueue(*ids[start : start + 100])
    found, cursor, pages = set[str](), b"0", 0
    while pages == 0 or cursor != b"0":
        cursor, some = page(shard, cursor=cursor, limit=50)
        found |= {id for id, _ in some}
        pages += 1
        assert len(some) < 150
    assert found == {*ids}
    assert pages > 7


def test_fewer_of_large_jobs(shard: Shard) -> None:
    """How many HSCAN finds beyond its COUNT, here 4, is each server's own."""
    shard.enqueue(*[f"job {number}" for number in range(300)])
    shard.redis("HSET", shard.k.settings, "largest", 262_144)
    assert len(page(shard)[1]) < 50


def test_ids_that_stay_taken(shard: Shard) -> None:
    shard.enqueue_unique("ended", "lives", rule="60000|||", key="k")
    shard.call("cancel", "ended")
    assert sorted(page(shard, "taken")[1]) == [("ended", ""), ("lives", "k")]
    assert page(shard)[1] == [("lives", "k")]


def test_taken_ids_whose_time_is_over_are_forgotten(shard: Shard) -> None:
    shard.enqueue_unique("a", rule="1000|||")
    shard.enqueue_unique("b", rule="9000|||")
    shard.clock.advance("2s")
    assert page(shard, "taken") == (b"0", [("b", "")])
    assert shard.redis("HEXISTS", shard.k.taken, "a") == 0


# What comes to a previous shard.


def test_it_counts_what_comes_to_a_previous_shard(shard: Shard) -> None:
    def former(id: str, how: str = "keep", rule: str = "") -> None:
        shard.call("enqueue_unique", 1, how, [*shard.jobs(id, delay=60), rule], True)

    shard.enqueue_unique("j", rule="60000|||", delay=60)
    shard.enqueue("i", delay=60)
    assert puts(shard) == b"0"
    former("j")
    former("j", "postpone", "|||")
    former("elsewhere", "postpone", "|||90000")
    assert puts(shard) == b"1", "an id that stays taken was noted anew"
    former("i", "postpone", "|||")
    assert puts(shard) == b"1", "nothing was there before, and nothing is now"
    former("i", "postpone", "|||90000")
    assert puts(shard) == b"2"
    former("i", "replace")
    assert puts(shard) == b"3"
    shard.call("cancel", "j")
    former("j")
    assert puts(shard) == b"4"
    former("elsewhere")
    assert puts(shard) == b"4"
