"""What follows from how an attempt ended."""

from __future__ import annotations

from copy import copy

import pytest

from streamdq.errors import BodyUnreadable, HistoryUnreadable
from streamdq.job.job import Job
from streamdq.job.retry import Bury, Retry, RetrySchedule
from streamdq.keys import ShardKeys
from streamdq.operations.attempts.claimed import ClaimedJob
from streamdq.operations.attempts.ends import (
    AttemptResult,
    DeadReason,
    End,
    class_of,
    end_of_failure,
    row_of,
    unreadable,
)
from streamdq.operations.attempts.error_text import MAX_ERROR_CHARS
from streamdq.store.history.rows import FIELDS, SEPARATOR, Event, moved_ms, row_in

SHARD = ShardKeys("ns", "t", 0)
SCHEDULE = RetrySchedule.of("15s 3m")


def held(step: int = 0, retry: str | None = None, attempt: int = 1) -> ClaimedJob:
    job = Job("t", "j", b"[1,2]", 1_800_000_000_000, 1_799_999_990_000, retry=retry, step=step, attempt=attempt)
    return ClaimedJob(SHARD, "g", job, b"1800000000005-0", b"", 1_800_000_000_000, started_ms=1_800_000_000_007)


def test_each_failure_takes_the_next_step() -> None:
    first, second, third = (end_of_failure(held(step), ValueError("no"), SCHEDULE) for step in range(3))
    assert (first.outcome, first.delay_ms, first.steps, first.error) == (
        AttemptResult.RETRY,
        15_000,
        1,
        "ValueError: no",
    )
    assert (second.outcome, second.delay_ms) == (AttemptResult.RETRY, 180_000)
    assert (third.outcome, third.reason, third.error) == (AttemptResult.DEAD, DeadReason.EXHAUSTED, "ValueError: no")


def test_a_jobs_own_list_comes_first() -> None:
    assert end_of_failure(held(retry="7000ms"), ValueError(), SCHEDULE).delay_ms == 7000
    assert end_of_failure(held(step=1, retry="7000ms"), ValueError(), SCHEDULE).reason == DeadReason.EXHAUSTED


@pytest.mark.parametrize(("snoozed", "delay_ms"), [(0, 1000), (1, 2000), (5, 32_000), (99, 60_000)])
def test_a_body_that_nobody_here_can_read_comes_again_later_and_later(snoozed: int, delay_ms: int) -> None:
    claimed = held()
    claimed.job.snoozed = snoozed
    end = unreadable(claimed, BodyUnreadable("no key"))
    assert (end.outcome, end.delay_ms, end.error) == (AttemptResult.SNOOZED, delay_ms, "BodyUnreadable: no key")


@pytest.mark.parametrize("retry", ["none", ""])
def test_no_steps_bury_at_the_first_failure(retry: str) -> None:
    assert end_of_failure(held(retry=retry), ValueError(), SCHEDULE).outcome is AttemptResult.DEAD


def test_a_zero_step_is_a_step() -> None:
    end = end_of_failure(held(retry="0ms 0ms"), ValueError(), SCHEDULE)
    assert (end.outcome, end.delay_ms, end.steps) == (AttemptResult.RETRY, 0, 1)


def test_retry_with_a_delay_uses_no_step_and_never_buries() -> None:
    end = end_of_failure(held(step=99), Retry(delay="1h", reason="busy"), SCHEDULE)
    assert (end.outcome, end.delay_ms, end.steps, end.error) == (AttemptResult.RETRY, 3_600_000, 0, "Retry: busy")


def test_retry_without_a_delay_takes_the_next_step() -> None:
    assert end_of_failure(held(), Retry(), SCHEDULE).steps == 1
    assert end_of_failure(held(step=2), Retry(), SCHEDULE).outcome is AttemptResult.DEAD


def test_bury_gives_up_with_its_reason() -> None:
    end = end_of_failure(held(), Bury("refused by the bank"), SCHEDULE)
    assert (end.outcome, end.reason, end.error) == (AttemptResult.DEAD, DeadReason.BURIED, "refused by the bank")


@pytest.mark.parametrize("error", ["a\nb\x1fc|d\x00", ValueError("a\nb\x1fc|d\x00")])
def test_errors_lose_what_delimits_fields_and_their_length(error: ValueError | str) -> None:
    text = end_of_failure(held(), error, SCHEDULE).error
    assert text.endswith("a b c|d ")
    assert len(end_of_failure(held(), "x" * 5000, SCHEDULE).error) == MAX_ERROR_CHARS
    assert len(end_of_failure(held(), Bury("x" * 5000), SCHEDULE).error) == MAX_ERROR_CHARS


