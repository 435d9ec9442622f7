"""sweep_flows: what the mover does for flows."""

from __future__ import annotations

from tests.lua.flows import WITHIN_MS, Built
from tests.lua.shard import START_MS, Shard


def test_one_that_is_complete_is_opened(shard: Shard) -> None:
    flow = Built(shard)
    flow.built("a")
    assert flow.sweep() == (False, [])
    assert flow.stored.startswith("life|b|"), "its builder has a moment for that"
    shard.clock.advance("10s")
    assert flow.sweep() == (False, [])
    assert flow.stored.startswith("life|o|1|1|")
    flow.linked.tell()
    assert shard.state("a") == "delayed"


def test_one_that_is_not_completed_in_time_is_withdrawn(shard: Shard) -> None:
    flow = Built(shard)
    flow.begin()
    flow.gate("a")
    flow.put("a")
    shard.clock.advance("55s")
    flow.sweep()
    assert flow.look_ms == START_MS + WITHIN_MS
    shard.clock.advance("5s")
    flow.sweep()
    assert flow.stored.startswith("life|w|1|1|")
    flow.linked.tell()
    assert shard.state("a") == "gone"
    shard.clock.advance("1s")
    assert flow.sweep() == (False, [])
    assert flow.stored == ""
    assert flow.look_ms is None


def test_many_gates_take_several_calls(shard: Shard) -> None:
    flow = Built(shard)
    flow.begin()
    for number in range(25):
        flow.gate(f"j{number}")
    shard.clock.advance("60s")
    assert flow.sweep() == (True, [])
    assert flow.sweep() == (False, [])
    assert flow.stored.startswith("life|w|25|25|")


def test_a_deadline_is_reported_until_it_is_forgotten(shard: Shard) -> None:
    flow = Built(shard)
    flow.built("a", deadline_ms=5_000)
    flow.decide("open")
    assert flow.sweep() == (False, [])
    shard.clock.advance("5s")
    assert flow.sweep() == (False, [flow.run])
    assert flow.look_ms == START_MS + 15_000
    shard.clock.advance("10s")
    assert flow.sweep() == (False, [flow.run])
    flow.decide("forget")
    shard.clock.advance("60s")
    assert flow.sweep() == (False, [])
    assert flow.stored == ""


def test_a_flow_is_forgotten_when_its_own_job_is_ready(shard: Shard) -> None:
    flow = Built(shard)
    flow.built("a")
    flow.decide("open")
    flow.linked.tell()
    shard.move()
    shard.finish(shard.take())
    flow.linked.tell()
    shard.clock.advance("1s")
    shard.move()
    assert shard.state("f") == "ready"
    assert flow.sweep() == (False, [])
    assert shard.state("f") == "gone"
    assert shard.redis("XLEN", shard.k.ready) == 0


def test_so_many_at_once(shard: Shard) -> None:
    flow = Built(shard)
    shard.enqueue("a", "b", "c")
    assert flow.sweep(2) == (True, [])
    assert flow.sweep(2) == (False, [])
    assert shard.counts["cancelled:default"] == 3
    shard.redis("ZADD", shard.k.flow_times, 1, "lost")
    assert flow.sweep() == (False, [])
    assert shard.redis("EXISTS", shard.k.flow_times) == 0
