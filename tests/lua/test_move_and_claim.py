"""move_and_claim: what move does, and then claim, in one step; other groups and consumers get the rest as ever."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.operations import topics
from streamdq.store.replies import RATED, Claimed
from tests.lua.shard import START_MS, Shard


def ids(claimed: Claimed | None) -> list[bytes]:
    assert claimed is not None
    return [row.id for row in claimed.rows]


def due_in(shard: Shard, *ids: str, **fields: Any) -> None:
    """Jobs that are due a second from now, which is then."""
    shard.enqueue(*ids, delay="1s", **fields)
    shard.clock.advance("1s")


def test_a_due_job_is_moved_and_claimed(shard: Shard) -> None:
    due_in(shard, "j")
    shard.enqueue("later", delay="5s")
    moved, claimed = shard.move_and_claim()
    assert moved == (1, START_MS + 1000, START_MS + 6000, 1, ())
    assert claimed is not None
    (row,) = claimed.rows
    assert claimed == (False, START_MS + 1000, 60_000, 0, [row], 0, "1", 0, 0)
    assert (row.entry, row.id, row.past) == (b"", b"j", b"")
    assert row.record == shard.redis("HGET", shard.k.jobs, "j")
    assert [(entry, consumer) for entry, consumer, *_ in shard.pending(shard.k.ready)] == [(row.main, b"me")]
    job = shard.job("j")
    progress = job.groups["default"]
    assert (progress.state, progress.attempt, progress.consumer) == ("running", 1, "me")
    assert (progress.started_ms, progress.deadline_ms) == (START_MS + 1000, START_MS + 61_000)
    assert shard.counts == {"enqueued": 2, "moved": 1, "running:default": 1}
    assert shard.finish(row).stale == frozenset()
    assert shard.state("j") == "gone"


def test_what_is_not_due_stays(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    shard.clock.advance("999ms")
    moved, claimed = shard.move_and_claim()
    assert (moved[:4], claimed) == ((0, START_MS + 999, START_MS + 1000, 0), None)
    assert shard.state("j") == "delayed"


def test_what_it_moves_beyond_the_count_is_for_others(shard: Shard) -> None:
    due_in(shard, "i", "j", "k")
    moved, claimed = shard.move_and_claim(count=2)
    assert (moved.moved, ids(claimed)) == (3, [b"i", b"j"])
    assert shard.counts == {"enqueued": 3, "moved": 3, "running:default": 2, "ready:default": 1}
    assert [row.id for row in shard.claim(consumer="other").rows] == [b"k"]


def test_the_limit_is_kept_and_the_oldest_go_first(shard: Shard) -> None:
    shard.enqueue("late", delay="2s")
    shard.enqueue("early", delay="1s")
    shard.clock.advance("3s")
    moved, claimed = shard.move_and_claim(limit=1)
    assert (moved[:3], ids(claimed)) == ((1, START_MS + 3000, START_MS + 2000), [b"early"])
    assert ids(shard.move_and_claim(limit=1)[1]) == [b"late"]


def test_it_claims_no_more_than_it_moves_and_what_was_ready_before_comes_first(shard: Shard) -> None:
    shard.enqueue("ready", "ready too")
    due_in(shard, "j")
    assert ids(shard.move_and_claim()[1]) == [b"ready"]
    assert shard.counts == {"enqueued": 3, "moved": 1, "running:default": 1, "ready:default": 2}
    assert [row.id for row in shard.claim().rows] == [b"ready too", b"j"]


def test_where_nothing_is_due_nothing_is_claimed_that_was_ready_before(shard: Shard) -> None:
    shard.enqueue("ready")
    moved, claimed = shard.move_and_claim()
    assert (moved[:4], claimed) == ((0, START_MS, -1, 1), None)
    assert shard.state("ready") == "ready"


def test_other_groups_get_the_job_from_the_stream(two: Shard) -> None:
    due_in(two, "j")
    moved, claimed = two.move_and_claim(group="a")
    assert (moved.moved, ids(claimed)) == (1, [b"j"])
    assert two.counts == {"enqueued": 1, "moved": 1, "running:a": 1, "ready:b": 1}
    assert two.take("b").id == b"j"


def test_a_retry_of_its_group_is_claimed_and_one_of_another_is_not(two: Shard) -> None:
    two.enqueue("j")
    for group in ("a", "b"):
        two.retry(two.take(group), delay_ms=1000, group=group)
    two.clock.advance("1s")
    moved, claimed = two.move_and_claim(group="a")
    assert claimed is not None
    (row,) = claimed.rows
    assert (moved.moved, row.past) == (2, f"2|1|0|{START_MS + 1000}".encode())
    assert two.counts["running:a"] == two.counts["ready:b"] == 1
    assert "ready:a" not in two.counts
    assert "waiting:a" not in two.counts
    assert two.take("b").past == row.past


def test_a_retry_of_another_group_alone_is_only_moved(two: Shard) -> None:
    two.enqueue("j")
    two.finish(two.take("a"), group="a")
    two.retry(two.take("b"), delay_ms=1000, group="b")
    two.clock.advance("1s")
    moved, claimed = two.move_and_claim(group="a")
    assert (moved.moved, claimed) == (1, None)
    assert two.take("b").id == b"j"


def test_both_kinds_share_the_count(shard: Shard) -> None:
    shard.enqueue("again")
    shard.retry(shard.take(), delay_ms=1000)
    due_in(shard, "j", "k")
    assert ids(shard.move_and_claim(count=2)[1]) == [b"again", b"j"]
    assert shard.counts["ready:default"] == 1


def test_a_cancelled_retry_is_dropped(shard: Shard) -> None:
    """Its entry is claimed by nobody; the one that follows is."""
    shard.enqueue("again")
    shard.retry(shard.take(), delay_ms=1000)
    shard.clock.advance("1s")
    shard.move()
    shard.call("cancel", "again")
    due_in(shard, "j")
    assert ids(shard.move_and_claim()[1]) == [b"j"]
    assert shard.counts == {
        "enqueued": 2,
        "moved": 2,
        "running:default": 1,
        "retried:default": 1,
        "cancelled:default": 1,
    }


def test_one_that_is_too_late_expires(shard: Shard) -> None:
    shard.enqueue("late", delay="1s", expire="2s")
    shard.enqueue("j", delay="4s")
    shard.clock.advance("4s")
    moved, claimed = shard.move_and_claim()
    assert claimed is not None
    assert (moved.moved, claimed.expired, ids(claimed)) == (2, 1, [b"j"])
    assert shard.counts == {"enqueued": 2, "moved": 2, "running:default": 1, "expired:default": 1}
    assert shard.events() == [("expired", "late", "default")]


def test_a_ttr_of_its_own(shard: Shard) -> None:
    due_in(shard, "j", ttr="5s")
    shard.move_and_claim()
    job = shard.job("j")
    assert job.groups["default"].deadline_ms == START_MS + 6000


def test_groups_out_of_date_move_nothing(shard: Shard) -> None:
    due_in(shard, "j")
    moved, claimed = shard.move_and_claim(groups=("default", "unheard"))
    assert (moved, claimed) == ((-1, START_MS + 1000, -1, 0, ("default",)), None)
    assert shard.state("j") == "delayed"


def test_for_a_group_that_is_gone_it_only_moves(shard: Shard) -> None:
    due_in(shard, "j")
    moved, claimed = shard.move_and_claim(group="unheard", groups=("default",))
    assert (moved.moved, claimed) == (1, None)
    assert shard.take().id == b"j"


def test_a_paused_topic_moves_nothing_and_goes_on_after(shard: Shard) -> None:
    due_in(shard, "j")
    shard.run(topics.pause(shard.store, "t"))
    moved, claimed = shard.move_and_claim()
    assert (moved[:4], claimed) == ((0, START_MS + 1000, -1, 0), None)
    shard.run(topics.resume(shard.store, "t"))
    assert ids(shard.move_and_claim()[1]) == [b"j"]


def test_a_topic_with_a_rate_needs_a_permit(shard: Shard) -> None:
    shard.topic(rate=10)
    due_in(shard, "j")
    moved, claimed = shard.move_and_claim()
    assert (moved.moved, claimed) == (RATED, None)
    assert ids(shard.move_and_claim(permitted=True)[1]) == [b"j"]


def test_a_job_of_a_key_takes_its_place(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    due_in(shard, "i", "j", key="k")
    claimed = shard.move_and_claim()[1]
    assert ids(claimed) == [b"i"]
    assert shard.move_and_claim()[1] is None
    assert claimed is not None
    shard.finish(*claimed.rows)
    assert ids(shard.move_and_claim()[1]) == [b"j"]


def test_the_first_claim_after_a_quiet_time_rings(shard: Shard) -> None:
    due_in(shard, "j")
    before = shard.rings()
    shard.move_and_claim()
    assert shard.rings() != before
    assert shard.rung_ms() == START_MS + 61_000


def test_while_the_shard_is_watched_it_does_not_ring(shard: Shard) -> None:
    due_in(shard, "j")
    shard.reclaim()
    before = shard.rings()
    shard.move_and_claim()
    assert shard.rings() == before


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_number_at_once(shard: Shard, count: int) -> None:
    names = [f"j{i}" for i in range(count)]
    due_in(shard, *names)
    moved, claimed = shard.move_and_claim(count=100)
    assert claimed is not None
    assert (moved.moved, len(claimed.rows), moved.next_due_ms) == (count, count, -1)
    shard.finish(*claimed.rows)
    assert shard.empty()


@pytest.mark.parametrize("own", [False, True], ids=["shared", "its own"])
@pytest.mark.parametrize("largest", [1, 1 << 20], ids=["small", "large"])
def test_what_it_moves_is_counted_even_if_the_group_was_destroyed(shard: Shard, own: bool, largest: int) -> None:
    """By another client. Then the group is made again, and everything is there."""
    shard.enqueue("again")
    shard.retry(shard.take(), delay_ms=1000)
    due_in(shard, "i", "j")
    shard.redis("HSET", shard.k.settings, "largest", largest)
    stream = shard.k.ready_of("default") if own else shard.k.ready
    shard.redis("XGROUP", "DESTROY", stream, "default")
    shard.checked = False  # not before the group is there again
    moved, claimed = shard.move_and_claim()
    assert (moved.moved, claimed) == (3, None)
    assert shard.counts["ready:default"] == 3
    shard.redis("XGROUP", "CREATE", stream, "default", "0")
    shard.check()
    shard.checked = True
    entries = {} if own else dict(shard.redis("XRANGE", shard.k.ready_of("default"), "-", "+"))
    read = [value for entry, (_, member) in entries.items() for value in ("g", entry, member)]
    found = [row.id for row in shard.claim(read=read).rows]
    assert sorted(found) == [b"again", b"i", b"j"]
