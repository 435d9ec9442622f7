"""Why a job was late, in words."""

from __future__ import annotations

import pytest

from streamdq.http.pages.overview import lateness_of
from streamdq.http.pages.timeline import Attempt, brief, story_of, why
from streamdq.job.job import GroupProgress, Job, JobState
from streamdq.operations.history.job_history import JobEvent
from streamdq.store.history.rows import Event, HistoryRow

T = 1_800_000_000_000


@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        (Attempt("g", 1, T, T + 1, T + 4, T + 9, "done"), "On time: it started 4ms after it was due."),
        (Attempt("g", 1, T, T + 5, T + 3205, T + 9000, "done"), "Late by 3.2s: it waited 3.2s for a worker."),
        (
            Attempt("g", 1, T, T + 2500, T + 2600, None, "running"),
            (
                "Late by 2.6s: it waited 2.5s to be moved to the ready stream, for a mover, for the end of a pause, or "
                "because of the topic's rate."
            ),
        ),
        (Attempt("g", 1, T + 90_000, event="delayed"), "Due in 1m20s."),
        (Attempt("g", 1, T, event="ready"), "It has been due for 10s: it has been waiting 10s for a worker."),
        (
            Attempt("g", 1, T, event="delayed"),
            (
                "It has been due for 10s, and has not been moved to the ready stream yet: no mover is active, or the "
                "topic's rate limits it."
            ),
        ),
        (
            Attempt("g", 0, T, None, None, T + 5000, "expired"),
            "Given up: it had expired, 5s after it was due.",
        ),
        (Attempt("g", 1), ""),
    ],
)
def test_why_it_was_late(attempt: Attempt, said: str) -> None:
    assert why(attempt, T + 10_000) == said


def test_a_pause_is_named() -> None:
    assert why(Attempt("g", 1, T, event="delayed"), T + 10_000, paused=True).endswith("the topic is paused.")


def test_a_story_from_rows_alone() -> None:
    def row(event: Event, attempt: int, at: int, started: int | None, error: str = "E") -> JobEvent:
        found = HistoryRow("t", 0, f"{at}-0", event, "a", "g", attempt, 0, "c", T, T, T, started, at, error, "", 7)
        return JobEvent(found)

    story = story_of(
        [row(Event.RETRY, 1, T + 5, T + 1), row(Event.KICKED, 1, T + 7, None), row(Event.DONE, 2, T + 9, T + 8)],
        None, {}, T + 20,
    )  # fmt: skip
    assert (story.created_ms, story.body_bytes) == (T, 7)
    assert [one.event for one in story.events] == ["retry", "kicked", "done"]
    assert [one.ran_ms(T + 20) for one in story.events if isinstance(one, Attempt)] == [4, 1]
    put_off = [row(Event.RELEASED, 1, T + 5, T + 1, "Snooze"), row(Event.RELEASED, 1, T + 7, None, "")]
    assert [one.event for one in story_of(put_off, None, {}, T + 20).events] == ["snoozed", "released"]


def test_events_are_shown_in_the_order_of_their_history() -> None:
    """The clock was set back before the second; the third came in the same millisecond."""
    progress = GroupProgress("g", JobState.RUNNING, attempt=3, started_ms=T - 90)
    job = Job("t", "a", b"1", T, T, groups={"g": progress})
    rows = [
        JobEvent(
            HistoryRow("t", 0, f"{T}-{n}", event, "a", "g", n, 0, "c", T, T, T, finished - 1, finished, "E", "", 7)
        )
        for n, event, finished in ((1, Event.RETRY, T), (2, Event.DEAD, T - 100), (3, Event.KICKED, T - 100))
    ]
    assert [one.event for one in story_of(rows, job, {}, T - 80).events] == ["retry", "dead", "kicked", "running"]


def test_each_attempt_that_failed_tells_what_failed_as_far_as_that_is_kept() -> None:
    progress = GroupProgress("g", JobState.DEAD, attempt=3, reason="exhausted", error="KeyError: 'the last'")
    job = Job("t", "a", b"1", T, T, groups={"g": progress})

    def event(n: int, kind: Event, message: str = "", traceback: str = "") -> JobEvent:
        row = HistoryRow("t", 0, f"{T}-{n}", kind, "a", "g", n, 0, "c", T, T, T, T, T + 1, "KeyError", "", 7)
        return JobEvent(row, message, traceback)

    events = [event(1, Event.RETRY), event(2, Event.RETRY, "KeyError: 'x'", "Traceback …"), event(3, Event.DEAD)]
    story = story_of(events, job, {}, T + 20)
    reported = [(one.error, one.traceback) for one in story.events if isinstance(one, Attempt)]
    assert reported == [("KeyError", ""), ("KeyError: 'x'", "Traceback …"), ("KeyError: 'the last'", "")]


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0ms"), (999, "999ms"), (1000, "1s"), (3249, "3.2s"), (61_500, "1m1s"), (86_400_000, "1d")]
)
def test_durations_in_short(ms: int, text: str) -> None:
    assert brief(ms) == text


def test_lateness() -> None:
    assert lateness_of([]) is None
    late = lateness_of(list(range(1, 201)))
    assert late
    assert (late.p50_ms, late.p99_ms, late.most_ms, late.grade) == (100, 198, 200, "fair")
    assert [one.grade for one in map(lateness_of, ([1], [5000])) if one] == ["good", "bad"]
