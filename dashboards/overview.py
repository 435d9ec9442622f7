"""The overview: do jobs run on time? If not, where are they stuck?"""

from __future__ import annotations

from . import signals
from .board import PanelRow, board
from .panels import (
    FULL,
    GREEN,
    NEUTRAL,
    QUARTER,
    RED,
    THIRD,
    YELLOW,
    Shown,
    Steps,
    bars_panel,
    heat_panel,
    percentiles,
    series_panel,
    stat_panel,
    table_panel,
)
from .slo import OBJECTIVE

ON_TIME_STEPS: Steps = ((None, RED), (OBJECTIVE, YELLOW), (0.999, GREEN))
LATENESS_STEPS: Steps = ((None, GREEN), (0.1, YELLOW), (1, RED))
OVERDUE_STEPS: Steps = ((None, GREEN), (5, YELLOW), (60, RED))
NONE_STEPS: Steps = ((None, GREEN), (1, RED))


def overview() -> str:
    """As JSON."""
    return board(
        "streamdq-overview",
        "streamdq / Overview",
        "Do jobs run on time? The first row tells; the others show why not.",
        [
            _on_time(),
            _waiting(),
            _lateness(),
            _flow(),
            _failing(),
            _workers(),
            _schedules(),
            _flows(),
            _callbacks(),
            _outbox(),
            _mover(),
        ],
    )


def _on_time() -> PanelRow:
    now = Shown(signals.ON_TIME, window="5m")
    return "Do jobs run on time?", [
        stat_panel(now, ON_TIME_STEPS, decimals=2, none="nothing ran"),
        stat_panel(Shown(signals.BUDGET_LEFT), ((None, RED), (0, YELLOW), (0.25, GREEN)), decimals=0),
        stat_panel(Shown(signals.OVERDUE), OVERDUE_STEPS, decimals=1),
        stat_panel(Shown(signals.ALERTS), NONE_STEPS),
        table_panel(Shown(signals.ALERTS_BY_NAME), ["Value"], width=THIRD, none="nothing is firing"),
        series_panel(
            Shown(signals.ON_TIME, by=("topic",)),
            title="On time, by topic",
            steps=((None, "transparent"), (OBJECTIVE, RED)),
            width=FULL,
            lowest=None,
            highest=1,
        ),
    ]


def _waiting() -> PanelRow:
    return "Waiting", [
        stat_panel(Shown(signals.DELAYED), NEUTRAL, decimals=0),
        *[stat_panel(Shown(signals.due_within(window)), NEUTRAL, decimals=0) for window in ("1m", "1h", "1d")],
        stat_panel(Shown(signals.DEAD), ((None, GREEN), (1, YELLOW)), decimals=0),
        stat_panel(Shown(signals.PAUSED), ((None, GREEN), (1, YELLOW)), decimals=0),
        series_panel(Shown(signals.BY_STATE), stacked=True),
        series_panel(
            Shown(signals.OVERDUE, by=("topic",)),
            title="Overdue, by topic",
            steps=((None, "transparent"), (60, RED)),
        ),
    ]


def _lateness() -> PanelRow:
    return "Lateness", [
        heat_panel(signals.LATENESS_SPREAD),
        percentiles(signals.LATENESS, steps=((None, "transparent"), (1, RED))),
    ]


def _flow() -> PanelRow:
    lines = [Shown(signal) for signal in (signals.ENQUEUED, signals.MOVED, signals.FINISHED)]
    ends = [Shown(signal) for signal in (signals.CANCELLED, signals.EXPIRED, signals.DUPLICATE, signals.UNREADABLE)]
    return "Flow", [
        series_panel(
            lines,
            title="In, moved, finished",
            description="Jobs a second that were enqueued, moved when due, and finished. Over time the three rates are "
            "equal, but for retries, which are moved again.",
        ),
        series_panel(Shown(signals.DRAIN), width=QUARTER),
        series_panel(
            ends,
            title="Cancelled, expired, duplicate, unreadable",
            description="Per second: jobs cancelled, attempts given up because they would have started too late, "
            "enqueues refused because the id was taken, and jobs handed back because their worker lacks a key of the "
            "body or is of an older release.",
            width=QUARTER,
        ),
    ]


