"""link_children: the children of a job have been put in. Also what other scripts make of them: ``finish``, ``attach``,
``enqueue_after``, ``deliver`` and ``decide_flow``.
"""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.job.after import Waits
from streamdq.job.job import NewJob
from streamdq.store.flows.children import Child, children_in, children_text
from streamdq.store.jobs.links import (
    Attached,
    Ending,
    Known,
    News,
    Received,
    before_text,
    child_line,
    children_field,
    dependencies,
    follower,
    followers_in,
)
from streamdq.store.jobs.records import as_waiting, encode
from streamdq.store.scripts.flows import Run
from streamdq.store.scripts.links import NewInFlow
from tests.lua.flows import Built
from tests.lua.shard import START_MS, Shard
from tests.lua.test_endings import woken

LIFE = "0123456789abcdef"


class Family:
    """A flow, in which ``d`` waits for ``p``, which runs; and its children."""

    def __init__(self, shard: Shard, on_failure: str = "block") -> None:
        self.shard, self.flow = shard, Built(shard)
        flow = self.flow
        flow.begin()
        flow.gate("p", "d")
        flow.put("p")
        flow.put("d", on_failure, "p")
        flow.complete("p", "d")
        flow.decide("open")
        flow.linked.tell()
        shard.move()
        self.row = shard.take()

    def finish(self, *ids: str, group: str = "default") -> bool:
        """``p`` is done, and has added these; whether that was accepted."""
        row, shard = self.row, self.shard
        text = children_text(self.child(id) for id in ids)
        claim = [row.main, row.entry, row.id, "row", text, "children"]
        return not shard.call("finish", group, shard.generation(group), shard.consumer, claim).stale

    def child(self, id: str) -> Child:
        made = encode(NewJob({"id": id}, id=id), 1000)
        made = as_waiting(made, Waits((), "block", 0), self.life(id))
        self.flow.linked.made[id] = made
        return Child("t", id, None, made.nonce, 0, (("n-d", "d"),), None, made.rest)

    def life(self, id: str) -> str:
        return f"{ord(id):02x}{LIFE[2:]}"

    @property
    def ending(self) -> Ending:
        (one,) = [one for one in self.flow.linked.endings() if one.id == "p"]
        return one

    def put_in(self, *ids: str, how: str = "once") -> dict[int, bytes]:
        """Returns the records of those that were there."""
        gate = Known("t", 0, "p", "n-p", 0, "")
        new = []
        for id in ids:
            own = "\n0\x1f".join(
                follower("t", 0, f"+{self.life(id)}", nonce, of) for nonce, of in (("life", "f"), ("n-d", "d"))
            )
            waits = dependencies(Waits((), "block", 0), (), gate)
            new.append(NewInFlow(id, self.flow.linked.made[id].rest, own, waits))
        taken: dict[int, bytes] = self.shard.call("enqueue_after_many", 1, new, how).taken
        return taken

    def link(self, *ids: str) -> bool:
        lines = [value for id in ids for value in (before_text([("n-d", "d")]), follower("t", 0, 0, self.life(id), id))]
        reply: bool = self.shard.call("link_children", "p", "n-p", lines)
        return reply

    def tell(self, id: str, nonce: str, index: int, *children: str, how: str = "done") -> int:
        """Tells one of the followers of the end of ``p``."""
        lines = tuple(child_line("t", 0, self.life(one), one) for one in children)
        news = News(id, nonce, index, self.ending.generation, how, children=lines)
        (code,) = self.shard.call("deliver", [news])
        return int(code)

    def tell_child(self, id: str, how: str = "done") -> int:
        return self.tell(id, self.life(id), 0, how=how)


@pytest.fixture
def family(shard: Shard) -> Family:
    return Family(shard)


def test_what_is_stored_of_them_is_read_again() -> None:
    children = [
        Child("t", "a", None, "1", 0, (("n", "d"), ("m", "e\x1f")), "high", b"rest\nwith lines\n{}"),
        Child("u", "ü", "key", "2", 7, (), None, b""),
    ]
    assert children_in(children_text(children[:1]) + children_text(children[1:])) == children


