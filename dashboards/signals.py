"""Every figure that a panel, a rule or an alert shows, declared once.

Gauges are read from Redis by the exporter, or by any worker that does the same; ``max`` merges several readings.
Counters that the scripts keep in Redis come the same way. Other counters and histograms come from each process and are
summed. Every series has a namespace, as several may share a Prometheus: a dashboard shows one of them.
"""

from __future__ import annotations

from .promql import Signal
from .slo import BUDGET, BUDGET_WINDOW, OBJECTIVE, ON_TIME_LE

# -- on time

STARTED = Signal(
    "Attempts started",
    "sum @by (rate(streamdq_job_lateness_seconds_count{@group}[@window]))",
    "ops",
    "Attempts a second that began and have ended.",
)
LATE = Signal(
    "Late attempts",
    "sum @by (rate(streamdq_job_lateness_seconds_count{@group}[@window]))"
    f' - sum @by (rate(streamdq_job_lateness_seconds_bucket{{le="{ON_TIME_LE}",@group}}[@window]))',
    "ops",
    "Attempts a second that began more than one second after they were due.",
)
ON_TIME = Signal(
    "On time",
    f'sum @by (rate(streamdq_job_lateness_seconds_bucket{{le="{ON_TIME_LE}",@group}}[@window]))'
    " / sum @by (rate(streamdq_job_lateness_seconds_count{@group}[@window]))",
    "percentunit",
    f"Share of attempts that began within one second of their due time. The objective is {OBJECTIVE:.0%}. "
    "Empty when nothing ran.",
)
BUDGET_LEFT = Signal(
    "Budget left",
    f"1 - sum @by (namespace_topic:streamdq_attempts_late:rate{BUDGET_WINDOW}{{@topic}})"
    f" / sum @by (namespace_topic:streamdq_attempts_started:rate{BUDGET_WINDOW}{{@topic}}) / {BUDGET:g}",
    "percentunit",
    f"How much of the error budget is left: {BUDGET:.0%} of the attempts of the last three days may be late. "
    "Below zero the objective is missed.",
)
LATENESS = Signal(
    "Lateness",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_lateness_seconds_bucket{@group}[@window])))",
    "s",
    "How long after their due time attempts began: median, 95th and 99th percentile.",
)
LATENESS_P99 = Signal(
    "p99 lateness",
    "histogram_quantile(0.99, sum by (le) (rate(streamdq_job_lateness_seconds_bucket{@group}[@window])))",
    "s",
    "99 of 100 attempts began at most this long after their due time.",
)
LATENESS_SPREAD = Signal(
    "Lateness, all attempts",
    "sum by (le) (increase(streamdq_job_lateness_seconds_bucket{@group}[@window]))",
    "s",
    "Each column shows how late the attempts of that moment were: the brighter a cell, the more attempts. A healthy "
    "queue is one bright band at the bottom.",
    "{{le}}",
)
WAIT = Signal(
    "Wait for a worker",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_wait_seconds_bucket{@group}[@window])))",
    "s",
    "Time from the move into the ready stream to the start: the workers' part of the lateness. If this is long, there "
    "are too few workers; if it is short and attempts are late all the same, look at the mover.",
)
DURATION = Signal(
    "Handler duration",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_duration_seconds_bucket{@group}[@window])))",
    "s",
    "How long handlers ran.",
)
TO_FINISH = Signal(
    "From due to done",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_time_to_finish_seconds_bucket{@group}[@window])))",
    "s",
    "Time from a job's first due time until it was done, retries included.",
)
# Alerts of the namespace, and those without one: they fire when no figures arrive at all.
_FIRING = 'ALERTS{alertname=~"Streamdq.+",alertstate="firing",namespace=~"$namespace|"}'
ALERTS = Signal(
    "Alerts",
    f"(count({_FIRING}) or vector(0))",
    "none",
    "How many of streamdq's alerts are firing. docs/operations.md lists them and what to do.",
)
ALERTS_BY_NAME = Signal(
    "Alerts firing",
    f"sum by (alertname, severity, topic) ({_FIRING})",
    "none",
    "Which alerts are firing. docs/operations.md lists them and what to do.",
    "{{alertname}} {{topic}}",
)

