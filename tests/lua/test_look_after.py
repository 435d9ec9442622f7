"""look_after: jobs that wait for others are looked at now and then."""

from __future__ import annotations

import pytest

from streamdq.config import Settings
from streamdq.operations.checks.audit import audit
from streamdq.store.assembly import keys_of
from streamdq.store.jobs.links import Asked, Attached
from streamdq.store.scripts import Scripts
from tests.lua.links import Linked
from tests.lua.shard import START_MS, Shard
from tests.lua.test_enqueue_after import events


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


@pytest.mark.parametrize("how", ["cancel", "look_after"])
def test_when_the_last_one_has_ended_links_cost_nothing_any_more(shard: Shard, how: str) -> None:
    linked, is_cancelled = Linked(shard), how == "cancel"
    for _ in range(2 if is_cancelled else 1):  # it takes its own place, and then there are links again
        linked.put("d", "p", how="replace", known=[Attached("x", 5, "" if is_cancelled else "done")])
        assert shard.redis("HGET", shard.k.settings, "linked") == b"1"
    if is_cancelled:
        shard.call("cancel", "d")
    else:
        shard.move()
        shard.finish(shard.take())
        shard.clock.advance("30s")
        shard.call("look_after", 10)
    assert shard.redis("HGET", shard.k.settings, "linked") is None


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


def test_a_call_reads_a_bounded_number_of_bytes_of_jobs(linked: Linked) -> None:
    shard = linked.shard
    linked.news("d", 0, "done", 5)
    linked.news("d", 1, "done", 5)
    for id in ("e", "f", "g", "h"):
        linked.put(id, "x", known=[Attached("x", 5, "done")])
    shard.checked = False
    for id in ("d", "e", "f", "g", "h"):
        shard.redis("HSET", shard.k.jobs, id, shard.redis("HGET", shard.k.jobs, id) + b" " * 100_000)
    shard.clock.advance("30s")
    assert shard.call("look_after", 10).next_ms == START_MS + 30_000
    assert sorted(linked.head(id)[-1] for id in "defgh") == ["0", "0", "1", "1", "1"]


def test_parts_of_which_all_are_done_are_left_out(linked: Linked) -> None:
    shard = linked.shard
    known = linked.attach("d", "p")
    linked.put("m", *[f"p{n}" for n in range(501)], known=[one._replace(how="done") for one in known * 500] + known)
    shard.clock.advance("30s")
    raw = shard.run(shard.scripts._run("look_after", keys_of("look_after", shard.k), (shard.clock.argument(), 100, 10)))
    assert [part.split(b"\x1f")[0] for part in raw[2::4]] == [b"d", b"m"]
    shard.clock.advance("60s")
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
    assert shard.state("d") == "ready"


def half_way(linked: Linked, id: str, head: str) -> None:
    """A script was ended half way: the job has received news, and does not know what follows. Now it is looked at."""
    shard = linked.shard
    shard.checked = False
    shard.redis("HSET", shard.k.dependencies, f"{id}\x1f{linked.made[id].nonce}", head)
    shard.clock.advance("30s")
    shard.call("look_after", 10)


@pytest.mark.parametrize("result", [None, "1h"])
def test_one_that_was_to_be_cancelled_is_cancelled_now(linked: Linked, result: str | None) -> None:
    shard = linked.shard
    shard.topic(result=result)
    linked.put("c", "p", "q", on_failure="cancel")
    linked.put("after c", "c")
    half_way(linked, "c", "2|0|1|0|cancel|0")
    assert shard.state("c") == "gone"
    kept = f"{START_MS + 30_000}|cancelled|".encode() if result else None
    assert shard.redis("GET", shard.k.result_of("default", "c")) == kept
    assert [ending.how for ending in linked.endings()] == ["cancelled"], "who waits for it is told"
    assert events(shard) == ["cancelled"]


def test_without_a_history_it_writes_none(linked: Linked) -> None:
    shard = linked.shard
    shard.session.settings = Settings(history_length=0)
    shard.scripts = Scripts(shard.session)
    half_way(linked, "d", "2|2|0|0|block|0")
    assert shard.state("d") == "ready"
    assert events(shard) == []


@pytest.mark.parametrize("is_limited", [False, True])
def test_one_with_a_key_that_was_to_start(linked: Linked, *, is_limited: bool) -> None:
    """It waits for its key, if that has a limit."""
    shard = linked.shard
    if is_limited:
        shard.topic(key_concurrency=1)
    shard.enqueue("now", key="k")
    shard.move()
    shard.take()
    linked.put("k", "p", key="k")
    half_way(linked, "k", "1|1|0|0|block|0")
    shard.move()
    assert shard.state("k") == ("delayed" if is_limited else "ready")
    assert shard.run(audit(shard.store)).balanced


def test_one_with_a_key_whose_only_group_leaves_ends_with_it(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(key_concurrency=1)
    linked.put("k", "p", key="k")
    shard.topic(groups=["default", "other"])
    shard.begin_to_leave("default")
    counts = shard.counts
    half_way(linked, "k", "1|1|0|0|block|0")
    assert shard.counts == counts