def test_all_start_in_their_order(family: Family) -> None:
    shard = family.shard
    assert family.finish("a", "b")
    assert family.ending.children == "*"
    stored = shard.redis("HGET", shard.k.followers, children_field("p", "n-p"))
    assert [child.id for child in children_in(stored)] == ["a", "b"]
    assert family.put_in("a", "b") == {}
    assert family.link("a", "b")
    assert (family.ending.children, [one.id for one in family.ending.followers if one.is_child]) == ("&", ["a", "b"])
    assert [one.before for one in family.ending.followers if one.is_child] == [(("n-d", "d"),)] * 2
    assert shard.redis("HEXISTS", shard.k.followers, children_field("p", "n-p")) == 0
    assert family.tell("f", "life", 0, "a", "b") == Received.WAITS
    assert family.tell("d", "n-d", 1, "a", "b") == Received.WAITS
    assert shard.state("d") == "waiting"
    assert family.flow.linked.head("d") == "4|2|0|0|block+|0+"
    assert [family.tell_child(id) for id in "ab"] == [Received.STARTS] * 2
    shard.finish(*shard.claim().rows)
    family.flow.linked.tell()
    assert shard.state("d") == "ready"
    assert family.flow.linked.states("f") == "o.oo"
    shard.finish(shard.take())
    family.flow.linked.tell()
    assert shard.job("f").due_ms == START_MS + 1000


def test_to_repeat_anything_changes_nothing(family: Family) -> None:
    shard = family.shard
    family.finish("a")
    assert family.put_in("a") == {}
    assert {*family.put_in("a")} == {0}
    assert family.link("a")
    known = family.flow.linked.links()
    assert not family.link("a")
    assert family.flow.linked.links() == known
    family.tell("d", "n-d", 1, "a")
    known = family.flow.linked.links()
    family.tell("d", "n-d", 1, "a")
    assert family.flow.linked.links() == known
    assert shard.state("d") == "waiting"


def test_one_that_was_cancelled_is_not_put_in_again(family: Family) -> None:
    """Its mover was killed before they were linked."""
    family.finish("a")
    family.put_in("a")
    assert family.shard.call("cancel", "a") == 1
    assert family.put_in("a") == {}
    assert family.shard.state("a") == "gone"
    family.link("a")
    family.tell("d", "n-d", 1, "a")
    family.flow.linked.tell()
    assert family.flow.linked.is_blocked("d")


@pytest.mark.parametrize("linked", [False, True])
def test_who_asks_for_a_job_with_children_waits_for_its_ending(family: Family, linked: bool) -> None:
    """Otherwise it would start without them; and they, before others know of them."""
    family.finish("a")
    family.put_in("a")
    if linked:
        family.link("a")
    lines = ["p", "n-p", follower("t", 0, 1, "n-d", "d"), "p", "n-p", follower("t", 0, 0, family.life("a"), "a")]
    assert family.shard.call("attach", None, lines) == [Attached("n-p", 0, "")] * 2
    if not linked:
        family.link("a")
    assert [one.id for one in family.ending.followers] == ["f", "d", "a"]
    assert [one.is_child for one in family.ending.followers] == [False, False, True]
    family.tell("d", "n-d", 1, "a")
    assert family.flow.linked.head("d").startswith("3|2|")


def test_who_comes_later_is_notified_at_once(family: Family) -> None:
    family.finish("a")
    family.put_in("a")
    family.link("a")
    family.shard.call("delivered", ["p\x1fn-p", family.ending.generation, START_MS + 60_000, ""])
    assert not any(one.id == "p" for one in family.flow.linked.endings())
    family.shard.redis("DEL", family.shard.k.wake)
    family.shard.call("attach", None, ["p", "n-p", follower("t", 0, 0, "n-e", "e")])
    assert woken(family.flow.linked)
    assert [one.id for one in family.ending.followers] == ["f", "d", "a", "e"]


