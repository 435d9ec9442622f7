"""drop_shard: a shard of a topic that is being deleted goes, with all its keys."""

from __future__ import annotations

import pytest

from streamdq.config import GroupSettings
from tests.lua.links import Linked
from tests.lua.shard import Shard


def deleting(shard: Shard, how: str, later: int = 5) -> bool:
    settings = shard.settings.model_copy(update={"version": shard.settings.version + later, "deleting": how})
    return bool(shard.run(shard.scripts.drop_shard(shard.k, settings)))


def test_nothing_stays_and_nothing_can_be_enqueued(two: Shard) -> None:
    two.enqueue("done", "dead", "waits", "new")
    two.enqueue("delayed", delay="1s")
    done, dead, waits, _ = two.claim(group="a").rows
    two.finish(done)
    two.bury(dead)
    two.retry(waits)
    assert deleting(two, "force")
    assert two.redis("KEYS", f"{two.k.prefix}:*") == [two.k.settings.encode()], "only what it was"
    assert 0 < two.redis("PTTL", two.k.settings) <= 3_600_000
    assert not two.run(two.scripts.enqueue(two.k, 1, two.jobs("j"))).current


def test_dumps_can_learn_how_much_history_went_with_it(shard: Shard) -> None:
    shard.enqueue("j", "k")
    shard.finish(*shard.claim(2).rows)
    since = shard.redis("HGET", shard.k.settings, "history_since")
    for _ in range(2):  # repeated, as after a kill
        assert deleting(shard, "force")
        assert shard.redis("HGET", shard.k.settings, "history_ended") == since + b":2"

    again = shard.settings.model_copy(update={"version": shard.settings.version + 6})
    shard.run(shard.scripts.configure_shard(shard.k, again))
    assert shard.redis("HGET", shard.k.settings, "history_ended") == since + b":2", "also when the topic is there again"
    assert deleting(shard, "force", later=7)
    assert shard.redis("HGET", shard.k.settings, "history_ended") == since + b":2", "which had no history"


def test_how_much_history_went_with_it_is_0_if_its_counters_were_lost(shard: Shard) -> None:
    shard.enqueue("j")
    shard.finish(shard.take())
    since = shard.redis("HGET", shard.k.settings, "history_since")
    shard.redis("DEL", shard.k.counts)
    assert deleting(shard, "force")
    assert shard.redis("HGET", shard.k.settings, "history_ended") == since + b":0"


def test_a_shard_with_jobs_stays_unless_it_is_forced(shard: Shard) -> None:
    shard.enqueue("j")
    assert not deleting(shard, "empty")
    assert shard.state("j") == "ready"
    shard.call("cancel", "j")
    assert deleting(shard, "empty")


def test_a_shard_with_receipts_stays_unless_it_is_forced(shard: Shard) -> None:
    """A database has yet to read what became of its jobs."""
    for key in (shard.k.outbox, shard.k.archive):
        shard.redis("HSET", key, "receipt", 1)
        assert not deleting(shard, "empty")
        shard.redis("DEL", key)
    for key in (shard.k.outbox, shard.k.archive):
        shard.redis("HSET", key, "receipt", 1)
    assert deleting(shard, "force")
    assert shard.redis("EXISTS", shard.k.outbox, shard.k.archive) == 0


def test_a_shard_that_was_never_made_is_gone(shard: Shard) -> None:
    """The process that should have made it was killed before."""
    other = shard.session.keys.shard("t", 1)
    assert shard.run(shard.scripts.drop_shard(other, shard.settings))


def test_one_that_was_made_again_since_stays(shard: Shard) -> None:
    shard.enqueue("j")
    assert deleting(shard, "force", later=-5)
    assert shard.state("j") == "ready"


def test_the_next_topic_of_that_name_has_a_higher_version(shard: Shard) -> None:
    """Versions are times, and a topic may come and go within a millisecond."""
    old = shard.settings
    assert deleting(shard, "empty", later=0)
    same = shard.run(shard.scripts.configure_shard(shard.k, old))
    assert (same.groups, same.version, same.layout.shards) == ((), old.version + 1, 0)
    assert shard.topic(ttr="5s").version > old.version
    assert deleting(shard, "empty", later=-1)
    assert shard.run(shard.scripts.enqueue(shard.k, 1, shard.jobs("j"))).current


def test_who_was_stopped_while_changing_the_topic_does_not_make_it_again(shard: Shard) -> None:
    old = shard.settings
    assert deleting(shard, "empty")
    assert shard.run(shard.scripts.configure_shard(shard.k, old)).groups == ()
    assert not shard.run(shard.scripts.enqueue(shard.k, 1, shard.jobs("j"))).current
    again = old.model_copy(update={"version": old.version + 6})
    assert shard.run(shard.scripts.configure_shard(shard.k, again)).groups == ("default",)
    assert shard.redis("PTTL", shard.k.settings) == -1
    assert shard.run(shard.scripts.enqueue(shard.k, 1, shard.jobs("j"))).current


@pytest.mark.parametrize(("kept", "days"), [("1d", 1), ("30d", 30), ("0", 366)])
def test_a_job_of_the_next_topic_of_that_name_gets_no_earlier_result(shard: Shard, kept: str, days: int) -> None:
    shard.topic(result="30d")
    shard.enqueue("a", "b")
    shard.finish(*shard.claim(2).rows)
    shard.topic(result=kept)
    for _ in range(2):  # repeated, as after a kill
        assert deleting(shard, "force", later=5)
    assert 0 <= days * 86_400_000 - shard.redis("PTTL", shard.k.settings) < 60_000, "as long as there may be results"

    again = shard.settings.model_copy(
        update={"version": shard.settings.version + 6, "groups": {"default": GroupSettings()}}
    )
    shard.run(shard.scripts.configure_shard(shard.k, again))
    assert shard.redis("PTTL", shard.k.settings) == -1
    assert shard.run(shard.scripts.enqueue(shard.k, 1, shard.jobs("a"))).current
    assert shard.redis("EXISTS", shard.k.result_of("default", "a"), shard.k.result_of("default", "b")) == 1


def test_results_of_jobs_that_others_wait_for_may_be_there_for_a_day_more(shard: Shard) -> None:
    shard.topic(result="30d")
    shard.enqueue("a")
    Linked(shard).put("d", "a")
    shard.finish(shard.take())
    for _ in range(2):  # repeated, as after a kill
        assert deleting(shard, "force", later=5)
    left_ms = [shard.redis("PTTL", key) for key in (shard.k.settings, shard.k.result_of("default", "a"))]
    assert left_ms == pytest.approx([31 * 86_400_000] * 2, abs=60_000)
