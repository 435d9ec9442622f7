"""Every figure that a panel, a rule or an alert shows, declared once.

Gauges come from Redis through the exporter, or any worker that reads them as well; ``max`` makes one of several.
What the scripts count in Redis comes the same way. Other counters and histograms come from each process and are added
up. Everything is told apart by namespace, as several may share a Prometheus: a dashboard shows one of them.
"""

from __future__ import annotations

from .promql import Signal
from .slo import BUDGET, BUDGET_WINDOW, OBJECTIVE, ON_TIME_LE

# -- on time

STARTED = Signal(
    "Attempts started",
    "sum @by (rate(streamdq_job_lateness_seconds_count{@group}[@window]))",
    "ops",
    "Attempts that began and have ended, each second.",
)
LATE = Signal(
    "Late attempts",
    "sum @by (rate(streamdq_job_lateness_seconds_count{@group}[@window]))"
    f' - sum @by (rate(streamdq_job_lateness_seconds_bucket{{le="{ON_TIME_LE}",@group}}[@window]))',
    "ops",
    "Attempts that began more than one second after they were due, each second.",
)
ON_TIME = Signal(
    "On time",
    f'sum @by (rate(streamdq_job_lateness_seconds_bucket{{le="{ON_TIME_LE}",@group}}[@window]))'
    " / sum @by (rate(streamdq_job_lateness_seconds_count{@group}[@window]))",
    "percentunit",
    f"Share of attempts that began within one second of the moment they were due. The aim is {OBJECTIVE:.0%}. "
    "Empty when nothing ran.",
)
BUDGET_LEFT = Signal(
    "Budget left",
    f"1 - sum @by (namespace_topic:streamdq_attempts_late:rate{BUDGET_WINDOW}{{@topic}})"
    f" / sum @by (namespace_topic:streamdq_attempts_started:rate{BUDGET_WINDOW}{{@topic}}) / {BUDGET:g}",
    "percentunit",
    f"Of the {BUDGET:.0%} of attempts that may be late, the share that the last three days have left. "
    "Below zero the promise is broken.",
)
LATENESS = Signal(
    "Lateness",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_lateness_seconds_bucket{@group}[@window])))",
    "s",
    "How long after its due moment an attempt began: half of them, 95 and 99 of 100 began sooner than this.",
)
LATENESS_P99 = Signal(
    "p99 lateness",
    "histogram_quantile(0.99, sum by (le) (rate(streamdq_job_lateness_seconds_bucket{@group}[@window])))",
    "s",
    "99 of 100 attempts began sooner after their due moment than this.",
)
LATENESS_SPREAD = Signal(
    "Lateness, all attempts",
    "sum by (le) (increase(streamdq_job_lateness_seconds_bucket{@group}[@window]))",
    "s",
    "Each column shows how the attempts of that moment were spread over lateness: the brighter, the more. A healthy "
    "queue is one bright band at the bottom.",
    "{{le}}",
)
WAIT = Signal(
    "Wait for a worker",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_wait_seconds_bucket{@group}[@window])))",
    "s",
    "From the move into the ready stream to the start: what the workers add to the lateness. Long here means too few "
    "workers; late all the same means the mover.",
)
DURATION = Signal(
    "Handlers take",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_duration_seconds_bucket{@group}[@window])))",
    "s",
    "How long handlers ran.",
)
TO_FINISH = Signal(
    "From due to done",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_time_to_finish_seconds_bucket{@group}[@window])))",
    "s",
    "From a job's first due moment until it was done, retries included.",
)
# Those of the namespace, and those that have none because nobody tells anything.
_FIRING = 'ALERTS{alertname=~"Streamdq.+",alertstate="firing",namespace=~"$namespace|"}'
ALERTS = Signal(
    "Alerts",
    f"(count({_FIRING}) or vector(0))",
    "none",
    "How many of streamdq's alerts are firing. Each has a page in docs/operations.md.",
)
ALERTS_BY_NAME = Signal(
    "Alerts firing",
    f"sum by (alertname, severity, topic) ({_FIRING})",
    "none",
    "What is firing, and since when. Each alert has a page in docs/operations.md.",
    "{{alertname}} {{topic}}",
)

# -- what waits

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
    "Attempts that come due from now to the end of the window; what is overdue is among them.",
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
    "Attempts that come due in the next ten minutes, each second.",
    "coming due",
)


def due_within(window: str) -> Signal:
    """The coming load of one window: 1m, 10m, 1h or 1d."""
    return Signal(
        f"Due within {window}",
        f'sum @by (max by (namespace, topic) (streamdq_jobs_due_within{{window="{window}",@topic}}))',
        "short",
        f"Attempts that come due within {window} from now; what is overdue is among them.",
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
    "Topics that somebody paused. Their jobs wait, and no alert tells.",
)

