"""Settings of the process and of a topic."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from streamdq.config import GroupSettings, Settings, TopicSettings, topic_patch
from streamdq.job.retry import DEFAULT_RETRY, RetrySchedule
from streamdq.store.topic_settings import settings_in


def test_the_environment_sets_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_URL", "redis://elsewhere")
    monkeypatch.setenv("STREAMDQ_CALL_TIMEOUT_S", "1.5")
    monkeypatch.setenv("STREAMDQ_UNHEARD_OF", "1")
    settings = Settings()
    assert (settings.url, settings.call_timeout_s) == ("redis://elsewhere", 1.5)


def test_what_is_given_comes_before_the_environment_whose_names_may_be_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("streamdq_lease_ms", "1000")
    monkeypatch.setenv("STREAMDQ_GRACE_S", "3")
    monkeypatch.setenv("LEASE_MS", "2000")
    settings = Settings(grace_s=4)
    assert (settings.lease_ms, settings.grace_s) == (1000, 4.0)


def test_without_it_the_server_is_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMDQ_URL", raising=False)
    assert Settings().url == "embedded://"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CALL_TIMEOUT_S", "0"),
        ("LEASE_MS", "10"),
        ("MAX_BODY_BYTES", "0"),
        ("GRACE_S", "-1"),
        ("WORKER_TIMEOUT_S", "1.9"),
        ("WORKER_TIMEOUT_S", "-1"),
        ("HISTORY_LENGTH", "x"),
        # What Redis or the operating system would refuse while a worker runs.
        ("CALL_TIMEOUT_S", "inf"),
        ("CALL_TIMEOUT_S", "1e10"),
        ("LEASE_MS", "9" * 20),
        ("HISTORY_LENGTH", "9" * 20),
        ("HISTORY_AGE_S", "9" * 20),
    ],
)
def test_values_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"STREAMDQ_{name}", value)
    with pytest.raises(ValidationError):
        Settings()


def test_a_group_comes_before_its_topic() -> None:
    topic = TopicSettings(ttr_ms=5000, groups={"a": GroupSettings(ttr_ms=7, retry="1s"), "b": GroupSettings()})
    assert (topic.ttr_of("a"), topic.ttr_of("b"), topic.ttr_of("unheard")) == (7, 5000, 5000)
    assert topic.retry_of("a") == RetrySchedule.of("1s")
    assert topic.retry_of("b") == RetrySchedule.of(DEFAULT_RETRY)
    assert topic.by_value(lambda group: f"{topic.ttr_of(group)} ms") == {"7 ms": ["a"], "5000 ms": ["b"]}


def test_no_steps_of_a_group_are_not_the_topics_steps() -> None:
    topic = TopicSettings(groups={"a": GroupSettings(retry="none")})
    assert topic.retry_of("a") == RetrySchedule(())


def test_groups_are_named_in_one_order() -> None:
    assert TopicSettings(groups={"b": GroupSettings(), "a": GroupSettings()}).group_names == ("a", "b")


@pytest.mark.parametrize("text", ['{"version":3,"groups":{"a":{}}}', '{"version":3,"groups":{"a":[]},"colour":"red"}'])
def test_the_registry_as_redis_and_fakeredis_write_it(text: str) -> None:
    settings = settings_in(text)
    assert (settings.version, settings.group_names, settings.shards) == (3, ("a",), 1)


def test_what_a_shard_stores() -> None:
    topic = TopicSettings(shards=4, rate=10, ttr_ms=5, paused=True, groups={"a": GroupSettings(ttr_ms=7)})
    stored = [
        "paused", 1, "rate", 10, "ttr", 5, "key_limit", "", "key_order", "", "results", "", "dead_for", "", "ttr:a", 7,
    ]  # fmt: skip
    assert topic.shard_fields() == stored
    assert TopicSettings(groups={"a": GroupSettings()}).shard_fields()[2:4] == ["rate", 0]
    assert TopicSettings(groups={"a": GroupSettings()}).shard_fields()[-2:] == ["ttr:a", ""]


@pytest.mark.parametrize(("concurrency", "limited", "stored"), [(None, False, ""), (3, True, "3"), (None, True, "0")])
def test_a_shard_learns_that_a_limit_of_keys_was_removed(concurrency: int | None, limited: bool, stored: str) -> None:
    fields = TopicSettings(key_concurrency=concurrency, key_limited=limited).shard_fields()
    assert dict(zip(fields[::2], fields[1::2], strict=True))["key_limit"] == stored


def test_a_patch_is_four_texts() -> None:
    patch = topic_patch({"rate": None}, {"a": {"ttr_ms": 5}}, ["b"], ["c"])
    assert [json.loads(text) for text in patch] == [
        {"rate": None},
        {"a": {"ttr_ms": 5}},
        {"b": True},
        {"c": True},
    ]
    assert topic_patch({}, {}) == ("{}", "{}", "{}", "{}")