@pytest.mark.parametrize("how", ["taken over", "aborted"])
def test_an_attempt_that_is_refused_adds_nothing(family: Family, how: str) -> None:
    shard = family.shard
    if how == "aborted":
        shard.call("abort", "p")
    else:
        shard.clock.advance("2m")
        shard.reclaim()
    assert family.finish("a") is (how == "aborted")
    assert not any(field.endswith(b"\x1f+") for field in family.flow.linked.links().followers)
    assert not any(one.children for one in family.flow.linked.endings())


def test_nothing_is_added_to_a_flow_that_was_cancelled(family: Family) -> None:
    """The job had ended before."""
    family.finish("a")
    family.put_in("a")
    family.link("a")
    assert family.flow.decide("cancel").state == "o"
    assert family.flow.linked.head("f") == "2|0|0|1000|run=1!|0"
    assert family.tell("f", "life", 0, "a") == Received.CLOSED
    assert family.flow.linked.head("f") == "2|1|0|1000|run=1!|0"
    assert family.tell_child("a", "cancelled") == Received.ENDED
    assert family.shard.state("a") == "gone"


def test_only_a_flow_is_closed_and_only_once(family: Family) -> None:
    linked, run, shard = family.flow.linked, family.flow.run, family.shard
    member = linked.head("d")
    shard.enqueue("plain")

    def cancel(name: str, life: str) -> None:
        shard.run(shard.scripts.decide_flow(Run(shard.k, name, life), "cancel"))

    for name, life in (("unknown", ""), ("unknown", "life"), ("plain", ""), ("d", "n-d"), ("f", "another")):
        cancel(name, life)
    assert linked.head("d") == member
    assert linked.head("f").endswith("|run=1|0")
    for life in ("", run.life):
        cancel("f", life)
        assert linked.head("f").endswith("|run=1!|0")
    assert shard.call("deliver", [News("f", "life", 0, 1, "dead")]) == [Received.WAITS], "there are no children"


def test_who_has_started_waits_for_no_more_but_the_flow_does(family: Family) -> None:
    shard, linked = family.shard, family.flow.linked
    shard.finish(family.row)
    linked.tell()
    shard.finish(shard.take())
    linked.tell()
    assert (shard.state("d"), shard.state("f")) == ("gone", "delayed")
    assert linked.head("f") == "2|2|0|1000|run=1|0"
    news = News("f", "life", 0, START_MS, "done", children=(child_line("t", 0, LIFE, "a"),))
    assert shard.call("deliver", [news]) == [Received.WAITS]
    assert linked.head("f") == "3|2|0|1000|run=1|0+"


def test_its_end_is_known_before_its_children(family: Family) -> None:
    """As its shard has lost, and got again, who waits for it."""
    linked = family.flow.linked
    family.finish("a")
    family.put_in("a")
    family.link("a")
    family.tell("f", "life", 0)
    assert linked.head("f") == "2|1|0|1000|run=1|0"
    family.tell("f", "life", 0, "a")
    assert linked.head("f") == "3|1|0|1000|run=1|0+"
    assert linked.states("f") == "o.."


def test_which_news_counts(family: Family) -> None:
    linked = family.flow.linked
    for generation, how, seen, known in (
        (1, "dead", None, "d.,1=1"),
        (1, "cancelled", None, "d.,1=1"),  # said again, by another way
        (7, "dead", None, "d.,1=7"),
        (7, "", 7, "..,1=7"),  # its shard has forgotten the end
    ):
        family.shard.call("deliver", [News("f", "life", 0, generation, how, seen)])
        assert linked.states("f") == known, (generation, how)


def test_a_join_that_has_started_waits_for_no_more(family: Family) -> None:
    shard, linked = family.shard, family.flow.linked
    shard.finish(family.row)
    linked.tell()
    known = linked.head("d")
    assert shard.state("d") == "ready"
    shard.call("deliver", [News("d", "n-d", 1, START_MS, "done", children=(child_line("t", 0, LIFE, "a"),))])
    assert linked.head("d") == known


def test_each_group_adds_some(shard: Shard) -> None:
    shard.topic(groups=("default", "other"))
    family = Family(shard)
    assert family.finish("a")
    family.row, claim = shard.take("other"), family.row
    assert claim.id == family.row.id
    assert family.finish("b", group="other")
    stored = shard.redis("HGET", shard.k.followers, children_field("p", "n-p"))
    assert [child.id for child in children_in(stored)] == ["a", "b"]


