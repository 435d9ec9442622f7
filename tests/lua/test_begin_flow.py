"""begin_flow: a flow that is being built."""

from __future__ import annotations

from tests.lua.flows import WITHIN_MS, Built
from tests.lua.shard import START_MS, Shard


def test_it_is_looked_at_soon(shard: Shard) -> None:
    flow = Built(shard)
    assert flow.begin(deadline_ms=5_000) == (1, "life")
    assert flow.stored == f"life|b|0|0|{START_MS + WITHIN_MS}|{START_MS + 5_000}"
    assert flow.look_ms == START_MS + 10_000


def test_a_repeated_call_changes_nothing(shard: Shard) -> None:
    flow = Built(shard)
    flow.begin()
    flow.gate("a")
    before = flow.stored
    shard.clock.advance(1)
    assert flow.begin() == (1, "life")
    assert flow.stored == before


def test_there_is_one_at_a_time(shard: Shard) -> None:
    flow, other = Built(shard), Built(shard, "other")
    flow.begin()
    assert other.begin() == (-2, "life"), "it is being built"
    flow.gate("a")
    flow.put("a")
    flow.complete("a")
    assert other.begin() == (-1, ""), "it is complete"
    flow.decide("open")
    shard.call("cancel", "f")
    assert other.begin() == (-1, "life"), "it was opened"


def test_one_that_was_withdrawn_may_be_begun_anew(shard: Shard) -> None:
    flow, other = Built(shard), Built(shard, "other")
    flow.begin()
    flow.decide("withdraw")
    assert other.begin() == (1, "other")
    assert other.stored.startswith("other|b|0|0|")
    assert not flow.gate("a")


def test_settings_that_are_out_of_date(shard: Shard) -> None:
    flow, before = Built(shard), shard.settings
    shard.topic(shards=2)
    assert shard.run(shard.scripts.begin_flow(flow.run, before, 1, 0)) == (0, "")
    assert flow.stored == ""


def test_not_while_gates_of_another_one_have_not_ended(shard: Shard) -> None:
    flow, other = Built(shard), Built(shard, "other")
    flow.begin()
    for number in range(25):
        flow.gate(f"j{number}")
    assert flow.decide("withdraw").left == 5
    assert other.begin() == (-2, "life")
    assert flow.decide("withdraw").left == 0
    assert other.begin() == (1, "other")
