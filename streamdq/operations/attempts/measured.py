"""Counts ended attempts in the metrics, a batch at a time, so that each job costs a worker little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ...metrics import declared
from ...schedules.plan import occurrence_in
from ...store.history.rows import moved_ms

if TYPE_CHECKING:
    import prometheus_client

    from ...store.replies import Refused
    from .claimed import ClaimedJob
    from .ends import End


@dataclass(frozen=True, slots=True)
class _Figures:
    """One group's metrics. Their labels are looked up once, because that costs more than counting. All series exist at
    0 before the first count: Prometheus sees no growth in a series that begins with its first count.
    """

    lateness: declared.BatchHistogram
    wait: declared.BatchHistogram
    duration: declared.BatchHistogram
    time_to_finish: declared.BatchHistogram
    body_bytes: declared.BatchHistogram
    attempts: dict[str, prometheus_client.Counter]
    dead: dict[str, prometheus_client.Counter]


@cache
def _figures(namespace: str, topic: str, group: str) -> _Figures:
    of_group = (namespace, topic, group)
    return _Figures(
        declared.LATENESS.labels(*of_group),
        declared.WAIT.labels(*of_group),
        declared.DURATION.labels(*of_group),
        declared.TIME_TO_FINISH.labels(*of_group),
        declared.BODY_BYTES.labels(namespace, topic),
        {outcome: declared.ATTEMPTS.labels(*of_group, outcome) for outcome in declared.OUTCOMES},
        {reason: declared.DEAD.labels(*of_group, reason) for reason in declared.REASONS},
    )


def expect(namespace: str, steps: Mapping[str, int], group: str) -> None:
    """Creates the metrics of the topics that a worker serves. ``steps``: topic -> steps of its retry schedule. A rate
    needs a 0 to start from; without it, jobs that are late when a worker comes back would not show.
    """
    if not declared.counting():
        return
    for name, most in steps.items():
        topic = declared.topic_labels().of(namespace, name)
        _figures(namespace, topic, group)
        for step in range(min(most, declared.MOST_STEPS)):
            declared.RETRIES.labels(namespace, topic, group, declared.step_label(step, 1))
        for why in declared.TAKE_OVERS:
            declared.RECLAIMED.labels(namespace, topic, group, why)
        declared.UNREADABLE.labels(namespace, topic, group)
        declared.MOVED.labels(namespace, topic)


def attempts_ended(ends: Sequence[End], refused: Refused) -> None:
    """Counts ended attempts of one topic, group and outcome, which Redis confirmed except for those ``refused``."""
    if not declared.counting():
        return
    shard, group, outcome = ends[0].held.shard, ends[0].held.group, ends[0].outcome.value
    topic = declared.topic_labels().of(shard.namespace, shard.topic)
    figures = _figures(shard.namespace, topic, group)
    now_ms, stale, aborted = refused
    for refusal, count in (("stale", len(stale)), ("aborted", len(aborted))):
        figures.attempts[refusal].inc(count)
    figures.attempts[outcome].inc(len(ends) - len(stale) - len(aborted))
    if outcome in ("released", "snoozed"):
        return
    _observe(figures, [end.held for end in ends])
    without = stale | aborted
    kept = [end for i, end in enumerate(ends) if i not in without] if without else ends
    if outcome == "done":
        _observe_finish(figures, kept, now_ms)
        _note_success((shard.namespace, topic), kept, now_ms)
    elif outcome == "dead":
        _count_reasons(figures, kept)
    elif outcome == "retry":
        _count_steps((shard.namespace, topic, group), kept)


def unreadable(held: ClaimedJob) -> None:
    """Counts an attempt that did not start because this process can't read the body."""
    if declared.counting():
        shard = held.shard
        topic = declared.topic_labels().of(shard.namespace, shard.topic)
        declared.UNREADABLE.labels(shard.namespace, topic, held.group).inc()


def _observe(figures: _Figures, attempts: Sequence[ClaimedJob]) -> None:
    figures.lateness.observe_all([(one.started_ms - one.due_ms) / 1000 for one in attempts])
    figures.wait.observe_all([(one.started_ms - int(moved_ms(one.main, one.entry))) / 1000 for one in attempts])
    figures.duration.observe_all([one.took_s for one in attempts])
    figures.body_bytes.observe_all([len(one.job.raw_body) for one in attempts])


def _observe_finish(figures: _Figures, done: Sequence[End], now_ms: int) -> None:
    figures.time_to_finish.observe_all([(now_ms - end.held.job.due_ms) / 1000 for end in done])


def _note_success(of_topic: tuple[str, str], done: Sequence[End], now_ms: int) -> None:
    # Most ids have no @, so this costs other jobs next to nothing.
    if any("@" in end.held.job.id and occurrence_in(end.held.job.id) for end in done):
        declared.LAST_SUCCESS.labels(*of_topic).set(now_ms / 1000)


def _count_steps(of_group: tuple[str, str, str], retried: Sequence[End]) -> None:
    steps = Counter(declared.step_label(end.held.job.step, end.steps) for end in retried)
    for step, count in steps.items():
        declared.RETRIES.labels(*of_group, step).inc(count)


def _count_reasons(figures: _Figures, dead: Sequence[End]) -> None:
    for reason, count in Counter(end.reason for end in dead).items():
        figures.dead[reason].inc(count)
