"""The scripts' replies as values: what each of them may look like."""

from __future__ import annotations

from streamdq.config import Layout
from streamdq.job.after import NEVER_MS
from streamdq.store.counters import Counters
from streamdq.store.jobs.progress import Phase
from streamdq.store.replies import (
    RATED,
    Claimed,
    ClaimedRow,
    Configured,
    DumpRegistration,
    Enqueued,
    FoundJob,
    LinkStats,
    Moved,
    Past,
    Refused,
    claimed_in,
    configured_in,
    enqueued_in,
    found_in,
    moved_in,
    refused_in,
    registration_in,
    stats_in,
)  # fmt: skip


def test_enqueued() -> None:
    assert enqueued_in([1, 1000, 2]) == Enqueued(True, 1000, {}, 2)
    assert [enqueued_in([status, 1000, 2]).skips_bucket for status in (1, 2, 3)] == [0, 1, 2]
    assert enqueued_in([2, 1000, 1, 1, b"record"]) == Enqueued(True, 1000, {0: b"record"}, 1, 1)
    assert enqueued_in([1, 1000, 3, 1, b"record", 3, b"other"]) == Enqueued(True, 1000, {0: b"record", 2: b"other"}, 3)
    assert enqueued_in([0, 1000, 0]) == Enqueued(False, 1000, {}, 0, -1)


def test_moved() -> None:
    assert moved_in([2, 1000, 1500, 3]) == Moved(2, 1000, 1500, 3)
    assert moved_in([RATED, 1000, -1, 0]) == Moved(RATED, 1000, -1, 0)


def test_moved_names_the_groups_that_the_shard_has() -> None:
    assert moved_in([-1, 1000, -1, 0, b"a,b"]).groups == ("a", "b")
    assert moved_in([-1, 1000, -1, 0, b""]).groups == (), "Redis lost the shard"


def test_a_claimed_row() -> None:
    first, detached, again = (
        ClaimedRow(claim, b"j", b"") for claim in (b"5-0", b"-|7-1|4+2|2|1|", b"5-0|7-1|1|0|0|99")
    )
    assert first.parts() == (b"5-0", b"", None)
    assert detached.parts() == (b"-", b"7-1", Past(4, 2, 2, 1, None))
    assert again.parts() == (b"5-0", b"7-1", Past(1, 0, 0, 0, 99))
    assert [(row.main, row.entry, row.past) for row in (first, detached)] == [
        (b"5-0", b"", b""), (b"-", b"7-1", b"4+2|2|1|"),
    ]  # fmt: skip


def test_claimed_without_the_deliveries_that_are_out_of_date() -> None:
    reply = [1, 1000, 60_000, 4, [b"5-0", b"", b"6-0"], [b"i", b"j", b"k"], [b"I", b"", b"K"], 1, b"3", 2, 5]
    rows = [ClaimedRow(b"5-0", b"i", b"I"), ClaimedRow(b"6-0", b"k", b"K")]
    assert claimed_in(reply) == Claimed(False, 1000, 60_000, 4, rows, 1, "3", 2, 5)
    paused = claimed_in([0, 1000, 60_000, 4, [], [], [], 0, b"0", 0, 0])
    assert paused is not None
    assert paused.paused
    assert claimed_in([-1, 1000, 0, 0, [], [], [], 0, b"0", 0, 0]) is None


def test_refused_from_0() -> None:
    assert refused_in([1000]) == Refused(1000, frozenset())
    assert refused_in([1000, 1, 3]) == Refused(1000, frozenset({0, 2}))


def test_found() -> None:
    assert found_in([]) == FoundJob(b"", False, [])
    found = found_in([b"record", 1, b"a", b"", 0, b"b", b"w|1|1|0|5-0|f00000000001||||Error", 1])
    assert (found.record, found.delayed) == (b"record", True)
    a, b = found.groups
    assert a == ("a", None, False)
    assert (b.group, b.waits) == ("b", True)
    assert b.progress is not None
    assert b.progress.phase is Phase.WAITING


def test_stats() -> None:
    counts = [b"enqueued", b"9", b"waiting:a", b"1", b"waiting:b", b"1"]
    reply = [1000, -1, 9, 5, 1, counts, [2, 3], 900, b"a,b", b"d:1-1:7", [3, 2, 800]]
    stats = stats_in(reply, ["a", "b"])
    assert stats.counts == Counters({"enqueued": 9, "waiting:a": 1, "waiting:b": 1})
    assert stats.delayed == 3, "without the retries in the bucket"
    assert stats[4:] == (True, stats.counts, {"a": 2, "b": 3}, 900, ("a", "b"), b"d:1-1:7", LinkStats(3, 2, 800))
    assert stats_in([1000, -1, 0, 0, 0, [], [], 0, b"", None, []], []).groups == ()
    assert stats_in([1000, NEVER_MS, 0, 0, 0, [], [], 0, b"", None, []], []).first_due_ms == -1


def test_configured() -> None:
    layout = Layout(8, (4, 2), 17)
    reply = [1, b"a,b", b"", 7, layout.text.encode(), 0, 1]
    assert configured_in(reply) == Configured(True, ("a", "b"), (), 7, layout, False, True)
    assert configured_in([0, b"", b"c", 7, b"0", 1, 0, 0]) == Configured(False, (), ("c",), 7, Layout(0), True)


def test_a_dumps_registration() -> None:
    assert registration_in([1, b"5-0", 12, 10, b"9-0", 2]) == DumpRegistration(True, "5-0", 12, 10, "9-0", 2)
    assert registration_in([0, b"", 0, 0, b"", 0]) == DumpRegistration(False, "", 0, 0, "")
