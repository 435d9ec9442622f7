"""Whose turn it is: exact shares by weight, strict priority."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streamdq import Worker
from streamdq.errors import InvalidInput
from streamdq.keys import ShardKeys
from streamdq.worker.topic_scheduler import Prioritized, TopicScheduler, Weighted, scheduler_of

PAY, MAIL, LOG = (ShardKeys("ns", topic, 0) for topic in ("pay", "mail", "log"))


def served(turns: TopicScheduler, ready: dict[ShardKeys, int], rooms: list[int]) -> list[str]:
    """The topics of the jobs that a consumer claims, in order, if there is so much room one time after another."""
    claimed: list[str] = []
    for room in rooms:
        left = room
        while left and any(ready.values()):
            shards = [shard for shard, jobs in ready.items() if jobs]
            turns.compete({shard.topic for shard in shards})
            first = turns.order(shards)[0]
            jobs = min(turns.share(first.topic, left), ready[first])
            assert jobs > 0
            turns.took(first.topic, jobs)
            ready[first] -= jobs
            left -= jobs
            claimed += [first.topic] * jobs
    return claimed


@pytest.mark.parametrize("room", [1, 2, 7, 11, 100])
def test_starts_are_shared_by_weight(room: int) -> None:
    """At any time, up to one claim."""
    claimed = served(Weighted({"pay": 10, "mail": 1}), {PAY: 10_000, MAIL: 10_000}, [room] * (1100 // room))
    for end in range(1, len(claimed)):
        mail = Counter(claimed[:end])["mail"]
        assert abs(mail - end / 11) <= max(1, room), end
    assert abs(Counter(claimed)["mail"] - len(claimed) / 11) <= 1.0 + room / 11


def test_slots_that_come_singly_after_many_are_shared_as_well() -> None:
    claimed = served(Weighted({"pay": 10, "mail": 1}), {PAY: 10_000, MAIL: 10_000}, [100, *[1] * 1000])
    assert Counter(claimed) == {"pay": 1000, "mail": 100}


def test_what_one_does_not_need_goes_to_the_others() -> None:
    claimed = served(Weighted({"pay": 10, "mail": 1}), {PAY: 5, MAIL: 500}, [50, *[1] * 50])
    assert Counter(claimed) == {"pay": 5, "mail": 95}


def test_a_topic_without_a_weight_has_weight_1() -> None:
    claimed = served(Weighted({"pay": 3}), {PAY: 1000, MAIL: 1000, LOG: 1000}, [1] * 500)
    assert Counter(claimed) == {"pay": 300, "mail": 100, "log": 100}


def test_nobody_saves_up_turns() -> None:
    turns, ready = Weighted({"pay": 1, "mail": 1}), {PAY: 1000, MAIL: 0}
    served(turns, ready, [1] * 500)
    ready[MAIL] = 1000
    claimed = served(turns, ready, [1] * 10)
    assert Counter(claimed) == {"pay": 5, "mail": 5}
    assert "mail" in claimed[:2]


def test_fractions_are_weights() -> None:
    claimed = served(Weighted({"pay": 0.5, "mail": 0.25}), {PAY: 1000, MAIL: 1000}, [1] * 300)
    assert Counter(claimed) == {"pay": 200, "mail": 100}


def test_priority_is_strict() -> None:
    ready = {MAIL: 5, LOG: 5, PAY: 5}
    assert served(Prioritized(["pay", "mail"]), ready, [3] * 5) == ["pay"] * 5 + ["mail"] * 5 + ["log"] * 5


def test_what_is_behind() -> None:
    turns = Prioritized(["pay", "mail"])
    for competing, behind in (({"pay", "mail", "log"}, {"mail", "log"}), ({"mail", "log"}, {"log"}), ({"log"}, set())):
        turns.compete(competing)
        assert {topic for topic in competing if turns.is_behind(topic)} == behind
    assert not Weighted({}).is_behind("pay")


def test_otherwise_each_has_its_turn() -> None:
    turns = scheduler_of(None, None)
    assert turns.order([PAY, MAIL]) == [PAY, MAIL]
    assert (turns.share("pay", 7), turns.strict, turns.is_behind("pay")) == (7, False, False)


@pytest.mark.parametrize(
    "given",
    [
        {"topics": {"pay": 0}}, {"topics": {"pay": -1}}, {"topics": {"pay": True}}, {"topics": {"pay": "10"}},
        {"topics": {"pay": float("nan")}}, {"topics": {"pay": 1e-320}}, {"topics": {"pay": 10**7}},
        {"topics": {"a b": 1}}, {"priority": "pay"}, {"priority": ["pay", "pay"]}, {"priority": ["{}"]},
        {"topics": {"pay": 1}, "priority": ["pay"]},
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Worker("memory://", **given)


@pytest.mark.parametrize("given", [{"topics": {"apy": 1}}, {"priority": ["apy"]}], ids=str)
async def test_a_topic_without_a_handler_is_a_mistake(given: dict[str, Any]) -> None:
    worker = Worker("memory://", **given)
    worker.handler("pay")(lambda _: None)
    with pytest.raises(InvalidInput, match="no handler for 'apy'"):
        await worker.serve(burst=True)