# -- waiting

DELAYED = Signal(
    "Waiting",
    'sum @by (max by (namespace, topic, state) (streamdq_jobs{state="delayed",@topic}))',
    "short",
    "Jobs that are not due yet, retries included.",
)
BY_STATE = Signal(
    "Jobs by state",
    "sum by (state) (max by (namespace, topic, state) (streamdq_jobs{@topic}))",
    "short",
    "Delayed: not due yet. Ready: due and waiting for a worker. Running: claimed. Dead: given up and kept.",
    "{{state}}",
)
DUE = Signal(
    "Due within the window",
    "sum @by (max by (namespace, topic, window) (streamdq_jobs_due_within{@topic}))",
    "short",
    "Attempts that come due between now and the end of the window, overdue ones included.",
    "within {{window}}",
)
DUE_SOON = Signal(
    "Due within 10 minutes",
    'max @by (streamdq_jobs_due_within{window="10m",@topic})',
    "short",
    "Attempts that come due in the next ten minutes.",
)
DUE_RATE = Signal(
    "Coming due",
    'sum(max by (namespace, topic) (streamdq_jobs_due_within{window="10m",@topic})) / 600',
    "ops",
    "Attempts that come due in the next ten minutes, per second.",
    "coming due",
)


def due_within(window: str) -> Signal:
    """The coming load of one window: 1m, 10m, 1h or 1d."""
    return Signal(
        f"Due within {window}",
        f'sum @by (max by (namespace, topic) (streamdq_jobs_due_within{{window="{window}",@topic}}))',
        "short",
        f"Attempts that come due within {window} from now, overdue ones included.",
    )


OVERDUE = Signal(
    "Overdue",
    "max @by (max by (namespace, topic) (streamdq_oldest_overdue_seconds{@topic})"
    " unless on (namespace, topic) (max by (namespace, topic) (streamdq_topic_paused{@topic}) == 1))",
    "s",
    "How long the oldest due job has waited for the mover; paused topics don't count. Milliseconds are normal, and "
    "seconds where a topic has a rate.",
    "{{topic}}",
)
PAUSED = Signal(
    "Paused topics",
    "sum(max by (namespace, topic) (streamdq_topic_paused{@topic}))",
    "none",
    "Paused topics. Their jobs wait, and no alert fires for them.",
)

# -- flow

ENQUEUED = Signal(
    "in",
    "sum @by (max by (namespace, topic) (rate(streamdq_jobs_enqueued_total{@topic}[@window])))",
    "ops",
    "Jobs enqueued per second, by any program.",
    "in",
)
MOVED = Signal(
    "moved",
    "sum @by (rate(streamdq_jobs_moved_total{@topic}[@window]))",
    "ops",
    "Jobs and retries moved to a ready stream when they came due, per second.",
    "moved",
)
FINISHED = Signal(
    "finished",
    "sum @by (max by (namespace, topic, group) (rate(streamdq_jobs_done_total{@group}[@window])))",
    "ops",
    "Jobs that a group has finished, per second.",
    "finished",
)
ENDED = Signal(
    "Attempts ended",
    'sum @by (rate(streamdq_job_attempts_total{outcome=~"done|retry|dead",@group}[@window]))',
    "ops",
    "Attempts that succeeded or failed, per second: the workers' throughput.",
)
ALL_ENDED = Signal(
    "Claims ended",
    "sum @by (rate(streamdq_job_attempts_total{@group}[@window]))",
    "ops",
    "Claims that their worker ended in any way, per second.",
)
DRAIN = Signal(
    "Drain time",
    'sum(max by (namespace, topic, state) (streamdq_jobs{state=~"ready|running",@topic}))'
    ' / (sum(rate(streamdq_job_attempts_total{outcome=~"done|retry|dead",@group}[@window])) > 0)',
    "s",
    "How long the workers would need for the jobs that are ready or running now, if no more came due.",
)
CANCELLED = Signal(
    "cancelled",
    # A cancelled job is cancelled at once for all groups that wait for it, so there is no group to sum over.
    "sum(max by (namespace, topic) (rate(streamdq_jobs_cancelled_total{@topic}[@window]))) or vector(0)",
    "ops",
    "Jobs cancelled per second.",
    "cancelled",
)
EXPIRED = Signal(
    "expired",
    "sum(max by (namespace, topic, group) (rate(streamdq_jobs_expired_total{@group}[@window]))) or vector(0)",
    "ops",
    "Attempts given up because they would have started too late, per second.",
    "expired",
)
DUPLICATE = Signal(
    "duplicate",
    "sum(rate(streamdq_jobs_duplicate_total{@topic}[@window])) or vector(0)",
    "ops",
    "Enqueues refused because the id was taken, per second. The programs that enqueue count them: scrape those to see "
    "it.",
    "duplicate",
)
UNREADABLE = Signal(
    "unreadable",
    "sum(rate(streamdq_bodies_unreadable_total{@group}[@window])) or vector(0)",
    "ops",
    "Jobs handed back per second because their worker lacks a key of the body or is of an older release.",
    "unreadable",
)
BODY = Signal(
    "Body size",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_body_bytes_bucket{@topic}[@window])))",
    "bytes",
    "Body size of the jobs that ran.",
)

