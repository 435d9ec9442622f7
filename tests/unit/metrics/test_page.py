"""docs/metrics.md says what the code declares."""

import re
from pathlib import Path

from docs.generate import parts
from streamdq.config import Settings
from streamdq.metrics import declared

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()


def test_the_table_has_every_metric_as_it_is_declared() -> None:
    rows = re.findall(r"^\| `(streamdq_\w+)` \| (\w+) \| ([\w, ]*?) ?\| (.+) \|$", parts.metrics(), re.MULTILINE)

    assert [
        declared.Described(name, kind, tuple(label for label in labels.split(", ") if label), text)
        for name, kind, labels, text in rows
    ] == declared.described()
    assert "<!-- generated: metrics -->" in PAGE


def test_every_setting_it_names_is_there() -> None:
    named = set(re.findall(r"STREAMDQ_\w+", PAGE))

    assert named == {"STREAMDQ_METRICS", "STREAMDQ_METRICS_TOPICS"}
    assert {f"STREAMDQ_{name.upper()}" for name in Settings.model_fields} >= named
