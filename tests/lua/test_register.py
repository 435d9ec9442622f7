"""register: a topic's settings, merged into the registry that every client reads."""

from __future__ import annotations

from typing import Any

from streamdq.config import TopicSettings, topic_patch
from tests.lua.shard import Shard


def register(
    shard: Shard,
    changes: dict[str, Any] | None = None,
    groups: dict[str, dict[str, Any]] | None = None,
    removed: tuple[str, ...] = (),
    only_new: bool = False,
) -> TopicSettings:
    op = shard.scripts.register("other", *topic_patch(changes or {}, groups or {}, removed), only_new)
    settings: TopicSettings = shard.run(op)
    stored = shard.redis("HGET", shard.session.keys.topics, "other")
    assert TopicSettings.decode(stored) == settings
    return settings


def test_a_new_topic(shard: Shard) -> None:
    settings = register(shard, {"ttr_ms": 5}, {"a": {}}, only_new=True)
    assert (settings.version, settings.ttr_ms, settings.shards) == (1, 5, 1)
    assert settings.group_names == ("a",)
    entries = shard.entries(shard.session.keys.wake)
    assert entries[-1:] == [b"other"]


def test_changes_are_merged_and_counted(shard: Shard) -> None:
    register(shard, {"ttr_ms": 5, "rate": 2.5}, {"a": {"ttr_ms": 7}})
    settings = register(shard, {"retry": "1000ms"}, {"a": {"retry": "none"}, "b": {}})
    assert (settings.version, settings.ttr_ms, settings.rate, settings.retry) == (2, 5, 2.5, "1000ms")
    assert (settings.groups["a"].ttr_ms, settings.groups["a"].retry) == (7, "none")
    assert settings.group_names == ("a", "b")


def test_null_takes_a_setting_away(shard: Shard) -> None:
    register(shard, {"rate": 2.5}, {"a": {"ttr_ms": 7}})
    settings = register(shard, {"rate": None}, {"a": {"ttr_ms": None}})
    assert (settings.rate, settings.groups["a"].ttr_ms) == (None, None)


def test_groups_are_removed(shard: Shard) -> None:
    register(shard, {}, {"a": {}, "b": {"ttr_ms": 7}})
    assert register(shard, removed=("a", "unheard")).group_names == ("b",)


def test_only_new_leaves_a_known_topic_alone(shard: Shard) -> None:
    before = register(shard, {"ttr_ms": 5}, {"a": {}})
    assert register(shard, {"ttr_ms": 6}, {"b": {}}, only_new=True) == before


def test_settings_of_a_later_version_are_kept(shard: Shard) -> None:
    register(shard, {"colour": "red"}, {"a": {"shape": [1, 2]}})
    register(shard, {"ttr_ms": 5}, {})
    stored = shard.redis("HGET", shard.session.keys.topics, "other")
    assert b'"colour":"red"' in stored.replace(b" ", b"")
    assert b'"shape"' in stored
