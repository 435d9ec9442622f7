"""The chart of what calls cost while many jobs wait: which sizes are where hash tables grow, the table, the picture."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import growth_chart
from benchmarks.growth import ALWAYS, ANYWHERE, Calls, Topic
from benchmarks.growth_chart import SIZES, chart, is_rehashing, main
from benchmarks.server import RedisServer
from streamdq import Queue
from streamdq.embedded.binary import find_server
from tests.conftest import BINARIES

needs_redis = pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine")
SVG = "{http://www.w3.org/2000/svg}"


def point(waiting: int, ratio: float) -> dict[str, Any]:
    found = {"us": 4 * ratio, "few_us": 4.0, "ratio": ratio}
    calls = dict.fromkeys(growth_chart._LINES, found)
    return {"waiting": waiting, "rehashing": is_rehashing(waiting), "used_memory": 1, "calls": calls}


def test_hash_tables_grow_from_a_power_of_two_until_a_third_more() -> None:
    assert [is_rehashing(jobs) for jobs in (1 << 20, (1 << 20) + 1, 1_398_000, 1_399_000, (1 << 21) - 1)] == [
        False, True, True, False, False,
    ]  # fmt: skip
    assert [is_rehashing(jobs) for jobs in SIZES] == [False, True] * (len(SIZES) // 2)


def test_the_chart_rises_to_the_right_and_marks_where_hash_tables_grow() -> None:
    picture = ET.fromstring(chart({"few": 10_000, "points": [point(100_000, 1.2), point(1_200_000, 2.4)]}))
    dots = [dot.attrib for dot in picture.iter(f"{SVG}circle")][:2]
    assert float(dots[0]["cx"]) < float(dots[1]["cx"])
    assert float(dots[0]["cy"]) > float(dots[1]["cy"]), "y goes down"
    assert ["open" in dot["class"].split() for dot in dots] == [False, True]
    texts = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert {"10 k", "100 k", "1 M", "1.2 M", "1 ×", "3 ×"} <= set(texts)
    labels = [text for text in picture.iter(f"{SVG}text") if (text.text or "").endswith(" 2.4")]
    heights = sorted(float(label.attrib["y"]) for label in labels)
    assert len(labels) == len(growth_chart._LINES)
    assert all(low - high >= 18 for high, low in pairwise(heights)), "they don't cover each other"


@pytest.mark.parametrize("words", ["10k", "many", "", "5", "2G"])
def test_sizes_are_numbers_above_the_few(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--up-to", words])
    assert refused.value.code == 2
    assert "above 10 k" in capsys.readouterr().err


@pytest.mark.thorough
@needs_redis
def test_figures_are_measured_written_and_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth_chart, "_ROUNDS", 3)
    monkeypatch.setattr(growth_chart, "_OF_EACH", 2)
    monkeypatch.setattr(growth_chart, "FEW", 1_000)
    monkeypatch.setattr(growth_chart, "SIZES", (4_000,))
    figures, first, again = (tmp_path / name for name in ("growth.json", "first.svg", "again.svg"))
    assert main(["--up-to", "6k", "--json", str(figures), "--chart", str(first)]) == 0
    assert main(["--from", str(figures), "--chart", str(again)]) == 0
    points = json.loads(figures.read_text())["points"]
    assert [point["waiting"] for point in points] == [4_000, 6_000]
    assert all(was["us"] > 0 < was["few_us"] for point in points for was in point["calls"].values())
    assert first.read_text() == again.read_text()
    assert "6 k" in capsys.readouterr().out


@pytest.mark.thorough
@needs_redis
def test_what_a_round_adds_is_known() -> None:
    """Or the sizes of the chart would not be what it says."""
    with RedisServer(find_server()) as server, Queue(server.url, "streamdq") as queue:
        calls, topic = Calls(server, queue), Topic("t", 0)
        queue.enqueue(topic.name, {}, delay=7000)
        calls.warm_up(topic)
        calls.both(topic)
        calls.bare(topic)
        calls.close()
        assert queue.stats().topics[topic.name].enqueued == 1 + Calls.ADDED
        assert len(topic.many_us[ALWAYS]) == len(topic.many_us[ANYWHERE]) == len(topic.bare_us) == 1
