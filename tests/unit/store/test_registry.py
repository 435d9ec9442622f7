"""What is read of a topic from the registry."""

from __future__ import annotations

import json

import pytest

from streamdq.errors import FORMAT, NewerFormat
from streamdq.store.registry import settings_in


def test_settings_of_a_newer_version_are_not_read() -> None:
    """Not even if they look different: the format is looked at first."""
    with pytest.raises(NewerFormat, match=f"has format {FORMAT + 1}"):
        settings_in(json.dumps({"format": FORMAT + 1, "shards": {"no": "number"}}))


@pytest.mark.parametrize("format", [{}, {"format": 1}, {"format": FORMAT}])
def test_settings_of_this_version_and_of_older_ones_are_read(format: dict[str, int]) -> None:
    assert settings_in(json.dumps({"shards": 3} | format)).shards == 3