# -- failures

OUTCOMES = Signal(
    "How attempts end",
    "sum by (outcome) (rate(streamdq_job_attempts_total{@group}[@window]))",
    "ops",
    "Done: finished. Retry: failed, with a step left. Snoozed: put off, not counted as an attempt. Dead: given up. "
    "Released: handed back, not counted as an attempt. Stale: the claim was taken over before it ended.",
    "{{outcome}}",
)
FAILING = Signal(
    "Failing",
    'sum @by (rate(streamdq_job_attempts_total{outcome=~"retry|dead",@group}[@window]))'
    ' / sum @by (rate(streamdq_job_attempts_total{outcome=~"done|retry|dead",@group}[@window]))',
    "percentunit",
    "Share of attempts that failed.",
)
RETRY_FUNNEL = Signal(
    "Retries by step",
    "sum by (step) (increase(streamdq_job_retries_total{@group}[@window]))",
    "short",
    "How many failed attempts took each step of the retry schedule, in the time range shown. If retries help, each bar "
    "is shorter than the one before.",
    "step {{step}}",
)
DEAD_BY_REASON = Signal(
    "Dead letters by reason",
    "sum by (reason) (increase(streamdq_jobs_dead_total{@group}[@window]))",
    "short",
    "Jobs given up, in the time range shown. Exhausted: all steps were used. Buried: the handler said so. Invalid: "
    "the body does not fit the handler. Crashed: the job took its worker down again and again.",
    "{{reason}}",
)
DEAD = Signal(
    "Dead letters",
    'sum @by (max by (namespace, topic, state) (streamdq_jobs{state="dead",@topic}))',
    "short",
    "Jobs that were given up. They are kept until somebody kicks or purges them.",
)

# -- workers

