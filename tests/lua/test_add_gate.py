"""add_gate: jobs of a flow wait for it."""

from __future__ import annotations

from tests.lua.flows import WITHIN_MS, Built
from tests.lua.shard import START_MS, Shard


def test_its_jobs_wait(shard: Shard) -> None:
    flow = Built(shard)
    flow.begin()
    shard.clock.advance("20s")
    assert flow.gate("a", "b")
    flow.put("a")
    assert flow.linked.head("a") == "1|0|0|0|block+|0"
    assert flow.linked.states("a") == "."
    text = flow.linked.links().followers[b"f~0\x1flife"].decode()
    at = START_MS + 20_000
    assert text == f"life|0|\n{at}\x1ft\x1f0\x1f0\x1fn-a\x1fa\n{at}\x1ft\x1f0\x1f0\x1fn-b\x1fb\n"
    assert flow.stored == f"life|b|1|0|{at + WITHIN_MS}|0"
    assert flow.look_ms == at + 10_000
    assert shard.state("a") == "waiting"


def test_a_repeated_call_changes_nothing(shard: Shard) -> None:
    flow = Built(shard)
    flow.begin()
    flow.gate("a")
    before = flow.linked.links(), flow.stored
    assert flow.gate("b", number=0)
    assert (flow.linked.links(), flow.stored) == before
    assert not flow.gate("c", number=2), "one is missing"
    assert flow.gate("c", number=1)


def test_only_while_it_is_being_built(shard: Shard) -> None:
    flow = Built(shard)
    assert not flow.gate("a")
    flow.begin()
    assert not Built(shard, "other").gate("a")
    flow.decide("withdraw")
    assert not flow.gate("a")
    assert flow.linked.links().followers == {}


def test_not_once_it_is_open(shard: Shard) -> None:
    flow = Built(shard)
    flow.built("a")
    flow.decide("open")
    assert not flow.gate("b")
    assert b"f~1\x1flife" not in flow.linked.links().followers
