"""What is sent to Redis for attempts that have ended: the operation, driven by hand."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.config import MAX_CLAIM
from streamdq.job.job import Job
from streamdq.keys import ShardKeys
from streamdq.link.session import Request
from streamdq.operations.attempts.claimed import ClaimedJob
from streamdq.operations.attempts.ends import AttemptResult, DeadReason, End, ends_together, send_ends
from streamdq.store.history.rows import SEPARATOR, Event
from streamdq.store.replies import Refused
from streamdq.store.scripts import Scripts
from tests.unit.fake_redis import LOST, Call, call_of, session_of

SHARD = ShardKeys("ns", "t", 0)
NOW_MS = 1_800_000_000_000


def held(id: str, body: bytes = b"1") -> ClaimedJob:
    one = ClaimedJob(
        SHARD, "g", Job("t", id, body, NOW_MS - 9, NOW_MS - 5, attempt=1), b"1800000000000-0", b"", NOW_MS - 5
    )
    one.started_ms, one.generation = NOW_MS, "7"
    return one


def sent(ends: list[End], refused: list[int], **settings: Any) -> tuple[Refused, Call]:
    """Which were refused, and the one call that was made."""
    op = send_ends(Scripts(session_of(**settings)), SHARD, "g", "me", ends)
    request = next(op)
    assert isinstance(request, Request)
    (command,) = request.commands
    with pytest.raises(StopIteration) as stopped:
        op.send([[NOW_MS + 3, *refused]])
    return stopped.value.value, call_of(command)


DONE, RETRY, SNOOZED, DEAD, RELEASED = (
    AttemptResult.DONE, AttemptResult.RETRY, AttemptResult.SNOOZED, AttemptResult.DEAD, AttemptResult.RELEASED,
)  # fmt: skip


@pytest.mark.parametrize(
    ("end", "script", "event", "tail", "row_error", "row_reason"),
    [
        ({"outcome": DONE}, "finish", Event.DONE, (), "", ""),
        ({"outcome": RELEASED}, "release", Event.RELEASED, (), "", ""),
        (
            {"outcome": RETRY, "error": "ValueError: my password", "delay_ms": 50, "steps": 1, "traceback": "line 7"},
            "retry", Event.RETRY, (50, 1, "ValueError: my password", "ValueError: my password\x1fline 7"),
            "ValueError", "",
        ),
        (
            {"outcome": RETRY, "error": "Retry: later", "delay_ms": 9000},
            "retry", Event.RETRY, (9000, 0, "Retry: later", "Retry: later\x1f"), "Retry", "",
        ),
        (
            {"outcome": SNOOZED, "error": "Snooze: not yet", "delay_ms": 70},
            "retry", Event.RELEASED, (70, -1, "Snooze: not yet", ""), "Snooze", "",
        ),
        (
            {"outcome": DEAD, "error": "no such user: x", "reason": DeadReason.BURIED},
            "bury", Event.DEAD, ("buried", "no such user: x", "no such user: x\x1f"), "Bury", "buried",
        ),
        (
            {"outcome": DEAD, "error": "ValueError: x", "reason": DeadReason.EXHAUSTED},
            "bury", Event.DEAD, ("exhausted", "ValueError: x", "ValueError: x\x1f"), "ValueError", "exhausted",
        ),
        (
            {"outcome": DEAD, "error": "E: not kept", "reason": DeadReason.EXHAUSTED, "hidden": True},
            "bury", Event.DEAD, ("exhausted", "E: not kept", ""), "E", "exhausted",
        ),
    ],
)  # fmt: skip
def test_each_outcome_is_one_call_of_its_script(
    end: dict[str, Any], script: str, event: Event, tail: tuple[Any, ...], row_error: str, row_reason: str
) -> None:
    refused, call = sent([End(held("j"), **end)], [])
    assert (refused, call.name) == (Refused(NOW_MS + 3, frozenset()), script)
    _, group, _, generation, consumer, *args = call.args
    if tail:
        assert args[:2] == [5_000, 7 * 86_400_000]
    main, entry, id, row, *rest = args[2:] if tail else args
    assert (group, generation, consumer, main, entry, id) == ("g", "7", "me", b"1800000000000-0", b"", "j")
    fields = row.split(SEPARATOR)
    assert (fields[0], fields[1], fields[10], fields[11]) == (event, "j", row_error, row_reason)
    assert tuple(rest) == tail
    assert "password" not in row, "an error's text may quote the body"


def test_the_indexes_of_those_refused_count_from_zero() -> None:
    refused, call = sent([End(held(id), DONE) for id in "abcd"], [1, 4])
    assert refused.stale == {0, 3}
    assert call.args[7::4] == ("a", "b", "c", "d")


def test_those_that_were_aborted_have_ended_so() -> None:
    ends = [End(held(id), DONE) for id in "abc"]
    refused, _ = sent(ends, [2, -3])
    assert refused == Refused(NOW_MS + 3, frozenset({1}), frozenset({2}))
    assert [end.outcome for end in ends] == [DONE, DONE, AttemptResult.ABORTED]
    assert [end.held.aborted for end in ends] == [False, False, True]


def test_without_history_no_rows_are_made() -> None:
    _, call = sent([End(held("j"), DONE)], [], history_length=0)
    assert call.args[8] == ""


@pytest.mark.parametrize("none", [{"failures_length": 0}, {"history_length": 0}])
def test_where_none_are_kept_no_failure_is_sent(none: dict[str, int]) -> None:
    end = End(held("j"), RETRY, "ValueError: x", steps=1, traceback="line 7")
    _, call = sent([end], [], **none)
    assert call.args[5] == 0
    assert call.args[-2:] == ("ValueError: x", "")


def test_of_a_failure_no_credentials_are_sent() -> None:
    _, call = sent([End(held("j"), RETRY, "ValueError: at https://me:swordfish@shop", steps=1)], [])
    assert call.args[-1] == "ValueError: at https://…@shop\x1f"
    assert "swordfish" not in str(call.args), "the job keeps the error as well"


def test_a_call_that_got_no_reply_can_be_sent_again_as_it_was() -> None:
    op = send_ends(Scripts(session_of()), SHARD, "g", "me", [End(held("j"), DONE)])
    first: Any = next(op)
    again: Any = op.throw(LOST)
    while not isinstance(again, Request):  # a pause
        again = op.send(None)
    assert again.commands == first.commands


@pytest.mark.parametrize(
    ("outcome", "groups", "count", "bytes_each", "together"),
    [
        (DONE, 1, 1000, 10, MAX_CLAIM),
        (RETRY, 1, 1000, 10, 200),
        (DEAD, 1, 1000, 10, 200),
        (RELEASED, 1, 1000, 10, 200),
        (DONE, 100, 1000, 10, 15),  # 1 500 reads of a group's progress
        (RETRY, 100, 1000, 10, 200),
        (DONE, 1, 40, 1024 * 1024, 16),  # their memory is freed in the call
        (RELEASED, 1, 40, 100 * 1024, 2),
        (DONE, 1, 3, 100 * 1024 * 1024, 1),  # a single one may be larger
    ],
)
def test_how_many_ends_a_call_may_carry(
    outcome: AttemptResult, groups: int, count: int, bytes_each: int, together: int
) -> None:
    body = b"x" * bytes_each
    assert len(ends_together([End(held(str(n), body), outcome) for n in range(count)], groups)) == together
