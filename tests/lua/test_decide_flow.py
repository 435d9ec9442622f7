"""decide_flow: a flow is opened, or withdrawn."""

from __future__ import annotations

import pytest

from tests.lua.flows import WITHIN_MS, Built
from tests.lua.shard import START_MS, Shard


def test_its_jobs_start_once_it_is_open(shard: Shard) -> None:
    flow = Built(shard)
    flow.built("a", "b")
    decided = flow.decide("open")
    assert (decided.state, decided.left) == ("o", 0)
    (gate,) = decided.gates
    assert (gate.field, gate.how, [one.id for one in gate.followers]) == ("f~0\x1flife", "done", ["a", "b"])
    assert flow.stored == f"life|o|1|1|{START_MS + WITHIN_MS}|0"
    assert flow.look_ms == START_MS + WITHIN_MS
    flow.linked.tell()
    assert (shard.state("a"), shard.state("f")) == ("ready", "waiting")
    assert flow.linked.head("a") == "", "that it waited for the opening is forgotten"
    shard.move()
    shard.finish(*shard.claim().rows)
    flow.linked.tell()
    assert shard.job("f").due_ms == START_MS + 1000


def test_it_is_not_opened_before_it_is_complete(shard: Shard) -> None:
    flow = Built(shard)
    assert flow.decide("open").state == "", "there is none"
    flow.begin()
    flow.gate("a")
    flow.put("a")
    assert flow.decide("open").state == ""
    flow.gates = 2
    flow.complete("a")
    assert flow.decide("open").state == "", "a gate was lost"
    assert flow.stored.startswith("life|b|")


@pytest.mark.parametrize("on_failure", ["block", "run", "cancel"])
def test_its_jobs_are_cancelled_if_it_is_withdrawn(shard: Shard, on_failure: str) -> None:
    flow = Built(shard)
    flow.begin()
    flow.gate("a", "b", "c")
    flow.put("a")
    flow.put("b", on_failure, "a")
    flow.put("c", on_failure, "b")
    decided = flow.decide("withdraw")
    assert (decided.state, decided.gates[0].how) == ("w", "cancelled")
    for _ in range(3):
        flow.linked.tell()
    assert {shard.state(id) for id in "abc"} == {"gone"}
    assert shard.counts["cancelled:default"] == 3
    assert flow.decide("open").state == "w", "it stays so"


def test_one_that_is_open_stays_so(shard: Shard) -> None:
    flow = Built(shard)
    flow.built("a", deadline_ms=5_000)
    flow.decide("open")
    assert flow.look_ms == START_MS + 5_000
    assert flow.decide("withdraw") == ("o", 0, [])
    assert flow.stored.endswith(f"|{START_MS + 5_000}")
    assert flow.decide("forget").state == "o"
    assert flow.stored.endswith("|0")
    assert flow.look_ms == START_MS + WITHIN_MS


def test_many_gates_end_in_several_calls(shard: Shard) -> None:
    flow = Built(shard)
    flow.begin()
    for number in range(45):
        flow.gate(f"j{number}")
    flow.put("j0")
    flow.complete("j0")
    shard.redis("HDEL", shard.k.followers, "f~1\x1flife")  # its followers have ended
    left = [flow.decide("open") for _ in range(3)]
    assert [one.left for one in left] == [25, 5, 0]
    assert [len(one.gates) for one in left] == [19, 20, 5]


def test_another_flow_is_left_alone(shard: Shard) -> None:
    flow = Built(shard)
    flow.built("a")
    assert Built(shard, "other").decide("withdraw").state == ""
    assert flow.stored.startswith("life|b|")
    assert Built(shard, "").decide("withdraw").state == "w", "whichever it is"


def test_a_job_of_an_open_flow_is_blocked_and_not_withdrawn(shard: Shard) -> None:
    flow = Built(shard)
    flow.begin()
    flow.gate("p", "d")
    flow.put("p")
    flow.put("d", "block", "p")
    flow.complete("p", "d")
    flow.decide("open")
    flow.linked.tell()
    shard.bury(shard.take())
    flow.linked.tell()
    assert shard.state("d") == "waiting"
    assert flow.linked.is_blocked("d")
