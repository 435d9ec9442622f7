"""Which result is wanted, and what a wait for it raises."""

from __future__ import annotations

from shlex import quote
from typing import NamedTuple

from ...config import TopicSettings
from ...errors import (
    InvalidInput,
    JobCancelled,
    JobExpired,
    JobFailed,
    NoResult,
    ResultGone,
    ResultNotKept,
    ResultTooLarge,
    StreamdqError,
    UnknownGroup,
)
from ...job.job import Job, check_group, check_id, check_key, check_topic
from ...store.jobs.results import EndState, StoredResult
from ...times.durations import Duration, to_ms


class Wanted(NamedTuple):
    """The job, and the group that ends it; None: the only one that keeps results. ``key``: of the job, if that is
    known.
    """

    topic: str
    id: str
    key: str | None = None
    group: str | None = None


def wanted(job: Job | str, id: str | None, key: str | None, group: str | None) -> Wanted:
    """
    Raises:
        InvalidInput
    """
    group = None if group is None else check_group(group)
    if isinstance(job, Job):
        if id is not None:
            raise InvalidInput("result: pass a Job, or a topic and an id")
        return Wanted(job.topic, job.id, job.key if key is None else key, group)
    if id is None:
        raise InvalidInput("result: pass a Job, or a topic and an id")
    return Wanted(check_topic(job), check_id(id), None if key is None else check_key(key), group)


def timeout_s(timeout: Duration) -> float:
    return to_ms(timeout, "timeout") / 1000


def group_of(settings: TopicSettings, group: str | None, topic: str) -> str:
    """The group whose result is meant.

    Raises:
        UnknownGroup, NoResult
        InvalidInput: several groups keep results.
    """
    keeping = settings.results
    if group is None and len(keeping) > 1:
        raise InvalidInput(f"result: several groups of topic {topic!r} keep results; name one: {', '.join(keeping)}")
    found = next(iter(keeping), None) if group is None else group if group in keeping else None
    if found is None:
        if group is not None and group not in settings.groups:
            raise UnknownGroup(f"topic {topic!r} has no group {group!r}; it has {', '.join(settings.group_names)}")
        whose = "" if group is None else f" of group {group!r}"
        raise NoResult(
            f"topic {topic!r} keeps no results{whose}; start a worker whose handler asks for it, "
            f'@worker.handler({topic!r}, result="1d"), or run `streamdq topic configure {quote(topic)} --result 1d`'
        )
    return found


def gone(topic: str, id: str) -> ResultGone:
    return ResultGone(
        f"topic {topic!r} has neither a job {id!r} nor a result of it: it was never enqueued, or its result was kept "
        "for a shorter time"
    )


def failure_in(topic: str, id: str, kept: StoredResult) -> StreamdqError | None:
    """What is raised for a job that has ended like this; None: it is done, and its result is kept."""
    if kept.outcome is EndState.DONE:
        return None
    text = kept.payload.decode(errors="replace")
    if kept.outcome is EndState.DEAD:
        reason, _, error = text.partition("|")
        return JobFailed(topic, id, reason, error)
    if kept.outcome is EndState.CANCELLED:
        return JobCancelled(f"job {id!r} of topic {topic!r} was cancelled")
    if kept.outcome is EndState.EXPIRED:
        return JobExpired(f"job {id!r} of topic {topic!r} was given up, as it would have started too late (expire)")
    kind = ResultTooLarge if text.startswith(f"{ResultTooLarge.__name__}: ") else ResultNotKept
    return kind(topic, id, text.removeprefix(f"{ResultTooLarge.__name__}: "))
