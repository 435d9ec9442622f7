"""deliver: a job hears how those have ended that it waits for."""

from __future__ import annotations

import pytest

from streamdq.store.assembly import keys_of
from streamdq.store.jobs.links import Attached, News
from tests.lua.flows import Built
from tests.lua.links import Linked
from tests.lua.shard import START_MS, Shard
from tests.lua.test_enqueue_after import events


@pytest.fixture
def linked(shard: Shard) -> Linked:
    """`d` waits for `p` and `q`."""
    shard.enqueue("p", "q", delay="1h")
    made = Linked(shard)
    made.put("d", "p", "q", delay="2s")
    return made


def test_it_starts_when_all_are_done(linked: Linked) -> None:
    shard = linked.shard
    assert linked.news("d", 0, "done", 5) == 1
    assert (linked.head("d"), linked.states("d")) == ("2|1|0|2000|block|0", "o.")
    shard.clock.advance("1s")
    assert linked.news("d", 1, "done", 5) == 2
    assert shard.job("d").due_ms == START_MS + 3000
    assert events(shard) == ["unblocked"]
    shard.clock.advance("2s")
    shard.move()
    assert shard.take().id == b"d"


def test_the_same_news_twice_changes_nothing(linked: Linked) -> None:
    for _ in range(3):
        assert linked.news("d", 0, "done", 5) == 1
        assert linked.head("d") == "2|1|0|2000|block|0"
    linked.news("d", 1, "done", 5)
    known = linked.links()
    assert linked.news("d", 1, "done", 5) == 1, "it has started before"
    assert linked.links() == known
    assert events(linked.shard) == ["unblocked"]


def test_news_of_both_in_one_call(linked: Linked) -> None:
    nonce = linked.made["d"].nonce
    news = [News("d", nonce, i, 5, "done") for i in (0, 1)]
    assert linked.shard.call("deliver", news) == [2, 2]


@pytest.mark.parametrize(("jobs", "total"), [(260, 1), (40, 500)])
def test_a_call_tells_so_many_and_the_next_one_the_rest(shard: Shard, jobs: int, total: int) -> None:
    """Many jobs; or fewer of which much is known, as all that they wait for have failed."""
    linked, ids = Linked(shard), [f"d{n}" for n in range(jobs)]
    failed = [Attached("x", START_MS, "dead")] * (total - 1)
    shard.checked = False
    for id in ids:
        linked.put(id, *map(str, range(total)), known=[Attached("x", 0, ""), *failed], on_failure="run")
    shard.checked = True
    news = [News(id, linked.made[id].nonce, 0, 5, "done") for id in ids]
    args = ("", 100, *(value for one in news for value in (one.id, one.nonce, one.text, "")))
    first = shard.run(shard.scripts._run("deliver", keys_of("deliver", shard.k), args))
    assert 0 < len(first) < jobs
    assert shard.call("deliver", news) == [1] * len(first) + [2] * (jobs - len(first))
    assert shard.counts.get("waiting_for_jobs", 0) == 0


def test_once_it_has_ended_it_says_so(linked: Linked) -> None:
    shard = linked.shard
    shard.call("cancel", "d")
    assert linked.news("d", 0, "done", 5) == 0
    shard.enqueue("d", delay="1s")
    assert linked.news("d", 0, "done", 5) == 0, "a stranger with its id does not hear it"
    assert shard.state("d") == "delayed"


def test_a_later_job_with_its_id_does_not_hear_what_it_waited_for(linked: Linked) -> None:
    shard = linked.shard
    linked.put("r", "p", "q", on_failure="run")
    for place in (0, 1):
        linked.news("r", place, "dead", 5)
    shard.move()
    shard.finish(shard.take())
    earlier = linked.made["r"].nonce
    linked.put("r", "p", "q", known=[Attached("x", 0, "")] * 2)
    known = linked.links()
    assert shard.call("deliver", [News("r", earlier, 0, 9, "")]) == [0]
    assert linked.links() == known


