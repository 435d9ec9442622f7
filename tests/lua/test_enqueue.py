"""enqueue: nothing -> delayed, or -> ready when it is due already and nothing waits before it."""

from __future__ import annotations

import pytest

from streamdq.job.job import NewJob
from streamdq.operations.topics import configure
from streamdq.store.assembly import keys_of
from streamdq.store.jobs.records import encode, job_in, nonce_of
from tests.lua.shard import START_MS, Shard


def test_a_delayed_job_waits_in_the_bucket(shard: Shard) -> None:
    reply = shard.enqueue("j", delay="5s", ttr="7s", expire="9s", retry="1s 2s", url="https://example.org/")
    assert reply == (True, START_MS, {}, 1, 1)
    assert shard.redis("ZRANGE", shard.k.bucket, 0, -1, "WITHSCORES") == [b"000000000001j", b"1700000005000"]
    job = job_in("t", "j", shard.redis("HGET", shard.k.jobs, "j"))
    assert (job.due_ms, job.created_ms, job.ttr_ms, job.expire_ms) == (START_MS + 5000, START_MS, 7000, 9000)
    assert (job.retry, job.url, job.body) == ("1000ms 2000ms", "https://example.org/", {"id": "j"})
    assert shard.state("j") == "delayed"
    assert shard.counts == {"enqueued": 1}


def test_an_absolute_moment_is_taken_as_it_is(shard: Shard) -> None:
    shard.enqueue("j", at=START_MS + 1234)
    job = shard.job("j")
    assert job.due_ms == START_MS + 1234


def test_a_job_due_at_once_goes_straight_to_the_ready_stream(two: Shard) -> None:
    two.enqueue("j")
    assert two.entries(two.k.ready) == [b"000000000001j"]
    assert two.redis("ZCARD", two.k.bucket) == 0
    assert (two.state("j", "a"), two.state("j", "b")) == ("ready", "ready")
    assert two.counts == {"enqueued": 1, "ready:a": 1, "ready:b": 1}


def test_it_tells_which_jobs_are_ready_if_they_are_due(shard: Shard) -> None:
    assert shard.enqueue("first").skips_bucket == 1
    shard.redis("HSET", shard.k.settings, "key_limit", "1")
    assert shard.enqueue("second").skips_bucket == 2, "those without a key"
    shard.redis("HDEL", shard.k.settings, "key_limit")
    for hinders in ("paused", "rate"):
        shard.redis("HSET", shard.k.settings, hinders, "1")
        assert shard.enqueue(hinders).skips_bucket == 0
        shard.redis("HSET", shard.k.settings, hinders, "0")
    assert shard.enqueue("third").skips_bucket == 0, "others are due, and were not moved yet"
    assert {shard.state(id) for id in ("first", "second")} == {"ready"}
    assert {shard.state(id) for id in ("paused", "rate", "third")} == {"delayed"}


def test_a_moment_that_has_passed_is_due_at_once(shard: Shard) -> None:
    shard.enqueue("j", at=START_MS - 1)
    assert shard.state("j") == "ready"


def test_it_waits_behind_what_is_due_already(shard: Shard) -> None:
    shard.enqueue("first", delay="1s")
    shard.clock.advance("1s")
    shard.enqueue("second")
    assert shard.state("second") == "delayed"
    shard.move()
    assert shard.entries(shard.k.ready) == [b"000000000001first", b"000000000002second"]


def test_it_overtakes_what_is_not_due_yet(shard: Shard) -> None:
    shard.enqueue("later", delay="1s")
    shard.enqueue("now")
    assert (shard.state("later"), shard.state("now")) == ("delayed", "ready")


def test_a_paused_topic_holds_it(shard: Shard) -> None:
    shard.run(configure.pause(shard.store, "t"))
    shard.enqueue("j")
    assert shard.state("j") == "delayed"


def test_a_topic_with_a_rate_holds_it(shard: Shard) -> None:
    shard.topic(rate=10)
    shard.enqueue("j")
    assert shard.state("j") == "delayed"


