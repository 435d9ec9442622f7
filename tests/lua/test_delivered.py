"""delivered: followers were notified; those that have ended are forgotten."""

from __future__ import annotations

import pytest

from tests.lua.links import Linked
from tests.lua.shard import START_MS, Shard

YOUNG_S = 60


@pytest.fixture
def linked(shard: Shard) -> Linked:
    """`d` and `e` wait for `p`, which is done."""
    shard.enqueue("p")
    made = Linked(shard)
    made.put("d", "p")
    made.put("e", "p")
    shard.clock.advance(f"{YOUNG_S}s")
    shard.finish(shard.take())
    return made


def gone(linked: Linked, *ids: str) -> str:
    (ending,) = linked.endings()
    return "\n".join(one.line for one in ending.followers if one.id in ids)


def test_it_is_reported_again_later(linked: Linked) -> None:
    (ending,) = linked.endings()
    assert linked.shard.call("delivered", [ending.field, ending.generation, 123, ""]) == 1
    assert linked.links().endings == {ending.field.encode(): b"123"}


def test_a_follower_that_has_ended_is_forgotten(linked: Linked) -> None:
    (ending,) = linked.endings()
    before = linked.links().followers[ending.field.encode()]
    linked.shard.call("delivered", [ending.field, ending.generation, 123, gone(linked, "d")])
    after = linked.links().followers[ending.field.encode()]
    assert after == before.replace(ending.followers[0].line.encode() + b"\n", b"")
    assert linked.links().endings == {ending.field.encode(): b"123"}


def test_nothing_is_left_when_all_have_ended(linked: Linked) -> None:
    shard = linked.shard
    (ending,) = linked.endings()
    assert shard.redis("HGET", shard.k.settings, "linked") == b"1"
    assert shard.call("delivered", [ending.field, ending.generation, 123, gone(linked, "d", "e")]) == 0
    links = linked.links()
    assert links.followers == links.endings == {}
    assert shard.redis("HGET", shard.k.settings, "linked") == b"1", "jobs wait here"
    shard.call("cancel", "d")
    shard.call("cancel", "e")
    assert shard.call("delivered", [ending.field, ending.generation, 123, ""]) == 0
    assert shard.redis("HGET", shard.k.settings, "linked") is None


def test_when_the_last_follower_is_forgotten_links_cost_nothing_any_more(linked: Linked) -> None:
    shard = linked.shard
    (ending,) = linked.endings()
    args = [ending.field, ending.generation, 123, gone(linked, "d", "e")]
    shard.call("cancel", "d")
    shard.call("cancel", "e")
    assert shard.redis("HGET", shard.k.settings, "linked") == b"1"
    shard.call("delivered", args)
    assert shard.redis("HGET", shard.k.settings, "linked") is None


def test_news_that_came_meanwhile_are_notified_at_once(linked: Linked) -> None:
    (ending,) = linked.endings()
    known = linked.links().endings
    linked.shard.call("delivered", [ending.field, ending.generation - 1, 123, gone(linked, "d")])
    assert linked.links().endings == known
    assert [one.id for one in linked.endings()[0].followers] == ["e"]


