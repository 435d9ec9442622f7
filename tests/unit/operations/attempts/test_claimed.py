"""What becomes of a row that `claim` returns."""

from __future__ import annotations

import pytest

from streamdq.job.job import JobState
from streamdq.keys import ShardKeys
from streamdq.operations.attempts.claimed import ClaimedJob, held_in
from streamdq.store.replies import Claimed, ClaimedRow

SHARD = ShardKeys("ns", "t", 0)
RECORD = b'0000000000011800000000000\n1799999990000\n%s\n\nabcd\n%s\n\n{"a":1}'
CLAIMED = Claimed(False, 0, 60_000, 0, [], 0, "3", 0, 0)


def claimed_as(row: ClaimedRow) -> ClaimedJob:
    (one,) = held_in(SHARD, "g", CLAIMED._replace(rows=[row]), 10.0)
    return one


def test_a_first_attempt() -> None:
    claimed = claimed_as(ClaimedRow(b"5-0", b"j", RECORD % (b"", b"")))
    assert (claimed.start_by, claimed.deadline) == (11.0, 70.0)
    assert (claimed.job.attempt, claimed.job.step, claimed.crashes, claimed.due_ms) == (1, 0, 0, 1_800_000_000_000)
    assert (claimed.job.state, claimed.ttr_ms, claimed.deadline) == (JobState.RUNNING, 60_000, 70.0)


@pytest.mark.parametrize(
    ("ttr_ms", "start_by"), [(100, 10.09), (1_000, 10.9), (1_150, 11.0), (1_300, 11.0), (9_000, 11.0)]
)
def test_none_starts_that_would_be_cancelled_at_once(ttr_ms: int, start_by: float) -> None:
    claimed = claimed_as(ClaimedRow(b"5-0", b"j", RECORD % (b"%d" % ttr_ms, b"")))
    assert claimed.start_by == pytest.approx(start_by)
    assert claimed.start_by <= claimed.cut_at < claimed.deadline == pytest.approx(10 + ttr_ms / 1000)


def test_a_later_attempt_knows_its_past() -> None:
    row = ClaimedRow(b"-|7-1|4|2|1|1800000060000", b"j", RECORD % (b"5000", b"1000ms"))
    claimed = claimed_as(row)
    assert (claimed.job.attempt, claimed.job.step, claimed.crashes, claimed.due_ms) == (4, 2, 1, 1_800_000_060_000)
    assert (claimed.ttr_ms, claimed.job.retry) == (5_000, "1000ms")


def test_a_later_attempt_may_be_due_as_the_record_says() -> None:
    row = ClaimedRow(b"-|7-1|2|0|0|", b"j", RECORD % (b"", b""))
    assert claimed_as(row).due_ms == 1_800_000_000_000