def test_the_order_within_one_millisecond_is_kept(shard: Shard) -> None:
    ids = [f"job-{i:03}" for i in range(300)]
    shard.enqueue(*reversed(ids[:150]), delay="1s")
    shard.enqueue(*reversed(ids[150:]), delay="1s")
    shard.clock.advance("1s")
    shard.move()
    assert [member[12:].decode() for member in shard.entries(shard.k.ready)] == [*ids[149::-1], *ids[:149:-1]]


def test_a_taken_id_is_reported_with_its_record_and_changes_nothing(shard: Shard) -> None:
    shard.enqueue("j", delay="5s")
    held = shard.redis("HGET", shard.k.jobs, "j")
    reply = shard.enqueue("i", "j", "k", delay="1s")
    assert reply.taken == {1: held}
    assert shard.redis("HGET", shard.k.jobs, "j") == held
    assert shard.redis("ZCARD", shard.k.bucket) == 3
    assert shard.counts["enqueued"] == 3


def test_the_same_id_twice_in_one_call(shard: Shard) -> None:
    jobs = shard.jobs("j", delay="1s") + shard.jobs("j", delay="2s")
    reply = shard.call("enqueue", 1, jobs)
    assert list(reply.taken) == [1]
    assert nonce_of(reply.taken[1]) == nonce_of(b"\n\n" + jobs[2])
    assert shard.counts["enqueued"] == 1


def test_settings_out_of_date_write_nothing(shard: Shard) -> None:
    before = shard.counts
    assert shard.call("enqueue", 4, shard.jobs("j", delay=1)) == (False, START_MS, {}, 0, -1)
    assert shard.counts == before
    assert shard.empty()


def test_it_wakes_the_mover_only_for_a_new_earliest_job(shard: Shard) -> None:
    shard.enqueue("a", delay="10s")
    first = shard.last_wakeup()
    shard.enqueue("later", delay="11s")
    assert shard.last_wakeup() == first
    shard.enqueue("sooner", delay="9s")
    assert shard.last_wakeup() != first


def test_it_wakes_the_mover_for_the_first_ready_job_when_nobody_watches(shard: Shard) -> None:
    before = shard.last_wakeup()
    shard.enqueue("first")
    first = shard.last_wakeup()
    assert first != before
    shard.enqueue("second")
    assert shard.last_wakeup() == first
    shard.finish(*shard.claim().rows)
    shard.reclaim()  # from now on the mover watches by itself
    before = shard.last_wakeup()
    shard.enqueue("watched")
    assert shard.last_wakeup() == before


def test_without_an_injected_clock_redis_tells_the_time(timed: Shard) -> None:
    before_ms = int(timed.redis("TIME")[0]) * 1000
    reply = timed.enqueue("j", delay="1h")
    job = timed.job("j")
    assert reply.now_ms == job.created_ms == job.due_ms - 3_600_000
    assert before_ms <= reply.now_ms <= before_ms + 60_000


def test_with_the_clock_set_back_the_first_ready_job_wakes_the_mover_all_the_same(shard: Shard) -> None:
    shard.reclaim()
    shard.clock.now_ms -= 3_600_000
    before = shard.last_wakeup()
    shard.enqueue("j")
    assert shard.last_wakeup() != before


def test_of_large_jobs_that_hold_the_ids_only_so_many_are_read(shard: Shard) -> None:
    ids = [f"j{n}" for n in range(9)]
    jobs = [value for id in ids for value in encode(NewJob("x" * 100_000, id=id, delay=60), 300_000)[:3]]
    shard.call("enqueue", 1, jobs)
    reply = shard.call("enqueue", 1, shard.jobs(*ids, "new", delay=60))
    assert (list(reply.taken), reply.looked) == ([0, 1, 2], 3)
    assert shard.counts["enqueued"] == 9
    rest = shard.call("enqueue", 1, shard.jobs(*ids[8:], "new", delay=60))
    assert (list(rest.taken), rest.looked) == ([0], 2)
    assert shard.counts["enqueued"] == 10


