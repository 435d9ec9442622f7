"""sweep_flows: what the mover does for flows."""

from __future__ import annotations

from streamdq.store.jobs.links import Attached
from tests.lua.flows import WITHIN_MS, Built
from tests.lua.links import Linked
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
    assert shard.state("a") == "ready"


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


def ended(shard: Shard, *names: str, others: tuple[str, ...] = ()) -> None:
    """Flows whose own jobs are ready, after other jobs."""
    for name in names:
        flow = Built(shard, name=name)
        flow.built(f"{name}-a")
        flow.decide("open")
        flow.linked.tell()
    shard.finish(*shard.claim().rows)
    Linked(shard).tell()
    if others:
        shard.enqueue(*others)
    shard.clock.advance("1s")
    shard.move()
    assert [shard.state(name) for name in names] == ["ready"] * len(names)


def test_so_many_at_once(shard: Shard) -> None:
    ended(shard, "f1", "f2", "f3")
    flow = Built(shard)
    assert flow.sweep(2) == (True, [])
    assert flow.sweep(2) == (False, [])
    assert shard.counts["cancelled:default"] == 3
    assert shard.redis("XLEN", shard.k.ready) == 0
    shard.redis("ZADD", shard.k.flow_times, 1, "lost")
    assert flow.sweep() == (False, [])
    assert shard.redis("ZSCORE", shard.k.flow_times, "lost") is None


def test_what_is_no_flows_own_job_is_left_alone(shard: Shard) -> None:
    ended(shard, "f", others=("a", "b", "c"))
    Linked(shard).put("d", "p", known=[Attached("x", 5, "done")])
    assert Built(shard).sweep(2) == (False, []), "the page with the flow's own job comes behind one without"
    assert [shard.state(id) for id in ("a", "b", "c", "d", "f")] == ["ready"] * 4 + ["gone"]
    assert shard.redis("XLEN", shard.k.ready) == 4


def test_it_says_when_to_look_again(shard: Shard) -> None:
    def next_ms() -> int:
        return int(shard.run(shard.scripts.sweep_flows(shard.k, 10)).next_ms)

    assert next_ms() == -1, "there is no flow"
    flow = Built(shard)
    flow.begin()
    assert next_ms() == START_MS + 10_000, "it may be complete by then, and its builder killed"
    flow.gate("a")
    flow.put("a")
    flow.complete("a")
    flow.decide("open")
    assert next_ms() == START_MS + WITHIN_MS
    shard.clock.advance("60s")
    assert next_ms() == -1, "until it has ended"
    flow.linked.tell()
    shard.move()
    shard.finish(shard.take())
    flow.linked.tell()
    assert next_ms() == START_MS + 61_000, "its own job is due then"
    shard.clock.advance("1s")
    assert next_ms() == START_MS + 62_000, "it is being moved"
    shard.move()
    assert next_ms() == -1
    assert shard.state("f") == "gone"
