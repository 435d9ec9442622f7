"""Jobs, schedules, stats and audits as JSON values, the same on the command line and over HTTP."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..job.job import JobState
from .topics.stats import GroupStats, Stats, TopicStats

if TYPE_CHECKING:
    from ..config import TopicSettings
    from ..job.flow import FlowStatus
    from ..job.job import GroupProgress, Job
    from .checks.audit import Audit
    from .history.job_history import JobEvent
    from .schedules.read import Schedule


def job_json(job: Job) -> dict[str, Any]:
    """A body that can't be read here is null, with the reason in ``body_unreadable``."""
    fields = job_fields(job)
    if why := job.why_unreadable:
        return {**fields, "body": None, "body_unreadable": why}
    return {**fields, "body": job.body}


def job_fields(job: Job) -> dict[str, Any]:
    """All fields except the body."""
    return {
        "topic": job.topic,
        "id": job.id,
        "state": job.state.value,
        "due_ms": None if job.state is JobState.WAITING else job.due_ms,
        "created_ms": job.created_ms,
        "attempt": job.attempt,
        "step": job.step,
        "ttr_ms": job.ttr_ms,
        "retry": job.retry,
        "url": job.url,
        "expire_ms": job.expire_ms,
        "key": job.key,
        "priority": job.priority or "normal",
        "version": job.version,
        "waits_for": None if job.waits_for is None else dataclasses.asdict(job.waits_for),
        "groups": {name: progress_json(progress) for name, progress in job.groups.items()},
    }


def progress_json(progress: GroupProgress) -> dict[str, Any]:
    fields = dataclasses.asdict(progress)
    del fields["group"], fields["own"]
    due_ms = None if progress.state is JobState.WAITING else progress.due_ms
    return {**fields, "due_ms": due_ms, "state": progress.state.value}


def event_json(event: JobEvent) -> dict[str, Any]:
    """An event of a job's history, without the job's own fields."""
    row = event.row
    return {
        "event": row.event.value,
        "group": row.group,
        "attempt": row.attempt,
        "step": row.step,
        "consumer": row.consumer or None,
        "due_ms": row.due_ms,
        "started_ms": row.started_ms,
        "finished_ms": row.finished_ms,
        "reason": row.reason or None,
        "error": row.error or None,
        "message": event.message or None,
        "traceback": event.traceback or None,
    }


def flow_json(flow: FlowStatus) -> dict[str, Any]:
    stages = [
        {
            "topic": one.topic,
            "jobs": one.jobs,
            "after": [*one.after],
            "on_failure": one.on_failure,
            "counts": {**one.counts},
        }
        for one in flow.stages
    ]
    fields = {"name": flow.name, "state": flow.state.value, "jobs": flow.jobs, "stages": stages}
    return fields if flow.times is None else {**fields, "times": dataclasses.asdict(flow.times)}


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    return {**schedule_fields(schedule), "body": schedule.body}


def schedule_fields(schedule: Schedule) -> dict[str, Any]:
    """All fields except the body."""
    definition = schedule.definition
    catch_up = definition.catch_up
    return {
        "topic": schedule.topic,
        "id": schedule.id,
        "state": schedule.state,
        "cron": definition.cron,
        "every_ms": definition.every_ms,
        "words": definition.words,
        "tz": definition.tz,
        "dst": definition.dst,
        "jitter_ms": definition.jitter_ms,
        "start_ms": definition.start_ms,
        "until_ms": definition.until_ms,
        "overlap": definition.overlap,
        "catch_up": f"{catch_up}ms" if isinstance(catch_up, int) else catch_up,
        "declared": definition.declared,
        "next_ms": schedule.next_ms,
        "previous": schedule.previous,
        "waiting": schedule.waiting,
        "fired": schedule.fired,
        "skipped": schedule.skipped,
        "missed": schedule.missed,
        "ttr_ms": schedule.ttr_ms,
        "retry": schedule.retry,
        "url": schedule.url,
        "expire_ms": schedule.expire_ms,
        "version": schedule.version,
    }


def stats_json(stats: Stats) -> dict[str, Any]:
    """Of many topics: ``dataclasses.asdict`` would take ten times as long, as it copies every number."""
    topics = {}
    for name, topic in stats.topics.items():
        groups = {group: _own(figures, _OF_GROUPS) for group, figures in topic.groups.items()}
        topics[name] = _own(topic, _OF_TOPICS) | {"groups": groups}
    return _own(stats, _TOTALS) | {"topics": topics}


def _own(figures: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in names}


_TOTALS, _OF_TOPICS, _OF_GROUPS = (
    tuple(one.name for one in dataclasses.fields(kind) if one.name not in ("topics", "groups"))
    for kind in (Stats, TopicStats, GroupStats)
)


def audit_json(audit: Audit) -> dict[str, Any]:
    return {
        "balanced": audit.balanced,
        "left": audit.left,
        "balances": [
            {**dataclasses.asdict(b), "live": b.live, "imbalance": b.imbalance} for b in audit.balances
        ],
        "orphans": [dataclasses.asdict(orphan) for orphan in audit.orphans],
    }  # fmt: skip


def settings_json(topic: str, settings: TopicSettings) -> dict[str, Any]:
    fields = settings.model_dump(exclude={"version", "since"})
    return {"topic": topic, **fields}
