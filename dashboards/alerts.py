"""Alert rules: what an operator is told, before customers notice.

``page``: somebody must act now. ``ticket``: somebody must look at it, in the daytime. Each has a section of its name in
docs/operations.md. No traffic, no alert: a share of nothing is no number, and no comparison with it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from . import signals
from .promql import Scale, seconds
from .slo import BUDGET, BUDGET_WINDOW, LEAST_ATTEMPTS

PAGES = "docs/operations.md"
"""Where the alerts' sections are; `make dashboards PAGES=https://…` writes where people can open them."""

_NAMESPACE = ("namespace",)
_TOPIC = (*_NAMESPACE, "topic")
_GROUP = (*_TOPIC, "group")
_PAUSED = "max by (namespace, topic) (streamdq_topic_paused) == 1"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule. ``patience``: how long the condition must hold. In its words ``@topic`` is the topic with its
    namespace, ``@namespace`` the namespace alone.
    """

    name: str
    severity: Literal["page", "ticket"]
    expr: str
    patience: str
    summary: str
    description: str

    @property
    def anchor(self) -> str:
        """Its section in docs/operations.md."""
        return self.name.lower()


def alerts(scale: Scale) -> Iterator[Alert]:
    yield from _on_time(scale)
    yield from _standing_still(scale)
    yield from _broken(scale)
    yield from _failing(scale)
    yield from _ahead()
    yield from _blind(scale)


def _on_time(scale: Scale) -> Iterator[Alert]:
    """Multi-window burn rates: the long window says that it matters, the short one that it still goes on."""
    yield _burns("Fast", "page", 14.4, "1h", "5m", "2m", scale)
    yield _burns("Steadily", "page", 6, "6h", "30m", "10m", scale)
    yield _burns("Slowly", "ticket", 1, BUDGET_WINDOW, "6h", "1h", scale)


def _burns(
    how: str, severity: Literal["page", "ticket"], rate: float, long: str, short: str, patience: str, scale: Scale
) -> Alert:
    def share(window: str) -> str:
        late, started = ("namespace_topic:streamdq_attempts_" + what for what in ("late", "started"))
        return f"{late}:rate{window} / {started}:rate{window}"

    bound = f"{rate * BUDGET:.4g}"
    return Alert(
        f"StreamdqBudgetBurns{how}",
        severity,
        f"{share(long)} > {bound} and {share(short)} > {bound}"
        f" and namespace_topic:streamdq_attempts_started:rate{long} >= {_least(long, scale)}",
        patience,
        "Too many jobs of @topic start late",
        f"{{{{ $value | humanizePercentage }}}} of the attempts of @topic in the last {long} began "
        f"more than a second after they were due; {BUDGET:.0%} may. So many use up a budget of {BUDGET_WINDOW} within "
        f"{seconds(BUDGET_WINDOW) / rate / 3600:g}h.",
    )


def _standing_still(scale: Scale) -> Iterator[Alert]:
    overdue = signals.OVERDUE.expr(by=_TOPIC)
    yield Alert(
        "StreamdqMoverSilent",
        "page",
        f"{signals.DELAYED.expr(by=_NAMESPACE)} > 0 and on (namespace) ({signals.MOVER.expr(by=_NAMESPACE)} == 0)",
        "30s",
        "No mover is at work for @namespace",
        "For 30 seconds no process has held the mover's lease of namespace @namespace. Jobs that wait to come due, and "
        "then stay where they are: {{ $value | humanize }}. A worker takes the lease within 5 seconds, if one is "
        "running.",
    )
    yield Alert(
        "StreamdqOverdue",
        "page",
        f"{overdue} > {scale.seconds(60)}",
        "1m",
        "Jobs of @topic are due and not moved",
        "The oldest due job of @topic has waited {{ $value | humanizeDuration }} to be moved to its ready "
        "stream; a mover at work takes milliseconds. The topic is not paused.",
    )
    yield Alert(
        "StreamdqNoConsumers",
        "page",
        f"{signals.LAG.expr(by=_GROUP)} > 0 and {signals.CONSUMERS.expr(by=_GROUP)} == 0"
        f" unless on (namespace, topic) {_PAUSED}",
        "1m",
        "Nobody works on @topic, group {{ $labels.group }}",
        "Group {{ $labels.group }} of @topic has no worker. Jobs that are due and wait for one: "
        "{{ $value | humanize }}.",
    )
    yield Alert(
        "StreamdqPendingTooLong",
        "ticket",
        f"{signals.OLDEST_PENDING.expr(by=_GROUP)} > 2 * {signals.TTR.expr(by=_GROUP)}",
        "1m",
        "A claim of @topic is older than twice its TTR",
        "The oldest claim of @topic, group {{ $labels.group }}, is {{ $value | humanizeDuration }} old, "
        "more than twice the TTR. It should have ended or been taken over.",
    )


def _broken(scale: Scale) -> Iterator[Alert]:
    lost = _grew("streamdq_jobs_lost_total", "1h", scale)
    refused = _grew('streamdq_redis_errors_total{kind="refused_writes"}', "5m", scale)
    yield Alert(
        "StreamdqJobsLost",
        "page",
        f"max by (namespace, topic) ({lost}) > 0",
        "0s",
        "@topic has lost jobs",
        "Jobs of @topic that Redis had no longer in the last hour, though nobody ended them: "
        "{{ $value | humanize }}. This must never happen: Redis has lost data, or evicts keys.",
    )
    yield Alert(
        "StreamdqImbalance",
        "page",
        f"{signals.IMBALANCE.expr(by=_TOPIC)} != 0",
        "2m",
        "The accounts of @topic don't balance",
        "Jobs of @topic that are missing or too many: {{ $value | humanize }}. Enqueued is not done + "
        "dead + cancelled + expired + live.",
    )
    yield Alert(
        "StreamdqRedisRefusesWrites",
        "page",
        f"sum by (namespace) ({refused}) > 0",
        "0s",
        "Redis takes no writes of @namespace",
        "Calls of namespace @namespace that Redis refused in the last 5 minutes: {{ $value | humanize }}. Its memory "
        "or disk is full, or it is a replica. Nothing can be enqueued.",
    )
    yield Alert(
        "StreamdqClockSkew",
        "ticket",
        f"{signals.CLOCK_SKEW.expr(by=_NAMESPACE)} > 0.5",
        "5m",
        "A host's clock is off Redis's",
        "The clocks of Redis and of a host of namespace @namespace are {{ $value | humanizeDuration }} apart. Delays "
        "are right all the same; jobs enqueued for an absolute time are early or late by that much.",
    )


def _failing(scale: Scale) -> Iterator[Alert]:
    window = scale.window("15m")
    least = _least("15m", scale)
    taken = signals.RECLAIMED_RATE.expr(by=_GROUP, window=window)
    # Since there were fewest: letters that were kicked or purged must not hide those that came after.
    dead = _grew('streamdq_jobs{state="dead"}', "30m", scale)
    # Where every worker hangs no attempt ends, and there is nothing to add.
    claims = f"({taken} + {signals.ALL_ENDED.expr(by=_GROUP, window=window)} or {taken})"
    yield Alert(
        "StreamdqFailing",
        "ticket",
        f"{signals.FAILING.expr(by=_GROUP, window=window)} > 0.05"
        f" and {signals.ENDED.expr(by=_GROUP, window=window)} >= {least}",
        "5m",
        "Attempts of @topic fail",
        "{{ $value | humanizePercentage }} of the attempts of @topic, group {{ $labels.group }}, failed "
        "in the last 15 minutes.",
    )
    yield Alert(
        "StreamdqDeadLettersGrowing",
        "ticket",
        f"max by (namespace, topic) ({dead}) > 0",
        "0s",
        "Jobs of @topic are given up",
        "In the last 30 minutes the dead letters of @topic have grown by {{ $value | humanize }}. Nothing "
        "runs them again unless somebody kicks them.",
    )
    yield Alert(
        "StreamdqReclaiming",
        "ticket",
        f"{taken} / {claims} > 0.01 and {claims} >= {least}",
        "0s",
        "Claims of @topic outlive their TTR",
        "{{ $value | humanizePercentage }} of the claims of @topic, group {{ $labels.group }}, in the "
        "last 15 minutes were taken over: their workers died or hung, or the TTR is too short.",
    )


def _ahead() -> Iterator[Alert]:
    yield Alert(
        "StreamdqStampedeAhead",
        "ticket",
        'namespace_topic_window:streamdq_coming_load:ratio{window=~"10m|1h"} > 1'
        " and namespace_topic_window:streamdq_coming_jobs:sum >= 100 unless on (namespace, topic) " + _PAUSED,
        "2m",
        "More jobs of @topic come due than its workers can finish",
        "{{ if gt $value 1e9 }}What comes due in @topic within {{ $labels.window }} has no workers any "
        "more{{ else }}What comes due in @topic within {{ $labels.window }} is {{ $value | humanize }} "
        "times what its workers have shown they can finish in that time{{ end }}: jobs will be late.",
    )


def _blind(scale: Scale) -> Iterator[Alert]:
    day = scale.window("1d")
    yield Alert(
        "StreamdqFiguresAbsent",
        "page",
        # Each namespace that had figures within a day; or nobody had any.
        f"max by (namespace) (max_over_time(streamdq_up[{day}]))"
        " unless on (namespace) (max by (namespace) (streamdq_up) == 1)"
        f" or absent_over_time(streamdq_up[{day}])",
        "2m",
        "No figures of streamdq's queues{{ with $labels.namespace }} in {{ . }}{{ end }}",
        "For 2 minutes nobody has told what is in Redis{{ with $labels.namespace }} for namespace {{ . }}{{ end }}: "
        "the exporter is down or can't reach Redis. The other alerts are blind.",
    )
    yield Alert(
        "StreamdqTargetDown",
        "ticket",
        'up{job=~".*streamdq.*"} == 0',
        "2m",
        "{{ $labels.instance }} does not answer Prometheus",
        "{{ $labels.job }} at {{ $labels.instance }} has not answered Prometheus for 2 minutes.",
    )


def _least(window: str, scale: Scale) -> str:
    """The rate below which a share of what happened within the window says nothing."""
    return f"{LEAST_ATTEMPTS / (scale.factor * seconds(window)):.4g}"


def _grew(number: str, window: str, scale: Scale) -> str:
    """By how much a number grew, exactly: ``increase`` adds what may have happened at the window's ends, and would
    tell of 3.1 jobs.
    """
    return f"{number} - min_over_time({number}[{scale.window(window)}])"
