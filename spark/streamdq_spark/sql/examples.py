"""Queries for a start. Each runs on DuckDB and on Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    what: str
    query: str


EXAMPLES = {
    "topics": Example(
        "What happened in each topic",
        """select topic, "group", event, count(*) as events, min(finished) as first, max(finished) as last
from events group by topic, "group", event order by topic, "group", events desc, event""",
    ),
    "latest-starts": Example(
        "The attempts that started latest",
        """select topic, id, attempt, due, started, late_ms, mover_ms, consumer
from events where event in ('done', 'retry', 'dead') and late_ms is not null
order by late_ms desc, topic, id, attempt limit 20""",
    ),
    "slowest-jobs": Example(
        "The attempts that ran longest",
        """select topic, id, attempt, event, error, consumer, started, run_ms
from events where event in ('done', 'retry', 'dead') and run_ms is not null
order by run_ms desc, topic, id, attempt limit 20""",
    ),
    "one-job": Example(
        "A job's life: put its id in",
        """select finished, event, attempt, step, consumer, due, started, late_ms, run_ms, error, reason
from events where id = 'order-42' order by finished, entry""",
    ),
    "errors-by-day": Example(
        "Which errors, on which day",
        """select topic, error, cast(finished as date) as day, count(*) as failures, count(distinct id) as jobs
from events where error is not null and event in ('retry', 'dead')
group by topic, error, cast(finished as date) order by day desc, failures desc, topic, error limit 100""",
    ),
    "consumers": Example(
        "Which consumer fails more often, or is slower, than the others of its topic",
        """select topic, consumer, count(*) as attempts, avg(case when event = 'done' then 0e0 else 1e0 end) as failed,
  percentile_cont(0.5) within group (order by run_ms) as run_p50_ms,
  percentile_cont(0.99) within group (order by run_ms) as run_p99_ms
from events where event in ('done', 'retry', 'dead') and consumer is not null
group by topic, consumer having count(*) >= 100 order by topic, failed desc, consumer""",
    ),
    "lateness": Example(
        "How late each topic started, by hour of the day",
        """select topic, extract(hour from finished) as hour_utc, count(*) as attempts,
  percentile_cont(0.5) within group (order by late_ms) as p50_ms,
  percentile_cont(0.99) within group (order by late_ms) as p99_ms
from events where event in ('done', 'retry', 'dead') and late_ms is not null
group by topic, extract(hour from finished) order by topic, hour_utc""",
    ),
    "new-errors": Example(
        "Errors of the last seven days that nobody saw before, and how far they have spread",
        """select * from (
  select topic, error, min(finished) as first_seen, count(*) as failures, count(distinct id) as jobs,
    count(distinct consumer) as consumers
  from events where error is not null and event in ('retry', 'dead') group by topic, error) as seen
where first_seen > (select max(finished) - interval '7' day from events) order by failures desc, topic, error""",
    ),
    "cost": Example(
        "What each topic costs: hours of handlers, those of attempts that failed, and bytes",
        """select topic, sum(run_ms) / 3600000.0 as hours,
  sum(case when event <> 'done' then run_ms else 0 end) / 3600000.0 as failed_hours,
  sum(case when event <> 'done' then run_ms else 0 end) / nullif(sum(run_ms), 0.0) as failed_share,
  sum(body_bytes) as bytes
from events where event in ('done', 'retry', 'dead') group by topic order by hours desc, topic""",
    ),
    "costliest-jobs": Example(
        "The jobs that took most of the workers' time, over all attempts",
        """select topic, id, count(*) as events, sum(run_ms) as run_ms, max(attempt) as attempts
from events where run_ms is not null group by topic, id order by run_ms desc, topic, id limit 20""",
    ),
    "worst-hours": Example(
        "Of the tables (--tables): the hours that used most of the error budget",
        """select topic, hour, attempts, p50_ms, p99_ms, share_within_slo, budget_burn
from punctuality where budget_burn > 1 order by budget_burn desc, topic, hour limit 20""",
    ),
}
