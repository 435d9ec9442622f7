"""replace: a job takes the place of the one with the same id."""

from __future__ import annotations

from streamdq.job.job import NewJob
from streamdq.store.assembly import keys_of
from streamdq.store.jobs.records import encode
from tests.lua.shard import START_MS, Shard


def test_a_new_id_is_simply_put_in(shard: Shard) -> None:
    assert shard.call("replace", 1, shard.jobs("j", delay="1s")) == (True, START_MS, {}, 1, 0)
    assert shard.state("j") == "delayed"
    assert shard.counts == {"enqueued": 1}


def test_a_job_with_a_key_and_no_limit_has_no_place(shard: Shard) -> None:
    assert shard.call("replace", 1, shard.jobs("j", key="k")).taken == {}
    assert shard.redis("HLEN", shard.k.key_tickets) == shard.redis("HLEN", shard.k.progress) == 0


def test_a_delayed_job_is_cancelled_and_followed(two: Shard) -> None:
    two.enqueue("j", delay="1s", ttr="1s")
    assert two.call("replace", 1, two.jobs("j", delay="2s")).taken == {}
    assert two.counts == {"enqueued": 2, "cancelled:a": 1, "cancelled:b": 1}
    assert two.redis("ZRANGE", two.k.bucket, 0, -1, "WITHSCORES")[1::2] == [str(START_MS + 2000).encode()]
    job = two.job("j")
    assert job.ttr_ms is None


def test_a_ready_job_does_not_run_but_its_successor_does(shard: Shard) -> None:
    shard.enqueue("j")
    shard.call("replace", 1, shard.jobs("j", url="https://example.org"))
    shard.move()
    row = shard.take()
    assert b"https://example.org" in row.record
    shard.finish(row)
    assert shard.empty()


def test_a_job_that_waits_for_its_retry_begins_anew(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=1000)
    assert shard.call("replace", 1, shard.jobs("j")).taken == {}
    shard.move()
    assert shard.take().past == b""


def test_a_repeated_call_finds_its_own_job(shard: Shard) -> None:
    """Its reply was lost, and meanwhile the job was tried: it goes on where it is."""
    jobs = shard.jobs("j")
    shard.call("replace", 1, jobs)
    shard.move()
    shard.retry(shard.take(), delay_ms=1000)
    held, before = shard.redis("HGET", shard.k.jobs, "j"), shard.counts
    assert shard.call("replace", 1, jobs).taken == {0: held}
    assert (shard.redis("HGET", shard.k.jobs, "j"), shard.counts) == (held, before)
    shard.clock.advance("1s")
    shard.move()
    assert shard.take().parts()[2] is not None, "the second attempt"


def test_running_and_dead_jobs_are_kept(shard: Shard) -> None:
    shard.enqueue("dead")
    shard.bury(shard.take())
    shard.enqueue("running")
    row = shard.take()
    held = shard.redis("HMGET", shard.k.jobs, "running", "dead")
    reply = shard.call("replace", 1, shard.jobs("running", "new", "dead", delay="1s"))
    assert reply.taken == {0: held[0], 2: held[1]}
    assert shard.redis("HMGET", shard.k.jobs, "running", "dead") == held
    assert shard.state("new") == "delayed"
    assert shard.counts["enqueued"] == 3
    assert shard.finish(row).stale == frozenset()


def test_a_job_that_is_dead_for_one_group_is_kept(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    assert list(two.call("replace", 1, two.jobs("j")).taken) == [0]
    assert (two.state("j", "a"), two.state("j", "b")) == ("dead", "ready")
    assert two.counts == {"enqueued": 1, "dead:a": 1, "ready:b": 1}


def test_settings_out_of_date_write_nothing(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    before = shard.counts, shard.redis("HGETALL", shard.k.jobs)
    assert shard.call("replace", 2, shard.jobs("j")) == (False, START_MS, {}, 0, -1)
    assert (shard.counts, shard.redis("HGETALL", shard.k.jobs)) == before


def test_it_notifies_the_mover_of_a_new_earliest(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    before = shard.last_wakeup()
    shard.call("replace", 1, shard.jobs("i", delay="2s"))
    assert shard.last_wakeup() == before
    shard.call("replace", 1, shard.jobs("i", delay="500ms"))
    assert shard.last_wakeup() != before


def test_of_large_jobs_only_so_many_are_replaced(shard: Shard) -> None:
    ids = [f"j{n}" for n in range(5)]
    jobs = [value for id in ids for value in encode(NewJob("x" * 100_000, id=id, delay=60), 300_000)[:3]]
    shard.call("enqueue", 1, jobs)
    reply = shard.call("replace", 1, shard.jobs(*ids, "new", delay=60))
    assert (reply.taken, reply.looked) == ({}, 2)
    assert shard.counts == {"enqueued": 7, "cancelled:default": 2}


def test_it_writes_although_the_id_is_taken(shard: Shard) -> None:
    """So that WAIT behind a call that is repeated covers what the first one wrote."""
    shard.enqueue("j")
    shard.claim()
    before = shard.counts
    assert shard.writes(shard.scripts.replace(shard.k, 1, shard.jobs("j")))
    assert shard.counts == before


def test_of_several_the_earliest_wakes_the_mover_if_it_is_earlier_than_all_before(shard: Shard) -> None:
    shard.call("replace", 1, shard.jobs("i", delay="3s") + shard.jobs("j", delay="1s") + shard.jobs("k", delay="2s"))
    assert shard.wakeup_ms() == START_MS + 1000
    before = shard.last_wakeup()
    shard.call("replace", 1, shard.jobs("at the same time", delay="1s"))
    assert shard.last_wakeup() == before


def test_each_gets_the_next_number(shard: Shard) -> None:
    for ids in ("i", "jk", "j", "lm"):
        shard.call("replace", 1, shard.jobs(*ids, delay="1s"))
    members = shard.redis("ZRANGE", shard.k.bucket, 0, -1)
    assert members == [
        b"000000000001i", b"000000000003k", b"000000000004j", b"000000000005l", b"000000000006m",
    ]  # fmt: skip


def test_the_length_of_the_largest_record_never_falls(shard: Shard) -> None:
    for id in ("large", "s"):
        shard.call("replace", 1, shard.jobs(id, delay="1s"))
        assert int(shard.redis("HGET", shard.k.settings, "largest")) == shard.redis("HSTRLEN", shard.k.jobs, "large")


def test_records_are_read_up_to_the_bytes_allowed(shard: Shard) -> None:
    shard.enqueue("i", "j", "k", delay="1s")
    length = shard.redis("HSTRLEN", shard.k.jobs, "i")
    keys = keys_of("replace", shard.k)
    for most, looked in ((2 * length, 2), (2 * length + 1, 3)):
        args = (str(START_MS), 1, 100, most, *shard.jobs("i", "j", "k", "l", delay="1s"))
        assert shard.run(shard.scripts._run("replace", keys, args))[:3] == [1, START_MS, looked]
        shard.check()