# -- flow

ENQUEUED = Signal(
    "in",
    "sum @by (max by (namespace, topic) (rate(streamdq_jobs_enqueued_total{@topic}[@window])))",
    "ops",
    "Jobs that came in, each second, whoever put them in.",
    "in",
)
MOVED = Signal(
    "moved",
    "sum @by (rate(streamdq_jobs_moved_total{@topic}[@window]))",
    "ops",
    "Jobs and retries that came due and were moved to a ready stream, each second.",
    "moved",
)
FINISHED = Signal(
    "finished",
    "sum @by (max by (namespace, topic, group) (rate(streamdq_jobs_done_total{@group}[@window])))",
    "ops",
    "Jobs that a group has done, each second.",
    "finished",
)
ENDED = Signal(
    "Attempts ended",
    'sum @by (rate(streamdq_job_attempts_total{outcome=~"done|retry|dead",@group}[@window]))',
    "ops",
    "Attempts that ended, well or not, each second: what the workers get through.",
)
ALL_ENDED = Signal(
    "Claims ended",
    "sum @by (rate(streamdq_job_attempts_total{@group}[@window]))",
    "ops",
    "Claims that their worker ended in any way, each second.",
)
DRAIN = Signal(
    "Drain time",
    'sum(max by (namespace, topic, state) (streamdq_jobs{state=~"ready|running",@topic}))'
    ' / (sum(rate(streamdq_job_attempts_total{outcome=~"done|retry|dead",@group}[@window])) > 0)',
    "s",
    "How long the workers need for what is ready now, if nothing more came due.",
)
CANCELLED = Signal(
    "cancelled",
    # A job is cancelled for all groups that wait for it at once.
    "sum(max by (namespace, topic) (rate(streamdq_jobs_cancelled_total{@topic}[@window]))) or vector(0)",
    "ops",
    "Jobs cancelled, each second.",
    "cancelled",
)
EXPIRED = Signal(
    "expired",
    "sum(max by (namespace, topic, group) (rate(streamdq_jobs_expired_total{@group}[@window]))) or vector(0)",
    "ops",
    "Attempts given up because they would have started too late, each second.",
    "expired",
)
DUPLICATE = Signal(
    "duplicate",
    "sum(rate(streamdq_jobs_duplicate_total{@topic}[@window])) or vector(0)",
    "ops",
    "Enqueues that found their id taken, each second, counted by the programs that enqueue: scrape them to see it.",
    "duplicate",
)
BODY = Signal(
    "Body size",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_job_body_bytes_bucket{@topic}[@window])))",
    "bytes",
    "Size of the bodies of the jobs that ran.",
)

# -- what fails