def test_the_length_of_the_largest_record_is_kept(shard: Shard) -> None:
    def largest() -> int:
        return int(shard.redis("HGET", shard.k.settings, "largest"))

    shard.enqueue("j")
    before = largest()
    assert before == shard.redis("HSTRLEN", shard.k.jobs, "j")
    shard.enqueue("larger", url="https://example.org/")
    assert largest() == shard.redis("HSTRLEN", shard.k.jobs, "larger") > before
    shard.enqueue("k")
    assert largest() == shard.redis("HSTRLEN", shard.k.jobs, "larger")
    shard.call("replace", 1, shard.jobs("k", url="https://example.org/longer"))
    assert largest() == shard.redis("HSTRLEN", shard.k.jobs, "k")


def test_it_writes_although_the_id_is_taken(shard: Shard) -> None:
    """So that WAIT behind a call that is repeated covers what the first one wrote."""
    shard.enqueue("j")
    before = shard.counts
    assert shard.writes(shard.scripts.enqueue(shard.k, 1, shard.jobs("j")))
    assert shard.counts == before


def test_of_several_the_earliest_wakes_the_mover_if_it_is_earlier_than_all_before(shard: Shard) -> None:
    shard.call("enqueue", 1, shard.jobs("i", delay="3s") + shard.jobs("j", delay="1s") + shard.jobs("k", delay="2s"))
    assert shard.wakeup_ms() == START_MS + 1000
    before = shard.last_wakeup()
    shard.enqueue("at the same time", delay="1s")
    assert shard.last_wakeup() == before


def test_the_first_ready_job_of_any_group_wakes_the_mover(two: Shard) -> None:
    two.enqueue("i")
    two.finish(*two.claim(group="a").rows, group="a")
    before = two.last_wakeup()
    two.enqueue("j")
    assert two.last_wakeup() != before, "group a had none"


def test_records_that_hold_ids_are_returned_up_to_the_bytes_allowed(shard: Shard) -> None:
    shard.enqueue("i", "j", "k", delay="1s")
    length = shard.redis("HSTRLEN", shard.k.jobs, "i")
    keys = keys_of("enqueue", shard.k)
    for most, looked in ((2 * length, 2), (2 * length + 1, 3)):
        jobs = shard.jobs("i", "j", "k", "l")[: 3 * 4]
        reply = shard.run(shard.scripts._run("enqueue", keys, (str(START_MS), 1, most, *jobs)))
        assert reply[:3] == [2, START_MS, looked]


@pytest.mark.parametrize("unique", [True, False])
def test_without_the_limit_that_there_was_jobs_with_keys_wait_for_nothing(shard: Shard, unique: bool) -> None:
    for limit in (1, 0):
        shard.topic(key_concurrency=limit)
    (shard.enqueue_unique if unique else shard.enqueue)("a", "b", key="k")
    assert shard.redis("HLEN", shard.k.key_tickets) == shard.redis("HLEN", shard.k.progress) == 0
    shard.move()
    assert len(shard.claim().rows) == 2


def test_a_unique_job_with_a_key_and_no_limit_has_no_place(shard: Shard) -> None:
    shard.enqueue_unique("a", key="k")
    assert shard.redis("HLEN", shard.k.key_tickets) == 0


@pytest.mark.parametrize(
    ("has_keys", "named", "taken"),
    [
        (False, "3", True), (False, "3k", False), (False, "2", False), (True, "3", True), (True, "3k", True),
        (True, "2k", False), (True, "33k", False), (True, "3kk", False), (True, "", False),
    ],
)  # fmt: skip
def test_where_a_key_decides_the_shard_it_must_be_marked(shard: Shard, has_keys: bool, named: str, taken: bool) -> None:
    shard.topic(shards=3)
    if has_keys:
        shard.call("configure_shard", shard.settings.model_copy(update={"sharded_by_key": True}))
    assert shard.run(shard.scripts.enqueue(shard.k, named, shard.jobs("j"))).current is taken
