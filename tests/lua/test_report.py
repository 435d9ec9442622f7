"""report: running -> running, how far the handlers of a batch of claims say they are."""

from __future__ import annotations

from streamdq.job.job import HandlerProgress
from streamdq.store.replies import ClaimedRow, Refused
from tests.lua.shard import START_MS, Shard


def report(shard: Shard, *rows: ClaimedRow, said: str = "0.4 page 12 | of 30", consumer: str = "me") -> Refused:
    args = [value for row in rows for value in (row.main, row.entry, row.id, said)]
    refused: Refused = shard.call("report", "default", shard.generation("default"), consumer, args)
    return refused


def shown(shard: Shard, id: str = "j") -> HandlerProgress | None:
    return shard.job(id).groups["default"].progress


def test_what_a_handler_says_is_there_until_it_ends(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    assert shown(shard) is None
    shard.clock.advance("5s")
    assert report(shard, row) == (START_MS + 5000, frozenset(), frozenset())
    assert shown(shard) == HandlerProgress(0.4, "page 12 | of 30", START_MS + 5000)
    report(shard, row, said=" nearly")
    assert shown(shard) == HandlerProgress(None, "nearly", START_MS + 5000)
    assert not shard.touch(row).stale
    assert shown(shard) == HandlerProgress(None, "nearly", START_MS + 5000)
    shard.retry(row)
    shard.move()
    assert shown(shard) is None
    again = shard.take()
    assert shown(shard) is None
    assert not report(shard, again).stale
    shard.finish(again)
    assert shard.empty()


def test_an_attempt_that_is_handed_on_keeps_its_due_time(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried(delay_ms=1000)
    shard.clock.advance("1s")
    shard.move()
    row = shard.take()
    report(shard, row)
    due_ms = START_MS + 1000
    shard.release(row)
    assert shard.job("j").groups["default"].due_ms == due_ms


def test_each_way_to_end_a_claim_knows_it(shard: Shard) -> None:
    shard.enqueue("a", "b", "c")
    rows = shard.claim().rows
    assert not report(shard, *rows).stale
    shard.bury(rows[0])
    shard.release(rows[1])
    shard.clock.advance("1h")
    assert shard.reclaim().reclaimed == 1
    assert shard.state("a") == "dead"
    assert shown(shard, "b") is shown(shard, "c") is None


def test_another_consumer_says_nothing(shard: Shard) -> None:
    shard.enqueue("j", "k")
    j, k = shard.claim().rows
    assert report(shard, j, consumer="you").stale == {0}
    shard.finish(k)
    assert report(shard, k, j).stale == {0}
    assert shown(shard) is not None
    assert shown(shard).at_ms == START_MS  # type: ignore[union-attr]


def test_an_aborted_attempt_learns_it(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    report(shard, row)
    shard.call("abort", "j")
    assert report(shard, row, said="0.5 ").aborted == {0}
    assert shown(shard) == HandlerProgress(0.4, "page 12 | of 30", START_MS)
    shard.finish(row)
    assert shard.empty()


def test_a_group_that_is_gone(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    generation = shard.generation("default")
    shard.topic(groups=["other"])
    args = [row.main, row.entry, row.id, "0.4 "]
    assert shard.call("report", "default", generation, "me", args).stale == {0}


def test_a_claim_of_a_group_that_was_made_anew_is_refused(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    claim = [row.main, row.entry, row.id, "0.5 "]
    assert shard.call("report", "default", "another", "me", claim).stale == {0}
    assert shown(shard) is None


def test_only_the_entries_that_were_claimed_will_do(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    shard.move()
    row = shard.take()
    for main, entry in (("9-9", row.entry), (row.main, "9-9")):
        args = [main, entry, row.id, "0.5 "]
        assert shard.call("report", "default", shard.generation("default"), "me", args).stale == {0}
    assert shown(shard) is None


def test_a_job_whose_last_error_is_the_name_of_its_consumer_does_not_run(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    shard.retry(row, error="me")
    assert report(shard, row).stale == {0}
