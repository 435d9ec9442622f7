"""Every Prometheus metric of streamdq, declared here and nowhere else; docs/metrics.md lists them.

Every metric has the label namespace, as several deployments may share a Prometheus. Labels have few values: topics (at
most ``STREAMDQ_METRICS_TOPICS`` of them, then ``other``), groups, and the words in this file. No id, URL or error text
is ever a label.

Most counters and all histograms are this process's own. Gauges, and counters that the scripts keep in Redis, are read
at the scrape, so one process serves them for all.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prometheus_client import Counter, Gauge, Histogram, values

from ..config import Settings
from . import library_locks as library_locks

PROCESS_NUMBER = "STREAMDQ_PROCESS_NUMBER"
OTHER = "other"
OUTCOMES = ("done", "retry", "snoozed", "dead", "released", "aborted", "stale")
BECAME = ("enqueued", "skipped", "missed")
"""What became of a schedule's occurrence."""
REASONS = ("exhausted", "buried", "invalid", "crashed")
TAKE_OVERS = ("ttr", "silent")
MOST_STEPS = 20
"""A schedule may be longer; its later steps are counted together."""


def _use_files() -> None:
    """Makes the workers of one command write their figures to files, which the parent reads. Files are named after the
    process's number, not its process id: the successor of a dead process continues its files, and none is left behind.
    """
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not directory:
        return
    Path(directory).mkdir(parents=True, exist_ok=True)  # without it the library fails, even when it is imported
    # Not for processes that a handler starts: two processes that write to one file overwrite each other's figures.
    number, here = os.environ.pop(PROCESS_NUMBER, None), os.getpid()
    if number:
        values.ValueClass = values.MultiProcessValue(  # type: ignore[no-untyped-call]
            lambda: number if os.getpid() == here else os.getpid()
        )


_use_files()


class BatchHistogram(Histogram):
    """A Histogram that takes many values at once: one by one they would cost as much as everything else that a worker
    does for a job. The library has no call for this, so this class, and nothing else, uses its private attributes.
    """

    def observe_all(self, observed: list[float]) -> None:
        """Like ``observe`` for each value; sorts the list."""
        if not observed:
            return
        observed.sort()
        if observed[0] < 0:  # Redis's clock was set back, or a test uses its own: the sum must not shrink
            observed = [max(0.0, value) for value in observed]
        before, total = 0, len(observed)
        for bound, bucket in zip(self._upper_bounds, self._buckets, strict=True):
            upto = bisect_right(observed, bound, before)
            if upto > before:
                bucket.inc(upto - before)
                before = upto
                if upto == total:
                    break
        self._sum.inc(sum(observed))