def test_they_are_forgotten_with_all_that_waited(shard: Shard) -> None:
    """While another group has the job."""
    shard.topic(groups=("default", "other"))
    family = Family(shard)
    assert family.finish("a")
    lines = "\n".join(one.line for one in followers_in(shard.redis("HGET", shard.k.followers, "p")))
    shard.clock.advance("2m")
    shard.call("delivered", ["p", 0, START_MS, lines])
    assert not [field for field in family.flow.linked.links().followers if field.startswith(b"p")]


def test_only_children_are_put_in_but_once(family: Family) -> None:
    """A job of a flow that is built again is."""
    family.finish("a")
    family.put_in("a")
    family.shard.call("cancel", "a")
    assert family.put_in("a", how="keep") == {}
    assert family.shard.state("a") == "waiting"


def test_children_of_a_job_that_fails_in_another_group(shard: Shard) -> None:
    """They are put in once it has left the pool, and are cancelled."""
    shard.topic(groups=("default", "other"))
    family = Family(shard)
    assert family.finish("a")
    shard.bury(shard.take("other"), group="other")
    assert (family.ending.field, family.ending.how, family.ending.children) == ("p", "dead", "")
    shard.call("purge", "other", 10, [])
    assert (family.ending.how, family.ending.children) == ("purged", "*")
    family.put_in("a")
    family.link("a")
    assert family.tell_child("a", "purged") == Received.ENDED


def test_of_a_job_that_nobody_knows(shard: Shard) -> None:
    assert not shard.call("link_children", "p", "life", [])


def test_nobody_waits_any_more(shard: Shard) -> None:
    """The flow was forgotten, and so are they."""
    shard.enqueue("p")
    row = shard.take()
    text = children_text([Child("t", "a", None, LIFE, 0, (), None, b"rest")])
    claim: list[Any] = [row.main, row.entry, row.id, "row", text, "children"]
    assert not shard.call("finish", "default", shard.generation("default"), shard.consumer, claim).stale
    assert not shard.redis("EXISTS", shard.k.followers)


def test_more_than_one_part_of_them(family: Family) -> None:
    """They are found by their lives."""
    lives = [f"{n % 256:02x}{n:014x}" for n in range(1100)]
    lines = tuple(child_line("t", 0, life, life) for life in lives)
    news = News("d", "n-d", 1, 5, "done", children=lines)
    assert family.shard.call("deliver", [news]) == [1]
    assert family.flow.linked.head("d") == "1102|2|0|0|block+|0+"
    found = [News("d", "n-d", f"+{life}", 5, "done") for life in lives]
    assert {*family.shard.call("deliver", found[:-1])} == {1}
    assert family.shard.call("deliver", [News("d", "n-d", "+00ffffffffffffff", 5, "done")]) == [1], "nobody knows it"
    assert family.shard.call("deliver", found[-1:]) == [2]
    family.shard.call("cancel", "d")
    family.shard.clock.advance("31s")
    family.shard.call("look_after", 10)
    assert not any(field.startswith(b"d\x1f") for field in family.flow.linked.links().dependencies)


def test_the_mover_looks_soon_at_a_job_that_waits_for_more(family: Family) -> None:
    shard = family.shard
    for _ in range(4):
        shard.clock.advance("10m")
        shard.call("look_after", 10)
    assert int(shard.redis("ZSCORE", shard.k.dependents, "d\x1fn-d")) > int(shard.clock.argument()) + 30_000
    family.shard.call("deliver", [News("d", "n-d", 1, 5, "done", children=(child_line("t", 0, LIFE, "a"),))])
    assert int(shard.redis("ZSCORE", shard.k.dependents, "d\x1fn-d")) == int(shard.clock.argument()) + 30_000
    shard.clock.advance("31s")
    (waiting,) = [one for one in shard.call("look_after", 10).waiting if one[0] == "d"]
    assert [(one.place, one.id, one.life) for one in waiting[2]] == [(f"+{LIFE}", "a", LIFE)]
