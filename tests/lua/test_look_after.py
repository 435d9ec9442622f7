"""look_after: jobs that wait for others are looked at now and then."""

from __future__ import annotations

import pytest

from streamdq.store.jobs.links import Asked
from tests.lua.links import Linked
from tests.lua.shard import START_MS, Shard


@pytest.fixture
def linked(shard: Shard) -> Linked:
    """`d` waits for `p` and `q`."""
    shard.enqueue("p", "q", delay="10h")
    made = Linked(shard)
    made.put("d", "p", "q")
    return made


def life_of(linked: Linked, id: str) -> str:
    life: str = linked.shard.redis("HGET", linked.shard.k.jobs, id).split(b"\n")[4].decode()
    return life


def test_not_before_its_time(linked: Linked) -> None:
    reply = linked.shard.call("look_after", 10)
    assert (reply.now_ms, reply.next_ms, reply.waiting) == (START_MS, START_MS + 30_000, [])


def test_those_are_named_that_are_not_done(linked: Linked) -> None:
    shard = linked.shard
    linked.news("d", 1, "dead", 5)
    shard.clock.advance("30s")
    reply = shard.call("look_after", 10)
    asked = [
        Asked(0, "t", 0, life_of(linked, "p"), "p", 0), Asked(1, "t", 0, life_of(linked, "q"), "q", 5),
    ]  # fmt: skip
    assert reply.waiting == [("d", linked.made["d"].nonce, asked)]
    linked.news("d", 0, "done", 6)
    shard.clock.advance("60s")
    assert shard.call("look_after", 10).waiting == [("d", linked.made["d"].nonce, asked[1:])]


def test_it_is_looked_at_ever_more_seldom(linked: Linked) -> None:
    shard, waits = linked.shard, []
    for _ in range(8):
        at_ms = shard.call("look_after", 10).next_ms
        waits.append((at_ms - shard.clock.now_ms) // 1000)
        shard.clock.now_ms = at_ms
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600]


def test_what_has_started_is_forgotten_once_it_has_ended(linked: Linked) -> None:
    shard = linked.shard
    linked.news("d", 0, "done", 5)
    linked.news("d", 1, "done", 5)
    shard.clock.advance("30s")
    reply = shard.call("look_after", 10)
    assert (reply.waiting, reply.next_ms) == ([], START_MS + 90_000)
    assert linked.head("d") == "2|2|0|0|block|1"
    shard.move()
    shard.finish(shard.take())
    shard.clock.advance("60s")
    reply = shard.call("look_after", 10)
    assert (reply.waiting, reply.next_ms) == ([], -1)
    assert linked.links().dependencies == linked.links().dependents == {}


def test_a_stranger_with_its_id_is_not_taken_for_it(linked: Linked) -> None:
    shard = linked.shard
    linked.news("d", 0, "done", 5)
    linked.news("d", 1, "done", 5)
    shard.move()
    shard.finish(shard.take())
    shard.enqueue("d", delay="1h")
    shard.clock.advance("30s")
    assert shard.call("look_after", 10).next_ms == -1
    assert linked.links().dependencies == {}


def test_so_many_at_once(linked: Linked) -> None:
    shard = linked.shard
    linked.put("e", "p")
    shard.clock.advance("30s")
    assert len(shard.call("look_after", 1).waiting) == 1
    reply = shard.call("look_after", 1)
    assert len(reply.waiting) == 1
    assert reply.next_ms == START_MS + 90_000


def test_a_call_reads_a_bounded_number_of_bytes(linked: Linked) -> None:
    shard = linked.shard
    for id in ("e", "f", "g", "h"):
        linked.put(id, *[f"{'p' * 200}{n}" for n in range(500)], known=linked.attach("d", "p") * 500)
    shard.clock.advance("30s")
    reply = shard.call("look_after", 10)
    assert 1 <= len(reply.waiting) < 5
    assert reply.next_ms == START_MS + 30_000


def test_parts_of_which_all_are_done_are_left_out(linked: Linked) -> None:
    shard = linked.shard
    known = linked.attach("d", "p")
    linked.put("m", *[f"p{n}" for n in range(501)], known=[one._replace(how="done") for one in known * 500] + known)
    shard.clock.advance("30s")
    asked = {id: asked for id, _, asked in shard.call("look_after", 10).waiting}
    assert [(one.place, one.id) for one in asked["m"]] == [(500, "p500")]


def test_what_was_not_finished_is_done_now(linked: Linked) -> None:
    """Its script was ended half way: it has received the news, and does not know what follows."""
    shard = linked.shard
    shard.checked = False
    nonce = linked.made["d"].nonce
    shard.redis("HSET", shard.k.dependencies, f"d\x1f{nonce}", "2|2|0|0|block|0")
    shard.clock.advance("30s")
    assert shard.call("look_after", 10).waiting == []
    assert shard.state("d") == "delayed"
