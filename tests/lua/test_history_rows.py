"""The rows that scripts write by themselves, because no worker reports the event: they say what a worker's would."""

from __future__ import annotations

import pytest

from tests.lua.shard import START_MS, Shard
from tests.lua.test_restore import archive

BODY = str(len('{"id":"j"}'))


def row(event: str, group: str, attempt: int, step: int, **known: object) -> list[str]:
    """A row of job `j`: consumer, due_ms, moved_ms and started_ms are known or not."""
    due_ms, now_ms = known.get("due_ms", START_MS), known.get("now_ms", START_MS)
    values = [known.get("consumer", ""), START_MS, due_ms, known.get("moved_ms", ""), known.get("started_ms", "")]
    return [
        event,
        "j",
        group,
        str(attempt),
        str(step),
        *map(str, values),
        "",
        "",
        BODY,
        str(known.get("key", "")),
        str(now_ms),
    ]


def ms_of(entry: bytes) -> str:
    return entry.decode().partition("-")[0]


def test_a_first_attempt_that_was_taken_over(shard: Shard) -> None:
    shard.enqueue("j")
    shard.clock.advance("1s")
    main = shard.take().main
    shard.clock.advance("60s")
    shard.reclaim()
    assert shard.history() == [
        row("reclaimed", "default", 1, 0, consumer="me", moved_ms=ms_of(main), started_ms=START_MS + 1000,
            now_ms=START_MS + 61_000),
    ]  # fmt: skip
    job = shard.job("j")
    assert job.groups["default"].error == "not finished within its TTR by me"


def test_a_later_attempt_that_was_taken_over(shard: Shard) -> None:
    shard.scripts._history = 0
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=5_000)
    shard.clock.advance("7s")
    shard.move()
    entry = shard.take().entry
    shard.clock.advance("60s")
    shard.scripts._history = 100
    shard.reclaim()
    assert shard.history() == [
        row("reclaimed", "default", 2, 1, consumer="me", due_ms=START_MS + 5_000, moved_ms=ms_of(entry),
            started_ms=START_MS + 7_000, now_ms=START_MS + 67_000),
    ]  # fmt: skip


def test_one_that_was_claimed_ahead_has_no_start(shard: Shard) -> None:
    shard.enqueue("j")
    (claimed,) = shard.claim(at_once=0).rows
    shard.clock.advance("60s")
    shard.reclaim()
    assert shard.history() == [
        row("released", "default", 1, 0, consumer="me", moved_ms=ms_of(claimed.main), now_ms=START_MS + 60_000)
    ]
    job = shard.job("j")
    assert job.groups["default"].error == "claimed ahead of a slot by me, which was lost"


@pytest.mark.parametrize("retried", [False, True])
def test_an_expired_one(two: Shard, retried: bool) -> None:
    two.scripts._history = 0
    two.enqueue("j", expire="2s")
    if retried:
        two.retry(two.take("a"), delay_ms=1000)
        two.clock.advance("1s")
        two.move()
    stream = two.k.ready_of("a") if retried else two.k.ready
    ((entry, _),) = two.redis("XRANGE", stream, "-", "+")
    two.clock.advance("3s")
    two.scripts._history = 100
    assert two.claim(group="a").expired == 1
    due_ms, now_ms = START_MS + 1000 * retried, START_MS + 3000 + 1000 * retried
    assert two.history() == [
        row("expired", "a", int(retried), int(retried), consumer="me", due_ms=due_ms, moved_ms=ms_of(entry),
            now_ms=now_ms),
    ]  # fmt: skip


@pytest.mark.parametrize("change", ["cancel", "replace"])
def test_a_cancelled_one_has_a_row_for_each_group(two: Shard, change: str) -> None:
    two.scripts._history = 0
    two.enqueue("j")
    two.retry(two.take("a"), delay_ms=9_000)
    two.clock.advance("1s")
    two.scripts._history = 100
    if change == "cancel":
        assert two.call("cancel", "j") == 1
    else:
        assert two.call("replace", 1, two.jobs("j", delay="1s")).taken == {}
    assert two.history() == [
        row("cancelled", "a", 1, 1, due_ms=START_MS + 9_000, now_ms=START_MS + 1000),
        row("cancelled", "b", 0, 0, now_ms=START_MS + 1000),
    ]


def test_one_that_is_cancelled_after_it_was_handed_back_is_due_as_before(shard: Shard) -> None:
    shard.scripts._history = 0
    shard.enqueue("j")
    shard.clock.advance("1s")
    shard.release(shard.take())
    shard.scripts._history = 100
    assert shard.call("cancel", "j") == 1
    assert shard.history() == [row("cancelled", "default", 0, 0, now_ms=START_MS + 1000)]


@pytest.mark.parametrize("archived", [False, True])
def test_a_kicked_one_is_due_when_it_is_kicked(shard: Shard, archived: bool) -> None:
    shard.scripts._history = 0
    shard.enqueue("j")
    shard.retried()
    shard.bury(shard.take())
    shard.clock.advance("1s")
    shard.scripts._history = 100
    if archived:
        assert shard.call("restore", "default", 1, archive(shard)) == [True]
    else:
        assert shard.call("kick", "default", 1, []) == 1
    assert shard.history() == [row("kicked", "default", 2, 0, due_ms=START_MS + 1000, now_ms=START_MS + 1000)]


def test_the_row_has_the_job_s_key(shard: Shard) -> None:
    shard.enqueue("j", key="merchant-7")
    shard.call("cancel", "j")
    assert shard.history() == [row("cancelled", "default", 0, 0, key="merchant-7")]


def test_the_url_of_a_callback_is_no_key(shard: Shard) -> None:
    shard.enqueue("j", url="https://example.com/a")
    shard.call("cancel", "j")
    assert shard.history() == [row("cancelled", "default", 0, 0)]