def test_much_news_for_one_that_has_ended_is_answered_at_once(linked: Linked) -> None:
    shard = linked.shard
    shard.call("cancel", "d")
    assert shard.call("deliver", [News("d", linked.made["d"].nonce, n, 5, "done") for n in range(60)]) == [0] * 60


def test_the_result_of_one_that_is_cancelled_says_so(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(result="1h")
    linked.put("c", "p", "q", on_failure="cancel")
    linked.news("c", 0, "dead", 5)
    assert shard.redis("GET", shard.k.result_of("default", "c")) == f"{START_MS}|cancelled|".encode()


def test_one_with_a_key_starts_when_it_is_its_turn(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(key_concurrency=1)
    linked.put("k", "p", key="k")
    shard.enqueue("now", key="k")
    shard.move()
    running = shard.take()
    assert linked.news("k", 0, "done", 5) == 2
    shard.move()
    assert shard.state("k") == "delayed", "another one has the key"
    shard.finish(running)
    shard.move()
    assert shard.take().id == b"k"


def test_one_with_a_key_that_has_no_limit_starts_at_once(linked: Linked) -> None:
    shard = linked.shard
    linked.put("k", "p", key="k")
    assert linked.news("k", 0, "done", 5) == 2
    assert not shard.redis("EXISTS", shard.k.key_tickets), "it waits for no other job with its key"
    shard.move()
    assert shard.take().id == b"k"
    linked.put("c", "p", key="k", on_failure="cancel")
    assert linked.news("c", 0, "dead", 5) == 0
    assert shard.state("c") == "gone"


def test_one_with_a_key_whose_only_group_leaves_ends_with_it(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(key_concurrency=1)
    linked.put("k", "p", key="k")
    shard.topic(groups=["default", "other"])
    shard.begin_to_leave("default")
    shard.checked = False
    counts = shard.counts
    assert linked.news("k", 0, "done", 5) == 1
    assert shard.counts == counts


def test_a_failure_blocks_and_a_kick_takes_it_back(linked: Linked) -> None:
    shard = linked.shard
    assert linked.news("d", 0, "dead", 5) == 1
    assert linked.is_blocked("d")
    assert (linked.head("d"), linked.states("d")) == ("2|0|1|2000|block|0", "d.,1=5")
    assert linked.news("d", 0, "", 6) == 1
    assert not linked.is_blocked("d")
    assert (linked.head("d"), linked.states("d")) == ("2|0|0|2000|block|0", "..,1=6")
    assert linked.news("d", 0, "dead", 5) == 1, "late news"
    assert not linked.is_blocked("d")
    assert linked.news("d", 0, "dead", 7) == 1
    assert linked.is_blocked("d")
    assert events(shard) == ["blocked", "blocked"]
    assert linked.news("d", 0, "done", 8) == 1
    assert not linked.is_blocked("d")
    assert linked.states("d") == "o."
    assert linked.news("d", 1, "done", 8) == 2


def test_another_failure_of_the_same_job_is_no_second_one(linked: Linked) -> None:
    linked.news("d", 0, "dead", 5)
    linked.news("d", 0, "purged", 6)
    assert (linked.head("d"), linked.states("d")) == ("2|0|1|2000|block|0", "p.,1=6")
    assert events(linked.shard) == ["blocked"]


def test_what_is_done_stays_done(linked: Linked) -> None:
    linked.news("d", 0, "done", 5)
    linked.news("d", 0, "dead", 9)
    linked.news("d", 0, "", 10)
    assert linked.states("d") == "o."
    assert linked.head("d") == "2|1|0|2000|block|0"


def test_what_its_shard_has_forgotten_is_taken_back(linked: Linked) -> None:
    """Its shard was asked, and said what is older than what is known: a failover has undone that."""
    linked.news("d", 0, "dead", 5)
    linked.news("d", 0, "", 6)
    assert linked.news("d", 0, "dead", 5, seen=6) == 1
    assert linked.is_blocked("d")
    assert linked.states("d") == "d.,1=5"
    linked.news("d", 0, "", 8)
    assert linked.news("d", 0, "dead", 5, seen=5) == 1, "it was asked before it told of more"
    assert not linked.is_blocked("d")
    linked.news("d", 1, "", 0, seen=0)
    assert linked.states("d") == "..,1=8", "it still goes on"


@pytest.mark.parametrize("how", ["dead", "cancelled", "replaced", "expired", "purged", "archived", "left", "lost"])
def test_each_failure_blocks(linked: Linked, how: str) -> None:
    linked.news("d", 1, how, 5)
    assert linked.is_blocked("d")
    assert linked.head("d") == "2|0|1|2000|block|0"


def test_what_is_not_known_is_ignored(linked: Linked) -> None:
    known = linked.links()
    assert linked.news("d", 0, "exploded", 5) == 1
    assert linked.news("d", 2, "done", 5) == 1
    assert linked.links() == known


def test_with_run_it_starts_when_all_have_ended(linked: Linked) -> None:
    linked.put("r", "p", "q", on_failure="run")
    assert linked.news("r", 0, "dead", 5) == 1
    assert not linked.is_blocked("r")
    assert linked.shard.state("r") == "waiting"
    assert linked.news("r", 1, "done", 5) == 2
    assert linked.shard.state("r") == "ready"
    assert linked.states("r") == "do,1=5", "it is told which failed"


def test_with_cancel_it_is_cancelled_and_so_on(linked: Linked) -> None:
    shard = linked.shard
    linked.put("c", "p", "q", on_failure="cancel")
    linked.put("after c", "c")
    assert linked.news("c", 0, "dead", 5) == 0
    assert shard.state("c") == "gone"
    assert linked.head("c") == ""
    assert "cancelled:default" in shard.counts
    assert [ending.how for ending in linked.endings()] == ["cancelled"], "who waits for it is told"
    linked.tell()
    assert linked.is_blocked("after c")


def test_after_it_has_started_failures_change_nothing(linked: Linked) -> None:
    linked.put("r", "p", "q", on_failure="run")
    linked.news("r", 0, "dead", 5)
    linked.news("r", 1, "dead", 5)
    assert linked.news("r", 0, "", 6) == 1
    assert linked.states("r") == ".d,2=5,1=6" or linked.states("r") == ".d,1=6,2=5"
    assert linked.shard.state("r") == "ready"


def test_news_of_one_beyond_the_first_part(linked: Linked) -> None:
    parents = [f"p{n}" for n in range(501)]
    linked.put("m", *parents, known=[*linked.attach("d", "p", "q")[:1]] * 501)
    linked.news("m", 500, "done", 5)
    linked.news("m", 499, "dead", 5)
    assert linked.states("m", 1) == "o"
    assert linked.states("m") == "." * 499 + "d,500=5"


def test_it_wakes_the_mover_for_what_is_due_earlier(linked: Linked) -> None:
    shard = linked.shard
    linked.news("d", 0, "done", 5)
    linked.news("d", 1, "done", 5)
    ((_, fields),) = shard.redis("XRANGE", shard.k.wake, "-", "+")
    assert fields == [b"due", str(START_MS + 2000).encode()]


def test_a_flow_hears_of_an_ending_for_a_minute(shard: Shard) -> None:
    """Its own job stays for as long as the flow is known."""
    flow = Built(shard)
    flow.built("a", "b")
    flow.decide("open")
    flow.linked.tell()
    shard.move()
    a, b = shard.claim().rows
    shard.finish(a)
    shard.bury(b)
    assert flow.linked.tell() == [1, 2], "the flow has ended with the second one"
    shard.clock.advance("60s")
    news = [News("f", "life", index, START_MS, how) for index, how in ((0, "done"), (1, "dead"), (1, ""))]

    def codes() -> list[int]:
        return [int(code) for one in news for code in shard.call("deliver", [one])]

    assert codes() == [1, 1, 1]
    shard.clock.advance("1ms")
    assert codes() == [3, 1, 1], "a kick may still change how the second one has ended"