CONSUMERS = Signal(
    "Workers",
    "max @by (streamdq_consumers{@group})",
    "short",
    "Consumers: processes that claim jobs of a topic and group.",
    "{{topic}} {{group}}",
)
RUNNING = Signal(
    "Running",
    'sum @by (max by (namespace, topic, state) (streamdq_jobs{state="running",@topic}))',
    "short",
    "Jobs that are claimed and not finished.",
)
LAG = Signal(
    "Ready, not claimed",
    "max @by (streamdq_lag_jobs{@group})",
    "short",
    "Due jobs that no worker has claimed.",
    "{{topic}} {{group}}",
)
WAITING_FOR_KEY = Signal(
    "Waiting for their keys",
    "max @by (streamdq_jobs_waiting_for_key{@group})",
    "short",
    "Jobs that wait because as many jobs of their key as its limit allows have not ended yet.",
    "{{topic}} {{group}}",
)
BLOCKED = Signal(
    "Blocked",
    "max @by (streamdq_jobs_blocked{@topic})",
    "short",
    "Jobs that can't start, because a job that they wait for has failed.",
    "{{topic}}",
)
WAITING_FOR_JOBS = Signal(
    "Waiting for other jobs",
    "max @by (streamdq_jobs_waiting_for_jobs{@topic})",
    "short",
    "Jobs that start when other jobs have ended.",
    "{{topic}}",
)
ENDINGS_UNDELIVERED = Signal(
    "Ends that were not told",
    "max @by (streamdq_endings_undelivered{@topic})",
    "short",
    "Jobs that have ended, and those that wait for them have yet to hear of it.",
    "{{topic}}",
)
ENDINGS_OLDEST = Signal(
    "Oldest end that was not told",
    "max @by (streamdq_endings_oldest_undelivered_seconds{@topic})",
    "s",
    "For how long jobs that wait for others should have heard that one of these has ended.",
    "{{topic}}",
)
FLOWS = Signal(
    "Flows",
    "max @by (streamdq_flows{@namespace})",
    "short",
    "Flows whose jobs have not all ended, and flows that have ended and are not forgotten yet.",
    "{{state}}",
)
FLOWS_OVERDUE = Signal(
    "Flows overdue",
    "max @by (streamdq_flows_overdue_seconds{@namespace})",
    "s",
    "For how long a mover should have looked at a flow: to start its jobs, or to cancel them.",
    "overdue",
)
OLDEST_PENDING = Signal(
    "Oldest claim",
    "max @by (streamdq_oldest_pending_seconds{@group})",
    "s",
    "Age of the oldest claim that has not ended. A claim is taken over when its TTR has passed, if not before.",
    "{{topic}} {{group}}",
)
TTR = Signal(
    "TTR",
    "max @by (streamdq_ttr_seconds{@group})",
    "s",
    "Time to run (visibility timeout): when it has passed, a claim is taken over.",
    "TTR {{group}}",
)
RECLAIMED = Signal(
    "Taken over",
    "sum @by (increase(streamdq_jobs_reclaimed_total{@group}[@window])) or vector(0)",
    "short",
    "Claims taken over before they ended: their worker died or hung, or their TTR passed.",
    "taken over",
)
RECLAIMED_RATE = Signal(
    "Taken over per second",
    "sum @by (rate(streamdq_jobs_reclaimed_total{@group}[@window]))",
    "ops",
    "Claims taken over before they ended, per second.",
)
LOOP_RESTARTS = Signal(
    "Loop restarts",
    "sum by (loop) (increase(streamdq_loop_restarts_total{@namespace}[@window])) or vector(0)",
    "short",
    "Loops that failed and were started again. The worker's log says why.",
    "{{loop}}",
)
LOG_LINES_DROPPED = Signal(
    "Log lines dropped",
    "sum(increase(streamdq_log_lines_dropped_total{@namespace}[@window])) or vector(0)",
    "short",
    "Lines of the log that nobody sees: nobody reads the process's stderr, or its logging fails.",
)
HUNG = Signal(
    "Hung handlers",
    "sum @by (streamdq_threads_hung{@namespace})",
    "short",
    "Handlers that go on beyond their TTR: threads, and coroutines that ignore their cancellation. Each keeps a slot "
    "of its worker until it ends; the log says where they hang. A worker whose slots they all take ends, to be started "
    "again.",
    "hung",
)
STALLED = Signal(
    "Stalled workers",
    "sum @by (streamdq_workers_stalled{@namespace})",
    "short",
    "Workers that start no more jobs: their event loop has run nothing for ten seconds, or handlers hang in all of "
    "their slots. Their health checks fail, and `streamdq health` says which it is.",
    "stalled",
)
LOOP_BLOCKED = Signal(
    "Blocked event loops",
    "sum(rate(streamdq_loop_blocked_seconds_total{@namespace}[@window]))",
    "percentunit",
    "For which part of the time event loops of workers were blocked, for a second or more at once; more than 100 % if "
    "several are. The log names the handler, file and line.",
    "blocked",
)
UNSENT = Signal(
    "Ended and not confirmed",
    "sum(streamdq_attempts_unsent{@namespace})",
    "short",
    "Attempts that have ended and whose end Redis has not confirmed. They run again if their worker is killed now.",
    "unsent",
)
VERSIONS = Signal(
    "Exporter",
    "count by (version) (streamdq_build_info{@namespace})",
    "none",
    "Versions of the processes that export the queues' figures, and how many there are of each. One process is enough.",
    "{{version}}",
)