def test_a_reason_to_bury_loses_what_delimits_fields_too() -> None:
    assert SEPARATOR not in end_of_failure(held(), Bury("a\x1fb\nc"), SCHEDULE).error


def test_an_error_that_can_not_be_written_as_utf8_is_made_so() -> None:
    for error in (Bury("\ud800"), ValueError("\udfff"), "\ud800"):
        assert end_of_failure(held(step=9), error, SCHEDULE).error.encode()


def test_a_row_of_history_is_read_as_it_was_written() -> None:
    text = row_of(Event.RETRY, held(step=2, attempt=3), "host-1-abc", "ValueError") + SEPARATOR + "1800000000009"
    assert len(text.split(SEPARATOR)) == len(FIELDS)
    row = row_in("t", 4, "5-1", text)
    assert (row.topic, row.shard, row.entry) == ("t", 4, "5-1")
    assert (row.event, row.id, row.group, row.attempt, row.step, row.consumer) == (
        Event.RETRY, "j", "g", 3, 2, "host-1-abc",
    )  # fmt: skip
    assert (row.created_ms, row.due_ms, row.moved_ms) == (1_799_999_990_000, 1_800_000_000_000, 1_800_000_000_005)
    assert (row.started_ms, row.finished_ms) == (1_800_000_000_007, 1_800_000_000_009)
    assert (row.error, row.reason, row.body_bytes) == ("ValueError", "", 5)


def test_a_row_has_the_key_of_its_job() -> None:
    has_keys = held()
    has_keys.job = copy(has_keys.job)
    has_keys.job.key = "merchant-7"
    assert row_in("t", 0, "5-1", row_of(Event.DONE, has_keys, "w") + SEPARATOR + "9").key == "merchant-7"
    assert row_in("t", 0, "5-1", row_of(Event.DONE, held(), "w") + SEPARATOR + "9").key == ""


def test_an_attempt_that_was_handed_back_before_it_started_has_no_start() -> None:
    waiting = held()
    waiting.started_ms = 0
    assert row_in("t", 0, "5-1", row_of(Event.RELEASED, waiting, "w") + SEPARATOR + "9").started_ms is None


def test_a_row_that_a_script_wrote_has_gaps() -> None:
    text = SEPARATOR.join(["expired", "j", "g", "0", "0", "", "", "1800000000000", *[""] * 6, "1800000000009"])
    row = row_in("t", 0, "5-1", text)
    assert (row.event, row.body_bytes) == (Event.EXPIRED, 0)
    assert row.created_ms is row.moved_ms is row.started_ms is None


@pytest.mark.parametrize(
    "text", ["", "row", SEPARATOR.join("x" * len(FIELDS)), SEPARATOR.join(["done", "j", "g", *"12345"])]
)
def test_what_is_not_a_row_is_reported_with_its_place(text: str) -> None:
    with pytest.raises(HistoryUnreadable, match=r"entry 5-1 in the history of topic 't', shard 2"):
        row_in("t", 2, "5-1", text)


class Refused(Bury):
    pass


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (end_of_failure(held(), ValueError("a secret"), SCHEDULE), "ValueError"),
        (end_of_failure(held(step=9), KeyError("a secret"), SCHEDULE), "KeyError"),
        (end_of_failure(held(), Refused("a secret"), SCHEDULE), "Bury"),
        (end_of_failure(held(), "TimeoutError: a secret", SCHEDULE), "TimeoutError"),
        (end_of_failure(held(), "a secret: 1", SCHEDULE), ""),
        (end_of_failure(held(), "secret", SCHEDULE), ""),
        (end_of_failure(held(), "x" * 101 + ": ", SCHEDULE), ""),
        (End(held(), AttemptResult.DEAD, "n: a secret", reason=DeadReason.INVALID), "ValidationError"),
        (End(held(), AttemptResult.DEAD, "lost: twice", reason=DeadReason.CRASHED), ""),
        (End(held(), AttemptResult.DONE), ""),
    ],
)
def test_a_row_has_the_class_of_an_error_and_never_its_text(end: End, error: str) -> None:
    assert class_of(end) == error


@pytest.mark.parametrize(("main", "entry", "ms"), [(b"5-1", b"", b"5"), (b"5-1", b"7-0", b"7"), (b"-", b"7-0", b"7")])
def test_when_it_was_moved_is_in_the_entry_it_was_claimed_from(main: bytes, entry: bytes, ms: bytes) -> None:
    assert moved_ms(main, entry) == ms