@dataclass(frozen=True, slots=True, eq=False)
class ReadMetric:
    """A metric that is read at the scrape. ``merge`` combines the values of a topic's shards, and of the topics in
    ``other``. A counter's shards are always summed.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ("namespace",)
    merge: Callable[[float, float], float] = max
    kind: str = "gauge"


def _farthest(one: float, other: float) -> float:
    """The value that is farther from 0."""
    return max(one, other, key=abs)


_NAMESPACE = ("namespace",)
_TOPIC, _GROUP = (*_NAMESPACE, "topic"), (*_NAMESPACE, "topic", "group")
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)
_LONG_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 5, 10, 60, 300, 1800, 3600, 21_600, 86_400, 604_800)
_SHORT_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
_BYTES = (64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 16_777_216)

# -- counted in each process. The library adds _total.

DUPLICATE = Counter("streamdq_jobs_duplicate", "Jobs that this process did not enqueue: their id was taken.", _TOPIC)
MOVED = Counter("streamdq_jobs_moved", "Due jobs and retries moved from the bucket to a ready stream.", _TOPIC)
ATTEMPTS = Counter(
    "streamdq_job_attempts",
    "Attempts that ended: done, retry, snoozed (put off), dead, released (handed back), aborted (somebody has "
    "aborted the job), stale (another consumer has the job by now).",
    (*_GROUP, "outcome"),
)
RETRIES = Counter(
    "streamdq_job_retries",
    f"Retries by the step of the schedule they take: 1 to {MOST_STEPS}, later, or asked (the handler gave the delay).",
    (*_GROUP, "step"),
)
DEAD = Counter(
    "streamdq_jobs_dead", "Jobs buried, by reason: exhausted, buried, invalid, crashed.", (*_GROUP, "reason")
)
UNREADABLE = Counter(
    "streamdq_bodies_unreadable",
    "Attempts that did not start because the process can't read the body: it lacks a key, or is of an older release.",
    _GROUP,
)
RECLAIMED = Counter(
    "streamdq_jobs_reclaimed",
    "Claims taken over, by reason: ttr (it had passed), silent (their worker sent no heartbeat).",
    (*_GROUP, "reason"),
)
REDIS_ERRORS = Counter(
    "streamdq_redis_errors",
    "Calls that Redis did not answer, or refused, by kind. no_connection: none became free in time. not_durable: not "
    "confirmed in time. Also timeout, connection, login, protocol, loading, refused_writes, group_missing, cluster and "
    "server.",
    (*_NAMESPACE, "kind"),
)
LOOP_BLOCKED = Counter(
    "streamdq_loop_blocked_seconds",
    "How long workers' event loops were blocked, for a second or more at a time: nothing else ran there.",
    _NAMESPACE,
)
LOOP_RESTARTS = Counter("streamdq_loop_restarts", "Loops that failed and were started again.", (*_NAMESPACE, "loop"))
LOG_LINES_DROPPED = Counter(
    "streamdq_log_lines_dropped",
    "Lines of the log that nobody sees: nobody reads stderr, or what the program has configured fails.",
    _NAMESPACE,
)
CALLBACKS = Counter(
    "streamdq_callbacks",
    "HTTP callbacks by outcome (delivered, failed, gone, refused, snoozed) and status class (2xx to 5xx, or none).",
    (*_NAMESPACE, "outcome", "status_class"),
)
CALLBACK_BREAKS = Counter(
    "streamdq_callback_breaks", "Times that a receiver was found dead and not called for a while.", _NAMESPACE
)

ERASED = Counter("streamdq_erased", "What erasures have removed, by place, such as history.", (*_NAMESPACE, "place"))
OUTBOX_ROWS = Counter(
    "streamdq_outbox_rows",
    "Rows of a database's outbox by outcome: relayed, refused (the id is taken, or the row is invalid), ended (a kept "
    "row's job), put_back (Redis lost it).",
    (*_TOPIC, "outcome"),
)

LAST_SUCCESS = Gauge(
    "streamdq_schedule_last_success_timestamp_seconds",
    "When this worker last did the job of a schedule's occurrence, by Redis's clock.",
    _TOPIC,
    multiprocess_mode="max",
)

HUNG = Gauge(
    "streamdq_threads_hung",
    "Handlers that go on beyond their TTR: threads of `def` ones, and `async def` ones that ignore their cancellation. "
    "Each keeps a slot of its worker until it ends.",
    (*_NAMESPACE, "group"),
    multiprocess_mode="livesum",
)
STALLED = Gauge(
    "streamdq_workers_stalled",
    "Workers whose event loop has run nothing for 10 s, or whose handlers hang in all slots: they start no more jobs.",
    (*_NAMESPACE, "group"),
    multiprocess_mode="livesum",
)
UNSENT = Gauge(
    "streamdq_attempts_unsent",
    "Attempts that have ended and that Redis does not know of yet: they run again if their worker is killed now.",
    (*_NAMESPACE, "group"),
    multiprocess_mode="livesum",
)

# -- histograms

LATENESS = BatchHistogram(
    "streamdq_job_lateness_seconds", "Attempt start minus due time, by Redis's clock.", _GROUP, buckets=_SECONDS
)
WAIT = BatchHistogram(
    "streamdq_job_wait_seconds", "Time from being ready to the attempt's start.", _GROUP, buckets=_SECONDS
)
DURATION = BatchHistogram("streamdq_job_duration_seconds", "How long attempts took.", _GROUP, buckets=_SECONDS)
TIME_TO_FINISH = BatchHistogram(
    "streamdq_job_time_to_finish_seconds",
    "From a job's first due time until it was done, retries included.",
    _GROUP,
    buckets=_LONG_SECONDS,
)
MOVE_BATCH = BatchHistogram(
    "streamdq_move_batch_seconds",
    "Duration of one call that moves due jobs, round trip included.",
    _NAMESPACE,
    buckets=_SHORT_SECONDS,
)
OUTBOX_WAIT = BatchHistogram(
    "streamdq_outbox_wait_seconds",
    "From a row of an outbox, or since it is within the horizon, until its job is in Redis, by the database's clock.",
    _NAMESPACE,
    buckets=_SECONDS,
)
BODY_BYTES = BatchHistogram("streamdq_job_body_bytes", "Bodies of attempted jobs.", _TOPIC, buckets=_BYTES)

# -- read from Redis: gauges, and counters that the scripts keep for all processes

UP = ReadMetric("streamdq_up", "1 if Redis answered; at 0 the other gauges are missing.")
JOBS = ReadMetric(
    "streamdq_jobs",
    "Jobs by state: delayed, ready, running, dead. A job counts for each group that has it; a first delivery that is "
    "not due counts once.",
    (*_TOPIC, "state"),
    float.__add__,
)
OLDEST_OVERDUE = ReadMetric(
    "streamdq_oldest_overdue_seconds", "How long the first job in the bucket has been due.", _TOPIC
)
LAG = ReadMetric("streamdq_lag_jobs", "Jobs that are ready and not claimed.", _GROUP, float.__add__)
WAITING_FOR_KEY = ReadMetric(
    "streamdq_jobs_waiting_for_key",
    "Of the delayed jobs, those that wait for a place of their key, due or not.",
    _GROUP,
    float.__add__,
)
WAITING_FOR_JOBS = ReadMetric(
    "streamdq_jobs_waiting_for_jobs", "Of the delayed jobs, those that wait for other jobs.", _TOPIC, float.__add__
)
BLOCKED = ReadMetric(
    "streamdq_jobs_blocked", "Of these, those that can't start, because a job that they wait for has failed.", _TOPIC,
    float.__add__,
)  # fmt: skip
ENDINGS_UNDELIVERED = ReadMetric(
    "streamdq_endings_undelivered", "Jobs that have ended, and those that wait for them were not notified yet.",
    _TOPIC, float.__add__,
)  # fmt: skip
ENDINGS_OLDEST = ReadMetric(
    "streamdq_endings_oldest_undelivered_seconds", "For how long the oldest of these has been undelivered.", _TOPIC
)
FLOWS = ReadMetric(
    "streamdq_flows",
    "Flows that are complete: open, as long as some of their jobs have not ended; then ended, until they are "
    "forgotten.",
    ("namespace", "state"),
    float.__add__,
)
FLOWS_OVERDUE = ReadMetric(
    "streamdq_flows_overdue_seconds",
    "How long a mover should have looked at a flow, for example because its deadline has passed.",
)
OLDEST_PENDING = ReadMetric(
    "streamdq_oldest_pending_seconds", "How long ago the oldest unfinished claim was made or touched.", _GROUP
)
TTR = ReadMetric("streamdq_ttr_seconds", "The group's time to run.", _GROUP)
CONSUMERS = ReadMetric("streamdq_consumers", "Consumers that are alive.", _GROUP)
DUE_WITHIN = ReadMetric(
    "streamdq_jobs_due_within",
    "Attempts that come due within the window from now, overdue ones included: 1m, 10m, 1h, 1d.",
    (*_TOPIC, "window"),
    float.__add__,
)
PAUSED = ReadMetric("streamdq_topic_paused", "1 while the topic is paused.", _TOPIC)
LEASE_HELD = ReadMetric("streamdq_mover_lease_held", "1 if a mover of the namespace is active.")
LAST_MOVE = ReadMetric("streamdq_mover_last_move_timestamp_seconds", "When due jobs were last moved; 0: never.")
CLOCK_SKEW = ReadMetric("streamdq_clock_skew_seconds", "This host's clock minus Redis's.")
IMBALANCE = ReadMetric(
    "streamdq_conservation_imbalance_jobs",
    "Jobs missing: enqueued minus ended and live ones, for the group where this is farthest from 0.",
    _TOPIC,
    _farthest,
)
ENQUEUED = ReadMetric("streamdq_jobs_enqueued_total", "Jobs enqueued, by any program.", _TOPIC, kind="counter")
DONE = ReadMetric("streamdq_jobs_done_total", "Jobs that the group has done.", _GROUP, kind="counter")
CANCELLED = ReadMetric(
    "streamdq_jobs_cancelled_total", "Jobs cancelled while the group waited for them.", _GROUP, kind="counter"
)
EXPIRED = ReadMetric(
    "streamdq_jobs_expired_total", "Attempts given up because they would have started too late.", _GROUP, kind="counter"
)
LOST = ReadMetric(
    "streamdq_jobs_lost_total",
    "Ready or claimed jobs missing from Redis, though nobody ended them, once for each group. Must stay 0.",
    _TOPIC,
    kind="counter",
)
SCHEDULES = ReadMetric(
    "streamdq_schedules", "Schedules by state: active, paused, or ended.", (*_TOPIC, "state"), float.__add__
)
SCHEDULES_OVERDUE = ReadMetric(
    "streamdq_schedule_oldest_overdue_seconds",
    "How long ago a mover should have looked at the schedule that waits longest for it.",
    _TOPIC,
)
OCCURRENCES = ReadMetric(
    "streamdq_schedule_occurrences_total",
    "Occurrences of schedules: enqueued, skipped (the job before had not ended, or its id was taken), missed (late).",
    (*_TOPIC, "outcome"),
    kind="counter",
)
UNDUMPED = ReadMetric(
    "streamdq_history_undumped_rows",
    "History rows that Redis keeps for a dump that does not have them yet; 0 if no dump is registered.",
    _TOPIC,
    float.__add__,
)
BUILD_INFO = ReadMetric("streamdq_build_info", "1, with the version.", (*_NAMESPACE, "version"))

# -- read from the database of an outbox

OUTBOX_WAITING = ReadMetric(
    "streamdq_outbox_waiting_rows", "Rows of a database's outbox that a relay has yet to put into Redis."
)
OUTBOX_OLDEST = ReadMetric(
    "streamdq_outbox_oldest_waiting_seconds",
    "For how long the oldest of these rows could have been relayed; 0: none waits.",
)
OUTBOX_LATER = ReadMetric(
    "streamdq_outbox_later_rows",
    "Rows of a database's outbox that stay there, as they are due beyond its horizon; counted less often if that takes "
    "long.",
)
OUTBOX_REFUSED = ReadMetric(
    "streamdq_outbox_refused_rows",
    "Rows that were refused, as their ids were taken or they are not valid, and are still in the outbox.",
)

COUNTERS = (
    DUPLICATE, MOVED, ATTEMPTS, RETRIES, DEAD, UNREADABLE, RECLAIMED, REDIS_ERRORS, LOOP_BLOCKED, LOOP_RESTARTS,
    LOG_LINES_DROPPED,
    CALLBACKS, CALLBACK_BREAKS, OUTBOX_ROWS,
)  # fmt: skip
HISTOGRAMS = (LATENESS, WAIT, DURATION, TIME_TO_FINISH, MOVE_BATCH, OUTBOX_WAIT, BODY_BYTES)
OWN_GAUGES = (LAST_SUCCESS, HUNG, STALLED, UNSENT)
GAUGES = (
    UP, JOBS, OLDEST_OVERDUE, LAG, WAITING_FOR_KEY, WAITING_FOR_JOBS, BLOCKED, ENDINGS_UNDELIVERED, ENDINGS_OLDEST,
    FLOWS, FLOWS_OVERDUE, OLDEST_PENDING, TTR, CONSUMERS, DUE_WITHIN, PAUSED, LEASE_HELD,
    LAST_MOVE, CLOCK_SKEW, IMBALANCE, SCHEDULES, SCHEDULES_OVERDUE, UNDUMPED, BUILD_INFO,
)  # fmt: skip
FROM_REDIS = (*GAUGES, ENQUEUED, DONE, CANCELLED, EXPIRED, LOST, OCCURRENCES)
FROM_OUTBOX = (OUTBOX_WAITING, OUTBOX_OLDEST, OUTBOX_LATER, OUTBOX_REFUSED)


@dataclass(frozen=True, slots=True)
class Described:
    """A metric's name and description in Prometheus."""

    name: str
    kind: str  # counter, histogram or gauge
    labels: tuple[str, ...]
    help: str


