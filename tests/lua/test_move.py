"""move: bucket -> ready stream, at most `limit` due jobs, oldest first; a group's retries -> its own stream."""

from __future__ import annotations

from streamdq.operations.topics import configure
from streamdq.store.replies import RATED
from tests.lua.shard import START_MS, Shard


def test_only_what_is_due_moves(two: Shard) -> None:
    two.enqueue("a", delay="1s")
    two.enqueue("b", delay="2s")
    two.clock.advance("999ms")
    assert two.move()[:3] == (0, START_MS + 999, START_MS + 1000)
    two.clock.advance("1ms")
    assert two.move()[:3] == (1, START_MS + 1000, START_MS + 2000)
    assert two.entries(two.k.ready) == [b"000000000001a"]
    assert (two.state("a"), two.state("b")) == ("ready", "delayed")
    assert two.counts == {"enqueued": 2, "moved": 1, "ready:a": 1, "ready:b": 1}


def test_an_empty_bucket_has_nothing_to_wait_for(shard: Shard) -> None:
    assert shard.move()[:4] == (0, START_MS, -1, 0)


def test_the_limit_is_kept_and_the_oldest_go_first(shard: Shard) -> None:
    shard.enqueue("late", delay="2s")
    shard.enqueue("early", delay="1s")
    shard.clock.advance("3s")
    assert shard.move(limit=1)[:3] == (1, START_MS + 3000, START_MS + 2000)
    assert shard.state("early") == "ready"
    assert shard.move(limit=1).next_due_ms == -1
    assert [member[12:] for member in shard.entries(shard.k.ready)] == [b"early", b"late"]


def test_a_retry_goes_to_its_group_alone(two: Shard) -> None:
    two.enqueue("j")
    two.retry(two.take("a"), delay_ms=1000, group="a")
    two.clock.advance("1s")
    assert two.move().moved == 1
    assert [member[12:] for member in two.entries(two.k.ready_of("a"))] == [b"\x1fa\x1fj"]
    assert two.entries(two.k.ready_of("b")) == []
    assert (two.counts["ready:a"], two.counts["ready:b"]) == (1, 1)
    assert "waiting:a" not in two.counts
    assert two.take("a").past == b"2|1|0|1700000001000"


def test_groups_out_of_date_move_nothing(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    shard.clock.advance("1s")
    assert shard.call("move", ("default", "unheard"), 10) == (-1, START_MS + 1000, -1, 0, ("default",))
    assert shard.state("j") == "delayed"


def test_a_paused_topic_moves_nothing_and_goes_on_after(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    shard.run(configure.pause(shard.store, "t"))
    shard.clock.advance("1s")
    assert shard.move()[:4] == (0, START_MS + 1000, -1, 0)
    shard.run(configure.resume(shard.store, "t"))
    assert shard.move().moved == 1


def test_it_tells_how_many_jobs_are_ready_or_claimed_in_all_groups(two: Shard) -> None:
    two.enqueue("i", "j")
    two.claim(2, "a")
    two.claim(1, "b")
    assert two.move().open == 4


def test_a_topic_with_a_rate_moves_nothing_without_a_permit(shard: Shard) -> None:
    shard.topic(rate=2)
    shard.enqueue("i", "j", delay="1s")
    shard.clock.advance("1s")
    assert shard.move()[:3] == (RATED, START_MS + 1000, -1)
    assert shard.state("i") == "delayed"
    assert shard.call("move", shard.settings.group_names, 1, True)[:3] == (1, START_MS + 1000, START_MS + 1000)
    assert (shard.state("i"), shard.state("j")) == ("ready", "delayed")


def test_a_rate_taken_away_lets_all_go(shard: Shard) -> None:
    shard.topic(rate=1)
    shard.enqueue(*map(str, range(30)), delay="1s")
    shard.topic(rate=0)
    shard.clock.advance("1s")
    assert shard.move().moved == 30


def test_it_goes_by_the_time_of_redis(timed: Shard) -> None:
    def redis_ms() -> int:
        seconds, microseconds = timed.redis("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    before_ms = redis_ms()
    assert before_ms <= timed.move().now_ms <= redis_ms()


def test_groups_out_of_date_in_a_shard_that_is_gone(shard: Shard) -> None:
    shard.checked = False
    shard.redis("DEL", shard.k.settings)
    assert shard.call("move", ("default",), 10) == (-1, START_MS, -1, 0, ())


def test_a_limit_of_0_moves_none_and_tells_what_comes_next(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    shard.clock.advance("1s")
    assert shard.move(limit=0)[:3] == (0, START_MS + 1000, START_MS + 1000)


def test_a_rate_of_less_than_one_a_second_is_a_rate(shard: Shard) -> None:
    shard.topic(rate=0.5)
    shard.enqueue("j", delay="1s")
    shard.clock.advance("1s")
    assert shard.move()[:3] == (RATED, START_MS + 1000, -1)


def test_it_counts_what_was_moved_and_when(shard: Shard) -> None:
    shard.enqueue("i", "j", delay="1s")
    shard.clock.advance("2s")
    shard.move()
    assert shard.redis("HGET", shard.k.counts, "moved") == b"2"
    assert shard.redis("HGET", shard.k.settings, "moved_at") == str(START_MS + 2000).encode()
