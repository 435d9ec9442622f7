"""Tables in terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from streamdq import terminal
from streamdq.operations.inspect import GroupStats, Stats, TopicStats


@pytest.mark.parametrize("width", [45, 50, 60, 80, 200])
def test_figures_name_their_topic_and_group_however_narrow_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "console", lambda **_: Console(file=screen, width=width))
    topic = TopicStats(overdue_ms=1_967_000, groups={"default": GroupStats(delayed=138), "billing": GroupStats()})

    terminal.console().print(terminal.stats_view(Stats(topics={"order.close": topic})))

    shown = screen.getvalue()
    assert "ord" in shown
    assert "def" in shown
    assert "138" in shown
    assert ("overdue by" in shown) == (width >= 64)
    assert max(map(len, shown.splitlines())) <= width


def test_counts_are_grouped_in_one_way() -> None:
    assert terminal.count_cell(60_000, "").plain == "60,000"
    assert terminal.counted(60_000, "job") == "60,000 jobs"
