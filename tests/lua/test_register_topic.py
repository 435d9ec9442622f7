"""register_topic: a topic's settings, merged into the registry that every client reads."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.config import TopicSettings, topic_patch
from streamdq.errors import TooManyTopics
from streamdq.store.topic_settings import settings_in
from streamdq.store.topics.registry import WAKEUPS
from tests.lua.shard import Shard
from tests.waiting import until


def register(
    shard: Shard,
    changes: dict[str, Any] | None = None,
    groups: dict[str, dict[str, Any]] | None = None,
    removed: tuple[str, ...] = (),
    left: tuple[str, ...] = (),
    expected: int | None = None,
) -> TopicSettings:
    op = shard.scripts.register_topic("other", topic_patch(changes or {}, groups or {}, removed, left), expected)
    settings: TopicSettings = shard.run(op)
    stored = shard.redis("HGET", shard.session.keys.topics, "other")
    assert settings_in(stored) == settings
    return settings


def test_a_new_topic(shard: Shard) -> None:
    settings = register(shard, {"ttr_ms": 5}, {"a": {}}, expected=0)
    assert (settings.ttr_ms, settings.shards) == (5, 1)
    assert settings.version > 1_700_000_000_000, "above any that a deleted topic of that name had"
    assert settings.group_names == ("a",)
    wakeups = shard.redis("XRANGE", shard.session.keys.wake, "-", "+")
    assert wakeups[-1][1] == [b"topic", b"other"]


def test_the_last_changes_are_remembered_and_no_more(shard: Shard) -> None:
    register(shard, {}, {"a": {}}, expected=0)
    for number in range(WAKEUPS):
        register(shard, {"ttr_ms": number + 1})
    assert shard.redis("XLEN", shard.session.keys.wake) == WAKEUPS


def test_changes_are_merged_and_counted(shard: Shard) -> None:
    before = register(shard, {"ttr_ms": 5, "rate": 2.5}, {"a": {"ttr_ms": 7}}, expected=0)
    settings = register(shard, {"retry": "1000ms"}, {"a": {"retry": "none"}, "b": {}})
    assert settings.version > before.version
    assert (settings.ttr_ms, settings.rate, settings.retry) == (5, 2.5, "1000ms")
    assert (settings.groups["a"].ttr_ms, settings.groups["a"].retry) == (7, "none")
    assert settings.group_names == ("a", "b")


def test_other_topics_stay_as_they_are(shard: Shard) -> None:
    shard.run(shard.scripts.register_topic("x", topic_patch({}, {"a": {}}), 0))
    before = shard.redis("HGET", shard.session.keys.topics, "x")
    for expected in (0, None):
        register(shard, {"ttr_ms": 5}, {"a": {}}, expected=expected)
    assert shard.redis("HGET", shard.session.keys.topics, "x") == before


def test_null_takes_a_setting_away(shard: Shard) -> None:
    register(shard, {"rate": 2.5}, {"a": {"ttr_ms": 7}}, expected=0)
    settings = register(shard, {"rate": None}, {"a": {"ttr_ms": None}})
    assert (settings.rate, settings.groups["a"].ttr_ms) == (None, None)


def test_groups_are_removed(shard: Shard) -> None:
    register(shard, {}, {"a": {}, "b": {"ttr_ms": 7}}, expected=0)
    settings = register(shard, removed=("a", "unheard"))
    assert (settings.group_names, set(settings.leaving)) == (("b",), {"a"})


def test_a_group_that_leaves_comes_back_only_when_it_has_left(shard: Shard) -> None:
    register(shard, {}, {"a": {}, "b": {}}, expected=0)
    register(shard, removed=("a",))
    assert register(shard, groups={"a": {}}).group_names == ("b",)
    assert register(shard, left=("a",)).leaving == {}
    assert register(shard, groups={"a": {}}).group_names == ("a", "b")


def test_another_version_is_not_changed(shard: Shard) -> None:
    made = register(shard, {}, {"a": {}}, expected=0)
    settings = register(shard, {"ttr_ms": 5}, expected=made.version)
    assert settings.version > made.version
    assert settings.ttr_ms == 5
    assert register(shard, {"ttr_ms": 6}, expected=made.version) == settings
    assert register(shard, {"ttr_ms": 6}, expected=settings.version + 2) == settings


def test_a_change_makes_no_topic(shard: Shard) -> None:
    for expected in (None, 3):
        assert shard.run(shard.scripts.register_topic("other", topic_patch({"ttr_ms": 5}, {}), expected)) is None
    assert shard.redis("HEXISTS", shard.session.keys.topics, "other") == 0


def test_only_new_leaves_a_known_topic_alone(shard: Shard) -> None:
    before = register(shard, {"ttr_ms": 5}, {"a": {}}, expected=0)
    assert register(shard, {"ttr_ms": 6}, {"b": {}}, expected=0) == before


def test_settings_of_a_later_version_are_kept(shard: Shard) -> None:
    register(shard, {"colour": "red"}, {"a": {"shape": [1, 2]}}, expected=0)
    register(shard, {"ttr_ms": 5}, {})
    stored = shard.redis("HGET", shard.session.keys.topics, "other")
    assert b'"colour":"red"' in stored.replace(b" ", b"")
    assert b'"shape"' in stored


def test_no_new_topic_beyond_the_most_there_may_be(shard: Shard) -> None:
    there = len(shard.redis("HKEYS", shard.session.keys.topics))
    with pytest.raises(TooManyTopics, match="STREAMDQ_MAX_TOPICS"):
        shard.run(shard.scripts.register_topic("other", topic_patch({}, {"a": {}}), 0, most=there))
    assert len(shard.redis("HKEYS", shard.session.keys.topics)) == there
    made = shard.run(shard.scripts.register_topic("other", topic_patch({}, {"a": {}}), 0, most=there + 1))
    changed = shard.run(shard.scripts.register_topic("other", topic_patch({"ttr_ms": 5}, {}), most=0))
    assert changed.version > made.version


def milliseconds(shard: Shard) -> int:
    seconds, micros = shard.redis("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def test_a_version_that_was_lost_does_not_come_again(shard: Shard) -> None:
    """Redis lost the end of its append-only file: who still acts for what was lost has another version."""
    topics = shard.session.keys.topics
    register(shard, {}, {"a": {}}, expected=0)
    kept = shard.redis("HGET", topics, "other")
    lost = register(shard, {"ttr_ms": 5})
    shard.redis("HSET", topics, "other", kept)
    until(lambda: milliseconds(shard) > lost.version, "a millisecond has passed: Redis takes longer to start")
    assert register(shard, {"ttr_ms": 6}).version > lost.version


def test_versions_rise_though_the_clock_is_set_back(shard: Shard) -> None:
    ahead = register(shard, {"version": 9_000_000_000_000}, {"a": {}}, expected=0).version
    assert ahead == 9_000_000_000_001
    assert register(shard, {"ttr_ms": 5}).version == ahead + 1
    assert register(shard, {"version": 5}).version == ahead + 2
