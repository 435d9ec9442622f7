"""relay: nothing -> delayed, jobs from a database's outbox, each with a receipt."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.job.job import NewJob
from streamdq.store.assembly import keys_of
from streamdq.store.jobs.records import encode
from streamdq.store.replies import RelayReply
from tests.lua.shard import START_MS, Shard


def rows(*ids: str, delay: Any = 0, replace: bool = False, body: Any = "b", key: str | None = None) -> list[Any]:
    """Jobs in the form that relay takes; the receipt is `ID's`."""
    out: list[Any] = []
    for id in ids:
        out += [*encode(NewJob(body, id=id, delay=delay, key=key), 1_000_000)[:3], f"{id}'s", int(replace)]
    return out


def relay(
    shard: Shard, jobs: list[Any], epoch: int = 1, outbox: str = "o", shards: int = 1, later: int = 0
) -> RelayReply:
    settings = shard.settings.model_copy(update={"shards": shards, "version": shard.settings.version + later})
    reply: RelayReply = shard.call("relay", settings, outbox, epoch, jobs)
    return reply


def receipts(shard: Shard) -> list[bytes]:
    return sorted(shard.redis("HKEYS", shard.k.outbox))


def test_jobs_wait_in_their_order_and_leave_receipts(shard: Shard) -> None:
    assert relay(shard, rows("b", "a", delay=60) + rows("c")).codes == [1, 1, 1]
    assert [shard.state(id) for id in "abc"] == ["delayed"] * 3
    assert shard.counts == {"enqueued": 3}
    assert receipts(shard) == [b"a's", b"b's", b"c's"]
    job = shard.job("a")
    assert (job.due_ms, job.created_ms) == (START_MS + 60_000, START_MS)
    shard.clock.advance(60)
    shard.move()
    assert [row.id for row in shard.claim().rows] == [b"c", b"b", b"a"]


def test_it_wakes_the_mover_for_an_earlier_job(shard: Shard) -> None:
    relay(shard, rows("a", delay=60))
    first = shard.last_wakeup()
    assert first is not None
    relay(shard, rows("b", delay=90))
    assert shard.last_wakeup() == first
    relay(shard, rows("c", delay=30))
    second = shard.last_wakeup()
    assert second != first
    relay(shard, rows("at the same time", delay=30))
    assert shard.last_wakeup() == second


def test_of_several_it_wakes_the_mover_for_the_earliest(shard: Shard) -> None:
    relay(shard, rows("a", delay=3) + rows("b", delay=1) + rows("c", delay=2))
    assert shard.wakeup_ms() == START_MS + 1000


def test_each_gets_the_next_number(shard: Shard) -> None:
    for jobs in (rows("a"), rows("a", "b"), rows("c", "d")):
        relay(shard, jobs)
    members = [b"000000000001a", b"000000000002b", b"000000000003c", b"000000000004d"]
    assert shard.redis("ZRANGE", shard.k.bucket, 0, -1) == members


def test_the_length_of_the_largest_record_never_falls(shard: Shard) -> None:
    for body in ("large", "s"):
        relay(shard, rows(body, body=body))
        assert int(shard.redis("HGET", shard.k.settings, "largest")) == shard.redis("HSTRLEN", shard.k.jobs, "large")


def test_repeated_it_does_nothing(shard: Shard) -> None:
    jobs = rows("a", "b")
    relay(shard, jobs)
    before = shard.counts
    assert relay(shard, jobs).codes == [2, 2]
    assert shard.counts == before


def test_repeated_after_the_job_has_ended_it_does_nothing(shard: Shard) -> None:
    jobs = rows("a")
    relay(shard, jobs)
    shard.move()
    shard.finish(shard.take())
    assert shard.state("a") == "gone"
    assert relay(shard, jobs + rows("b")).codes == [2, 1]
    assert shard.state("a") == "gone"


def test_another_job_keeps_its_id(shard: Shard) -> None:
    shard.enqueue("a", delay=60)
    assert relay(shard, rows("a", "b")).codes == [0, 1]
    assert shard.counts == {"enqueued": 2}
    assert receipts(shard) == [b"b's"], "what was not enqueued has none"


def test_its_own_job_gets_the_receipt_back(shard: Shard) -> None:
    """Somebody deleted the receipts, and the job is still there."""
    jobs = rows("a", delay=60)
    relay(shard, jobs)
    shard.redis("DEL", shard.k.outbox)
    assert relay(shard, jobs).codes == [2]
    assert shard.redis("HGETALL", shard.k.outbox) == [b"a's", b"1"]
    assert shard.counts == {"enqueued": 1}


def test_it_replaces_a_waiting_job(shard: Shard) -> None:
    shard.enqueue("a", delay=60)
    assert relay(shard, rows("a", delay=5, replace=True)).codes == [1]
    assert shard.counts == {"enqueued": 2, "cancelled:default": 1}
    shard.clock.advance(5)
    shard.move()
    assert shard.take().past == b""


def test_it_does_not_replace_a_running_job_nor_a_dead_one(shard: Shard) -> None:
    shard.enqueue("a", "b")
    running, dead = shard.claim().rows
    shard.bury(dead)
    assert relay(shard, rows("a", "b", replace=True)).codes == [0, 0]
    assert not shard.finish(running).stale


def test_a_relay_that_was_replaced_is_refused(shard: Shard) -> None:
    relay(shard, rows("a"), epoch=7)
    before = shard.counts
    assert shard.redis("HGET", shard.k.settings, "relay:o") == b"7"
    assert relay(shard, rows("b"), epoch=6) == RelayReply(True, [], 7)
    assert shard.counts == before
    assert shard.state("b") == "gone"
    assert relay(shard, rows("b"), epoch=7).codes == [1]
    assert relay(shard, rows("c"), epoch=8).codes == [1]


def test_each_outbox_has_its_own_epochs(shard: Shard) -> None:
    relay(shard, rows("a"), epoch=7)
    assert relay(shard, rows("b"), epoch=1, outbox="another").codes == [1]


def test_outdated_settings_are_refused(shard: Shard) -> None:
    assert relay(shard, rows("a")) == RelayReply(True, [1])
    before = shard.counts
    assert relay(shard, rows("a"), shards=2) == RelayReply(False, [])
    assert relay(shard, rows("a"), later=-1) == RelayReply(False, []), "as after the topic was deleted and made again"
    assert shard.counts == before


def test_a_call_reads_a_bounded_number_of_bytes(shard: Shard) -> None:
    large = "x" * 100_000
    relay(shard, rows("a", "b", "c", delay=60, body=large))
    assert relay(shard, rows("a", "b", "c", body=large)).codes == [2, 2, 2], "by receipts: no record is read"
    shard.redis("DEL", shard.k.outbox)
    before = shard.counts
    reply = relay(shard, rows("a", "b", "c", "d", body="new"))
    assert reply.codes == [0, 0], "the rest is left for another call"
    assert shard.counts == before


def test_the_last_record_read_is_the_one_that_reaches_the_bytes_allowed(shard: Shard) -> None:
    shard.enqueue("a", "b", "c", delay=60)
    length = shard.redis("HSTRLEN", shard.k.jobs, "a")
    keys = keys_of("relay", shard.k)
    for most, looked in ((2 * length, 2), (2 * length + 1, 3)):
        args = (str(START_MS), 1, shard.settings.version, 100, most, "o", 1, "", *rows("a", "b", "c", "d"))
        assert shard.run(shard.scripts._run("relay", keys, args)) == [1] + [0] * looked


def test_in_a_previous_shard_only_what_is_there_is_enqueued(shard: Shard) -> None:
    """Or has been: its receipt tells."""
    relay(shard, rows("ended", "waits", "there"))
    shard.call("cancel", "ended")
    shard.enqueue_unique("taken", rule="60000|||")
    shard.call("cancel", "taken")
    given = rows("ended", "new", "waits", "taken") + rows("there", body="other", replace=True)
    given[-2] = "another row's"
    reply: RelayReply = shard.call("relay", shard.settings, "o", 1, given, False, True)
    assert reply.codes == [2, 3, 2, 1, 1]
    assert shard.redis("HGET", shard.k.settings, "former_puts") == b"1"
    shard.call("relay", shard.settings, "o", 1, rows("ended", "new"), False, True)
    assert shard.redis("HGET", shard.k.settings, "former_puts") == b"1", "nothing came"
    assert shard.get("new") is None
    assert b"new's" not in receipts(shard)
    assert shard.state("taken") == "delayed"


# Jobs with keys


def admitted(shard: Shard) -> list[bytes]:
    found: list[bytes] = shard.redis("ZRANGE", shard.k.key_admitted, 0, -1)
    return found


def test_where_keys_have_a_limit_jobs_wait_for_a_place(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    assert relay(shard, rows("a", "b", key="m") + rows("c")).codes == [1, 1, 1]
    assert [ticket.split(b"\x1f")[:2] for ticket in admitted(shard)] == [[b"default", b"m"]]
    assert shard.redis("ZCARD", shard.k.key_waiting) == 1
    shard.move()
    first = shard.claim().rows
    assert sorted(row.id for row in first) == [b"a", b"c"]
    shard.finish(*first)
    shard.move()
    assert shard.take().id == b"b"


@pytest.mark.parametrize("limited", ["never", "no longer"])
def test_without_a_limit_a_key_is_but_kept(shard: Shard, limited: str) -> None:
    if limited == "no longer":
        shard.topic(key_concurrency=1)
        shard.topic(key_concurrency=0)
    relay(shard, rows("a", "b", key="m"))
    assert admitted(shard) == []
    assert shard.redis("ZCARD", shard.k.bucket) == 2
    job = shard.job("a")
    assert job.key == "m"


def test_so_many_jobs_with_keys_that_it_is_called_again(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    jobs = rows(*(f"j{n}" for n in range(120)), key="m")
    codes = relay(shard, jobs).codes
    assert len(codes) < 120
    assert set(codes) == {1}
    relay(shard, jobs[5 * len(codes) :])
    assert shard.counts["enqueued"] == 120


def test_an_id_that_stays_taken_after_the_end_of_its_job_is_so_after_it_was_replaced(shard: Shard) -> None:
    shard.enqueue_unique("a", rule="f90000|||", delay=60)
    before = shard.redis("ZSCORE", shard.k.taken_until, "a")
    assert relay(shard, rows("a", replace=True)).codes == [1]
    assert float(before) > 1e15
    assert float(shard.redis("ZSCORE", shard.k.taken_until, "a")) == START_MS + 90_000


def test_a_key_goes_on_when_its_job_is_replaced(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", "b", delay=60, key="m")
    assert relay(shard, rows("a", delay=60, replace=True)).codes == [1]
    assert [ticket[-1:] for ticket in admitted(shard)] == [b"b"]
