"""claim_ranked: in a topic with priorities, who starts first."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise

import pytest

from streamdq.errors import GroupMissing
from streamdq.operations.topics import configure
from tests.lua.shard import START_MS, Shard

HIGH, LOW = {"priority": "high"}, {"priority": "low"}


@pytest.fixture
def ranked(shard: Shard) -> Shard:
    shard.prioritize()
    return shard


def put(shard: Shard, **priorities: list[str]) -> None:
    for priority, ids in priorities.items():
        shard.enqueue(*ids, priority=priority)
    while shard.move().moved:
        pass


def claimed(shard: Shard, count: int, group: str | None = None) -> list[str]:
    return [row.id.decode() for row in shard.claim(count, group).rows]


def names(letter: str, count: int) -> list[str]:
    return [f"{letter}{n:03}" for n in range(count)]


def test_higher_ones_start_first_and_within_one_priority_the_earliest_due(ranked: Shard) -> None:
    ranked.enqueue("late", delay="2s", priority="high")
    ranked.enqueue("early", delay="1s", priority="high")
    put(ranked, low=["l"], normal=["n"])
    ranked.clock.advance("2s")
    ranked.move()
    # One is in the stream already, as the wakeup of those that wait: that of the first move.
    assert claimed(ranked, 10) == ["n", "early", "late", "l"]
    assert ranked.counts["running:default"] == 4


def test_a_later_one_overtakes_all_but_the_next(ranked: Shard) -> None:
    put(ranked, low=names("l", 5))
    put(ranked, high=["h"])
    assert [claimed(ranked, 1) for _ in range(3)] == [["l000"], ["h"], ["l001"]]


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_every_tenth_start_is_of_the_class_below_and_every_hundredth_of_the_lowest(ranked: Shard, at_once: int) -> None:
    ranked.checked = False
    put(ranked, high=names("h", 500), normal=names("n", 60), low=names("l", 10))
    order: list[str] = []
    while len(order) < 400:
        order += claimed(ranked, at_once)
    order = order[:400]
    found = Counter(id[0] for id in order)
    assert found == {"h": 356, "n": 40, "l": 4}
    for letter, most in (("n", 10), ("l", 100)):
        places = [-1, *(n for n, id in enumerate(order) if id[0] == letter)]
        assert max(b - a for a, b in islice(pairwise(places), found[letter])) <= most
    assert all([id for id in order if id[0] == letter] == names(letter, 500)[: found[letter]] for letter in "hnl")


def test_with_two_priorities_every_tenth_start_is_of_the_lower(ranked: Shard) -> None:
    ranked.checked = False
    put(ranked, normal=names("n", 60), low=names("l", 10))
    assert [n for n, id in enumerate(claimed(ranked, 50), 1) if id[0] == "l"] == [10, 20, 30, 40, 50]


def test_a_retry_and_a_kick_keep_the_priority(ranked: Shard) -> None:
    put(ranked, high=["r", "k"], normal=["n"])
    again, dead, _ = ranked.claim(3).rows
    ranked.retry(again)
    ranked.bury(dead)
    ranked.call("kick", "default", 10, ["k"])
    put(ranked, normal=names("n", 3)[1:])
    first, *rest = claimed(ranked, 10)
    assert {first, *rest[:1]} == {"r", "k"}
    assert rest[1:] == ["n001", "n002"]
    assert ranked.job("r").priority == "high"


def test_each_group_has_turns_of_its_own(two: Shard) -> None:
    two.prioritize()
    put(two, low=["l1", "l2"], normal=["n"])
    assert claimed(two, 10, "a") == ["n", "l1", "l2"]
    put(two, high=["h"])
    assert claimed(two, 10, "b") == ["n", "h", "l1", "l2"]  # one was next already
    assert claimed(two, 10, "a") == ["h"]


def test_all_states_and_ends(two: Shard) -> None:
    two.prioritize()
    put(two, high=["h"], low=["l"])
    assert (two.state("l", "a"), two.state("l", "b")) == ("ready", "ready")
    for group in ("a", "b"):
        rows = two.claim(10, group).rows
        two.finish(*rows, group=group)
    assert two.empty()


@pytest.mark.parametrize("what", ["cancel", "reschedule", "replace"])
def test_one_that_waits_for_its_turn_can_be_changed(ranked: Shard, what: str) -> None:
    put(ranked, low=["first", "j"])
    if what == "cancel":
        assert ranked.call("cancel", "j") == 1
    elif what == "reschedule":
        assert ranked.call("reschedule", "j", f"{START_MS + 5_000}") == 1
    else:
        ranked.call("replace", 1, ranked.jobs("j", priority="high", delay="5s"))
    assert ranked.redis("EXISTS", ranked.k.ranked_of("default")) == 0, "its id must not stay there"
    assert claimed(ranked, 10) == ["first"]
    ranked.clock.advance("5s")
    ranked.move()
    assert claimed(ranked, 10) == ([] if what == "cancel" else ["j"])


def test_a_claim_that_goes_back_or_is_taken_over_has_its_turn_again(ranked: Shard) -> None:
    put(ranked, low=["l", "m"], normal=["next"])
    ranked.finish(*ranked.claim(1).rows)
    ranked.release(ranked.claim(1).rows[0])
    put(ranked, high=["h"])
    assert claimed(ranked, 3) == ["m", "h", "l"]  # m was next when l went back
    put(ranked, normal=["n"])
    assert ranked.take_over(silent_ms=0).taken == 3
    ranked.move()
    assert claimed(ranked, 10) == ["n", "h", "l", "m"]


def test_a_group_that_leaves_takes_its_turns_along(two: Shard) -> None:
    two.prioritize()
    put(two, low=["l", "m"])
    two.topic(groups=["b"])
    assert two.redis("EXISTS", two.k.ranked_of("a")) == 0
    two.finish(*two.claim(10, "b").rows, group="b")
    assert two.empty()


def test_a_paused_topic_keeps_the_order(ranked: Shard) -> None:
    put(ranked, low=names("l", 3))
    ranked.run(configure.pause(ranked.store, "t"))
    ranked.enqueue("h", priority="high")
    assert (ranked.move().moved, claimed(ranked, 10)) == (0, [])
    ranked.run(configure.resume(ranked.store, "t"))
    ranked.move()
    assert [claimed(ranked, 1) for _ in range(4)] == [["l000"], ["h"], ["l001"], ["l002"]]  # l000 was next already


def test_of_large_jobs_no_more_are_next_than_a_claim_can_read(ranked: Shard) -> None:
    ranked.checked = False
    put(ranked, low=names("l", 10))
    for id in names("l", 10):
        record = ranked.redis("HGET", ranked.k.jobs, id)
        ranked.redis("HSET", ranked.k.jobs, id, record + b" " * 100_000)
    ranked.redis("HSET", ranked.k.settings, "largest", 100_000)
    assert claimed(ranked, 20) == ["l000", "l001"]
    put(ranked, high=["h"])
    assert [claimed(ranked, 1) for _ in range(3)] == [["l002"], ["h"], ["l003"]]


def test_where_keys_have_a_pace_no_more_are_next_than_start_at_once(ranked: Shard) -> None:
    ranked.topic(key_rate="100/s")
    ranked.call("enqueue", 1, ranked.jobs(*names("l", 10), priority="low"), True)
    ranked.move()
    assert [row.id for row in ranked.claim(10, at_once=2).rows] == [b"l000", b"l001"]
    ranked.call("enqueue", 1, ranked.jobs("h", priority="high"), True)
    ranked.move()
    assert [claimed(ranked, 1) for _ in range(3)] == [["l002"], ["h"], ["l003"]]


def test_keys_with_a_pace_leave_the_others_their_turn(ranked: Shard) -> None:
    """A claim takes sixty of them at once, however many it asks for."""
    ranked.topic(key_rate="1000/s")
    put(ranked, low=names("l", 100))
    assert len(claimed(ranked, 100)) == 60
    put(ranked, high=["h"])
    assert claimed(ranked, 2) == ["l060", "h"]


def test_what_was_ready_before_there_were_priorities_shares_the_starts(shard: Shard) -> None:
    shard.enqueue("old", "older")
    shard.prioritize()
    put(shard, high=names("h", 2))
    assert sorted(claimed(shard, 10)) == ["h000", "h001", "old", "older"]


def test_jobs_with_a_key_that_has_a_limit(ranked: Shard) -> None:
    ranked.topic(key_concurrency=1)
    ranked.call("enqueue", 1, ranked.jobs("l1", "l2", key="k", priority="low"), True)
    ranked.move()
    ranked.call("enqueue", 1, ranked.jobs("h", key="other", priority="high"), True)
    ranked.move()
    assert sorted(claimed(ranked, 10)) == ["h", "l1"]


def test_a_deleted_topic_has_no_turns(ranked: Shard) -> None:
    put(ranked, low=names("l", 3))
    ranked.run(configure.delete_topic(ranked.store, "t", force=True))
    assert ranked.redis("EXISTS", ranked.k.ranked_of("default")) == 0


def test_nothing_is_missing_while_jobs_wait_for_their_turn(ranked: Shard) -> None:
    put(ranked, low=names("l", 5))
    ranked.claim(2)
    reply = ranked.reclaim()
    assert (reply.missing, reply.lost) == (0, 0)
    ranked.reclaim(missing=reply.missing)
    assert ranked.counts["ready:default"] == 3


def old_claim(shard: Shard) -> list[bytes]:
    """By a caller that has the topic's settings from before there were priorities."""
    return [row.id for row in shard.call("claim", "default", "me", 10, 60_000).rows]


def test_a_process_with_old_settings_learns_of_the_priorities(ranked: Shard) -> None:
    put(ranked, low=names("l", 3))
    assert old_claim(ranked) == [b"l000"]
    with pytest.raises(GroupMissing):
        old_claim(ranked)
    assert claimed(ranked, 10) == ["l001", "l002"]
    assert old_claim(ranked) == []


def test_if_what_was_next_is_gone_another_one_wakes_the_workers(ranked: Shard) -> None:
    put(ranked, low=names("l", 3))
    assert old_claim(ranked) == [b"l000"]
    own = ranked.k.ready_of("default")
    assert ranked.reclaim().missing == 0
    assert len(ranked.entries(own)) == 2  # that of the claim, too
    assert claimed(ranked, 10) == ["l001", "l002"]
