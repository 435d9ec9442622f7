"""Operators' changes of a topic, and marks that a topic gets with its first schedule or key. If this process is killed
halfway, the next call or a mover completes the change.

If the number of shards changes while the topic holds jobs, they stay where they are, and the earlier number stays in
the registry (``former``) until none of them is where it was put by that number: operations/jobs/previous_shards.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from ...config import MOST_FORMER, START_WITHIN_S, Layout, TopicSettings
from ...errors import TopicNotEmpty, TopicServed
from ...link.command import Command
from ...link.session import Op, checked, pause
from ..commands import one
from ..counters import GroupCounter, group_field
from . import group_consumers
from .resharding import Walk
from .shard_state import has_schedules
from .topics import Topics, changing

_FORCE = "force=True (--force, ?force=true)"
_RACES = 5
_PAGES = 200  # to see whether a topic's resharding is complete, if nobody has looked yet
_NOT_EMPTY = (
    "its keys have limits, so the number of shards can change only while it is empty: drain it, or use a new topic"
)
_LOOK_S = 0.05


class _Groups(NamedTuple):
    """``exactly``: the groups that the topic must have; None: no change. ``changes``: of groups' own settings."""

    exactly: Sequence[str] | None
    changes: Mapping[str, Mapping[str, Any]]


def configure(
    topics: Topics,
    topic: str,
    changes: Mapping[str, Any],
    groups: Sequence[str] | None,
    of_groups: Mapping[str, Mapping[str, Any]],
) -> Op[TopicSettings]:
    """Changes settings. ``groups``: exactly these; others are removed with their open jobs. ``of_groups``: changes of
    groups' own settings. If this process is killed halfway, the next call or a mover completes the change.

    Raises:
        TopicNotEmpty: the number of shards would change, and the topic holds jobs whose keys have limits, or jobs from
        before the last changes; or keys would get limits while the topic is resharding.
    """
    for _ in range(_RACES):
        before = yield from topics.ensure(topic)
        settings = yield from _configure(topics, topic, before, changes, _Groups(groups, of_groups))
        if changes.get("shards") in (None, settings.shards) and settings.key_limited >= changes.get(
            "key_limited", False
        ):
            return settings
    raise changing(topic)


def _configure(
    topics: Topics, topic: str, before: TopicSettings, changes: Mapping[str, Any], groups: _Groups
) -> Op[TopicSettings]:
    """Returns the settings afterwards: without the changes, if somebody else has changed the topic meanwhile."""
    limits = changes.get("key_limited", False) and not before.key_limited
    _check_limits(topic, before, changes)
    rest = {name: value for name, value in changes.items() if name != "shards"}
    if changes.get("shards") not in (None, before.shards):
        rest |= yield from _reshard(topics, topic, before, changes["shards"], limits or before.key_limited)
    added: dict[str, Mapping[str, Any]] = {name: {} for name in groups.exactly or ()} | {**groups.changes}
    removed = [name for name in before.groups if groups.exactly is not None and name not in groups.exactly]
    # Two operators must not limit keys and change the number at the same time.
    return (yield from topics.change(topic, rest, added, removed, before.version if limits else None))


def _reshard(topics: Topics, topic: str, before: TopicSettings, shards: int, limited: bool) -> Op[dict[str, Any]]:
    """Changes the number of shards of a topic that holds jobs. Returns what else is to change, if it is empty."""
    if limited:
        yield from _check_empty(topics, topic, _NOT_EMPTY)
    elif before.former or (yield from _holds_ids(topics, topic)):
        yield from _reshard_in_place(topics, topic, shards)
        return {}
    # A closed topic refuses to enqueue, so that no job goes where nobody would look for it.
    return {"resharding": shards}


def _reshard_in_place(topics: Topics, topic: str, shards: int) -> Op[None]:
    """Changes the number of shards of a topic that holds jobs, unless somebody else changes the topic meanwhile.
    They stay where they are.
    """
    settings = yield from topics.renew(topic)  # so that it knows how they were spread, should it have been lost
    if settings is None or settings.shards == shards or settings.resharding is not None or settings.key_limited:
        return  # somebody else has changed it; it is looked at anew
    former = tuple(count for count in (*settings.former, settings.shards) if count != shards)
    if len(former) > MOST_FORMER:
        walk = Walk(topics.session, topics.scripts, topic, settings)
        if (yield from walk.go_on(_PAGES)):
            yield from complete_resharding(topics, topic, walk)
            return
        raise TopicNotEmpty(
            f"topic {topic!r} holds jobs from when it had {listed(former)} shards: wait until those of the first "
            "have ended, or choose one of these numbers again"
        )
    changes = Layout(shards, former, settings.version).changes()
    changes["most_shards"] = max(settings.reach, shards)
    yield from topics.reconcile(topic, (yield from topics.register(topic, changes, {}, expected=settings.version)))


