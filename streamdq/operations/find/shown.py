"""Jobs that a search has shown: some of them at random, and a search that goes on from what a page has kept."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from ...errors import InvalidInput
from ...job.job import Job, check_id, check_topic
from ...keys import ShardKeys
from ...link.session import Op
from ...store.redis_store import RedisStore
from ..jobs.get import job_of
from ..jobs.large_bodies import fetched
from ..known import known_group
from .criteria import Criteria
from .search import Search, Shown, check_number

_AS_SHOWN = re.compile(r"(\d{1,6})\.([!-~]{12,8000})", re.ASCII)


def sample(search: Search, count: int) -> Op[list[Job]]:
    """At most so many of the jobs that were found, chosen at random, as they are now; those that have ended are left
    out. Each is read where it was found: another job may have the same id with another key.
    """
    check_number(count, "count", 0)
    yield from search.some()
    places = [(shard, id) for shard, shown in search.plan.items() for id in shown]
    jobs = []
    for shard, id in random.sample(places, min(count, len(places))):
        found = yield from search.store.scripts.get(shard, id)
        if (job := job_of(search.topic, id, found, search.store.session.bodies)) is not None:
            jobs.append(job)
    yield from fetched(jobs)
    return jobs


def as_shown(shown: Shown) -> str:
    """What shown_before takes back, with the id."""
    return f"{shown.shard.shard}.{shown.deliveries}"


def shown_before(
    store: RedisStore, topic: str, group: str | None, jobs: Sequence[tuple[str, str]]
) -> Op[tuple[Search, list[Shown]]]:
    """A search as if it had shown these jobs; and them. ``jobs``: ids, and as_shown of each. ``group``: of the search.

    Raises:
        UnknownTopic, UnknownGroup
        InvalidInput: they can't be read, or one is there twice.
    """
    if group is not None:
        yield from known_group(store, topic, group)
    yield from store.topics.latest(check_topic(topic))
    shards, plan = store.topics.shards(topic), dict[ShardKeys, dict[str, str]]()
    shown = [_shown_in(shards, check_id(id), text) for id, text in jobs]
    for one in shown:
        plan.setdefault(one.shard, {})[one.id] = one.deliveries
    if sum(map(len, plan.values())) != len(shown):
        raise InvalidInput("jobs: one is there twice")
    return planned(store, topic, plan, group), shown


def planned(store: RedisStore, topic: str, plan: dict[ShardKeys, dict[str, str]], group: str | None = None) -> Search:
    """A search as if it had shown what is in the plan."""
    found = sum(map(len, plan.values()))
    return Search(store, topic, Criteria(group=group), plan=plan, found=found, ended=True, _began=True)


def _shown_in(shards: Sequence[ShardKeys], id: str, text: str) -> Shown:
    found = _AS_SHOWN.fullmatch(text)
    if found is None:
        raise InvalidInput(f"as_shown: {text[:80]!r} does not come from a search")
    if int(found[1]) >= len(shards):
        raise InvalidInput("as_shown: the topic has fewer shards by now; search anew")
    return Shown(shards[int(found[1])], id, found[2])