def _failing() -> PanelRow:
    return "Failures", [
        bars_panel(Shown(signals.RETRY_FUNNEL, window="$__range"), none="no retries"),
        bars_panel(Shown(signals.DEAD_BY_REASON, window="$__range"), none="no dead letters"),
        series_panel(Shown(signals.OUTCOMES), width=THIRD, stacked=True),
        series_panel(
            Shown(signals.FAILING, by=("topic",)),
            title="Failing, by topic",
            steps=((None, "transparent"), (0.05, RED)),
            highest=1,
        ),
        series_panel(Shown(signals.DEAD, by=("topic",)), title="Dead letters, by topic"),
    ]


def _workers() -> PanelRow:
    return "Workers", [
        series_panel(Shown(signals.CONSUMERS, by=("topic", "group")), width=THIRD),
        series_panel(Shown(signals.RUNNING, by=("topic",)), width=THIRD),
        series_panel(Shown(signals.RECLAIMED), width=THIRD),
        percentiles(signals.DURATION, width=THIRD),
        percentiles(signals.WAIT, width=THIRD),
        series_panel(
            [Shown(signals.LOOP_RESTARTS), Shown(signals.LOG_LINES_DROPPED)],
            width=THIRD,
            title="Loop restarts, and log lines dropped",
            description="Loops that failed and were started again; the worker's log says why. And lines of logs that "
            "nobody reads.",
        ),
        series_panel(Shown(signals.UNSENT), width=THIRD),
        series_panel(
            [Shown(signals.HUNG, by=("group",)), Shown(signals.STALLED, by=("group",))],
            width=THIRD,
            title="Hung handlers, and stalled workers",
            description="Handlers that go on beyond their TTR; the log says where they hang. And workers that start no "
            "more jobs: such handlers have all of their slots, or their event loop is blocked.",
        ),
        series_panel(Shown(signals.LOOP_BLOCKED), width=THIRD),
    ]


def _flows() -> PanelRow:
    return "Flows", [
        series_panel(Shown(signals.FLOWS, by=("state",))),
        series_panel(Shown(signals.FLOWS_OVERDUE)),
    ]


def _callbacks() -> PanelRow:
    return "Callbacks", [
        series_panel(Shown(signals.CALLBACKS), width=THIRD, stacked=True),
        series_panel(Shown(signals.CALLBACK_ANSWERS), width=THIRD, stacked=True),
        series_panel(Shown(signals.CALLBACK_BREAKS), width=THIRD),
    ]


def _schedules() -> PanelRow:
    return "Schedules", [
        series_panel(Shown(signals.OCCURRENCES), width=THIRD, stacked=True),
        series_panel(Shown(signals.LAST_SUCCESS, by=("topic",)), width=THIRD),
        series_panel(Shown(signals.SCHEDULES), width=THIRD, stacked=True),
    ]


def _outbox() -> PanelRow:
    return "Outbox", [
        series_panel(Shown(signals.OUTBOX_ROWS), stacked=True),
        percentiles(signals.OUTBOX_WAIT),
        series_panel(Shown(signals.OUTBOX_OLDEST)),
        series_panel([Shown(signals.OUTBOX_WAITING), Shown(signals.OUTBOX_LATER), Shown(signals.OUTBOX_REFUSED)]),
    ]


def _mover() -> PanelRow:
    active = {"1": ("active", GREEN), "0": ("none", RED)}
    skew = ((None, GREEN), (0.1, YELLOW), (0.5, RED))
    return "Mover and Redis", [
        stat_panel(Shown(signals.MOVER), ((None, RED), (1, GREEN)), says=active, none="unknown"),
        stat_panel(Shown(signals.LAST_MOVE), NEUTRAL, decimals=1, none="never yet"),
        stat_panel(Shown(signals.CLOCK_SKEW), skew),
        stat_panel(Shown(signals.IMBALANCE), NONE_STEPS, decimals=0),
        stat_panel(Shown(signals.LOST), NONE_STEPS, decimals=0),
        stat_panel(Shown(signals.REDIS), ((None, RED), (1, GREEN)), says={"1": ("answers", GREEN), "0": ("down", RED)}),
        percentiles(signals.MOVE_BATCH, width=QUARTER),
        series_panel(Shown(signals.UNDUMPED, by=("topic",)), width=QUARTER),
        series_panel(Shown(signals.REDIS_ERRORS), width=QUARTER),
        bars_panel(Shown(signals.VERSIONS), width=QUARTER),
    ]
