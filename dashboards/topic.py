"""The dashboard of one topic and its groups."""

from __future__ import annotations

from dataclasses import replace

from . import signals
from .board import PanelRow, board, choice
from .overview import LATENESS_STEPS, NONE_STEPS, ON_TIME_STEPS, OVERDUE_STEPS
from .panels import (
    GREEN,
    HALF,
    NEUTRAL,
    QUARTER,
    RED,
    THIRD,
    YELLOW,
    Shown,
    bars_panel,
    heat_panel,
    percentiles,
    series_panel,
    stat_panel,
)
from .promql import ONE_NAMESPACE
from .slo import OBJECTIVE

WHERE = replace(ONE_NAMESPACE, topic='topic="$topic"', group='group=~"$group"')
_BY_GROUP = ("group",)


def topic() -> str:
    """As JSON."""
    return board(
        "streamdq-topic",
        "streamdq / Topic",
        "One topic and its consumer groups. Each group gets every job and has its own lateness, retries and dead "
        "letters.",
        [_on_time(), _waiting(), _lateness(), _flow(), _failing(), _workers()],
        [
            choice("topic", "Topic", 'label_values(streamdq_jobs{namespace="$namespace"}, topic)', every=False),
            choice(
                "group",
                "Group",
                'label_values(streamdq_lag_jobs{namespace="$namespace",topic="$topic"}, group)',
                every=True,
            ),
        ],
    )


def _on_time() -> PanelRow:
    now = Shown(signals.ON_TIME, window="5m")
    return "Does $topic run on time?", [
        stat_panel(now, ON_TIME_STEPS, where=WHERE, decimals=2, none="nothing ran"),
        stat_panel(Shown(signals.BUDGET_LEFT), ((None, RED), (0, YELLOW), (0.25, GREEN)), where=WHERE, decimals=0),
        stat_panel(Shown(signals.LATENESS_P99, window="5m"), LATENESS_STEPS, where=WHERE, none="nothing ran"),
        stat_panel(Shown(signals.OVERDUE), OVERDUE_STEPS, where=WHERE, decimals=1, none="paused"),
        stat_panel(Shown(signals.DRAIN, window="5m"), ((None, GREEN), (60, YELLOW), (600, RED)), where=WHERE),
        stat_panel(
            Shown(signals.PAUSED),
            ((None, GREEN), (1, YELLOW)),
            where=WHERE,
            says={"0": ("no", GREEN), "1": ("paused", YELLOW)},
        ),
    ]


def _waiting() -> PanelRow:
    due = [
        stat_panel(Shown(signals.due_within(window)), NEUTRAL, where=WHERE, decimals=0) for window in ("1m", "1h", "1d")
    ]
    return "Waiting", [
        stat_panel(Shown(signals.DELAYED), NEUTRAL, where=WHERE, decimals=0),
        *due,
        stat_panel(Shown(signals.RUNNING), NEUTRAL, where=WHERE, decimals=0),
        stat_panel(Shown(signals.DEAD), NONE_STEPS, where=WHERE, decimals=0),
        series_panel(Shown(signals.BY_STATE), where=WHERE, width=THIRD, stacked=True),
        series_panel(Shown(signals.LAG, by=_BY_GROUP), where=WHERE, width=THIRD),
        series_panel(Shown(signals.WAITING_FOR_KEY, by=_BY_GROUP), where=WHERE, width=THIRD),
        series_panel(Shown(signals.WAITING_FOR_JOBS), where=WHERE),
        series_panel(Shown(signals.BLOCKED), where=WHERE),
        series_panel(Shown(signals.ENDINGS_UNDELIVERED), where=WHERE),
        series_panel(Shown(signals.ENDINGS_OLDEST), where=WHERE),
    ]


def _lateness() -> PanelRow:
    return "Lateness", [
        heat_panel(signals.LATENESS_SPREAD, where=WHERE),
        percentiles(signals.LATENESS, where=WHERE, steps=((None, "transparent"), (1, RED))),
        series_panel(
            Shown(signals.ON_TIME, by=_BY_GROUP),
            where=WHERE,
            title="On time, by group",
            steps=((None, "transparent"), (OBJECTIVE, RED)),
            lowest=None,
            highest=1,
        ),
        percentiles(signals.TO_FINISH, where=WHERE),
    ]


def _flow() -> PanelRow:
    lines = [Shown(signal) for signal in (signals.ENQUEUED, signals.MOVED, signals.FINISHED)]
    ends = [Shown(signal) for signal in (signals.CANCELLED, signals.EXPIRED, signals.DUPLICATE)]
    return "Flow", [
        series_panel(
            lines,
            where=WHERE,
            title="In, moved, finished",
            description="Jobs a second that were enqueued, moved when due, and finished by the chosen groups. With "
            "several groups, each finishes a job once.",
        ),
        series_panel(
            ends,
            where=WHERE,
            title="Cancelled, expired, duplicate",
            description="Per second: jobs cancelled, attempts given up because they would have started too late, and "
            "enqueues refused because the id was taken.",
            width=QUARTER,
        ),
        percentiles(signals.BODY, where=WHERE, width=QUARTER),
    ]


def _failing() -> PanelRow:
    return "Failures", [
        bars_panel(Shown(signals.RETRY_FUNNEL, window="$__range"), where=WHERE, none="no retries"),
        bars_panel(Shown(signals.DEAD_BY_REASON, window="$__range"), where=WHERE, none="no dead letters"),
        series_panel(Shown(signals.OUTCOMES), where=WHERE, width=THIRD, stacked=True),
        series_panel(
            Shown(signals.FAILING, by=_BY_GROUP),
            where=WHERE,
            title="Failing, by group",
            steps=((None, "transparent"), (0.05, RED)),
            highest=1,
            width=HALF,
        ),
        series_panel(Shown(signals.RECLAIMED), where=WHERE),
    ]


def _workers() -> PanelRow:
    return "Workers", [
        series_panel(Shown(signals.CONSUMERS, by=_BY_GROUP), where=WHERE, width=QUARTER),
        percentiles(signals.DURATION, where=WHERE, width=QUARTER),
        percentiles(signals.WAIT, where=WHERE, width=QUARTER),
        series_panel(
            [Shown(signals.OLDEST_PENDING, by=_BY_GROUP), Shown(signals.TTR, by=_BY_GROUP)], where=WHERE, width=QUARTER
        ),
    ]
