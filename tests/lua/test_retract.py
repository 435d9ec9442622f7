"""retract: the job of an occurrence that is not due yet is taken back."""

from __future__ import annotations

from tests.lua.schedules import at, fire, look, stored, there, waiting, write
from tests.lua.shard import START_MS, Shard

AHEAD_MS = 10_000


def retract(shard: Shard, id: str = "s") -> str:
    found: str = shard.run(shard.scripts.retract(shard.k, id))
    if shard.checked:
        shard.check()
    return found


def cancelled(shard: Shard) -> int:
    return int(shard.redis("HGET", shard.k.counts, "cancelled:default") or 0)


def test_it_is_taken_back(shard: Shard) -> None:
    write(shard, stored(5_000, 90_000), ahead_ms=AHEAD_MS)
    before = there(shard)
    fire(shard, ahead_ms=AHEAD_MS)
    assert retract(shard) == "s@5000"
    assert waiting(shard) == []
    assert shard.get("s@5000") is None
    assert cancelled(shard) == 1
    found = there(shard)
    assert (found.plan, found.ahead, found.previous, found.totals) == (before.plan, None, "", (0, 0, 0))
    assert found.last_ms == START_MS + 4_999, "so that a new plan has it again"
    assert look(shard) == 5_000, "the mover leaves it alone until it is due"
    shard.clock.now_ms += 5_000
    assert fire(shard, ahead_ms=AHEAD_MS).fired == 1


def test_its_result_is_that_it_was_cancelled(shard: Shard) -> None:
    shard.topic(result="1d")
    write(shard, stored(5_000), ahead_ms=AHEAD_MS)
    fire(shard, ahead_ms=AHEAD_MS)
    retract(shard)
    assert shard.redis("GET", shard.k.result_of("default", "s@5000")) == f"{shard.clock.now_ms}|cancelled|".encode()


def test_one_that_has_ended_is_active_again(shard: Shard) -> None:
    write(shard, stored(5_000), ahead_ms=AHEAD_MS)
    fire(shard, ahead_ms=AHEAD_MS)
    assert there(shard).state == "ended"
    retract(shard)
    assert (there(shard).state, look(shard)) == ("active", 5_000)


def test_what_is_due_is_not_taken_back(shard: Shard) -> None:
    write(shard, stored(5_000, 90_000), ahead_ms=AHEAD_MS)
    fire(shard, ahead_ms=AHEAD_MS)
    shard.clock.now_ms += 5_000
    before = there(shard)
    assert retract(shard) == ""
    assert there(shard) == before
    assert waiting(shard) == [("s@5000", 5_000)]


def test_nothing_ahead_is_nothing_to_take_back(shard: Shard) -> None:
    assert retract(shard) == ""
    write(shard, stored(60_000))
    before = there(shard)
    assert retract(shard) == ""
    assert there(shard) == before


def test_what_a_caller_cancelled_does_not_come_again(shard: Shard) -> None:
    write(shard, stored(5_000, 90_000), ahead_ms=AHEAD_MS)
    fire(shard, ahead_ms=AHEAD_MS)
    assert shard.call("cancel", "s@5000") == 1
    assert retract(shard) == ""
    found = there(shard)
    assert (found.plan, found.ahead, found.previous, found.totals) == (at(90_000), None, "s@5000", (1, 0, 0))
    assert look(shard) == 80_000


def test_what_a_caller_rescheduled_stays(shard: Shard) -> None:
    write(shard, stored(5_000, 90_000), ahead_ms=AHEAD_MS)
    fire(shard, ahead_ms=AHEAD_MS)
    assert shard.call("reschedule", "s@5000", "+8000") == 1
    assert retract(shard) == ""
    assert waiting(shard) == [("s@5000", 8_000)]
    assert (there(shard).plan, there(shard).ahead) == (at(90_000), None)


def test_the_next_one_of_its_key_gets_its_place(shard: Shard) -> None:
    """Somebody has put in a job of a key in the place of the schedule's."""
    shard.topic(key_concurrency=1)
    write(shard, stored(5_000, 90_000), ahead_ms=AHEAD_MS)
    fire(shard, ahead_ms=AHEAD_MS)
    shard.call("replace", 1, shard.jobs("s@5000", delay=5, key="m"))
    shard.enqueue("later", key="m", delay=60)
    assert shard.redis("ZCARD", shard.k.key_waiting) == 1
    assert retract(shard) == "s@5000"
    assert [ticket[-5:] for ticket in shard.redis("ZRANGE", shard.k.key_admitted, 0, -1)] == [b"later"]


def test_an_id_that_stays_taken_after_the_end_of_its_job_is_so_from_then_on(shard: Shard) -> None:
    write(shard, stored(5_000, 90_000), ahead_ms=AHEAD_MS)
    fire(shard, ahead_ms=AHEAD_MS)
    shard.enqueue_unique("s@5000", how="replace", rule="f60000|||", delay=5)
    assert float(shard.redis("ZSCORE", shard.k.taken_until, "s@5000")) > 1e15
    assert retract(shard) == "s@5000"
    assert float(shard.redis("ZSCORE", shard.k.taken_until, "s@5000")) == START_MS + 60_000
