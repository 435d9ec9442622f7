"""configure_shard: what the scripts of one shard need to know of its topic; makes new groups."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.config import GroupSettings, Layout, TopicSettings
from streamdq.errors import StreamdqError
from streamdq.store.replies import Configured
from tests.lua.shard import Shard


def settings_of(shard: Shard) -> dict[str, str]:
    flat = shard.redis("HGETALL", shard.k.settings)
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}


def later(shard: Shard, by: int, **changes: Any) -> TopicSettings:
    """The topic's settings after so many changes more."""
    return shard.settings.model_copy(update={"version": shard.settings.version + by, **changes})


def groups_of(shard: Shard, stream: str) -> set[str]:
    return {
        dict(zip(row[::2], row[1::2], strict=True))[b"name"].decode() for row in shard.redis("XINFO", "GROUPS", stream)
    }


def test_what_the_scripts_find(shard: Shard) -> None:
    shard.topic(ttr="5s", rate=8, groups=["a", "default"])
    found = settings_of(shard)
    assert found.pop("version") == str(shard.settings.version)
    assert found.pop("shared") == "1", "it had a second group"
    generations = {name: found.pop(name) for name in list(found) if name.startswith("generation")}
    assert generations == {"generation": "2", "generation:default": "1", "generation:a": "2"}
    assert found == {"shards": "1", "groups": "a,default", "paused": "0", "rate": "8.0", "ttr": "5000"}
    assert groups_of(shard, shard.k.ready) == {"a", "default"}
    assert groups_of(shard, shard.k.ready_of("a")) == {"a"}


def test_no_rate_is_written_as_0_so_that_jobs_due_at_once_go_straight_on(shard: Shard) -> None:
    shard.topic(rate=5)
    shard.topic(rate=0)
    assert settings_of(shard)["rate"] == "0"
    shard.enqueue("j")
    assert shard.state("j") == "ready"


def test_each_shard_knows_the_topics_rate(shard: Shard) -> None:
    shard.topic(rate=6, shards=4)
    assert settings_of(shard)["rate"] == "6.0"


def test_again_it_changes_nothing(shard: Shard) -> None:
    shard.enqueue("j")
    before = settings_of(shard), shard.counts, shard.last_wakeup()
    assert shard.call("configure_shard", shard.settings) == (
        True,
        ("default",),
        (),
        shard.settings.version,
        Layout(1),
        False,
        False,
        False,
    )
    assert (settings_of(shard), shard.counts, shard.last_wakeup()) == before


def test_an_older_version_is_ignored(shard: Shard) -> None:
    old = shard.settings
    shard.topic(ttr="5s")
    assert shard.call("configure_shard", old).done
    assert settings_of(shard)["ttr"] == "5000"


def test_an_older_version_is_ignored_whatever_it_says_of_shards(shard: Shard) -> None:
    old = shard.settings
    shard.topic(shards=3)
    assert shard.run(shard.scripts.enqueue(shard.k, 3, shard.jobs("j"))).current
    assert shard.call("configure_shard", old).done, "a worker that started as the topic changed must not fail"
    assert settings_of(shard)["shards"] == "3"


def test_a_groups_own_ttr_comes_and_goes(shard: Shard) -> None:
    def of(version: int, ttr_ms: int | None) -> TopicSettings:
        return TopicSettings(version=version, groups={"default": GroupSettings(ttr_ms=ttr_ms)})

    shard.call("configure_shard", of(shard.settings.version + 10, 7))
    assert settings_of(shard)["ttr:default"] == "7"
    shard.call("configure_shard", of(shard.settings.version + 11, None))
    assert "ttr:default" not in settings_of(shard)