def described() -> list[Described]:
    """All metrics."""
    own = [(metric, "counter", "_total") for metric in COUNTERS]
    own += [(metric, "gauge", "") for metric in OWN_GAUGES]  # type: ignore[misc]
    own += [(metric, "histogram", "") for metric in HISTOGRAMS]  # type: ignore[misc]
    found = []
    for metric, kind, suffix in own:
        family = next(iter(metric.describe()))
        found.append(Described(family.name + suffix, kind, tuple(metric._labelnames), family.documentation))
    return found + [
        Described(metric.name, metric.kind, metric.labels, metric.help) for metric in (*FROM_REDIS, *FROM_OUTBOX)
    ]


# -- labels


class TopicLabels:
    """The labels of topics: their names for the first ``most`` topics, ``other`` for the rest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[tuple[str, str]] = set()

    def of(self, namespace: str, topic: str) -> str:
        if (namespace, topic) not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add((namespace, topic))
        return topic


@cache
def topic_labels() -> TopicLabels:
    """The labels of this process."""
    return TopicLabels(Settings().metrics_topics)


@cache
def counting() -> bool:
    """Whether this process counts jobs. ``STREAMDQ_METRICS=0`` turns it off, to measure what it costs."""
    return Settings().metrics


def step_label(step: int, steps: int) -> str:
    """The label of a retry that uses up ``steps`` after ``step`` steps were used."""
    if steps == 0:
        return "asked"
    return str(step + 1) if step < MOST_STEPS else "later"