# -- callbacks

CALLBACKS = Signal(
    "Callbacks",
    "sum by (outcome) (rate(streamdq_callbacks_total{@namespace}[@window]))",
    "ops",
    "How HTTP callbacks end, per second. Delivered: 2xx. Failed: tried again. Gone: 410, buried. Refused: the URL must "
    "not be called, buried. Snoozed: the receiver is busy or was found dead, and is called later.",
    "{{outcome}}",
)
CALLBACK_ANSWERS = Signal(
    "Receivers' answers",
    'sum by (status_class) (rate(streamdq_callbacks_total{outcome!="snoozed",@namespace}[@window]))',
    "ops",
    "Callbacks by status of the answer, per second. None: no answer, or the receiver was not called.",
    "{{status_class}}",
)
CALLBACK_BREAKS = Signal(
    "Receivers found dead",
    "sum(increase(streamdq_callback_breaks_total{@namespace}[@window]))",
    "short",
    "How often a circuit breaker opened: its receiver was found dead and is left alone for a while. The log names it.",
    "found dead",
)

# -- schedules

OCCURRENCES = Signal(
    "Occurrences of schedules",
    "sum by (outcome) (max by (namespace, topic, outcome)"
    " (rate(streamdq_schedule_occurrences_total{@topic}[@window])))",
    "ops",
    "Per second: enqueued; skipped, because the job of the one before had not ended, or another job had the id; "
    "missed, because no mover was running in time.",
    "{{outcome}}",
)
SCHEDULES = Signal(
    "Schedules",
    "sum by (state) (max by (namespace, topic, state) (streamdq_schedules{@topic}))",
    "short",
    "How many schedules there are. Active ones will run again; of ended ones no occurrence follows.",
    "{{state}}",
)
LAST_SUCCESS = Signal(
    "Since the last success of a schedule",
    "time() - max @by (streamdq_schedule_last_success_timestamp_seconds{@topic})",
    "s",
    "How long ago a worker last did the job of an occurrence, by topic. It begins anew with a worker.",
    "{{topic}}",
)

# -- outbox

OUTBOX_ROWS = Signal(
    "Rows of the outbox",
    "sum by (outcome) (rate(streamdq_outbox_rows_total{@namespace}[@window]))",
    "ops",
    "What the relay did with rows of a database's outbox, per second. Relayed: the job is in Redis. Refused: another "
    "job has its id. Ended: a kept row's job has ended. Put back: Redis had lost the job.",
    "{{outcome}}",
)
OUTBOX_OLDEST = Signal(
    "Oldest row that waits",
    "max @by (streamdq_outbox_oldest_waiting_seconds{@namespace})",
    "s",
    "For how long the oldest row could have been in Redis, but is not known to be. Milliseconds are normal; more than "
    "a few seconds: no relay is active, or it can't reach Redis.",
    "oldest",
)
OUTBOX_WAITING = Signal(
    "Rows left in the outbox",
    "max @by (streamdq_outbox_waiting_rows{@namespace})",
    "short",
    "Waiting: a relay has yet to put them into Redis. Later: due beyond the horizon, so they stay. Refused: other jobs "
    "have their ids, or they are not valid; each needs a decision, and `streamdq outbox refused` lists them.",
    "waiting",
)
OUTBOX_LATER = Signal(
    "Rows for later",
    "max @by (streamdq_outbox_later_rows{@namespace})",
    "short",
    "Rows of the outbox that are due beyond its horizon. They stay in the database until then.",
    "later",
)
OUTBOX_REFUSED = Signal(
    "Refused rows",
    "max @by (streamdq_outbox_refused_rows{@namespace})",
    "short",
    "Rows of the outbox that were refused, as their ids were taken or they are not valid. Each needs a decision: "
    "`streamdq outbox refused` lists them.",
    "refused",
)
OUTBOX_WAIT = Signal(
    "From the outbox into Redis",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_outbox_wait_seconds_bucket{@namespace}[@window])))",
    "s",
    "How long after their enqueue, or after they came within the horizon, rows of a database's outbox reached Redis: "
    "median, 95th and 99th percentile. The time until their transaction was committed counts, too.",
)

