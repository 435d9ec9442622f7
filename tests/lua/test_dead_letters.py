"""dead_letters: a page of one group's dead letters, read at one moment."""

from __future__ import annotations

from tests.lua.shard import START_MS, Shard
from tests.lua.test_kick import bury_all

ALL = (START_MS + 10_000, 0, 100, 1_000_000)


def test_everything_that_is_kept_of_them(shard: Shard) -> None:
    shard.enqueue("j", ttr="7s", url="https://a.example/b")
    shard.bury(shard.take())
    looked, ((id, buried_ms, record, progress),) = shard.call("dead_letters", "default", *ALL)
    assert (looked, id, int(buried_ms)) == (1, b"j", START_MS)
    assert record.endswith(b'\nhttps://a.example/b\n{"id":"j"}')
    assert progress.startswith(b"d|1|0|0|-|")
    assert progress.endswith(b"|exhausted|Oops: enough")
    assert shard.state("j") == "dead"


def test_the_longest_dead_first_from_an_offset_up_to_a_limit(shard: Shard) -> None:
    bury_all(shard, "c", "a", "b")
    looked, page = shard.call("dead_letters", "default", ALL[0], 1, 1, ALL[3])
    assert (looked, [row[0] for row in page]) == (1, [b"a"])
    assert shard.call("dead_letters", "default", ALL[0], 3, 9, ALL[3]) == (0, [])


def test_those_buried_until_then(shard: Shard) -> None:
    bury_all(shard, "c", "a", "b")
    assert [row[0] for row in shard.call("dead_letters", "default", START_MS + 1000, *ALL[1:])[1]] == [b"c", b"a"]


def test_no_more_bytes_than_asked_for_but_one_in_any_case(shard: Shard) -> None:
    bury_all(shard, "c", "a", "b")
    looked, page = shard.call("dead_letters", "default", *ALL[:3], 1)
    assert (looked, len(page)) == (1, 1)
    size = len(page[0][2])
    assert shard.call("dead_letters", "default", *ALL[:3], 2 * size)[0] == 2


def test_one_without_a_record_is_looked_at_and_left_out(shard: Shard) -> None:
    bury_all(shard, "a", "b", "c", "d")
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "b")
    shard.redis("HDEL", shard.k.progress, "default\x1fc")
    looked, page = shard.call("dead_letters", "default", *ALL)
    assert (looked, [row[0] for row in page]) == (4, [b"a", b"d"])


def test_a_group_sees_its_own(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    assert two.call("dead_letters", "a", *ALL)[0] == 1
    assert two.call("dead_letters", "b", *ALL) == (0, [])
