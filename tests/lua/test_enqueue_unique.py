"""enqueue_unique: an id stays taken for a time, is used only so often, or its waiting job is postponed."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.job.job import NewJob
from streamdq.store.jobs.records import encode, record_in
from streamdq.store.replies import Enqueued
from tests.lua.shard import START_MS, Shard
from tests.lua.test_archive import letters

MINUTE = "60000|||"


def due_of(shard: Shard) -> int:
    job = shard.job("j")
    return job.due_ms - START_MS


def ended(reply: Enqueued) -> tuple[int, bytes]:
    """Until when the only job's id is taken by a job that has ended, and that job's nonce."""
    record = record_in(reply.taken[0])
    assert record.body == b"null"
    return int(record.sequence, 16), record.nonce.encode()


def encode_nonce(jobs: list[Any]) -> bytes:
    """Of the only job, as ``Shard.jobs`` returns it."""
    nonce: bytes = jobs[2].split(b"\n", 3)[2]
    return nonce


def known(shard: Shard) -> list[bytes]:
    """The ids that are known to be taken: the same in both keys."""
    ids = shard.redis("ZRANGE", shard.k.taken_until, 0, -1)
    assert sorted(ids) == sorted(shard.redis("HKEYS", shard.k.taken))
    return list(ids)


# -- unique_for


def test_a_new_id_is_put_in_and_its_earlier_due_time_wakes_the_mover(shard: Shard) -> None:
    assert shard.enqueue_unique("j", rule=MINUTE, delay="1s") == (True, START_MS, {}, 1, 0)
    assert (shard.state("j"), shard.counts) == ("delayed", {"enqueued": 1})
    assert shard.wakeup_ms() == START_MS + 1000
    before = shard.last_wakeup()
    shard.enqueue_unique("i", rule=MINUTE, delay="2s")
    assert shard.last_wakeup() == before


@pytest.mark.parametrize("how", ["keep", "replace", "postpone"])
def test_the_id_stays_taken_after_the_job_has_ended(shard: Shard, how: str) -> None:
    shard.enqueue_unique("j", rule=MINUTE)
    shard.move()
    shard.finish(shard.take())
    before = shard.counts
    shard.clock.advance(59.999)
    assert ended(shard.enqueue_unique("j", rule=MINUTE, how=how))[0] == START_MS + 60_000
    assert (shard.counts, shard.state("j")) == (before, "gone")
    shard.clock.advance(0.001)
    assert shard.enqueue_unique("j", rule=MINUTE, how=how).taken == {}
    assert shard.state("j") == "delayed"


def test_a_live_job_has_its_id_also_when_the_time_is_over(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="1|||", delay="1h")
    held = shard.redis("HGET", shard.k.jobs, "j")
    shard.clock.advance("1m")
    assert shard.enqueue_unique("j", rule="1|||").taken == {0: held}


def test_a_replaced_job_begins_the_time_anew(shard: Shard) -> None:
    shard.enqueue_unique("j", rule=MINUTE, delay="1h")
    shard.clock.advance("30s")
    assert shard.enqueue_unique("j", rule=MINUTE, how="replace").taken == {}
    assert shard.counts == {"enqueued": 2, "cancelled:default": 1}
    shard.call("cancel", "j")
    assert ended(shard.enqueue_unique("j"))[0] == START_MS + 90_000


def test_an_ordinary_enqueue_does_not_look_at_it(shard: Shard) -> None:
    shard.enqueue_unique("j", rule=MINUTE)
    shard.call("cancel", "j")
    assert shard.enqueue("j").taken == {}


def test_a_repeated_call_finds_its_own_job_even_if_that_has_ended(shard: Shard) -> None:
    jobs = shard.jobs("j")
    shard.repeat_unique(jobs, rule=MINUTE)
    held, before = shard.redis("HGET", shard.k.jobs, "j"), shard.counts
    for how in ("keep", "replace", "postpone"):
        assert shard.repeat_unique(jobs, how, MINUTE).taken == {0: held}
    assert shard.counts == before
    shard.move()
    shard.finish(shard.take())
    assert ended(shard.repeat_unique(jobs, rule=MINUTE))[1] == record_in(held).nonce.encode()
    assert shard.counts["enqueued"] == 1


def test_a_repeated_call_with_a_rate_alone_finds_its_job_that_has_ended(shard: Shard) -> None:
    jobs = shard.jobs("j")
    shard.repeat_unique(jobs, rule="|3|60000|")
    shard.call("cancel", "j")
    assert ended(shard.repeat_unique(jobs, rule="|3|60000|"))[0] == 0, "another job could have the id"
    assert shard.counts["enqueued"] == 1


# -- rate_of_id


def test_a_rate_counts_the_jobs_of_any_span(shard: Shard) -> None:
    rule = "|2|60000|"

    def put() -> bool:
        took = not shard.enqueue_unique("j", rule=rule).taken
        if took:
            shard.call("cancel", "j")
        return took

    assert put()
    shard.clock.advance("40s")
    assert put()
    assert ended(shard.enqueue_unique("j", rule=rule))[0] == START_MS + 60_000
    shard.clock.advance(19.999)
    assert not put()
    shard.clock.advance(0.001)
    assert put()
    assert ended(shard.enqueue_unique("j", rule=rule))[0] == START_MS + 100_000


def test_a_rate_counts_replacements_but_not_postponements(shard: Shard) -> None:
    rule = "|2|60000|"
    for n in range(2):
        shard.enqueue_unique("j", rule=rule, delay="1h", how="replace")
        assert shard.counts["enqueued"] == n + 1
    held = shard.redis("HGET", shard.k.jobs, "j")
    assert shard.enqueue_unique("j", rule=rule, delay="1h", how="replace").taken == {0: held}
    assert shard.enqueue_unique("j", rule=rule, delay="2h", how="postpone").taken[0] != held
    assert shard.counts == {"enqueued": 2, "cancelled:default": 1}


def test_a_call_without_a_rate_in_between_hides_no_earlier_job(shard: Shard) -> None:
    for rule in ("|2|60000|", "|2|60000|", "1000|||"):
        shard.enqueue_unique("j", rule=rule, how="replace", delay="1h")
        shard.call("cancel", "j")
    shard.clock.advance("1s")
    assert ended(shard.enqueue_unique("j", rule="|2|60000|"))[0] == START_MS + 60_000


# -- postpone


def test_a_delayed_job_gets_the_new_body_and_due_time(two: Shard) -> None:
    first = two.jobs("j", delay="1s", ttr="1s")
    two.repeat_unique(first, "postpone")
    two.clock.advance("500ms")
    new = encode(NewJob({"new": 1}, id="j", delay="1s"), 1000)
    reply = two.repeat_unique(list(new[:3]), "postpone")
    job = two.job("j")
    assert (job.body, job.due_ms, job.created_ms, job.ttr_ms) == ({"new": 1}, START_MS + 1500, START_MS, None)
    assert record_in(reply.taken[0]).nonce == new.nonce, "its own: it was not refused"
    assert two.counts == {"enqueued": 1}
    two.clock.advance("999ms")
    assert two.move().moved == 0
    two.clock.advance("1ms")
    assert two.move().moved == 1
    for group in "ab":
        two.finish(two.take(group), group=group)
    assert two.empty()


@pytest.mark.parametrize(
    ("there", "steps"),
    [
        ("postponed", [(0, "1s", "", 1_000)]),
        ("", [(500 * n, "1s", "3000", min(1_000 + 500 * n, 4_000)) for n in range(10)]),
        (
            "",
            [
                (0, "1s", "3000", 1_000), (0, "1h", "", 4_000), (0, "2s", "3000", 2_000), (0, "1h", "3600000", 4_000),
                (0, "1h", "", 4_000), (0, "500ms", "", 500), (0, "1h", "3000", 4_000),
            ],
        ),
        ("enqueued", [(0, "3s", "3000", 3_000), (0, "1h", "3000", 4_000), (0, "1h", "3000", 4_000)]),
    ],
    ids=["brought forward", "put off again and again", "the first limit holds", "after a job without a rule"],
)  # fmt: skip
def test_when_a_postponed_job_is_due(shard: Shard, there: str, steps: list[tuple[int, str, str, int]]) -> None:
    """``there``: what the first call finds. Each step: when the call comes, its delay and at_most, and when the job is
    due from then on.
    """
    if there == "postponed":
        shard.enqueue_unique("j", how="postpone", delay="1h")
    elif there == "enqueued":
        shard.enqueue("j", delay="1s")
    for at_ms, delay, at_most, due_ms in steps:
        shard.clock.now_ms = START_MS + at_ms
        shard.enqueue_unique("j", how="postpone", delay=delay, rule=f"|||{at_most}")
        assert due_of(shard) == due_ms


def test_the_limit_belongs_to_one_job_not_to_its_successor(shard: Shard) -> None:
    rule = "|||3000"
    shard.enqueue_unique("j", how="postpone", delay="1s", rule=rule)
    shard.call("cancel", "j")
    shard.clock.advance("1s")
    shard.enqueue("j", delay="10s")
    for _ in range(2):
        shard.enqueue_unique("j", how="postpone", delay="1m", rule=rule)
        assert due_of(shard) == 14_000


def test_a_ready_job_gets_the_new_body_and_stays_ready(shard: Shard) -> None:
    shard.enqueue("j")
    reply = shard.repeat_unique(list(encode(NewJob("new", id="j", delay="1h"), 1000)[:3]), "postpone", "|||1000")
    assert record_in(reply.taken[0]).due_ms == START_MS
    assert shard.state("j") == "ready"
    row = shard.take()
    assert row.record.endswith(b'\n"new"')
    shard.finish(row)
    assert shard.empty()


def test_a_job_before_its_next_attempt_gets_the_new_body(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=1000)
    shard.repeat_unique(list(encode(NewJob("new", id="j", delay="1h"), 1000)[:3]), "postpone")
    shard.clock.advance("1s")
    shard.move()
    row = shard.take()
    assert row.record.endswith(b'\n"new"')
    assert row.parts()[2] is not None, "the second attempt"


def test_a_job_that_only_a_leaving_group_has_is_not_postponed(shard: Shard) -> None:
    shard.topic(groups=["a"])
    shard.enqueue("j")
    shard.retry(shard.take("a"), group="a", delay_ms=1000)
    shard.topic(groups=["a", "b"])
    shard.begin_to_leave("a")
    held = shard.redis("HGET", shard.k.jobs, "j")
    assert shard.enqueue_unique("j", how="postpone").taken == {0: held}


def test_a_ready_job_stays_ready_though_the_clock_was_set_back(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    shard.clock.advance("1s")
    shard.move()
    shard.clock.now_ms -= 500
    shard.enqueue_unique("j", how="postpone", delay="1h")
    assert shard.redis("ZCARD", shard.k.bucket) == 0
    assert due_of(shard) == 1000


def test_of_several_that_are_brought_forward_the_earliest_wakes_the_mover(shard: Shard) -> None:
    shard.enqueue_unique("i", "j", "k", delay="1h")
    jobs = [value for id, delay in (("i", "1s"), ("j", "2s")) for value in shard.jobs(id, delay=delay)]
    shard.repeat_unique(jobs, "postpone")
    assert shard.wakeup_ms() == START_MS + 1000


def test_at_most_is_not_that_of_another_job_of_the_same_millisecond(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="|||4000", how="postpone", delay="2s")
    shard.call("replace", 1, shard.jobs("j", delay="8s"))
    for rule, delay, due_ms in (("|||", "20s", 20_000), ("|||4000", "1h", 24_000)):
        shard.enqueue_unique("j", rule=rule, how="postpone", delay=delay)
        assert due_of(shard) == due_ms


def test_a_postponed_job_keeps_its_id_for_as_long_as_the_first_call_said(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="60000|1|90000|", delay="1s")
    for delay in ("2s", "3s", "4s"):
        new = shard.jobs("j", delay=delay)
        shard.repeat_unique(new, "postpone")
    shard.clock.advance("4s")
    shard.move()
    shard.finish(shard.take())
    assert shard.counts["done:default"] == 1
    reply = shard.repeat_unique(new, "postpone")
    assert ended(reply)[1] == encode_nonce(new), "the call is repeated: it has the job's own"
    assert record_in(reply.taken[0]).due_ms == START_MS + 4000
    assert ended(shard.enqueue_unique("j", rule=MINUTE))[0] == START_MS + 60_000
    assert ended(shard.enqueue_unique("j", rule="|1|90000|"))[0] == START_MS + 90_000


def test_a_rate_lets_a_job_be_replaced_from_its_time_on(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="|1|60000|", delay="1h")
    shard.clock.advance("30s")
    assert shard.enqueue_unique("j", rule="|1|30000|", delay="1h", how="replace").taken == {}
    assert shard.counts["cancelled:default"] == 1


def test_history_has_what_was_replaced_or_none_is_kept(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    shard.enqueue_unique("j", delay="1h")
    shard.enqueue_unique("j", delay="1h", how="replace")
    assert shard.events() == [("cancelled", "j", "default")]
    monkeypatch.setattr(shard.scripts, "_history", 0)
    shard.enqueue_unique("j", delay="1h", how="replace")
    assert len(shard.events()) == 1


# -- what is kept


def test_nothing_is_kept_for_a_job_without_a_rule(shard: Shard) -> None:
    shard.enqueue_unique("j", how="postpone", delay="1s")
    shard.enqueue_unique("j", how="postpone", delay="2s")
    assert known(shard) == []


def test_what_is_over_is_forgotten_a_few_at_each_call(shard: Shard) -> None:
    shard.enqueue_unique(*(f"j{n}" for n in range(40)), rule="1000|||")
    shard.enqueue_unique("late", rule=MINUTE)
    shard.clock.advance("1s")
    shard.enqueue_unique("next", rule=MINUTE)
    assert len(known(shard)) == 42 - 12
    for n in range(3):
        shard.enqueue_unique(f"more{n}", rule="|5|1000|")
    assert known(shard) == [b"more0", b"more1", b"more2", b"late", b"next"]


def test_both_keys_expire_a_minute_after_the_last_is_over(shard: Shard) -> None:
    shard.enqueue_unique("short", "shorter", rule="1000|||")
    shard.enqueue_unique("long", rule="3600000|||")
    for key in (shard.k.taken, shard.k.taken_until):
        assert 3_650_000 < shard.redis("PTTL", key) <= 3_660_000


def test_if_the_clock_was_set_back_the_time_begins_again(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="60000|1|90000|")
    shard.call("cancel", "j")
    shard.clock.now_ms -= 1_000_000
    back = START_MS - 1_000_000
    assert ended(shard.enqueue_unique("j", rule=MINUTE))[0] == back + 60_000
    shard.clock.advance("60s")
    assert ended(shard.enqueue_unique("j", rule="|1|90000|"))[0] == back + 90_000
    assert shard.enqueue_unique("j", rule=MINUTE).taken == {}


def test_a_job_whose_id_was_seen_with_an_earlier_clock_ends(shard: Shard) -> None:
    shard.enqueue_unique("j", rule=AFTER)
    shard.clock.now_ms -= 1_000_000
    assert list(shard.enqueue_unique("j", rule=AFTER).taken) == [0]
    shard.clock.now_ms += 1_000_000
    shard.move()
    shard.finish(shard.take())
    assert shard.counts["done:default"] == 1
    assert until_of(shard) == START_MS + 60_000


def test_what_was_kept_before_the_clock_was_set_back_is_over_in_its_time(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="|1|90000|", delay="1h")
    shard.clock.now_ms -= 1_000_000
    shard.enqueue_unique("j", rule="|1|90000|")
    assert int(shard.redis("ZSCORE", shard.k.taken_until, "j")) == START_MS - 1_000_000 + 90_000


def test_of_the_times_only_as_many_are_kept_as_the_rate_needs(shard: Shard) -> None:
    for _ in range(9):
        assert shard.enqueue_unique("j", rule="|3|1000|").taken == {}
        shard.call("cancel", "j")
        shard.clock.advance("500ms")
    assert shard.redis("HGET", shard.k.taken, "j").count(b",") == 3


def test_what_cannot_be_read_is_taken_for_nothing(shard: Shard) -> None:
    shard.enqueue_unique("j", "k", rule=AFTER)
    shard.move()
    for id in "jk":
        shard.redis("HSET", shard.k.taken, id, "junk")
    shard.finish(*shard.claim().rows)
    assert shard.redis("HLEN", shard.k.jobs) == 0
    assert shard.enqueue_unique("j", "k", rule=AFTER).taken == {}


def test_the_time_begins_again_also_if_somebody_looked_in_between(shard: Shard) -> None:
    shard.enqueue_unique("j", rule=MINUTE)
    shard.call("cancel", "j")
    shard.clock.advance("30s")
    assert ended(shard.enqueue_unique("j", rule=MINUTE))[0] == START_MS + 60_000
    shard.clock.now_ms = START_MS - 1_000_000
    assert ended(shard.enqueue_unique("j", rule=MINUTE))[0] == START_MS - 1_000_000 + 60_000


def test_a_job_that_replaces_another_says_how_long_its_id_is_taken(shard: Shard) -> None:
    shard.enqueue_unique("j", rule=MINUTE, delay="1h")
    assert shard.enqueue_unique("j", delay="1h", how="replace").taken == {}
    shard.call("cancel", "j")
    assert shard.enqueue_unique("j", rule=MINUTE).taken == {}


def test_the_only_one_that_is_over_is_forgotten(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="1000|||")
    shard.clock.advance("1s")
    shard.enqueue_unique("k", rule=MINUTE)
    assert known(shard) == [b"k"]


def test_settings_out_of_date_write_nothing(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    before = shard.counts, shard.redis("HGETALL", shard.k.jobs)
    args = [*shard.jobs("i"), MINUTE]
    assert shard.call("enqueue_unique", 2, "keep", args) == (False, START_MS, {}, 0, -1)
    assert (shard.counts, shard.redis("HGETALL", shard.k.jobs), known(shard)) == (*before, [])


def test_it_writes_although_the_id_is_taken(shard: Shard) -> None:
    """So that WAIT behind a call that is repeated covers what the first one wrote."""
    shard.enqueue("j")
    before = shard.counts
    assert shard.writes(shard.scripts.enqueue_unique(shard.k, 1, "keep", [*shard.jobs("j"), MINUTE]))
    assert shard.counts == before


def test_of_large_jobs_only_so_many_are_looked_at(shard: Shard) -> None:
    ids = [f"j{n}" for n in range(5)]
    jobs = [value for id in ids for value in encode(NewJob("x" * 100_000, id=id, delay=60), 300_000)[:3]]
    shard.call("enqueue", 1, jobs)
    reply = shard.enqueue_unique(*ids, "new", how="replace", delay=60)
    assert (reply.taken, reply.looked) == ({}, 2)


def test_of_several_the_earliest_wakes_the_mover_if_it_is_earlier_than_all_before(shard: Shard) -> None:
    shard.repeat_unique(shard.jobs("i", delay="3s") + shard.jobs("j", delay="1s") + shard.jobs("k", delay="2s"))
    assert shard.wakeup_ms() == START_MS + 1000
    before = shard.last_wakeup()
    shard.enqueue_unique("at the same time", delay="1s")
    assert shard.last_wakeup() == before


def test_the_length_of_the_largest_record_never_falls(shard: Shard) -> None:
    for id in ("large", "s"):
        shard.enqueue_unique(id, delay="1s")
        assert int(shard.redis("HGET", shard.k.settings, "largest")) == shard.redis("HSTRLEN", shard.k.jobs, "large")


def test_each_gets_the_next_number_and_the_largest_is_noted(shard: Shard) -> None:
    shard.enqueue_unique("i", delay="1s")
    shard.enqueue_unique("i", "jk", delay="1s")
    shard.enqueue_unique("l", delay="1s")
    assert shard.redis("ZRANGE", shard.k.bucket, 0, -1) == [b"000000000001i", b"000000000002jk", b"000000000003l"]
    shard.repeat_unique(list(encode(NewJob("x" * 900, id="l", delay="1s"), 1000)[:3]), "postpone")
    assert int(shard.redis("HGET", shard.k.settings, "largest")) == shard.redis("HSTRLEN", shard.k.jobs, "l")


# -- unique_for, from the end of the job on


AFTER = "f60000|||"


def until_of(shard: Shard, id: str = "j") -> int:
    return ended(shard.enqueue_unique(id, rule=AFTER))[0]


def test_the_time_begins_when_the_job_leaves_the_pool(two: Shard) -> None:
    two.enqueue_unique("i", rule=MINUTE, delay="1h")
    two.enqueue_unique("j", rule=AFTER)
    two.move()
    two.clock.advance("10m")
    two.finish(two.take("a"), group="a")
    two.clock.advance("10m")
    assert list(two.enqueue_unique("j", rule=AFTER).taken) == [0], "the other group has it"
    assert two.redis("PTTL", two.k.taken) == -1, "nobody knows how long it takes"
    row = two.take("b")
    two.clock.advance("1m")
    two.finish(row, group="b")
    assert 100_000 < two.redis("PTTL", two.k.taken) <= 120_000
    assert until_of(two) == two.clock.now_ms + 60_000
    two.clock.advance("59999ms")
    assert until_of(two) == two.clock.now_ms + 1
    two.clock.advance("1ms")
    assert two.enqueue_unique("j", rule=AFTER).taken == {}


def test_of_many_that_end_together_each_has_its_own_time(shard: Shard) -> None:
    shard.enqueue_unique("a", "b", rule=AFTER)
    shard.enqueue_unique("c", rule=MINUTE)
    shard.enqueue("d")
    shard.move()
    shard.clock.advance("30s")
    shard.finish(*shard.claim().rows)
    assert [ended(shard.enqueue_unique(id))[0] - START_MS for id in "abc"] == [90_000, 90_000, 60_000]
    assert shard.enqueue_unique("d").taken == {}


def test_every_way_out_is_returned(shard: Shard) -> None:
    shard.enqueue_unique("cancelled", "replaced", "retracted", rule=AFTER, delay="1h")
    shard.clock.advance("5s")
    assert shard.call("cancel", "cancelled") == 1
    shard.enqueue_unique("expired", rule=AFTER, expire=0)
    shard.move()
    shard.clock.advance("5s")
    assert shard.claim().expired == 1
    shard.call("replace", 1, shard.jobs("replaced", delay="1h"))
    shard.call("cancel", "replaced")
    shard.clock.advance("1s")
    found = [until_of(shard, id) - START_MS for id in ("cancelled", "expired", "replaced")]
    assert found == [65_000, 70_000, 70_000]


@pytest.mark.parametrize("clock_ms", [START_MS, START_MS - 10**10], ids=["", "behind"])
@pytest.mark.parametrize("how", ["purge", "archive"])
def test_the_history_of_a_letter_that_leaves_has_the_time_of_the_call(shard: Shard, how: str, clock_ms: int) -> None:
    shard.clock.now_ms = clock_ms
    shard.enqueue_unique("j", rule=AFTER)
    shard.move()
    shard.bury(shard.take())
    shard.clock.advance("5s")
    if how == "purge":
        assert shard.call("purge", "default", 0, ["j"]) == 1
    else:
        assert shard.call("archive", "default", letters(shard)) == [True]
    shard.clock.advance("7s")
    assert until_of(shard) == clock_ms + 65_000


@pytest.mark.parametrize("clock_ms", [START_MS, START_MS - 10**10], ids=["", "behind"])
def test_a_removed_group_ends_jobs_as_well(two: Shard, clock_ms: int) -> None:
    two.clock.now_ms = clock_ms
    two.enqueue_unique("j", rule=AFTER)
    two.move()
    two.finish(two.take("a"), group="a")
    two.clock.advance("5s")
    two.topic(groups=["a"])
    two.clock.advance("7s")
    assert until_of(two) == clock_ms + 65_000


def test_the_time_of_a_lost_job_begins_with_the_next_call(shard: Shard) -> None:
    shard.checked = False
    shard.enqueue_unique("j", rule=AFTER)
    shard.redis("DEL", shard.k.jobs)
    shard.clock.advance("1h")
    for _ in range(2):
        assert until_of(shard) == START_MS + 3_660_000
        shard.clock.advance("1s")


def test_a_rate_is_kept_beside_it(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="f1000|1|90000|")
    shard.call("cancel", "j")
    shard.clock.advance("1s")
    assert shard.enqueue_unique("j", rule="|1|90000|").taken != {}
    assert shard.enqueue_unique("j").taken == {}


def test_a_topic_without_it_has_no_field_for_it(shard: Shard) -> None:
    shard.enqueue_unique("j", rule=MINUTE)
    assert shard.redis("HGET", shard.k.settings, "after_finish") is None
    shard.enqueue_unique("i", rule=AFTER)
    assert shard.redis("HGET", shard.k.settings, "after_finish") == b"1"


def test_a_topic_where_the_id_of_a_job_with_a_key_stays_taken_is_marked(shard: Shard) -> None:
    """When the job has ended, nothing else tells that its id need not be at home here."""
    for rule, key in (("", "k"), (MINUTE, None)):
        assert shard.call("enqueue_unique", 1, "keep", [*shard.jobs(f"{rule} {key}", key=key), rule]).taken == {}
    assert shard.redis("HGET", shard.k.settings, "sharded_by_key") is None
    shard.enqueue_unique("i", rule=MINUTE, key="k")
    assert shard.redis("HGET", shard.k.settings, "sharded_by_key") == b"1"


def test_a_call_that_looks_in_the_shard_of_the_key_must_find_the_mark(shard: Shard) -> None:
    jobs = [*shard.jobs("j", key="k"), "|||"]
    assert not shard.call("enqueue_unique", "1k", "keep", jobs).current
    shard.redis("HSET", shard.k.settings, "sharded_by_key", 1)
    assert shard.call("enqueue_unique", "1k", "keep", jobs).current


# The ids' home before the number of shards changed.

PLAIN = ""


def in_previous_shard(
    shard: Shard, *ids: str, how: str = "keep", rule: str = PLAIN, delay: Any = 60
) -> dict[int, bytes]:
    args = [value for id in ids for value in (*shard.jobs(id, delay=delay), rule)]
    reply: Enqueued = shard.call("enqueue_unique", 1, how, args, True)
    assert reply.looked == len(ids)
    return reply.taken


@pytest.mark.parametrize("rule", [PLAIN, "|||", MINUTE])
@pytest.mark.parametrize("how", ["keep", "replace", "postpone"])
def test_what_it_has_nothing_of_is_not_enqueued_there(shard: Shard, how: str, rule: str) -> None:
    shard.enqueue("there", delay=30)
    found = in_previous_shard(shard, "a", "there", "b", how=how, rule=rule)
    assert (found[0], found[2]) == (b"", b"")
    assert (found.get(1) is None) == (how == "replace")
    assert [shard.get(id) for id in "ab"] == [None, None]
    assert shard.counts["enqueued"] == (2 if how == "replace" else 1)


def test_an_id_that_is_taken_there_stays_there(shard: Shard) -> None:
    shard.enqueue_unique("j", rule=MINUTE)
    shard.call("cancel", "j")
    assert in_previous_shard(shard, "j", rule=MINUTE)[0].endswith(b"\nnull")
    assert in_previous_shard(shard, "j") == {}, (
        "a call without a rule does not mind, but it is there that the job comes"
    )
    assert shard.state("j") == "delayed"


def test_an_id_whose_time_is_over_is_forgotten_there(shard: Shard) -> None:
    """One that is used again and again would stay for ever. Nor is it taken again if the clock is set back."""
    shard.enqueue_unique("j", rule="1000|||")
    shard.call("cancel", "j")
    shard.clock.advance("5s")
    assert in_previous_shard(shard, "j", rule=MINUTE) == {0: b""}
    assert shard.redis("EXISTS", shard.k.taken, shard.k.taken_until) == 0
    shard.clock.now_ms -= 5_000
    assert in_previous_shard(shard, "j", rule=MINUTE) == {0: b""}


def test_a_call_without_a_rule_takes_no_id_there(shard: Shard) -> None:
    shard.enqueue("j", delay=30)
    assert in_previous_shard(shard, "j", how="replace") == {}
    assert shard.redis("EXISTS", shard.k.taken) == 0


@pytest.mark.parametrize(("later", "is_free"), [("59s", False), ("61s", True)])
def test_a_job_that_is_replaced_there_by_one_without_a_rule_has_ended(shard: Shard, later: str, is_free: bool) -> None:
    """As by the script replace: its span begins, and not when the other one ends."""
    shard.enqueue_unique("j", rule=AFTER, delay=30)
    assert in_previous_shard(shard, "j", how="replace", delay=600) == {}
    shard.clock.advance(later)
    shard.call("cancel", "j")
    assert (shard.enqueue_unique("j").taken == {}) == is_free
