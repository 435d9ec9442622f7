"""move_ranked: bucket -> ready, where jobs wait for their turn."""

from __future__ import annotations

import pytest

from streamdq.operations.topics import configure
from streamdq.store.replies import RATED
from tests.lua.shard import START_MS, Shard


@pytest.fixture
def ranked(two: Shard) -> Shard:
    two.prioritize()
    return two


def test_every_job_goes_through_the_bucket(ranked: Shard) -> None:
    ranked.enqueue("j")
    assert (ranked.state("j"), ranked.entries(ranked.k.ready)) == ("delayed", [])
    assert ranked.move()[:4] == (1, START_MS, -1, 1)
    assert ranked.state("j") == "ready"
    assert ranked.counts == {"enqueued": 1, "moved": 1, "ready:a": 1, "ready:b": 1, "detached": 1}


def test_only_what_is_due_moves_and_at_most_the_limit(ranked: Shard) -> None:
    ranked.enqueue("early", "late", delay="1s")
    ranked.enqueue("later", delay="2s")
    assert ranked.move()[:3] == (0, START_MS, START_MS + 1000)
    ranked.clock.advance("1s")
    assert ranked.move(limit=1)[:3] == (1, START_MS + 1000, START_MS + 1000)
    assert ranked.move()[:3] == (1, START_MS + 1000, START_MS + 2000)
    assert ranked.state("later") == "delayed"


def test_one_job_at_most_is_in_each_groups_stream(ranked: Shard) -> None:
    ranked.enqueue("l", "m", priority="low")
    ranked.enqueue("h", priority="high")
    ranked.move()
    for group in ("a", "b"):
        assert [entry[15:] for entry in ranked.entries(ranked.k.ready_of(group))] == [b"h"]
        waiting = ranked.redis("ZRANGE", ranked.k.ranked_of(group), 0, -1, "WITHSCORES")
        due = 2 * 10**13 + START_MS
        assert [(member[15:], float(score)) for member, score in zip(waiting[::2], waiting[1::2], strict=True)] == [
            (b"l", due), (b"m", due),
        ]  # fmt: skip


def test_a_retry_waits_for_its_turn_in_its_group_alone(ranked: Shard) -> None:
    ranked.enqueue("j", "k", priority="low")
    ranked.move()
    again = ranked.claim(1).rows[0]
    ranked.retry(again, delay_ms=1000)
    ranked.clock.advance("1s")
    assert ranked.move().moved == 1
    assert (ranked.counts["ready:a"], ranked.counts["ready:b"]) == (2, 2)
    assert "waiting:a" not in ranked.counts
    assert sorted(row.id for row in ranked.claim(10).rows) == [b"j", b"k"]


def test_groups_out_of_date_move_nothing(ranked: Shard) -> None:
    ranked.enqueue("j")
    assert ranked.call("move", ("a", "unheard"), 10, False, True) == (-1, START_MS, -1, 0, ("a", "b"))
    assert ranked.state("j") == "delayed"


def test_a_paused_topic_moves_nothing(ranked: Shard) -> None:
    ranked.enqueue("j")
    ranked.run(configure.pause(ranked.store, "t"))
    assert ranked.move()[:4] == (0, START_MS, -1, 0)
    assert ranked.state("j") == "delayed"


def test_a_topic_with_a_rate_needs_a_permit(ranked: Shard) -> None:
    ranked.topic(rate=5)
    ranked.enqueue("i", "j")
    assert ranked.move()[:4] == (RATED, START_MS, -1, 0)
    assert ranked.call("move", ("a", "b"), 1, True, True).moved == 1
    ranked.topic(rate=0)
    assert ranked.move().moved == 1


def test_what_another_version_moves_says_that_it_may_not(ranked: Shard) -> None:
    ranked.enqueue("j")
    assert ranked.call("move", ("a", "b"), 10).moved == RATED
    assert ranked.state("j") == "delayed"


def test_a_member_of_a_group_that_leaves_moves_nowhere(ranked: Shard) -> None:
    ranked.enqueue("j")
    ranked.move()
    ranked.retry(ranked.take("a"), group="a")
    ranked.begin_to_leave("a")
    ranked.move()
    assert ranked.redis("EXISTS", ranked.k.ranked_of("a"), ranked.k.ready_of("a")) == 0
    ranked.finish(*ranked.claim(10, "b").rows, group="b")


def test_a_job_whose_record_is_gone_counts_as_lost_later(ranked: Shard) -> None:
    ranked.checked = False
    ranked.enqueue("j")
    ranked.redis("HDEL", ranked.k.jobs, "j")
    assert ranked.move().moved == 1
    assert ranked.claim(10).rows == []


def test_large_records_move_a_few_at_a_time(ranked: Shard) -> None:
    ranked.redis("HSET", ranked.k.settings, "largest", 100_000)
    ranked.enqueue("i", "j", "k")
    assert [ranked.move().moved for _ in range(3)] == [2, 1, 0]


def test_a_topic_without_priorities_that_has_the_name_of_one_with_them(two: Shard) -> None:
    two.enqueue("j", delay="1s")
    two.clock.advance("1s")
    assert two.call("move", ("a", "b"), 10, False, True) == (-1, START_MS + 1_000, -1, 0, ())
    assert two.state("j") == "delayed"
