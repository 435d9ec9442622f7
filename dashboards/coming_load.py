"""The dashboard of the coming load: what will come due, compared with what the workers can do."""

from __future__ import annotations

from . import signals
from .board import PanelRow, board
from .panels import FULL, GREEN, HALF, NEUTRAL, QUARTER, RED, YELLOW, Shown, Steps, bars_panel, series_panel, stat_panel
from .records import AHEAD

_LOAD_STEPS: Steps = ((None, GREEN), (0.7, YELLOW), (1, RED))
_BY_WINDOW = ("window",)


def coming_load() -> str:
    """As JSON."""
    return board(
        "streamdq-coming-load",
        "streamdq / Coming load",
        "How much comes due, compared with what the workers have shown they can finish.",
        [_when(), _topics(), _then()],
        since="now-6h",
    )


def _when() -> PanelRow:
    return "When will jobs be late?", [
        stat_panel(
            Shown(signals.LATE_WITHIN),
            ((None, RED), (3600, YELLOW)),
            width=QUARTER,
            none="not within a day",
        ),
        *(stat_panel(Shown(signals.due_within(window)), NEUTRAL, width=3, decimals=0) for window in AHEAD),
        stat_panel(Shown(signals.CAPACITY), NEUTRAL, width=3),
        stat_panel(Shown(signals.FINISHED, window="5m"), NEUTRAL, width=3),
        bars_panel(Shown(signals.LOAD, by=_BY_WINDOW), steps=_LOAD_STEPS, width=HALF, none="not known yet"),
        bars_panel(
            Shown(signals.LATE_BY, by=_BY_WINDOW),
            steps=((None, GREEN), (1, YELLOW), (60, RED)),
            width=HALF,
            none="not known yet",
        ),
    ]


def _topics() -> PanelRow:
    soon, legend = ("topic", "window"), "{{topic}} within {{window}}"
    return "Which topics?", [
        series_panel(
            Shown(signals.LOAD_SOON, by=soon, legend=legend),
            steps=((None, "transparent"), (1, RED)),
        ),
        series_panel(Shown(signals.LATE_WITHIN, by=("topic",)), title="Late within, by topic"),
        series_panel(Shown(signals.CAPACITY, by=("topic",), legend="{{topic}}"), title="Capacity, by topic"),
        series_panel(Shown(signals.DUE_SOON, by=soon, legend=legend), title="Due within 10 minutes, by topic"),
    ]


def _then() -> PanelRow:
    return "How the load developed", [
        series_panel(Shown(signals.DUE, by=_BY_WINDOW), width=FULL, title="Due within the window"),
        series_panel(
            [Shown(signals.ENDED, window="5m", legend="ended"), Shown(signals.CAPACITY), Shown(signals.DUE_RATE)],
            title="Needed and done",
            description="Attempts a second: what the workers end, what they have shown they can end, and what comes "
            "due in the next ten minutes.",
            width=FULL,
        ),
    ]