def test_one_that_came_just_now_may_not_be_there_yet(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p")
    linked.encoded("d", "p")
    linked.attach("d", "p")
    shard.finish(shard.take())
    assert linked.tell() == [0]
    (field,) = linked.links().followers
    assert linked.links().endings == {field: str(START_MS + 1000).encode()}
    shard.clock.advance("9s")
    assert linked.tell() == [0]
    assert linked.links().endings == {field: str(START_MS + 18_000).encode()}, "each time later"
    shard.clock.advance("50.999s")
    assert linked.tell() == [0]
    assert linked.links().followers.keys() == {field}
    shard.clock.advance("59.999s")
    assert linked.tell() == [0]
    assert linked.links().followers == {}


def test_of_several_that_came_just_now_the_youngest_says_when_it_is_reported_again(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p")
    for id, pause in (("d", "8s"), ("e", "4s"), ("f", "2s")):
        linked.encoded(id, "p")
        linked.attach(id, "p")
        shard.clock.advance(pause)
    shard.finish(shard.take())
    (ending,) = linked.endings()
    known = dict(linked.links().followers)
    for lines in (ending.followers, ending.followers[::-1]):
        gone = "\n".join(one.line for one in lines)
        shard.call("delivered", [ending.field, ending.generation, START_MS + 30_000, gone])
        assert linked.links().endings == {ending.field.encode(): str(START_MS + 16_000).encode()}
    assert linked.links().followers == known


def test_the_one_that_came_last_is_not_put_off_by_an_older_one(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p")
    for id in ("d", "e"):
        linked.encoded(id, "p")
    linked.attach("d", "p")
    shard.clock.advance("5s")
    linked.attach("e", "p")
    key, field = shard.k.followers, "p"
    head, *lines = shard.redis("HGET", key, field).split(b"\n")
    shard.redis("HSET", key, field, b"\n".join([head, *lines[:2][::-1], b""]))  # e before d
    shard.clock.advance("2s")
    shard.finish(shard.take())
    linked.tell()
    assert [*linked.links().endings.values()] == [str(START_MS + 9000).encode()]


@pytest.mark.parametrize(("again_ms", "is_reported"), [(1000, True), (1001, False)])
def test_one_that_goes_on_is_reported_again_only_if_that_failed(
    shard: Shard, again_ms: int, *, is_reported: bool
) -> None:
    linked = Linked(shard)
    shard.enqueue("p")
    linked.put("d", "p")
    shard.bury(shard.take())
    shard.call("kick", "default", 0, ["p"])
    linked.tell(again_ms=again_ms)
    assert (b"p" in linked.links().endings) is is_reported


def test_one_that_goes_on_is_reported_to_those_that_are_not_there_yet(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p")
    linked.encoded("d", "p")
    linked.attach("d", "p")
    shard.bury(shard.take())
    shard.call("kick", "default", 0, ["p"])
    shard.clock.advance("2s")
    assert linked.tell() == [0]
    assert linked.links().endings == {b"p": str(START_MS + 4000).encode()}


def test_several_in_one_call(shard: Shard) -> None:
    linked = Linked(shard)
    for id, parent in (("d", "p"), ("e", "q")):
        shard.enqueue(parent)
        linked.put(id, parent)
        shard.finish(shard.take())
    shard.clock.advance(f"{YOUNG_S}s")
    (p, q) = linked.endings()
    args = ["missing", 1, 1, p.followers[0].line, p.field, p.generation, 123, p.followers[0].line]
    assert shard.call("delivered", [*args, q.field, q.generation, 456, ""]) == 1
    assert linked.links().endings == {q.field.encode(): b"456"}
    assert linked.links().followers.keys() == {q.field.encode()}


def test_after_the_clock_was_set_back_it_is_not_young(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p")
    linked.encoded("d", "p")
    linked.attach("d", "p")
    shard.finish(shard.take())
    shard.clock.now_ms -= 3_600_000
    (field,) = linked.links().followers
    generation = linked.links().followers[field].split(b"|")[1]
    line = linked.links().followers[field].split(b"\n")[1]
    shard.call("delivered", [field, generation, 123, line])
    assert linked.links().followers == {}


def test_one_that_goes_on_is_not_reported_again(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p")
    linked.put("d", "p")
    shard.bury(shard.take())
    shard.call("kick", "default", 0, ["p"])
    shard.clock.advance("61s")
    assert linked.tell() == [1]
    assert linked.links().endings == {}
    assert linked.links().followers.keys() == {b"p"}


def test_one_that_goes_on_and_could_not_be_reported_is(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p")
    linked.put("d", "p")
    shard.bury(shard.take())
    shard.call("kick", "default", 0, ["p"])
    linked.tell(again_ms=1000)
    assert linked.links().endings == {b"p": str(START_MS + 1000).encode()}


def kept_s(shard: Shard, group: str, id: str) -> int:
    return round(shard.redis("PTTL", shard.k.result_of(group, id)) / 1000)


def test_its_result_is_kept_until_all_have_ended_and_then_as_long_as_asked(shard: Shard) -> None:
    shard.topic(result="1h")
    shard.enqueue("p")
    linked = Linked(shard)
    linked.put("d", "p")
    shard.finish(shard.take())
    assert kept_s(shard, "default", "p") == pytest.approx(90_000, abs=30)
    shard.redis("PEXPIRE", shard.k.result_of("default", "p"), 30_000_000)  # much time has passed
    shard.clock.advance("61s")
    assert linked.tell() == [2]
    assert kept_s(shard, "default", "p") == pytest.approx(90_000, abs=30), "and for a day from now"
    shard.call("cancel", "d")
    shard.clock.advance("61s")
    assert linked.tell() == [0]
    assert kept_s(shard, "default", "p") == pytest.approx(3_600, abs=30)


def test_so_is_that_of_a_group_which_did_it_after_another_had_given_it_up(two: Shard) -> None:
    two.topic(groups=["a", "b"], result={"a": "1h", "b": "1h"})
    two.enqueue("p")
    linked = Linked(two)
    linked.put("d", "p", on_failure="cancel")
    two.bury(two.take("a"), group="a")
    two.clock.advance("1s")
    two.call("purge", "a", 0, ["p"])
    two.clock.advance("1s")
    two.finish(two.take("b"), group="b")
    two.clock.advance("61s")
    assert linked.tell() == [0]
    assert linked.links().followers == {}
    assert [kept_s(two, group, "p") for group in "ab"] == pytest.approx([3_600] * 2, abs=30)


def test_the_result_of_a_later_job_with_the_id_stays_as_it_is(shard: Shard) -> None:
    shard.topic(result="1h")
    shard.enqueue("p")
    linked = Linked(shard)
    linked.put("d", "p")
    shard.finish(shard.take())
    shard.clock.advance("1s")
    shard.enqueue("p")
    linked.put("e", "p")
    shard.finish(shard.take())
    shard.call("cancel", "d")
    shard.clock.advance("61s")
    linked.tell()
    assert kept_s(shard, "default", "p") == pytest.approx(90_000, abs=30)


def test_nor_is_it_kept_for_those_that_wait_for_the_earlier_one(shard: Shard) -> None:
    shard.topic(result="1h")
    shard.enqueue("p")
    linked = Linked(shard)
    linked.put("d", "p", delay="1h")
    shard.finish(shard.take())
    shard.clock.advance("1s")
    shard.enqueue("p")
    shard.finish(shard.take())
    linked.tell()
    assert kept_s(shard, "default", "p") == pytest.approx(3_600, abs=30)


def test_the_results_of_groups_that_go_on_are_let_go_as_well(two: Shard) -> None:
    two.topic(groups=["a", "b"], result={"a": "1h", "b": "1h"})
    two.enqueue("p")
    linked = Linked(two)
    linked.put("d", "p", on_failure="cancel")
    two.bury(two.take("a"), group="a")
    two.clock.advance("1s")
    two.finish(two.take("b"), group="b")
    assert kept_s(two, "b", "p") == pytest.approx(90_000, abs=30)
    two.clock.advance("61s")
    linked.tell()
    assert linked.links().followers == {}
    assert kept_s(two, "b", "p") == pytest.approx(3_600, abs=30)