def test_a_number_of_shards_that_does_not_know_its_jobs_is_refused(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    assert shard.call("configure_shard", later(shard, 9, shards=2)).done is False
    shard.call("cancel", "j")
    assert shard.topic(shards=2).shards == 2


def reported(shard: Shard, by: int, layout: Layout) -> Configured:
    reply: Configured = shard.call("configure_shard", later(shard, by, **layout._asdict()))
    return reply


def test_a_shard_with_jobs_takes_another_number_that_knows_of_the_earlier_one(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    wide = Layout(4, (1,), 17)
    assert reported(shard, 1, wide)[3:5] == (shard.settings.version + 1, wide)
    assert settings_of(shard)["shards"] == "4<1@17"
    assert not shard.run(shard.scripts.enqueue(shard.k, 1, shard.jobs("i"))).current
    assert not shard.run(shard.scripts.enqueue(shard.k, 4, shard.jobs("i"))).current
    assert not shard.run(shard.scripts.enqueue(shard.k, "4<1@16", shard.jobs("i"))).current, "of another change"
    assert shard.run(shard.scripts.enqueue(shard.k, wide.text, shard.jobs("i"))).current


def test_once_it_is_resharded_every_version_can_read_it_again(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    reported(shard, 1, Layout(4, (1,), 17))
    assert reported(shard, 2, Layout(4, (), 17)).layout == Layout(4)
    assert settings_of(shard)["shards"] == "4"


@pytest.mark.parametrize("layout", [Layout(1), Layout(4), Layout(4, (1,), 16), Layout(4, (), 16)])
def test_a_caller_that_missed_the_last_change_is_refused(shard: Shard, layout: Layout) -> None:
    """A registry that was lost, and made again, or put back from an old copy. Even an empty shard tells."""
    latest = Layout(4, (1,), 17)
    reported(shard, 1, latest)
    reply = reported(shard, 2, layout)
    assert (reply.done, reply.layout) == (False, latest)
    assert settings_of(shard)["shards"] == latest.text


def test_a_later_change_follows(shard: Shard) -> None:
    shard.enqueue("j", delay="1s")
    reported(shard, 1, Layout(4, (1,), 17))
    assert reported(shard, 2, Layout(2, (1, 4), 18)).layout == Layout(2, (1, 4), 18)


def test_while_jobs_may_be_where_they_were_the_shard_is_not_closed(shard: Shard) -> None:
    reported(shard, 1, Layout(4, (1,), 17))
    assert not shard.call("configure_shard", later(shard, 2, resharding=2)).done


def test_a_shard_that_is_no_longer_used_is_not_resharded_with_jobs(shard: Shard) -> None:
    """Redis lost their ends after somebody had seen that nothing was left."""
    last = shard.session.keys.shard("t", 3)
    shard.redis("HSET", last.jobs, "j", "its end was lost")
    fewer = later(shard, 3, shards=2, former=(4,), since=17)
    assert shard.run(shard.scripts.configure_shard(last, fewer)).done
    resharded = later(shard, 4, shards=2, former=(), since=17)
    assert not shard.run(shard.scripts.configure_shard(last, resharded)).done
    shard.redis("DEL", last.jobs)
    assert shard.run(shard.scripts.configure_shard(last, resharded)).done


def test_a_group_added_later_gets_what_is_there_and_not_what_was(shard: Shard) -> None:
    shard.enqueue("done")
    shard.finish(shard.take())
    shard.enqueue("ready", "running")
    shard.claim(1)
    shard.enqueue("delayed", delay="1s")
    shard.topic(groups=["default", "late"])
    assert shard.counts["base:late"] == 1
    assert shard.counts["ready:late"] == 2
    assert sorted(row.id for row in shard.claim(group="late").rows) == [b"ready", b"running"]
    shard.clock.advance("1s")
    shard.move()
    assert shard.take("late").id == b"delayed"


def test_a_group_added_later_does_not_get_what_another_has_alone(shard: Shard) -> None:
    shard.enqueue("retried", "dead", "done")
    retried, dead, done = shard.claim().rows
    shard.retry(retried, delay_ms=0)
    shard.bury(dead)
    shard.finish(done)
    shard.move()
    shard.enqueue("new")
    shard.topic(groups=["default", "late"])
    assert [row.id for row in shard.claim(group="late").rows] == [b"new"]
    shard.call("kick", "default", 10, [])
    shard.finish(*shard.claim().rows)
    assert shard.claim(group="late").rows == []
    assert shard.state("new", "late") == "running"


def test_it_wakes_the_mover(shard: Shard) -> None:
    before = shard.last_wakeup()
    shard.topic(ttr="5s")
    assert shard.last_wakeup() != before
    assert shard.wakeup_ms() == 0, "at once"


def test_a_lost_group_is_made_again(shard: Shard) -> None:
    shard.enqueue("j")
    shard.redis("XGROUP", "DESTROY", shard.k.ready, "default")
    shard.redis("DEL", shard.k.ready_of("default"))
    shard.call("configure_shard", shard.settings)
    assert shard.take().id == b"j"


@pytest.mark.parametrize("own", [False, True], ids=["ready", "ready:GROUP"])
def test_it_wakes_the_mover_when_it_makes_a_lost_group_again(shard: Shard, own: bool) -> None:
    before = shard.last_wakeup()
    shard.redis("XGROUP", "DESTROY", shard.k.ready_of("default") if own else shard.k.ready, "default")
    shard.call("configure_shard", shard.settings)
    assert shard.last_wakeup() != before
    assert shard.wakeup_ms() == 0, "at once"


def test_a_shard_whose_only_group_is_replaced_knows_that_there_were_two(shard: Shard) -> None:
    assert "shared" not in settings_of(shard)
    version = shard.settings.version + 1
    shard.checked = False  # the registry does not know of it
    shard.call(
        "configure_shard", TopicSettings(version=version, groups={"b": GroupSettings()}, leaving={"default": True})
    )
    assert settings_of(shard)["shared"] == "1"


@pytest.mark.parametrize(
    ("before", "after", "raised"),
    [(1, 5_000, True), (5_000, 5_001, True), (5_000, 5_000, False), (5_000, 4_999, False)],
)
def test_reclaim_looks_at_all_claims_of_a_group_whose_own_ttr_was_raised(
    two: Shard, before: int, after: int, raised: bool
) -> None:
    two.run(two.topics.ensure_group("t", "a", {"ttr_ms": before}))
    two.redis("HDEL", two.k.settings, "recheck:a")
    two.run(two.topics.ensure_group("t", "a", {"ttr_ms": after}))
    assert two.redis("HEXISTS", two.k.settings, "recheck:a") == raised
    assert not two.redis("HEXISTS", two.k.settings, "recheck:b")


def test_groups_are_listed_in_the_order_in_which_clients_name_them(shard: Shard) -> None:
    shard.topic(groups=["z", "b"])
    shard.topic(groups=["z", "b", "a"])
    assert settings_of(shard)["groups"] == "a,b,z"
    assert shard.move().moved == 0


def test_a_closed_shard_takes_no_job(shard: Shard) -> None:
    closed = later(shard, 5, resharding=4)
    assert shard.call("configure_shard", closed).done
    assert not shard.run(shard.scripts.enqueue(shard.k, 1, shard.jobs("j"))).current
    assert not shard.run(shard.scripts.enqueue(shard.k, 4, shard.jobs("j"))).current
    shard.call("configure_shard", later(shard, 6))
    assert shard.enqueue("j").current


def test_a_shard_with_jobs_can_not_be_closed(shard: Shard) -> None:
    shard.enqueue("j")
    assert not shard.call("configure_shard", later(shard, 5, resharding=4)).done
    assert shard.enqueue("i").current


def test_a_shard_with_taken_ids_can_not_be_closed(shard: Shard) -> None:
    """Its jobs may have come and gone since the process that closes it looked."""
    shard.enqueue_unique("j", rule="60000|||")
    shard.call("cancel", "j")
    assert not shard.call("configure_shard", later(shard, 5, resharding=4)).done
    assert shard.enqueue("i").current


@pytest.mark.parametrize("first", [False, True], ids=["limits before", "first limit"])
def test_where_keys_have_limits_taken_ids_do_not_keep_a_shard_open(shard: Shard, first: bool) -> None:
    limits = {"key_limited": True, "key_concurrency": 1}
    if not first:
        shard.call("configure_shard", later(shard, 5, **limits))
    shard.enqueue_unique("j", rule="60000|||")
    assert not shard.call("configure_shard", later(shard, 6, resharding=4, **limits)).done
    shard.call("cancel", "j")
    reported = limits if first else {}
    assert shard.call("configure_shard", later(shard, 7, resharding=4, **reported)).done


def test_an_older_version_learns_what_the_shard_has(two: Shard) -> None:
    old, new = two.settings, later(two, 3)
    two.call("configure_shard", new)
    assert two.call("configure_shard", old) == (True, ("a", "b"), (), new.version, Layout(1), False, False, False)


def test_an_empty_shard_is_one_of_fewer_only_after_it_was_closed(shard: Shard) -> None:
    """Without that, a lost registry was made again by a process that had another number of shards."""
    shard.topic(shards=3)
    version = shard.settings.version
    assert shard.call("configure_shard", later(shard, 9, shards=1)) == (
        False,
        ("default",),
        (),
        version,
        Layout(3),
        False,
        False,
        False,
    )
    assert shard.call("configure_shard", later(shard, 9, shards=4)).done is True
    assert shard.call("configure_shard", later(shard, 10, resharding=1)).done is True
    assert shard.call("configure_shard", later(shard, 11, shards=1)).done is True
    assert settings_of(shard)["shards"] == "1"


def test_a_shard_with_jobs_tells_what_it_has_when_it_refuses_another_number_of_shards(shard: Shard) -> None:
    shard.enqueue("j")
    version = shard.settings.version
    assert shard.call("configure_shard", later(shard, 9, shards=2)) == (
        False,
        ("default",),
        (),
        version,
        Layout(1),
        False,
        False,
        False,
    )


def test_the_mark_of_keys_stays_until_the_shard_is_dropped(shard: Shard) -> None:
    """A registry that was lost, and made again by a process without the keys' settings, learns of them."""
    sharded_by_key = later(shard, 4).model_copy(update={"sharded_by_key": True})
    assert shard.call("configure_shard", sharded_by_key).sharded_by_key
    assert shard.call("configure_shard", shard.settings).sharded_by_key, "also if it is out of date"
    assert shard.call("configure_shard", later(shard, 5)).sharded_by_key
    shard.checked = False
    assert shard.run(shard.scripts.drop_shard(shard.k, later(shard, 6)))
    assert not shard.call("configure_shard", later(shard, 7)).sharded_by_key


def test_a_dropped_shard_tells_from_which_version_on_it_may_come_back(shard: Shard) -> None:
    old = shard.settings
    shard.checked = False
    assert shard.run(shard.scripts.drop_shard(shard.k, later(shard, 4)))
    assert shard.call("configure_shard", old) == (True, (), (), old.version + 5, Layout(0), False, False, False)
    assert shard.call("configure_shard", later(shard, 4)) == (
        True,
        (),
        (),
        old.version + 5,
        Layout(0),
        False,
        False,
        False,
    )
    assert shard.call("configure_shard", later(shard, 5)) == (
        True,
        ("default",),
        (),
        old.version + 5,
        Layout(1),
        False,
        False,
        False,
    )
    assert shard.redis("PTTL", shard.k.settings) == -1, "what was left of it would expire"


def test_a_shard_whose_settings_are_lost_is_made_again_with_its_jobs(shard: Shard) -> None:
    shard.enqueue("j")
    shard.redis("DEL", shard.k.settings)
    assert shard.call("configure_shard", shard.settings).done
    assert settings_of(shard)["groups"] == "default"


def test_nothing_is_left_of_a_group_that_leaves_but_what_is_still_in_the_bucket(two: Shard) -> None:
    two.enqueue("done", "retried", "dead", "snoozed", "running", "purged")
    rows = {row.id.decode(): row for row in two.claim(group="a").rows}
    two.finish(rows["done"])
    two.retry(rows["retried"], delay_ms=9_000)
    two.retry(rows["snoozed"], delay_ms=9_000, steps=-1)
    two.bury(rows["dead"], rows["purged"])
    two.call("purge", "a", 0, ["purged"])
    names = ["cancelled", "expired", "reclaimed", "archived", "lost"]
    two.checked = False
    two.redis("HSET", two.k.counts, *[value for name in names for value in (f"{name}:a", 1)])
    two.run(two.topics.ensure_group("t", "a", {"ttr_ms": 7}))
    two.redis("HSET", two.k.settings, "recheck:a", "0|0")
    leaving = TopicSettings(version=two.settings.version + 1, groups={"b": GroupSettings()}, leaving={"a": True})
    found = two.call("configure_shard", leaving)
    assert found == (True, ("b",), ("a",), leaving.version, Layout(1), False, False, False)
    flat = two.redis("HKEYS", two.k.counts)
    assert [name for name in flat if name.endswith(b":a")] == [b"waiting:a"]
    assert [name for name in settings_of(two) if name.endswith(":a")] == ["left_at:a"]
    assert two.redis("EXISTS", two.k.ready_of("a"), two.k.dead_of("a")) == 0
    assert groups_of(two, two.k.ready) == {"b"}
    assert two.call("configure_shard", leaving)[:3] == (True, ("b",), ("a",)), "again it is the same"


def test_several_groups_leave_at_once(shard: Shard) -> None:
    shard.topic(groups=["a", "b", "default"])
    leaving = TopicSettings(
        version=shard.settings.version + 1, groups={"default": GroupSettings()}, leaving={"a": True, "b": True}
    )
    assert shard.call("configure_shard", leaving)[:3] == (True, ("default",), ("a", "b"))
    assert settings_of(shard)["leaving"] == "a,b"


def test_a_stream_that_is_something_else_is_an_error(shard: Shard) -> None:
    shard.checked = False
    shard.redis("SET", shard.k.ready_of("late"), "taken")
    late = TopicSettings(
        version=shard.settings.version + 1, groups={"default": GroupSettings(), "late": GroupSettings()}
    )
    with pytest.raises(StreamdqError, match="WRONGTYPE"):
        shard.call("configure_shard", late)
    shard.redis("DEL", shard.k.ready_of("late"))


def test_a_changed_limit_of_keys_is_to_be_applied(shard: Shard) -> None:
    first = later(shard, 1, key_concurrency=1, key_limited=True)
    shard.call("configure_shard", first)
    shard.call("configure_shard", first)
    assert "limit_applied_to" not in settings_of(shard), "nothing waits for a key"
    shard.call("configure_shard", later(shard, 2, key_concurrency=2, key_limited=True))
    assert settings_of(shard)["limit_applied_to"] == ""


def test_a_registry_that_was_lost_does_not_know_that_jobs_may_wait_for_keys(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.call("configure_shard", later(shard, 1, key_concurrency=None, key_limited=False))
    found = settings_of(shard)
    assert (found["key_limit"], found["limit_applied_to"]) == ("0", "")


@pytest.mark.parametrize(("number", "kept"), [(1, 1), (8, 0)])
def test_paused_keys_stay_if_the_shard_opens_among_as_many_as_before(shard: Shard, number: int, kept: int) -> None:
    """Another shard may hold jobs: then the number does not change, and this shard is opened again."""
    shard.topic(key_order=True)
    shard.call("pause_key", shard.settings, "k", True)
    for by in (1, 2):
        shard.call("configure_shard", later(shard, by, resharding=8))
    shard.call("configure_shard", later(shard, 3, shards=number))
    assert shard.redis("ZCARD", shard.k.key_paused) == kept
    assert "closed_from" not in settings_of(shard)