def complete_resharding(topics: Topics, topic: str, walk: Walk) -> Op[None]:
    """Notes that nothing is where it was put by an earlier number of shards, as the walk has found, unless that
    number has changed meanwhile.
    """
    if walk.has_keys:  # of jobs that were enqueued while there was one shard, and are in the shards of their keys
        yield from expect_keys(topics, topic)
    settings = yield from topics.read(topic)
    if settings is not None and walk.is_of(settings) and settings.former:
        changes = walk.layout._replace(former=()).changes()
        yield from topics.reconcile(topic, (yield from topics.register(topic, changes, {}, expected=settings.version)))


def delete(topics: Topics, topic: str, force: bool) -> Op[None]:
    """Deletes the topic, its counters and its history; ``force``: with its jobs. A call that enqueues to it or serves
    it afterwards creates it again.

    Raises:
        UnknownTopic
        TopicNotEmpty: it holds jobs, schedules or receipts, or is served, and ``force`` is not given.
    """
    yield from topics.get(topic, anew=True)
    refusal = f"let every group finish them first, or delete them with {_FORCE}"
    for _ in range(_RACES):
        if not force:
            yield from _check_empty(topics, topic, refusal)
            yield from _check_receipts(topics, topic)
            yield from _check_notified(topics, topic)
            yield from _check_unscheduled(topics, topic)
            yield from _check_unserved(topics, topic)
        registered = yield from topics.register(topic, {"deleting": "force" if force else "empty"}, {})
        if (yield from topics.reconcile(topic, registered)) is None:
            return
    raise changing(topic)


def _holds_ids(topics: Topics, topic: str) -> Op[bool]:
    """Whether it has jobs, or ids that stay taken."""
    keys = [key for shard in topics.shards(topic) for key in (shard.jobs, shard.taken)]
    replies = yield from topics.session.call([Command(key, ("EXISTS", key)) for key in keys])
    return any(checked(reply) for reply in replies)


def _check_empty(topics: Topics, topic: str, refusal: str) -> Op[None]:
    for shard in topics.shards(topic):
        if (yield from one(topics.session, shard.jobs, "HLEN", shard.jobs)):
            raise TopicNotEmpty(f"topic {topic!r} still holds jobs: {refusal}")


def _check_receipts(topics: Topics, topic: str) -> Op[None]:
    """A database that has yet to read what became of its jobs would take them for lost, and put them back."""
    keys = [key for k in topics.all_shards(topic) for key in (k.archive, k.outbox)]
    commands = [Command(key, ("HLEN", key)) for key in keys]
    if any(checked(reply) for reply in (yield from topics.session.call(commands))):
        raise TopicNotEmpty(
            f"topic {topic!r} holds receipts that the database of an outbox or an archive has yet to read: let "
            f"`streamdq outbox relay` or `streamdq archive store` run, or delete it with {_FORCE}, and jobs that "
            "have ended may run again"
        )


def _check_notified(topics: Topics, topic: str) -> Op[None]:
    """Who waits for jobs of the topic would take those that are done for lost."""
    if not topics.known[topic].linked:
        return
    keys = [k.followers for k in topics.all_shards(topic)]
    replies = yield from topics.session.call([Command(key, ("HLEN", key)) for key in keys])
    if any(checked(reply) for reply in replies):
        raise TopicNotEmpty(
            f"topic {topic!r} has jobs that have ended, and others wait for them: let these start, cancel them, or "
            f"delete it with {_FORCE}, and they may be blocked"
        )


def _check_unscheduled(topics: Topics, topic: str) -> Op[None]:
    if (yield from has_schedules(topics.session, topics.session.keys.shard(topic, 0))):
        raise TopicNotEmpty(f"topic {topic!r} has schedules: remove them first, or delete them with {_FORCE}")


