"""What retry and bury keep of failed attempts, under the ids of their rows in the history."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.config import Settings
from tests.lua.shard import Shard


def kept_by(shard: Shard, **settings: Any) -> None:
    """From now on."""
    shard.session.settings = Settings(**settings)
    shard.scripts = type(shard.scripts)(shard.session)


def rows(shard: Shard) -> list[str]:
    return [entry.decode() for entry, _ in shard.redis("XRANGE", shard.k.history, "-", "+")]


def fail(shard: Shard, *ids: str, failure: str = "what failed") -> None:
    shard.enqueue(*ids)
    shard.retry(*shard.claim(len(ids)).rows, delay_ms=60_000, failure=failure)


def test_each_failed_attempt_of_a_job_stays_known(shard: Shard) -> None:
    shard.enqueue("j")
    for number in (1, 2):
        shard.retried(failure=f"failure {number}")
    shard.bury(shard.take(), failure="failure 3")
    assert shard.failures() == list(zip(rows(shard), ["failure 1", "failure 2", "failure 3"], strict=True))


@pytest.mark.parametrize("end", ["finish", "retry", "bury", "release"])
def test_what_does_not_fail_leaves_nothing(shard: Shard, end: str) -> None:
    shard.enqueue("j")
    getattr(shard, end)(shard.take())
    assert shard.redis("EXISTS", shard.k.failures) == 0


def test_of_a_batch_each_has_its_own_and_those_that_were_taken_over_have_none(shard: Shard) -> None:
    shard.enqueue(*"abcd")
    a, b, c, d = shard.claim(4).rows
    shard.finish(b)
    claims = [
        value
        for row, failure in ((a, "of a"), (b, "of b"), (c, ""), (d, "of d"))
        for value in (row.main, row.entry, row.id, f"row of {row.id.decode()}", 1000, 1, "Oops", failure)
    ]
    assert shard.call("retry", "default", shard.generation("default"), shard.consumer, claims).stale == {1}
    found = dict(shard.failures())
    reported = [(row[0], found.get(entry)) for row, entry in zip(shard.history(), rows(shard), strict=True)]
    assert reported == [("row of b", None), ("row of a", "of a"), ("row of c", None), ("row of d", "of d")]


def test_no_more_than_the_length_are_kept_the_newest(shard: Shard) -> None:
    kept_by(shard, failures_length=3)
    size = 4000  # more than a node of the stream holds
    for number in range(10):
        fail(shard, f"j{number}", failure=f"{number}" + "x" * size)
    left = [text[0] for _, text in shard.failures()]
    assert left[-3:] == ["7", "8", "9"]
    assert len(left) <= 5


def test_many_of_one_call_are_no_more_than_the_length_either(shard: Shard) -> None:
    kept_by(shard, failures_length=3)
    fail(shard, *(f"j{number}" for number in range(20)), failure="x" * 4000)
    assert 3 <= len(shard.failures()) <= 5


def test_they_are_gone_once_nothing_has_failed_for_the_age(shard: Shard) -> None:
    kept_by(shard, history_age_s=60)
    fail(shard, "j")
    assert 0 < shard.redis("PTTL", shard.k.failures) <= 60_000


def test_without_an_age_they_stay(shard: Shard) -> None:
    fail(shard, "j")
    assert shard.redis("PTTL", shard.k.failures) > 0
    kept_by(shard, history_age_s=0)
    fail(shard, "k")
    assert shard.redis("PTTL", shard.k.failures) == -1
    shard.redis("PEXPIRE", shard.k.failures, 60_000)  # as the others of this test leave it


def test_older_ones_go_with_the_next(shard: Shard) -> None:
    """By the time in the ids of the rows, which is Redis's own."""
    for number in range(200):
        shard.redis("XADD", shard.k.failures, f"1000-{number}", "e", "x" * 100)
    kept_by(shard, history_age_s=60)
    fail(shard, "j")
    assert len(shard.failures()) < 100
    assert shard.failures()[-1][1] == "what failed"


def test_a_history_that_began_anew_has_its_own(shard: Shard) -> None:
    """As after somebody deleted it, while the clock was set back: its ids are no later than those kept."""
    shard.redis("XADD", shard.k.failures, "99999999999999-0", "e", "of another life")
    fail(shard, "j")
    assert shard.redis("XRANGE", shard.k.failures, "-", "+") == [[rows(shard)[-1].encode(), [b"e", b"what failed"]]]


@pytest.mark.parametrize("none", [{"failures_length": 0}, {"history_length": 0}])
def test_none_are_kept_where_nobody_wants_them(shard: Shard, none: dict[str, int]) -> None:
    kept_by(shard, **none)
    fail(shard, "j")
    assert shard.redis("EXISTS", shard.k.failures) == 0


def test_a_registered_dump_does_not_hold_them(shard: Shard) -> None:
    kept_by(shard, failures_length=3)
    shard.call("register_dump", "d", "0-0", 0, "1-1")
    for number in range(10):
        fail(shard, f"j{number}", failure="x" * 4000)
    assert len(rows(shard)) == 10
    assert len(shard.failures()) <= 5


def test_they_go_with_the_topic(shard: Shard) -> None:
    fail(shard, "j")
    settings = shard.settings.model_copy(update={"deleting": "force"})
    assert shard.call("drop_shard", settings)
    assert shard.redis("EXISTS", shard.k.failures) == 0
