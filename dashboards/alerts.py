"""Alert rules: they tell an operator before customers notice.

``page``: somebody must act now. ``ticket``: somebody must look at it in working hours. Each alert has a section with
its name in docs/runbook/. Without traffic no alert fires: a share of nothing is NaN, and every comparison with NaN
is false.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from . import signals
from .promql import Scale, seconds
from .slo import BUDGET, BUDGET_WINDOW, LEAST_ATTEMPTS

PAGES = "docs/runbook"
"""The pages with the alerts' sections; `make dashboards PAGES=https://…` makes them links that people can open."""

_NAMESPACE = ("namespace",)
_TOPIC = (*_NAMESPACE, "topic")
_GROUP = (*_TOPIC, "group")
_PAUSED = "max by (namespace, topic) (streamdq_topic_paused) == 1"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule. ``patience``: how long the condition must hold. In its texts, ``@topic`` is the topic with its
    namespace, ``@namespace`` for the namespace alone. ``page``: its page of docs/runbook/.
    """

    name: str
    severity: Literal["page", "ticket"]
    expr: str
    patience: str
    summary: str
    description: str
    page: str = ""

    @property
    def anchor(self) -> str:
        """Its section on the page."""
        return self.name.lower()


def alerts(scale: Scale) -> Iterator[Alert]:
    for page, found in (
        ("late-jobs", [*_on_time(scale), *_standing_still(scale)]),
        ("redis", _broken(scale)),
        ("failing-jobs", _failing(scale)),
        ("late-jobs", _ahead()),
        ("failing-jobs", _links(scale)),
        ("schedules-and-outbox", [*_schedules(scale), *_outbox(scale)]),
        ("blind", _blind(scale)),
    ):
        yield from (replace(alert, page=page) for alert in found)


def _on_time(scale: Scale) -> Iterator[Alert]:
    """Multi-window burn rates: the long window shows that the problem matters, the short one that it still lasts."""
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
        f"more than a second after they were due; at most {BUDGET:.0%} may. At this rate the error budget of "
        f"{BUDGET_WINDOW} is used up within {seconds(BUDGET_WINDOW) / rate / 3600:g}h.",
    )


def _standing_still(scale: Scale) -> Iterator[Alert]:
    overdue = signals.OVERDUE.expr(by=_TOPIC)
    yield Alert(
        "StreamdqMoverSilent",
        "page",
        f"{signals.DELAYED.expr(by=_NAMESPACE)} > 0 and on (namespace) ({signals.MOVER.expr(by=_NAMESPACE)} == 0)",
        "30s",
        "No mover is active for @namespace",
        "For 30 seconds no process has held the mover's lease of namespace @namespace, so due jobs are not moved. "
        "Delayed jobs: {{ $value | humanize }}. Any running worker takes the lease within 2.5 seconds.",
    )
    yield Alert(
        "StreamdqOverdue",
        "page",
        f"{overdue} > {scale.seconds(60)}",
        "1m",
        "Due jobs of @topic are not moved",
        "The oldest due job of @topic has waited {{ $value | humanizeDuration }} to be moved to its ready "
        "stream; a working mover needs milliseconds. The topic is not paused.",
    )
    yield Alert(
        "StreamdqNoConsumers",
        "page",
        f"{signals.LAG.expr(by=_GROUP)} > 0 and {signals.CONSUMERS.expr(by=_GROUP)} == 0"
        f" unless on (namespace, topic) {_PAUSED}",
        "1m",
        "No worker serves @topic, group {{ $labels.group }}",
        "Group {{ $labels.group }} of @topic has no live worker. Due jobs that wait for one: {{ $value | humanize }}.",
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
        "Jobs of @topic found missing from Redis in the last hour: {{ $value | humanize }}. Nobody finished or "
        "cancelled them. This must never happen: Redis has lost data or evicts keys.",
    )
    yield Alert(
        "StreamdqImbalance",
        "page",
        f"{signals.IMBALANCE.expr(by=_TOPIC)} != 0",
        "2m",
        "The accounts of @topic don't balance",
        "Jobs of @topic that are missing or too many: {{ $value | humanize }}. Enqueued should equal done + "
        "dead + cancelled + expired + live.",
    )
    yield Alert(
        "StreamdqRedisRefusesWrites",
        "page",
        f"sum by (namespace) ({refused}) > 0",
        "0s",
        "Redis refuses writes from @namespace",
        "Calls of namespace @namespace that Redis refused in the last 5 minutes: {{ $value | humanize }}. Redis is out "
        "of memory or disk space, or it is a replica. Nothing can be enqueued.",
    )
    yield Alert(
        "StreamdqClockSkew",
        "ticket",
        f"{signals.CLOCK_SKEW.expr(by=_NAMESPACE)} > 0.5",
        "5m",
        "A host's clock differs from Redis's",
        "The clocks of Redis and of a host of namespace @namespace are {{ $value | humanizeDuration }} apart. Delays "
        "are not affected; jobs enqueued for an absolute time are early or late by that much.",
    )


def _failing(scale: Scale) -> Iterator[Alert]:
    window = scale.window("15m")
    least = _least("15m", scale)
    taken = signals.RECLAIMED_RATE.expr(by=_GROUP, window=window)
    # Growth since the lowest count: letters that were kicked or purged must not hide those that came after.
    dead = _grew('streamdq_jobs{state="dead"}', "30m", scale)
    # If every worker hangs, no attempt ends, and the sum has no value.
    claims = f"({taken} + {signals.ALL_ENDED.expr(by=_GROUP, window=window)} or {taken})"
    yield Alert(
        "StreamdqFailing",
        "ticket",
        f"{signals.FAILING.expr(by=_GROUP, window=window)} > 0.05"
        f" and {signals.ENDED.expr(by=_GROUP, window=window)} >= {least}",
        "5m",
        "Attempts of @topic are failing",
        "{{ $value | humanizePercentage }} of the attempts of @topic, group {{ $labels.group }}, failed "
        "in the last 15 minutes.",
    )
    yield Alert(
        "StreamdqDeadLettersGrowing",
        "ticket",
        f"max by (namespace, topic) ({dead}) > 0",
        "0s",
        "Jobs of @topic become dead letters",
        "In the last 30 minutes the dead letters of @topic have grown by {{ $value | humanize }}. Nothing "
        "runs them again until somebody kicks them.",
    )
    yield Alert(
        "StreamdqReclaiming",
        "ticket",
        f"{taken} / {claims} > 0.01 and {claims} >= {least}",
        "0s",
        "Workers lose claims of @topic",
        "{{ $value | humanizePercentage }} of the claims of @topic, group {{ $labels.group }}, in the "
        "last 15 minutes were taken over: their workers died or hung, or the TTR is too short.",
    )

    yield Alert(
        "StreamdqHandlersHang",
        "ticket",
        f"{signals.HUNG.expr(by=(*_NAMESPACE, 'group'))} > 0",
        "5m",
        "Handlers of @namespace hang",
        "{{ $value | humanize }} handlers in namespace @namespace, group {{ $labels.group }}, go on beyond "
        "their TTR. Each keeps a slot of its worker.",
    )


def _ahead() -> Iterator[Alert]:
    yield Alert(
        "StreamdqStampedeAhead",
        "ticket",
        'namespace_topic_window:streamdq_coming_load:ratio{window=~"10m|1h"} > 1'
        " and namespace_topic_window:streamdq_coming_jobs:sum >= 100 unless on (namespace, topic) " + _PAUSED,
        "2m",
        "More jobs of @topic come due than its workers can finish",
        "The jobs of @topic that come due within {{ $labels.window }} {{ if gt $value 1e9 }}have no workers any "
        "more{{ else }}are {{ $value | humanize }} times as many as its workers have shown they can finish in that "
        "time{{ end }}: jobs will be late.",
    )


def _links(scale: Scale) -> Iterator[Alert]:
    yield Alert(
        "StreamdqJobsBlocked",
        "ticket",
        f"{signals.BLOCKED.expr(by=_TOPIC)} > 0",
        "5m",
        "Jobs of @topic are blocked",
        "Jobs of @topic that can't start, because a job that they wait for has failed: {{ $value | humanize }}. They "
        "wait until somebody sends that one back, or cancels them.",
    )
    yield Alert(
        "StreamdqEndingsUndelivered",
        "page",
        f"{signals.ENDINGS_OLDEST.expr(by=_TOPIC)} > {scale.seconds(60)}",
        "1m",
        "Jobs that wait for those of @topic are not told of their ends",
        "A job of @topic ended {{ $value | humanizeDuration }} ago, and those that wait for it have not heard of it; a "
        "mover needs milliseconds.",
    )
    yield Alert(
        "StreamdqFlowsOverdue",
        "page",
        f"{signals.FLOWS_OVERDUE.expr(by=_NAMESPACE)} > {scale.seconds(60)}",
        "1m",
        "Flows of @namespace are stuck",
        "A flow of @namespace has waited {{ $value | humanizeDuration }} for a mover, which looks every 10 seconds: "
        "its jobs don't start, or are not cancelled at its deadline.",
    )


def _schedules(scale: Scale) -> Iterator[Alert]:
    missed = _grew('streamdq_schedule_occurrences_total{outcome="missed"}', "1h", scale)
    enqueued = 'streamdq_schedule_occurrences_total{outcome="enqueued"}'
    ago, day, longer = scale.window("1h"), scale.window("1d"), scale.window("26h")
    overdue = "max by (namespace, topic) (streamdq_schedule_oldest_overdue_seconds)"
    success = f"max by (namespace, topic) (max_over_time(streamdq_schedule_last_success_timestamp_seconds[{longer}]))"
    yield Alert(
        "StreamdqSchedulesOverdue",
        "page",
        f"{overdue} > {scale.seconds(60)}",
        "1m",
        "Schedules of @topic are not looked at",
        "A schedule of @topic has waited {{ $value | humanizeDuration }} for a mover, which looks 10 seconds before an "
        "occurrence is due. More than 30 seconds after that, an occurrence is missed.",
    )
    yield Alert(
        "StreamdqSchedulesMissed",
        "ticket",
        f"max by (namespace, topic) ({missed}) > 0",
        "0s",
        "Occurrences of schedules of @topic were missed",
        "Occurrences of schedules of @topic missed in the last hour: {{ $value | humanize }}. For more than 30 "
        "seconds after they were due, no mover was active; what catch_up lets run all the same does not count.",
    )
    yield Alert(
        "StreamdqSchedulesFailing",
        "ticket",
        # Success is looked for in a longer time: what was enqueued a day ago may have succeeded at once.
        f"max by (namespace, topic) ({enqueued} offset {ago} - min_over_time({enqueued}[{day}] offset {ago})) > 0"
        f" unless on (namespace, topic) {success} > time() - {scale.seconds(26 * 3600)}"
        " and on (namespace, topic) sum by (namespace, topic) (streamdq_job_attempts_total) >= 0"
        f" unless on (namespace, topic) {_PAUSED}",
        "5m",
        "No occurrence of the schedules of @topic succeeds",
        "Schedules of @topic enqueued jobs more than an hour ago, in the day before that: {{ $value | humanize }}. "
        "Workers have done none of them since, and none of earlier ones for 26 hours.",
    )


def _outbox(scale: Scale) -> Iterator[Alert]:
    yield Alert(
        "StreamdqOutboxLate",
        "page",
        f"{signals.OUTBOX_OLDEST.expr(by=_NAMESPACE)} > {scale.seconds(60)}",
        "1m",
        "Rows of the outbox of @namespace are not relayed",
        "The oldest row of the outbox of namespace @namespace has waited {{ $value | humanizeDuration }} for a relay; "
        "an active relay needs milliseconds. Nothing is lost, but the jobs of new transactions don't reach Redis.",
    )
    yield Alert(
        "StreamdqOutboxRefused",
        "ticket",
        f"{signals.OUTBOX_REFUSED.expr(by=_NAMESPACE)} > 0",
        "0s",
        "Rows of the outbox of @namespace were refused",
        "Rows of the outbox of namespace @namespace that were refused, as other jobs have their ids or they are not "
        "valid: {{ $value | humanize }}. Their jobs run only after somebody has decided what becomes of them.",
    )


def _blind(scale: Scale) -> Iterator[Alert]:
    day = scale.window("1d")
    yield Alert(
        "StreamdqFiguresAbsent",
        "page",
        # Each namespace that had figures within the last day; or no namespace had any.
        f"max by (namespace) (max_over_time(streamdq_up[{day}]))"
        " unless on (namespace) (max by (namespace) (streamdq_up) == 1)"
        f" or absent_over_time(streamdq_up[{day}])",
        "2m",
        "No figures of streamdq's queues{{ with $labels.namespace }} in {{ . }}{{ end }}",
        "For 2 minutes nothing has reported the state of Redis{{ with $labels.namespace }} for namespace {{ . }}"
        "{{ end }}: the exporter is down or can't reach Redis. The other alerts are blind.",
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
    """The rate below which a share of the attempts in the window says nothing."""
    return f"{LEAST_ATTEMPTS / (scale.factor * seconds(window)):.4g}"


def _grew(number: str, window: str, scale: Scale) -> str:
    """By how much a number grew, exactly: ``increase`` extrapolates to the window's ends and would report 3.1 jobs."""
    return f"{number} - min_over_time({number}[{scale.window(window)}])"
