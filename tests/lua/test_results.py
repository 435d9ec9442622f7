"""What is kept of how jobs ended: by every script that ends one, of this life of its id, for as long as asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from streamdq.operations.topics import configure
from streamdq.store.assembly import load_script, lua_directory, script_names
from streamdq.store.jobs.results import EndState, StoredResult, done, kept_in
from streamdq.store.replies import ClaimedRow
from tests.lua.shard import START_MS, Shard
from tests.lua.test_contract import code_of

DAY_MS = 86_400_000
SPREAD = "1"


@pytest.fixture
def shard(shard: Shard) -> Shard:
    """A topic that keeps results for a day."""
    shard.topic(result="1d")
    return shard


@pytest.fixture
def plain(url: str) -> Iterator[Shard]:
    """A topic with the groups `a` and `b` that has never kept any."""
    opened = Shard(url)
    opened.topic(groups=["a", "b"])
    opened.group = "a"
    yield opened
    opened.close()


def kept(shard: Shard, id: str, group: str | None = None) -> StoredResult | None:
    value = shard.redis("GET", shard.k.result_of(group or shard.group, id))
    return None if value is None else kept_in(value)


def lives_ms(shard: Shard, id: str, group: str | None = None) -> int:
    return int(shard.redis("PTTL", shard.k.result_of(group or shard.group, id)))


def finish(shard: Shard, *rows: ClaimedRow, results: list[bytes], group: str | None = None) -> Any:
    args: list[Any] = [value for row in rows for value in (row.main, row.entry, row.id, "row")]
    name = group or shard.group
    call = shard.scripts.finish(
        shard.k, name, shard.generation(name), shard._claimed_by(rows, group), [*args, *results, "results"]
    )
    return shard._step(call)


# -- how jobs end


def test_done_with_the_results_that_were_sent(shard: Shard) -> None:
    shard.enqueue("i", "j", "k")
    rows = shard.claim().rows
    assert (
        finish(shard, *rows, results=[done(b"1"), b"error|TypeError: no JSON", done(b'"\xff|\x00"')]).stale
        == frozenset()
    )
    assert kept(shard, "i") == StoredResult(EndState.DONE, b"1", START_MS)
    assert kept(shard, "j") == StoredResult(EndState.ERROR, b"TypeError: no JSON", START_MS)
    assert kept(shard, "k") == StoredResult(EndState.DONE, b'"\xff|\x00"', START_MS)
    assert 0 < lives_ms(shard, "i") <= DAY_MS
    assert shard.empty()
    assert shard.history() == [["row", str(START_MS)]] * 3


def test_done_without_a_result(shard: Shard) -> None:
    shard.enqueue("j")
    shard.finish(shard.take())
    assert kept(shard, "j") == StoredResult(EndState.DONE, b"", START_MS)


def test_a_refused_claim_leaves_no_result_and_shifts_none(shard: Shard) -> None:
    shard.enqueue("i", "j", "k")
    rows = shard.claim().rows
    shard.finish(rows[1])
    shard.redis("DEL", shard.k.result_of("default", "j"))
    assert finish(shard, *rows, results=[done(b"1"), done(b"2"), done(b"3")]).stale == {1}
    assert [kept(shard, id) for id in "ijk"] == [
        StoredResult(EndState.DONE, b"1", START_MS), None, StoredResult(EndState.DONE, b"3", START_MS)
    ]  # fmt: skip


def test_dead(shard: Shard) -> None:
    shard.enqueue("j")
    shard.bury(shard.take(), reason="exhausted", error="Oops: a|b")
    assert kept(shard, "j") == StoredResult(EndState.DEAD, b"exhausted|Oops: a|b", START_MS)
    assert 0 < lives_ms(shard, "j") <= DAY_MS


def test_cancelled(shard: Shard) -> None:
    shard.enqueue("j", delay="1m")
    assert shard.call("cancel", "j") == 1
    assert kept(shard, "j") == StoredResult(EndState.CANCELLED, b"", START_MS)


def test_aborted_while_it_runs(shard: Shard) -> None:
    shard.enqueue("j")
    row = shard.take()
    assert shard.run(shard.scripts.abort(shard.k, shard.settings, "j", "")).status == 2
    assert kept(shard, "j") is None
    finish(shard, row, results=[done(b"1")])
    assert kept(shard, "j") == StoredResult(EndState.CANCELLED, b"", START_MS)


def test_aborted_while_it_waits(two: Shard) -> None:
    two.topic(result={"a": "1d"})
    two.enqueue("j")
    two.finish(two.take("b"), group="b")
    two.run(two.scripts.abort(two.k, two.settings, "j", "a"))
    assert kept(two, "j", "a") == StoredResult(EndState.CANCELLED, b"", START_MS)


def test_expired(shard: Shard) -> None:
    shard.enqueue("j", expire="1s")
    shard.clock.advance("1m")
    assert shard.claim().rows == []
    assert kept(shard, "j") == StoredResult(EndState.EXPIRED, b"", START_MS + 60_000)


def test_a_retry_and_a_release_are_no_ends(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    shard.release(shard.take())
    assert kept(shard, "j") is None


def test_each_group_that_keeps_results_has_its_own(shard: Shard) -> None:
    shard.topic(groups=["a", "b", "default"], result={"a": "1d", "default": 0})
    shard.enqueue("j")
    finish(shard, shard.take("a"), results=[done(b"1")], group="a")
    finish(shard, shard.take("b"), results=[done(b"2")], group="b")
    shard.bury(shard.take("default"))
    assert kept(shard, "j", "a") == StoredResult(EndState.DONE, b"1", START_MS)
    assert kept(shard, "j", "b") is None
    assert kept(shard, "j", "default") is None


def test_a_topic_that_keeps_none_has_no_key_more(plain: Shard) -> None:
    plain.enqueue("i", "j", "k", delay="1s")
    plain.call("cancel", "i")
    plain.clock.advance("1s")
    plain.move()
    for group in ("a", "b"):
        rows = plain.claim(group=group).rows
        finish(plain, rows[0], results=[done(b"1")], group=group)
        plain.bury(rows[1], group=group)
    assert [kept(plain, id, group) for id in "ijk" for group in "ab"] == [None] * 6
    assert plain.redis("HGET", plain.k.settings, "results") is None


# -- another life of the id


def ended(shard: Shard, id: str = "j") -> None:
    shard.enqueue(id)
    finish(shard, shard.take(), results=[done(b"1")])
    assert kept(shard, id) is not None


def again_enqueue(shard: Shard) -> None:
    shard.enqueue("j")


def again_enqueue_unique(shard: Shard) -> None:
    shard.enqueue_unique("j", rule="1|||")


def again_replace(shard: Shard) -> None:
    shard._step(shard.scripts.replace(shard.k, SPREAD, shard.jobs("j")))


def again_relay(shard: Shard) -> None:
    (id, when, rest) = shard.jobs("j")
    shard._step(shard.scripts.relay(shard.k, shard.settings, "outbox", 1, [id, when, rest, "receipt", ""]))


@pytest.mark.parametrize("again", [again_enqueue, again_enqueue_unique, again_replace, again_relay])
def test_a_new_job_does_not_have_the_result_of_an_earlier_one(shard: Shard, again: Any) -> None:
    ended(shard)
    ended(shard, "other")
    again(shard)
    assert shard.get("j") is not None
    assert kept(shard, "j") is None
    assert kept(shard, "other") is not None


def test_a_job_that_is_there_keeps_its_result_when_another_wants_the_id(shard: Shard) -> None:
    shard.topic(groups=["a", "default"], result={"default": "1d"})
    shard.enqueue("j")
    finish(shard, shard.take(), results=[done(b"1")])
    assert shard.enqueue("j").taken
    shard.enqueue_unique("j")
    assert kept(shard, "j") is not None


def test_a_replaced_job_leaves_no_result(shard: Shard) -> None:
    shard.enqueue("j", delay="1m")
    again_replace(shard)
    assert kept(shard, "j") is None


def test_a_kicked_job_has_none(shard: Shard) -> None:
    shard.enqueue("i", "j")
    shard.bury(*shard.claim().rows)
    assert shard.call("kick", "default", 0, ["j"]) == 1
    assert kept(shard, "j") is None
    assert kept(shard, "i") is not None


def test_purging_and_archiving_leave_it(shard: Shard) -> None:
    """The job was dead, and so it stays for those that wait for it."""
    shard.enqueue("i")
    shard.bury(shard.take())
    assert shard.call("purge", "default", 0, ["i"]) == 1
    assert kept(shard, "i") == StoredResult(EndState.DEAD, b"exhausted|Oops: enough", START_MS)


# -- the setting


def test_what_groups_kept_before_is_forgotten_by_new_jobs(shard: Shard) -> None:
    ended(shard)
    shard.topic(result=0)
    assert shard.redis("HGET", shard.k.settings, "results") == b"default=0"
    ended_before = kept(shard, "j")
    assert ended_before is not None
    shard.enqueue("j")
    assert kept(shard, "j") is None
    finish(shard, shard.take(), results=[done(b"2")])
    assert kept(shard, "j") is None
    shard.topic(result="1h")
    assert shard.redis("HGET", shard.k.settings, "results") == b"default=3600000"


def test_what_several_groups_kept_before_is_forgotten_by_new_jobs(shard: Shard) -> None:
    shard.topic(groups=["1", "2"], result={"1": "1d", "2": "1d"})
    shard.enqueue("j")
    for group in ("1", "2"):
        finish(shard, shard.take(group), results=[done(b"1")], group=group)
    shard.topic(result={"1": 0, "2": 0})
    shard.enqueue("j")
    assert [kept(shard, "j", group) for group in ("1", "2")] == [None, None]


def test_a_topic_that_never_kept_any_has_no_such_field(plain: Shard) -> None:
    plain.topic(ttr="1m")
    assert plain.redis("HEXISTS", plain.k.settings, "results") == 0


# -- the seam

ENDS = re.compile(r"'(done|dead|cancelled|expired):' \.\.")
OF_OTHERS = {
    "finish": "done", "bury_job": "dead", "drop_job": "cancelled", "end_aborted": "cancelled",
    "start_attempt": "expired",
    # they correct the counter of dead letters, of jobs that go on
    "kick": "", "restore": "",
}  # fmt: skip
GIVES_IDS_A_NEW_LIFE = {"enqueue", "enqueue_after", "enqueue_unique", "replace", "relay", "fire"}


def test_whatever_counts_an_end_keeps_how_the_job_ended_and_tells_its_followers() -> None:
    """A script that ends jobs counts them, or the accounts would not balance."""
    files = [*lua_directory().glob("*.lua"), *(lua_directory() / "lib").glob("*.lua")]
    counting = {path.stem: code_of(path.read_text()) for path in files if ENDS.search(code_of(path.read_text()))}
    assert counting.keys() == OF_OTHERS.keys()
    for name, outcome in OF_OTHERS.items():
        assert ("report_end(" in counting[name]) == bool(outcome), name
        assert f"'{outcome}|" in counting[name] or not outcome, name
        assert outcome or "forget_result(" in counting[name], name


def test_whatever_makes_jobs_forgets_what_became_of_earlier_ones() -> None:
    """They are the scripts that number the first deliveries."""
    making = {name for name in script_names() if "first_order(" in code_of(load_script(name).body)}
    assert making == GIVES_IDS_A_NEW_LIFE
    for name in making:
        assert "forget_results(" in code_of(load_script(name).body), name


def test_every_script_that_may_end_a_job_knows_the_settings() -> None:
    ending = (
        "report_end(", "forget_result(", "bury_job(", "drop_job(", "cancel_in(", "claim_entries(", "fence(",
        "hand_over(",
    )  # fmt: skip
    for name in script_names():
        body = code_of(load_script(name).body)
        ends = any(function in body for function in ending)
        if ends or "forget_results(" in body:
            assert "results_in(" in body or "open_claim(" in body, name
        if ends:
            assert "'linked'" in body or "open_claim(" in body, name


def test_it_is_configured_for_each_group(shard: Shard) -> None:
    settings = shard.run(configure.configure(shard.store, "t", groups=["a", "b"], result={"a": "1d", "b": "2h"}))
    assert settings.results == {"a": DAY_MS, "b": 7_200_000}
