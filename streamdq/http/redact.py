"""Removes topics and groups that the token does not allow from answers. A token for all sees everything."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace

from ..config import DEFAULT_GROUP, TopicSettings
from ..job.after import Dependencies
from ..job.job import Job
from ..operations.checks.audit import Audit
from ..operations.checks.problems import Problem
from ..operations.jobs.get import led
from ..operations.topics.stats import Concern, GroupStats, Stats, TopicStats, concern
from ..operations.topics.workers import Working
from ..store.history.rows import HistoryRow
from .auth import Identity
from .pages.job_lists import Listed
from .pages.overview import TopicSummary
from .problems import ProblemError
from .topic_cache import TopicReading


def topics(who: Identity, known: Iterable[str]) -> list[str]:
    """The topics that the token allows, sorted."""
    return sorted(who.topics.of(known))


def settings(who: Identity, found: TopicSettings) -> TopicSettings:
    if who.groups.is_all:
        return found
    return found.model_copy(update={"groups": {name: found.groups[name] for name in who.groups.of(found.groups)}})


def job(who: Identity, found: Job) -> Job:
    if not who.groups.is_all:
        found = led(copy(found), {name: found.groups[name] for name in who.groups.of(found.groups)})
    waits_for = found.waits_for
    if waits_for is not None and not who.topics.is_all:
        found = copy(found)
        found.waits_for = dependencies(who, waits_for)
    return found


def dependencies(who: Identity, found: Dependencies) -> Dependencies:
    """The numbers count all jobs."""
    return replace(found, jobs=tuple(one for one in found.jobs if who.topics.holds(one.topic)))


def topic_stats(who: Identity, found: TopicStats) -> TopicStats:
    if who.groups.is_all:
        return found
    return replace(found, groups={name: found.groups[name] for name in who.groups.of(found.groups)})


def summary(who: Identity, found: TopicSummary) -> TopicSummary:
    if who.groups.is_all:
        return found
    late = {name: found.late[name] for name in who.groups.of(found.late)}
    died = {name: found.died[name] for name in who.groups.of(found.died)}
    return replace(
        found, settings=settings(who, found.settings), stats=topic_stats(who, found.stats), late=late, died=died
    )


def listed(who: Identity, found: Listed) -> Listed:
    """The list without other groups' own retries."""
    lines = [line for line in found.lines if line.group is None or who.groups.holds(line.group)]
    return Listed(lines, found.next)


def rows(who: Identity, found: Iterable[HistoryRow]) -> list[HistoryRow]:
    """The rows without other groups' attempts."""
    return [row for row in found if not row.group or who.groups.holds(row.group)]


def group(who: Identity, topic: TopicSettings, asked: str) -> str:
    """The group to show: the requested one, or one that the token allows.

    Raises:
        ProblemError: the topic has no such group.
    """
    seen = who.groups.of(topic.group_names)
    if asked:
        return asked
    if not seen:
        raise ProblemError("forbidden", f"this token is for other groups: {who.groups}")
    return DEFAULT_GROUP if DEFAULT_GROUP in seen else seen[0]


def concerns(who: Identity, known: Iterable[str], reading: TopicReading | None) -> dict[str, Concern]:
    """What should be looked at, as far as the token allows to see it; nothing is known of topics that are new."""
    if reading is None:
        return dict.fromkeys(known, Concern.NONE)
    if who.groups.is_all:
        return {name: reading.concerns.get(name, Concern.NONE) for name in known}
    stats = reading.stats.topics
    return {name: concern(topic_stats(who, stats[name])) if name in stats else Concern.NONE for name in known}


def failed(who: Identity, stats: Stats, figure: str) -> dict[tuple[str, str], int]:
    """How many dead letters (``dead``) or retries (``retrying``) each topic and group has, of topics that can be
    reached.
    """
    return {
        (name, group): count
        for name, topic in stats.topics.items()
        if who.topics.holds(name) and not topic.unreachable
        for group, figures in topic.groups.items()
        if (count := getattr(figures, figure)) and who.groups.holds(group)
    }


def problems(who: Identity, found: Iterable[Problem]) -> list[Problem]:
    """Those of the token's topics and groups."""
    return [one for one in found if who.topics.holds(one.topic) and (not one.group or who.groups.holds(one.group))]


def workers(who: Identity, found: Iterable[Working]) -> list[Working]:
    """Those of the token's topics and groups, with what they do for these."""
    seen = []
    for one in found:
        claims = {at: n for at, n in one.claims.items() if who.topics.holds(at[0]) and who.groups.holds(at[1])}
        jobs = [job for job in one.jobs if (job.topic, job.group) in claims]
        seen += [replace(one, claims=claims, jobs=jobs)] if claims else []
    return seen


def stats(who: Identity, found: Stats) -> Stats:
    """The stats of what the token allows, with totals to match."""
    if who.topics.is_all and who.groups.is_all:
        return found
    left = {name: topic_stats(who, found.topics[name]) for name in who.topics.of(found.topics)}
    groups: list[GroupStats] = [group for topic in left.values() for group in topic.groups.values()]
    delayed, ready, running, dead = (
        sum(getattr(group, figure) for group in groups) for figure in ("delayed", "ready", "running", "dead")
    )
    return replace(found, delayed=delayed, ready=ready, running=running, dead=dead, topics=left)


def audit(who: Identity, found: Audit) -> Audit:
    """The accounts of the token's groups."""
    if who.groups.is_all:
        return found
    return replace(found, balances=[one for one in found.balances if who.groups.holds(one.group)])
