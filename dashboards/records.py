"""Recording rules: what alerts and panels would otherwise compute again and again, or over days of data.

Names are ``labels:metric:operation``, as Prometheus advises. The window in a name is production's, whatever the scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import signals
from .promql import Scale, seconds
from .slo import LONG_WINDOWS, SHORT_WINDOWS

BEST_OF = "1d"
"""How far back we look for the best that workers have shown."""

AHEAD = ("1m", "10m", "1h", "1d")
"""The windows of streamdq_jobs_due_within."""


@dataclass(frozen=True, slots=True)
class Record:
    """One recording rule."""

    name: str
    expr: str
    labels: tuple[tuple[str, str], ...] = ()


def records(scale: Scale) -> Iterator[Record]:
    """In the order of evaluation: later ones use earlier ones."""
    yield from _on_time(scale)
    yield from _capacity(scale)
    yield from _coming_load()


def _on_time(scale: Scale) -> Iterator[Record]:
    """Rates over short windows are computed from the series themselves. Over days that would be too expensive, with a
    series per topic, group and process. So long windows are averaged from the recorded five-minute rates.
    """
    for what, signal in (("started", signals.STARTED), ("late", signals.LATE)):
        name = f"namespace_topic:streamdq_attempts_{what}:rate"
        for window in SHORT_WINDOWS:
            yield Record(name + window, signal.expr(by=("namespace", "topic"), window=scale.window(window)))
        step = SHORT_WINDOWS[0]
        for window in LONG_WINDOWS:
            steps = scale.window_s(window) / scale.window_s(step)
            yield Record(
                name + window,
                f"sum_over_time({name}{step}[{scale.window(window)}:{scale.window(step)}]) / {steps:g}",
            )


def _capacity(scale: Scale) -> Iterator[Record]:
    group = ("namespace", "topic", "group")
    yield Record(
        "namespace_topic_group:streamdq_attempts_ended:rate5m", signals.ENDED.expr(by=group, window=scale.window("5m"))
    )
    yield Record("namespace_topic_group:streamdq_consumers:max", signals.CONSUMERS.expr(by=group))
    yield Record(
        "namespace_topic_group:streamdq_attempts_ended_per_consumer:rate5m",
        # Divide by the most consumers in the window: when one leaves, the rate still contains what it did.
        "namespace_topic_group:streamdq_attempts_ended:rate5m"
        f" / (max_over_time(namespace_topic_group:streamdq_consumers:max[{scale.window('5m')}]) > 0)",
    )
    # Every group gets every job, so the slowest group sets the topic's pace. Workers that have ended nothing in a day
    # have no figure, and so raise no alarm.
    yield Record(
        "namespace_topic:streamdq_capacity:rate",
        "min by (namespace, topic) ((max_over_time(namespace_topic_group:streamdq_attempts_ended_per_consumer:rate5m"
        f"[{scale.window(BEST_OF)}:{scale.window('1m')}]) > 0) * namespace_topic_group:streamdq_consumers:max)",
    )


def _coming_load() -> Iterator[Record]:
    """The same at any scale, because jobs come due in real time."""
    for window in AHEAD:
        yield Record("window:streamdq_ahead:seconds", f"vector({seconds(window)})", (("window", window),))
    yield Record(
        "namespace_topic_window:streamdq_coming_jobs:sum",
        "max by (namespace, topic, window) (streamdq_jobs_due_within)"
        " + on (namespace, topic) group_left () max by (namespace, topic) (streamdq_lag_jobs)",
    )
    jobs, capacity = "namespace_topic_window:streamdq_coming_jobs:sum", "namespace_topic:streamdq_capacity:rate"
    takes = f"{jobs} / on (namespace, topic) group_left () {capacity}"
    lasts = "on (window) group_left () window:streamdq_ahead:seconds"
    yield Record("namespace_topic_window:streamdq_coming_load:ratio", f"{takes} / {lasts}")
    yield Record("namespace_topic_window:streamdq_late_by:seconds", f"clamp_min({takes} - {lasts}, 0)")
    # clamp turns any number into 0, even infinity, which is the load of topics whose workers are gone.
    yield Record(
        "namespace_topic:streamdq_late_within:seconds",
        f"min by (namespace, topic) (clamp(namespace_topic_window:streamdq_coming_load:ratio > 1, 0, 0) + {lasts})",
    )
