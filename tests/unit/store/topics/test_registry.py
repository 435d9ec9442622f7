"""What is read of a topic from the registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamdq.config import TopicSettings
from streamdq.errors import FORMAT, NewerFormat
from streamdq.store.topic_settings import settings_in
from streamdq.store.topics.registry import _shared


def test_settings_of_a_newer_version_are_not_read() -> None:
    """Not even if they look different: the format is looked at first."""
    with pytest.raises(NewerFormat, match=f"has format {FORMAT + 1}"):
        settings_in(json.dumps({"format": FORMAT + 1, "shards": {"no": "number"}}))


@pytest.mark.parametrize("format", [{}, {"format": FORMAT}])
def test_settings_of_this_format_are_read(format: dict[str, int]) -> None:
    assert settings_in(json.dumps({"shards": 3} | format)).shards == 3


@pytest.mark.parametrize(
    "stored",
    [
        {"groups": {"default": {}}, "version": 1_795_558_131_955},
        {"version": 7, "groups": {"version": {}}, "shards": 3},
        {"version": 7, "groups": {"a": {"retry": '"version":5,'}}},
        {"groups": {"a": {"ttr_ms": 5}}, "leaving": {"b": True}},
        {"version": 1.5e12, "groups": {}},
    ],
)
def test_topics_that_differ_in_their_version_alone_are_read_as_each_is(stored: dict[str, Any]) -> None:
    alike: dict[bytes, TopicSettings] = {}
    for change in ({}, {"version": 8}, {"version": 9}, {"version": 9, "shards": 4}):
        text = json.dumps(stored | change, separators=(",", ":")).encode()
        for _ in range(2):
            assert _shared(text, alike) == settings_in(text)
            assert _shared(text, alike).group_names == settings_in(text).group_names


def test_a_newer_format_is_refused_also_if_the_rest_is_known() -> None:
    alike: dict[bytes, TopicSettings] = {}
    _shared(b'{"groups":{},"version":7}', alike)
    with pytest.raises(NewerFormat):
        _shared(json.dumps({"groups": {}, "version": 7, "format": FORMAT + 1}, separators=(",", ":")).encode(), alike)