OUTCOMES = Signal(
    "How attempts end",
    "sum by (outcome) (rate(streamdq_job_attempts_total{@group}[@window]))",
    "ops",
    "Done; retry: failed, a step is left; snoozed: put off uncounted; dead: given up; released: handed back uncounted; "
    "stale: the claim was taken over before it ended.",
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
    "How many failed attempts took each step of the retry schedule, in the time shown. Each step should be shorter "
    "than the one before: retries help.",
    "step {{step}}",
)
DEAD_BY_REASON = Signal(
    "Dead letters by reason",
    "sum by (reason) (increase(streamdq_jobs_dead_total{@group}[@window]))",
    "short",
    "Jobs given up, in the time shown. Exhausted: all steps used. Buried: the handler said so. Invalid: the body does "
    "not fit the handler. Crashed: took its worker down again and again.",
    "{{reason}}",
)
DEAD = Signal(
    "Dead letters",
    'sum @by (max by (namespace, topic, state) (streamdq_jobs{state="dead",@topic}))',
    "short",
    "Jobs that were given up and are kept until somebody kicks or purges them.",
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
OLDEST_PENDING = Signal(
    "Oldest claim",
    "max @by (streamdq_oldest_pending_seconds{@group})",
    "s",
    "Age of the oldest claim that has not ended. Beyond its TTR it is taken over.",
    "{{topic}} {{group}}",
)
TTR = Signal(
    "TTR",
    "max @by (streamdq_ttr_seconds{@group})",
    "s",
    "Time to run: after it a claim is taken over.",
    "TTR {{group}}",
)
RECLAIMED = Signal(
    "Taken over",
    "sum @by (increase(streamdq_jobs_reclaimed_total{@group}[@window])) or vector(0)",
    "short",
    "Claims whose TTR passed before they ended: a worker died, or hung.",
    "taken over",
)
RECLAIMED_RATE = Signal(
    "Taken over, a second",
    "sum @by (rate(streamdq_jobs_reclaimed_total{@group}[@window]))",
    "ops",
    "Claims whose TTR passed before they ended, each second.",
)
LOOP_RESTARTS = Signal(
    "Loop restarts",
    "sum by (loop) (increase(streamdq_loop_restarts_total{@namespace}[@window])) or vector(0)",
    "short",
    "Loops that failed and were started again: why is in the worker's log.",
    "{{loop}}",
)
VERSIONS = Signal(
    "Exporter",
    "count by (version) (streamdq_build_info{@namespace})",
    "none",
    "Which version reads the queues' figures, and in how many processes: one is enough.",
    "{{version}}",
)

# -- callbacks

CALLBACKS = Signal(
    "Callbacks",
    "sum by (outcome) (rate(streamdq_callbacks_total{@namespace}[@window]))",
    "ops",
    "How HTTP callbacks end, each second. Delivered: 2xx. Failed: tried again. Gone: 410, and refused: no URL that may "
    "be called; both are buried. Snoozed: the receiver is busy or was found dead, and is called later.",
    "{{outcome}}",
)
CALLBACK_ANSWERS = Signal(
    "What receivers answer",
    'sum by (status_class) (rate(streamdq_callbacks_total{outcome!="snoozed",@namespace}[@window]))',
    "ops",
    "Callbacks by the status that came back, each second; none: there was no answer, or nobody was called.",
    "{{status_class}}",
)
CALLBACK_BREAKS = Signal(
    "Receivers found dead",
    "sum(increase(streamdq_callback_breaks_total{@namespace}[@window]))",
    "short",
    "How often a receiver was found dead, and is left alone for a while; the log names it.",
    "found dead",
)

# -- mover and Redis

MOVER = Signal(
    "Mover",
    "max @by (streamdq_mover_lease_held{@namespace})",
    "none",
    "Whether a mover is at work. Without one, due jobs stay where they are.",
)
LAST_MOVE = Signal(
    "Last move",
    "time() - max(streamdq_mover_last_move_timestamp_seconds{@namespace} > 0)",
    "s",
    "How long ago the mover last moved something. Long is fine while nothing comes due.",
    "last move",
)
MOVE_BATCH = Signal(
    "A move takes",
    "histogram_quantile(@quantile, sum by (le) (rate(streamdq_move_batch_seconds_bucket{@namespace}[@window])))",
    "s",
    "One call of the move script, the way to Redis and back included.",
)
REDIS = Signal(
    "Redis",
    "max(streamdq_up{@namespace})",
    "none",
    "Whether Redis answers whoever reads the queues' figures.",
)
CLOCK_SKEW = Signal(
    "Clock skew",
    "max @by (abs(streamdq_clock_skew_seconds{@namespace}))",
    "s",
    "How far hosts' clocks are from Redis's. Delays are right all the same; absolute times are not.",
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
    "Jobs that the accounts miss, or have too many: enqueued minus done, dead, cancelled, expired and live. Always 0.",
    "{{topic}}",
)
LOST = Signal(
    "Lost",
    "sum(max by (namespace, topic) (streamdq_jobs_lost_total{@topic}))",
    "none",
    "Jobs that Redis has no longer, though nobody ended them. Always 0.",
)

UNDUMPED = Signal(
    "History without a dump",
    "max @by (streamdq_history_undumped_rows{@topic})",
    "short",
    "Rows of history that Redis keeps because a registered dump has not taken them. When it only grows, that dump does "
    "not run.",
    "{{topic}}",
)

# -- the coming load

CAPACITY = Signal(
    "Capacity",
    "sum @by (namespace_topic:streamdq_capacity:rate{@topic})",
    "ops",
    "Attempts a second that the workers present can end, as far as is known: the best five minutes that one worker has "
    "shown in a day, times the workers there are. Workers that were never busy can do more than they have shown.",
    "capacity",
)
LOAD = Signal(
    "Load ahead",
    "max @by (namespace_topic_window:streamdq_coming_load:ratio{@topic})",
    "percentunit",
    "What is ready or comes due within the window, as a share of what the workers have shown they can do in that time. "
    "Above 100 % it will be late.",
    "within {{window}}",
)
LOAD_SOON = Signal(
    "Load of the next hour",
    'max @by (namespace_topic_window:streamdq_coming_load:ratio{window=~"10m|1h",@topic})',
    "percentunit",
    "What is ready or comes due within 10 minutes and an hour, as a share of what the workers have shown they can do. "
    "Above 100 % it will be late.",
)
LATE_WITHIN = Signal(
    "Late within",
    "min @by (namespace_topic:streamdq_late_within:seconds{@topic})",
    "s",
    "The shortest window whose load the workers can't meet: by its end jobs are late. Empty: not within a day.",
    "{{topic}}",
)
LATE_BY = Signal(
    "Late by",
    "max @by (namespace_topic_window:streamdq_late_by:seconds{@topic})",
    "s",
    "How late the last job of the window would start, at the workers' capacity. 0 is on time.",
    "within {{window}}",
)
