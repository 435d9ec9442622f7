"""enqueue_after: a job that waits for others."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.store.jobs.links import Attached
from tests.lua.links import NEVER, Linked
from tests.lua.shard import START_MS, Shard

GROUPS = ("default",)


@pytest.fixture
def linked(shard: Shard) -> Linked:
    return Linked(shard)


def events(shard: Shard) -> list[str]:
    rows = shard.redis("XRANGE", shard.k.history, "-", "+")
    return [fields[1].split(b"\x1f")[0].decode() for _, fields in rows]


def test_it_waits_and_is_due_never(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p", delay="1s")
    reply = linked.put("d", "p", delay="10s")
    assert (reply.current, reply.now_ms, reply.taken, reply.looked) == (True, START_MS, {}, 1)
    assert shard.state("d") == "waiting"
    assert linked.head("d") == "1|0|0|10000|block|0"
    assert linked.states("d") == "."
    assert shard.redis("HGET", shard.k.jobs, "d")[12:25] == NEVER
    assert shard.counts == {"enqueued": 2, "waiting_for_jobs": 1}
    member = f"d\x1f{linked.made['d'].nonce}".encode()
    assert linked.links().dependents == {member: str(START_MS + 30_000).encode()}
    shard.clock.advance("10h")
    shard.move()
    assert [row.id for row in shard.claim().rows] == [b"p"]


def test_a_repeated_call_finds_its_own_job(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p", delay="1s")
    linked.put("d", "p")
    made, held = linked.made["d"], shard.redis("HGET", shard.k.jobs, "d")
    for how in ("keep", "replace"):
        reply = shard.call("enqueue_after", 1, how, (made.id, made.rest), ["1|0|0|0|block|0", "t\x1f0\x1fx\x1fp", "."])
        assert reply.taken == {0: held}
    assert shard.counts == {"enqueued": 2, "waiting_for_jobs": 1}


def test_another_jobs_id_is_taken_or_replaced(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p", "d", delay="1s")
    held = shard.redis("HGET", shard.k.jobs, "d")
    assert linked.put("d", "p").taken == {0: held}
    assert linked.links().dependencies == {}
    assert linked.put("d", "p", how="replace").taken == {}
    assert shard.counts == {"enqueued": 3, "cancelled:default": 1, "waiting_for_jobs": 1}
    assert shard.state("d") == "waiting"
    first = linked.head("d")
    assert linked.put("d", "p", how="replace", delay="1s").taken == {}, "it takes the place of one that waits"
    assert (first, linked.head("d")) == ("1|0|0|0|block|0", "1|0|0|1000|block|0")
    assert len(linked.links().dependents) == 1


def test_it_may_only_look_who_has_the_id(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("d", delay="1s")
    held, made = shard.redis("HGET", shard.k.jobs, "d"), linked.encoded("d", "p")
    assert shard.call("enqueue_after", 1, "look", (made.id, made.rest), ()).taken == {0: held}
    shard.call("cancel", "d")
    reply = shard.call("enqueue_after", 1, "look", (made.id, made.rest), ())
    assert (reply.current, reply.taken, shard.state("d")) == (True, {}, "gone")
    assert shard.counts == {"enqueued": 1, "cancelled:default": 1}


def test_a_running_job_is_not_replaced(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("d")
    shard.take()
    shard.enqueue("p", delay="1s")
    assert linked.put("d", "p", how="replace").taken.keys() == {0}


@pytest.mark.parametrize("delay", [0, 10])
def test_if_all_have_ended_it_is_due_after_its_delay(linked: Linked, delay: int) -> None:
    shard = linked.shard
    linked.put("d", "p", "q", delay=delay, known=[Attached("x", 5, "done"), Attached("y", 5, "done")])
    assert linked.head("d") == f"2|2|0|{delay * 1000}|block|0"
    assert shard.job("d").due_ms == START_MS + delay * 1000
    assert events(shard) == ["unblocked"]
    shard.clock.advance(f"{delay}s")
    shard.move()
    shard.finish(shard.take())
    assert shard.empty()


def test_it_goes_by_what_becomes_of_failures(linked: Linked) -> None:
    shard = linked.shard
    known = [Attached("x", 5, "done"), Attached("y", 7, "dead")]
    for on_failure, state in (("block", "waiting"), ("run", "ready"), ("cancel", "gone")):
        linked.put(on_failure, "p", "q", known=known, on_failure=on_failure)
        assert shard.state(on_failure) == state
    assert linked.is_blocked("block")
    assert linked.states("block") == "od,2=7"
    assert linked.head("cancel") == "", "nothing is left of one that was cancelled"
    assert sorted(events(shard)) == ["blocked", "cancelled", "unblocked"]
    assert shard.counts == {"enqueued": 3, "cancelled:default": 1, "ready:default": 1, "waiting_for_jobs": 1}


def test_it_waits_in_each_group(linked: Linked, two: Shard) -> None:
    two.enqueue("p", delay="1s")
    linked.put("d", "p")
    assert {group: two.state("d", group) for group in "ab"} == {"a": "waiting", "b": "waiting"}
    known: list[Any] = [Attached("x", 5, "dead")]
    linked.put("e", "p", known=known)
    assert events(two) == ["blocked", "blocked"], "a row for each group"


def test_it_waits_beside_its_key(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(key_concurrency=1)
    shard.enqueue("p", delay="1s")
    linked.put("d", "p", key="k")
    linked.put("e", "p", key="k")
    assert [shard.state(id) for id in ("d", "e")] == ["waiting", "waiting"]
    shard.enqueue("now", key="k")
    shard.move()
    shard.finish(shard.take())
    shard.clock.advance("1s")
    shard.move()
    shard.finish(shard.take())
    assert linked.tell() == [2, 2]
    for _ in range(2):
        shard.move()
        shard.finish(shard.take())
    assert shard.empty()


def test_many_that_it_waits_for_are_stored_in_parts(linked: Linked) -> None:
    shard = linked.shard
    parents = [f"p{n}" for n in range(1001)]
    known = [Attached("life", 0, "")] * 1000 + [Attached("life", 3, "dead")]
    linked.put("d", *parents, known=known)
    assert linked.head("d") == "1001|0|1|0|block|0"
    assert linked.states("d") == linked.states("d", 1) == "." * 500
    assert linked.states("d", 2) == "d,1=3"
    shard.call("cancel", "d")
    assert linked.links().dependencies == {}


def test_settings_that_are_out_of_date_are_refused(linked: Linked) -> None:
    made = linked.encoded("d", "p")
    reply = linked.shard.call(
        "enqueue_after", 2, "keep", (made.id, made.rest), ["1|0|0|0|block|0", "t\x1f0\x1fx\x1fp", "."]
    )
    assert not reply.current
    assert linked.shard.empty()


def test_one_that_waits_is_not_rescheduled_or_postponed(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p", delay="1s")
    linked.put("d", "p")
    assert shard.call("reschedule", "d", "+0") == 0
    assert shard.enqueue_unique("d", how="postpone").taken.keys() == {0}
    assert shard.state("d") == "waiting"


def test_one_that_has_waited_is_not_postponed_and_keeps_what_it_waited_for(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p")
    linked.put("d", "p", delay="1h")
    shard.finish(shard.take())
    linked.tell()
    assert shard.enqueue_unique("d", how="postpone", delay="2h").taken.keys() == {0}
    shard.clock.advance("31s")
    shard.call("look_after", 10)
    assert linked.head("d").startswith("1|1|0|3600000|block")
