"""retry: running -> delayed, each counting its delay from now."""

from __future__ import annotations

import pytest

from streamdq.store.history.rows import FIELDS
from streamdq.store.replies import ClaimedRow, Refused
from tests.lua.shard import START_MS, Shard


def test_it_waits_from_now_on(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.clock.advance("10s")
    assert shard.retry(row, delay_ms=3000) == (START_MS + 10_000, frozenset(), frozenset())
    job = shard.job("j")
    progress = job.groups["default"]
    assert (progress.state, progress.attempt, progress.step, progress.error) == ("delayed", 1, 1, "Oops: again")
    assert progress.due_ms == START_MS + 13_000
    assert shard.counts == {"enqueued": 1, "waiting:default": 1, "retried:default": 1, "detached": 1}
    assert shard.history() == [["row of j", str(START_MS + 10_000)]]
    assert shard.pending(shard.k.ready) == []


def test_a_retry_that_uses_no_step(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried(steps=0)
    assert shard.take().past.split(b"|")[:2] == [b"2", b"0"]


def test_a_snoozed_attempt_counts_neither_as_one_nor_as_a_step(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=0)
    for number in range(1, 12):
        shard.move()
        row = shard.take()
        assert row.past.split(b"|")[0] == (b"2" if number == 1 else b"2+%d" % (number - 1))
        running = shard.get("j").groups["default"]  # type: ignore[union-attr]
        assert (running.state, running.attempt, running.snoozed) == ("running", 2, number - 1)
        shard.retry(row, delay_ms=0, steps=-1)
        waiting = shard.get("j").groups["default"]  # type: ignore[union-attr]
        assert (waiting.state, waiting.attempt, waiting.step, waiting.snoozed) == ("delayed", 1, 1, number)
    assert shard.counts["retried:default"] == 1
    assert shard.counts["snoozed:default"] == 11


def test_of_each_attempt_the_error_is_kept_as_it_is(shard: Shard) -> None:
    shard.enqueue("j")
    for _ in range(2):
        shard.retry(shard.take(), delay_ms=0)
        job = shard.job("j")
        assert job.groups["default"].error == "Oops: again"
        shard.move()


def test_how_often_it_was_snoozed_outlives_whatever_follows(shard: Shard) -> None:
    """A crash, a hand-back, a retry, a reschedule, the dead letters and a kick."""
    shard.enqueue("j")
    shard.retried(delay_ms=0, steps=-1)
    shard.take()
    shard.clock.advance("61s")
    shard.reclaim()
    row = shard.take()
    assert row.past.split(b"|")[:3] == [b"2+1", b"0", b"1"]
    shard.release(row)
    shard.retry(shard.take(), delay_ms=1000)
    shard.call("reschedule", "j", "+2000")
    shard.clock.advance("2s")
    shard.move()
    row = shard.take()
    assert row.past.split(b"|")[:3] == [b"3+1", b"1", b"0"]
    shard.bury(row)
    assert shard.get("j").groups["default"].snoozed == 1  # type: ignore[union-attr]
    shard.call("kick", "default", 1, [])
    assert shard.take().past.split(b"|")[:3] == [b"4+1", b"0", b"0"]


def test_a_snoozed_first_attempt_taken_over_was_due_when_it_was_to_go_on(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=5000, steps=-1)
    shard.clock.advance("5s")
    shard.move()
    shard.take()
    shard.clock.advance("61s")
    shard.reclaim()
    row = dict(zip(FIELDS, shard.history()[-1], strict=True))
    assert (row["event"], row["attempt"], row["due_ms"]) == ("reclaimed", "1", str(START_MS + 5000))


def test_other_groups_never_see_it(two: Shard) -> None:
    two.enqueue("j")
    two.retried("a", delay_ms=0)
    assert two.state("j", "b") == "ready"
    two.finish(two.take("b"), group="b")
    assert two.claim(group="b").rows == []
    assert two.attempt("j", "a") == 1


def test_each_attempt_counts_and_crashes_are_forgotten(shard: Shard) -> None:
    shard.enqueue("j")
    shard.take()
    shard.clock.advance("61s")
    shard.reclaim()
    row = shard.take()
    assert row.past.split(b"|")[:3] == [b"2", b"0", b"1"]
    shard.retry(row)
    shard.move()
    assert shard.take().past.split(b"|")[:3] == [b"3", b"1", b"0"]


def test_a_stale_claim_is_refused(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.clock.advance("61s")
    shard.reclaim()
    assert shard.retry(row).stale == {0}
    assert shard.state("j") == "ready"
    assert "waiting:default" not in shard.counts


def test_twice_changes_nothing_the_second_time(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.retry(row, delay_ms=1000)
    assert shard.retry(row, delay_ms=5000).stale == {0}
    assert shard.redis("ZCARD", shard.k.bucket) == 1


@pytest.mark.parametrize(("delay_ms", "wakes"), [(500, True), (2000, False)])
def test_it_notifies_the_mover_of_a_new_earliest(shard: Shard, delay_ms: int, wakes: bool) -> None:
    shard.enqueue("later", delay="1s")
    shard.enqueue("j")
    row = shard.take()
    before = shard.last_wakeup()
    shard.retry(row, delay_ms=delay_ms)
    assert (shard.last_wakeup() != before) is wakes


def retried(shard: Shard, *claims: tuple[ClaimedRow, int, int]) -> Refused:
    """Each with a delay in ms and a number of steps of its own."""
    args = [v for row, ms, steps in claims for v in (row.main, row.entry, row.id, "row", ms, steps, "Oops", "")]
    refused: Refused = shard.call("retry", "default", shard.generation("default"), shard.consumer, args)
    return refused


def test_of_a_batch_the_earliest_wakes_the_mover_and_each_has_the_next_number(shard: Shard) -> None:
    shard.enqueue("i", "j", "k")
    i, j, k = shard.claim().rows
    retried(shard, (i, 3000, 1), (j, 1000, 1), (k, 2000, 1))
    assert shard.wakeup_ms() == START_MS + 1000
    members = shard.redis("ZRANGE", shard.k.bucket, 0, -1)
    assert sorted((member[:12], member[-1:]) for member in members) == [
        (b"f00000000001", b"i"), (b"f00000000002", b"j"), (b"f00000000003", b"k"),
    ]  # fmt: skip
    assert shard.redis("HGET", shard.k.counts, "sequence") == b"3"


def test_only_what_comes_before_all_others_wakes_the_mover(shard: Shard) -> None:
    shard.enqueue("earlier", delay="1s")
    shard.enqueue("i", "j")
    i, j = shard.claim().rows
    before = shard.last_wakeup()
    retried(shard, (i, 1000, 1))
    assert shard.last_wakeup() == before
    retried(shard, (j, 999, 1))
    assert shard.wakeup_ms() == START_MS + 999


def test_a_batch_has_retried_and_snoozed_and_taken_over_attempts(shard: Shard) -> None:
    shard.enqueue("h", "i", "j", "k")
    h, i, j, k = shard.claim().rows
    shard.finish(j)
    assert retried(shard, (i, 10, 1), (j, 10, 1), (k, 10, -1), (h, 10, 1)).stale == {1}
    assert (shard.counts["retried:default"], shard.counts["snoozed:default"]) == (2, 1)
    assert [shard.attempt(id) for id in "ikh"] == [1, 0, 1]


# Keys


def admitted(shard: Shard) -> list[str]:
    """The jobs that have a place of their key."""
    return [ticket.decode()[-1] for ticket in shard.redis("ZRANGE", shard.k.key_admitted, 0, -1)]


def test_the_next_one_of_its_key_gets_its_place(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", "b", key="m")
    shard.move()
    shard.retry(shard.take(), delay_ms=5_000)
    assert admitted(shard) == ["b"]
    shard.clock.advance("5s")
    shard.move()
    b = shard.take()
    assert b.id == b"b"
    shard.finish(b)
    shard.move()
    assert shard.take().id == b"a"


def test_in_a_topic_that_keeps_its_keys_in_order_it_holds_its_place(shard: Shard) -> None:
    shard.topic(key_concurrency=1, key_order=True)
    shard.enqueue("a", "b", key="m")
    shard.move()
    shard.retry(shard.take(), delay_ms=5_000)
    assert admitted(shard) == ["a"]
    shard.clock.advance("5s")
    shard.move()
    assert shard.take().id == b"a"


def test_when_the_limit_is_no_more_it_waits_for_no_place(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", "b", key="m")
    shard.move()
    row = shard.take()
    shard.topic(key_concurrency=0)
    shard.retry(row, delay_ms=5_000)
    assert shard.redis("HEXISTS", shard.k.key_tickets, "default\x1fa") == 0
    assert shard.redis("ZSCORE", shard.k.bucket, "f00000000001\x1fdefault\x1fa") is not None
    shard.clock.advance("5s")
    shard.move()
    assert sorted(row.id for row in shard.claim().rows) == [b"a", b"b"]


def test_before_the_limit_is_applied_the_next_one_follows_when_it_fails(shard: Shard) -> None:
    """The limit is no more, and nobody has let out yet what waits."""
    shard.topic(key_concurrency=1)
    shard.enqueue("a", "b", key="m")
    shard.move()
    row = shard.take()
    shard.redis("HSET", shard.k.settings, "key_limit", "0", "limit_applied_to", "")
    shard.retry(row, delay_ms=5_000)
    assert admitted(shard) == ["b"]