def _check_unserved(topics: Topics, topic: str) -> Op[None]:
    places = [(k.ready, group) for k in topics.shards(topic) for group in topics.settings_of(topic).group_names]
    alive = yield from group_consumers.alive_beside(topics.session, places, topics.session.consumer)
    served = sorted({group for (_, group), is_served in zip(places, alive, strict=True) if is_served})
    if served:
        raise TopicServed(
            f"topic {topic!r} has consumers in {'groups' if served[1:] else 'group'} {', '.join(served)}, which "
            f"would make it again: stop them first, or delete it all the same with {_FORCE}"
        )


def expect_schedules(topics: Topics, topic: str) -> Op[TopicSettings]:
    """Creates the topic if it does not exist, and has movers look for schedules in it."""
    settings = topics.cached(topic)
    if settings is None or not settings.scheduled:
        yield from topics.ensure(topic)
        settings = yield from topics.change(topic, {"scheduled": True}, {})
    return settings


def expect_keys(topics: Topics, topic: str) -> Op[TopicSettings]:
    """Has all processes look for jobs of the topic, which exists, in the shards of their keys as well. First marks the
    shards: if the registry is lost before it has the mark, or later, a process that finds the mark there restores it.
    """
    settings = topics.cached(topic)
    for _ in range(_RACES):
        if settings is not None and settings.leads_to_keys:
            return settings
        settings = (yield from topics.renew(topic)) or (yield from topics.ensure(topic))
        if not settings.leads_to_keys:
            settings = yield from topics.reconcile(topic, settings.model_copy(update={"sharded_by_key": True}))
    raise changing(topic)


def expect_links(topics: Topics, topic: str, *, has_keys: bool = False) -> Op[TopicSettings]:
    """Creates the topic if it does not exist, and has movers look for jobs in it that wait for others. ``has_keys``:
    some of these have keys, too.
    """
    settings = yield from _marked(topics, topic, "linked")
    if has_keys and settings.shards + len(settings.former) > 1:
        settings = yield from expect_keys(topics, topic)
    return settings


def expect_priorities(topics: Topics, topic: str) -> Op[TopicSettings]:
    """Creates the topic if it does not exist, and has its jobs run by their priorities."""
    return _marked(topics, topic, "prioritized")


def _marked(topics: Topics, topic: str, mark: Literal["linked", "prioritized"]) -> Op[TopicSettings]:
    settings = topics.cached(topic)
    if settings is None or not getattr(settings, mark):
        settings = yield from topics.ensure(topic)
        if not getattr(settings, mark):
            settings = yield from topics.change(topic, {mark: True}, {})
    return settings


class _New(Protocol):
    @property
    def priority(self) -> object: ...


def expect_priorities_of(topics: Topics, topic: str, jobs: Iterable[_New]) -> Op[TopicSettings | None]:
    """The same, if one of these new jobs has a priority; otherwise returns None."""
    return (yield from expect_priorities(topics, topic)) if any(job.priority is not None for job in jobs) else None


def set_paused(topics: Topics, topic: str, paused: bool) -> Op[None]:
    yield from topics.get(topic)
    yield from topics.ensure(topic)  # should Redis have lost it since
    yield from topics.change(topic, {"paused": paused}, {})
    if paused:
        yield from until_nothing_starts(topics, topic)


def until_nothing_starts(topics: Topics, topic: str) -> Op[None]:
    """A worker may hold jobs that it claimed before: it starts them within START_WITHIN_S, or not at all."""
    until = time.monotonic() + START_WITHIN_S
    fields = [group_field(GroupCounter.RUNNING, group) for group in topics.settings_of(topic).group_names]
    commands = [Command(shard.counts, ("HMGET", shard.counts, *fields)) for shard in topics.shards(topic) if fields]
    while (left_s := until - time.monotonic()) > 0 and commands:
        replies = yield from topics.session.call(commands)
        if not any(int(count or 0) > 0 for reply in replies for count in checked(reply)):
            return
        yield from pause(min(left_s, _LOOK_S))


def _check_limits(topic: str, settings: TopicSettings, changes: Mapping[str, Any]) -> None:
    if settings.former and changes.get("key_limited"):
        raise TopicNotEmpty(
            f"topic {topic!r} holds jobs from when it had {listed(settings.former)} shards: its keys can have limits "
            "only when resharding is complete"
        )


def listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