# -- mover and Redis

MOVER = Signal(
    "Mover",
    "max @by (streamdq_mover_lease_held{@namespace})",
    "none",
    "Whether a mover is active. Without one, due jobs stay where they are.",
)
LAST_MOVE = Signal(
    "Last move",
    "time() - max(streamdq_mover_last_move_timestamp_seconds{@namespace} > 0)",
    "s",
    "Time since the mover last moved a job. It may be long while nothing comes due.",
    "last move",
)
MOVE_BATCH = Signal(
    "Move duration",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_move_batch_seconds_bucket{@namespace}[@window])))",
    "s",
    "Duration of one call of the move script, including the round trip to Redis.",
)
REDIS = Signal(
    "Redis",
    "max(streamdq_up{@namespace})",
    "none",
    "Whether Redis answers the process that exports the queues' figures.",
)
CLOCK_SKEW = Signal(
    "Clock skew",
    "max @by (abs(streamdq_clock_skew_seconds{@namespace}))",
    "s",
    "How far hosts' clocks are from Redis's. Delays are not affected; absolute times are.",
)
REDIS_ERRORS = Signal(
    "Redis errors",
    "sum by (kind) (rate(streamdq_redis_errors_total{@namespace}[@window])) or vector(0)",
    "ops",
    "Calls to Redis that failed, by kind.",
    "{{kind}}",
)
IMBALANCE = Signal(
    "Imbalance",
    "sum @by (max by (namespace, topic) (abs(streamdq_conservation_imbalance_jobs{@topic})))",
    "none",
    "Jobs that are missing or too many: enqueued minus done, dead, cancelled, expired and live. Must be 0.",
    "{{topic}}",
)
LOST = Signal(
    "Lost",
    "sum(max by (namespace, topic) (streamdq_jobs_lost_total{@topic}))",
    "none",
    "Jobs missing from Redis that nobody finished or cancelled. Must be 0.",
)

UNDUMPED = Signal(
    "History without a dump",
    "max @by (streamdq_history_undumped_rows{@topic})",
    "short",
    "History rows that Redis keeps because a registered dump has not taken them yet. If this only grows, the dump is "
    "not running.",
    "{{topic}}",
)

# -- the coming load

CAPACITY = Signal(
    "Capacity",
    "sum @by (namespace_topic:streamdq_capacity:rate{@topic})",
    "ops",
    "An estimate of how many attempts a second the current workers can end: the best five minutes of one worker within "
    "the last day, times the number of workers. Workers that were never busy can do more than they have shown.",
    "capacity",
)
LOAD = Signal(
    "Coming load",
    "max @by (namespace_topic_window:streamdq_coming_load:ratio{@topic})",
    "percentunit",
    "Jobs that are ready or come due within the window, relative to what the workers have shown they can do in that "
    "time. Above 100 % jobs will be late.",
    "within {{window}}",
)
LOAD_SOON = Signal(
    "Coming load, next hour",
    'max @by (namespace_topic_window:streamdq_coming_load:ratio{window=~"10m|1h",@topic})',
    "percentunit",
    "Jobs that are ready or come due within 10 minutes, and within an hour, relative to what the workers have shown "
    "they can do in that time. Above 100 % jobs will be late.",
)
LATE_WITHIN = Signal(
    "Late within",
    "min @by (namespace_topic:streamdq_late_within:seconds{@topic})",
    "s",
    "The shortest window whose load exceeds what the workers can do: jobs are late by its end. Empty: no such window.",
    "{{topic}}",
)
LATE_BY = Signal(
    "Late by",
    "max @by (namespace_topic_window:streamdq_late_by:seconds{@topic})",
    "s",
    "How late the last job of the window would start, given the workers' capacity. 0: on time.",
    "within {{window}}",
)
