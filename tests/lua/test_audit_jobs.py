"""audit_jobs: where the shard's jobs should be, a page at a time."""

from __future__ import annotations

import pytest

from streamdq.job.job import NewJob
from streamdq.operations.checks import audit
from streamdq.store.jobs.records import encode
from tests.lua.links import Linked
from tests.lua.shard import Shard


def pages_of(shard: Shard, limit: int) -> list[list[tuple[str, str]]]:
    pages, cursor = [], b""
    while cursor != b"0":
        cursor, page, *_ = shard.run(shard.scripts.audit_jobs(shard.k, cursor or b"0", limit))
        pages.append([(id, group) for id, group, _ in page])
    return pages


def walk(shard: Shard, limit: int = 250) -> list[tuple[str, str]]:
    return sorted({job for page in pages_of(shard, limit) for job in page})


def test_what_waits_and_what_is_dead_is_in_no_stream(shard: Shard) -> None:
    shard.enqueue("dead", "retried")
    dead, retried = shard.claim().rows
    shard.bury(dead)
    shard.retry(retried, delay_ms=1000)
    shard.enqueue("delayed", delay="1s")
    assert walk(shard) == []


def test_what_is_ready_or_running_is_in_the_shared_stream_until_it_comes_back(two: Shard) -> None:
    two.enqueue("running", "retried", "ready")
    running, retried = two.claim(count=2).rows
    assert walk(two) == [("ready", ""), ("retried", ""), ("running", "")]
    two.retry(retried)
    two.move()
    assert walk(two) == [("ready", ""), ("retried", ""), ("retried", "a"), ("running", "")]
    two.finish(running)
    for row in two.claim(group="b").rows:
        two.finish(row, group="b")
    assert walk(two) == [("ready", ""), ("retried", "a")]


def test_what_the_only_group_runs_is_in_the_stream_that_it_was_read_from(shard: Shard) -> None:
    shard.enqueue("first", "again")
    _, again = shard.claim().rows
    shard.retry(again)
    shard.move()
    assert walk(shard) == [("again", "default"), ("first", "")]
    shard.claim()
    assert walk(shard) == [("again", "default"), ("first", "")]


def test_a_detached_job_is_for_the_groups_that_have_begun_it(shard: Shard) -> None:
    shard.enqueue("j")
    shard.bury(shard.take())
    shard.topic(groups=["default", "later"])
    assert walk(shard) == []
    shard.call("kick", "default", 10, [])
    assert walk(shard) == [("j", "default")]


@pytest.mark.parametrize("limit", [1, 7, 250])
def test_pages_are_all_there_is(shard: Shard, limit: int) -> None:
    shard.checked = False
    ids = [f"j{n:03}" for n in range(300)]
    shard.enqueue(*ids)
    assert walk(shard, limit) == [(id, "") for id in ids]


def test_of_large_jobs_a_page_has_few(shard: Shard) -> None:
    jobs = [value for n in range(200) for value in encode(NewJob("x" * 100_000, id=f"j{n}"), 200_000)[:3]]
    shard.checked = False
    shard.call("enqueue", 1, jobs)
    sizes = [len(page) for page in pages_of(shard, 250)]
    assert sum(sizes) >= 200
    if shard.is_fake:
        assert max(sizes) == 2  # 256 KiB of them
    else:  # a server returns whole buckets, and how many jobs a bucket has is chance
        assert sum(sizes) / len(sizes) <= 12


def test_of_small_jobs_beside_a_large_one_a_page_has_as_many_as_asked_for(shard: Shard) -> None:
    shard.checked = False
    ids = [f"j{n:03}" for n in range(60)]
    shard.enqueue(*ids)
    shard.call("enqueue", 1, encode(NewJob("x" * 100_000, id="large"), 200_000)[:3])
    pages = pages_of(shard, 10)
    assert {id for page in pages for id, _ in page} == {*ids, "large"}
    assert all(len(page) >= 10 for page in pages[:-1] if "large" not in dict(page))


def test_of_a_small_hash_that_redis_gives_whole_a_page_has_a_part(shard: Shard) -> None:
    shard.checked = False
    ids = [f"j{n:03}" for n in range(100)]
    jobs = [value for id in ids for value in encode(NewJob(1, id=id), 100)[:3]]
    shard.call("enqueue", 1, jobs)
    pages = pages_of(shard, 10)
    assert sorted(job for page in pages for job in page) == [(id, "") for id in ids]
    sizes = [len(page) for page in pages]
    assert max(sizes) <= 20
    assert shard.is_fake or sizes == [10] * 8 + [20], "the last one takes what is left"


def test_a_page_goes_on_where_redis_finds_none_in_a_part_of_the_hash(shard: Shard) -> None:
    """Nor does it need to know how large the records are: that is lost with the settings."""
    shard.checked = False
    ids = [f"j{n:03}" for n in range(600)]
    shard.enqueue(*ids)
    kept, others = ids[:110], ids[110:]  # just so many that Redis leaves the hash as wide as it is
    for id in others:
        shard.call("cancel", id)
    shard.redis("HDEL", shard.k.settings, "largest")
    pages = pages_of(shard, 1)
    assert {id for page in pages for id, _ in page} == {*kept}
    assert all(pages[:-1]), "only the last one may be empty"


def test_all_jobs_come_with_their_keys(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("a", key="k")
    shard.enqueue("b")
    shard.enqueue("c", delay="1h", key="l")
    reply = shard.run(shard.scripts.audit_jobs(shard.k, b"0", 10))
    assert sorted(reply.keys) == [(b"a", b"k"), (b"b", b""), (b"c", b"l")]


def test_a_job_that_waits_for_others_and_nothing_tells_for_which_is_lost(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p", delay="1s")
    linked.put("d", "p")
    linked.put("lost", "p")
    assert shard.run(shard.scripts.audit_jobs(shard.k, b"0", 10)).lost == []
    shard.checked = False
    shard.redis("HDEL", shard.k.dependencies, f"lost\x1f{linked.made['lost'].nonce}")
    assert shard.run(shard.scripts.audit_jobs(shard.k, b"0", 10)).lost == ["lost"]
    (orphan,) = shard.run(audit.audit(shard.store)).orphans
    assert (orphan.id, orphan.what) == ("lost", "waits for other jobs, and nothing tells for which")
