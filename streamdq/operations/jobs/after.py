"""Enqueues a job that waits for others (``after``).

First the others are notified who waits for them, each in its shard (``attach``); then the job is put in, with all that
attach has found (``enqueue_after``). So an end in between is not missed. If this process is killed in between, the
others notify a job that is not there, and forget it. Before all that, it is looked whether the id is free: a call that
is repeated again and again with "keep" must not add to who waits for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple

from ...config import MAX_BATCH, TopicSettings
from ...errors import FlowExists, InvalidInput, JobExists, ParentUnknown, UnknownTopic
from ...job.after import Parent, Waits
from ...job.flow import FLOWS
from ...job.uniqueness import OnConflict
from ...keys import ShardKeys, candidate_shards, shard_of
from ...link.session import Op
from ...store.batches import MAX_BYTES, parts
from ...store.jobs import lookup
from ...store.jobs.links import BY_RESULT, UNKNOWN, Attached, Known, dependencies, follower
from ...store.jobs.records import Encoded, nonce_of
from ...store.redis_store import RedisStore
from ...store.replies import Enqueued
from ...store.scripts import Scripts
from ...store.scripts.links import NewInFlow
from ...store.topics.changes import expect_links, expect_priorities_of
from ...store.topics.topics import changing
from .get import REPAIRS, shard_with
from .large_bodies import put_away

_KEPT_S = 60  # YOUNG_MS of lua/delivered.lua
_HOWS = {"reject": "keep", "keep": "keep", "replace": "replace"}


class PutAfter(NamedTuple):
    """``taken``: the record of the job that has the id, perhaps the same one. ``due_ms``: None = it waits.
    ``skips_bucket``: it is ready, if it is due.
    """

    now_ms: int
    taken: bytes | None
    due_ms: int | None = None
    cancelled: bool = False
    skips_bucket: bool = False


def put_after(
    store: RedisStore, topic: str, job: Encoded, on_conflict: OnConflict, durable: str | None
) -> Op[PutAfter]:
    """Enqueues one job that waits for others.

    Raises:
        InvalidInput: it waits for itself, or would be postponed.
        ParentUnknown: nothing is known of one of the others; nothing was enqueued.
    """
    waits = job.waits
    assert waits is not None
    _check(topic, job.id, waits, on_conflict)
    for _ in range(REPAIRS):
        yield from expect_priorities_of(store.topics, topic, [job])
        settings = yield from expect_links(store.topics, topic, has_keys=job.key is not None)
        held = yield from _in_previous_shards(store, topic, settings, job)
        if held is not None:
            return PutAfter(0, held)
        shard = store.session.keys.shard(topic, shard_of(job.id, settings.shards, job.key))
        put = partial(
            store.at(durable, settings).enqueue_after, shard, settings.named(by_key=job.key is not None),
            job=(job.id, job.rest),
        )  # fmt: skip
        reply: Enqueued
        if on_conflict != "replace" and not job.has_new_id:
            reply = yield from put("look", dependencies=())
            if reply.taken:
                return PutAfter(reply.now_ms, reply.taken[0])
        try:
            known = yield from _attach_in_time(store, waits, shard, job)
        except ParentUnknown:  # perhaps this call is repeated, and they have ended since
            reply = yield from put("look", dependencies=())
            if not reply.taken or on_conflict == "replace":
                raise
            return PutAfter(reply.now_ms, reply.taken[0])
        reply = yield from put(_HOWS[on_conflict], dependencies=dependencies(waits, known))
        if reply.current:
            return _done(waits, known, reply)
        yield from store.topics.shared(topic, store.topics.repair)
    raise changing(topic)


class InFlow(NamedTuple):
    """A new job of a flow. ``own``: the flow's own job, which waits for it (links.follower). ``inside``: those that it
    waits for in the same flow.
    """

    job: Encoded
    own: str
    inside: frozenset[Parent]


def put_in_flow(
    store: RedisStore, topic: str, new: Sequence[InFlow], gate: Known, durable: str | None
) -> Op[list[int | None]]:
    """Enqueues jobs of a flow, which wait for one of its gates, and perhaps for others; none of them for another one of
    these, and no two have the same id. Returns the numbers of their shards; None: it was not put in, as the number of
    the topic's shards has changed.

    Raises:
        JobExists: an id is taken.
        ParentUnknown: nothing is known of one of the others.
    """
    jobs = [one.job for one in new]
    jobs = [*(yield from put_away(store.session, topic, jobs))] if store.session.bodies.offload else jobs
    yield from expect_priorities_of(store.topics, topic, jobs)
    settings = yield from expect_links(store.topics, topic, has_keys=any(job.key is not None for job in jobs))
    homes = yield from _homes(store, topic, settings, jobs)
    known = yield from _attach_each_job(store, topic, new, homes)
    said = [
        NewInFlow(job.id, job.rest, one.own, dependencies(job.waits, known[i], gate))
        for i, (job, one) in enumerate(zip(jobs, new, strict=True))
        if job.waits
    ]
    found: list[int | None] = [*homes]
    scripts = store.at(durable, settings)
    for number in dict.fromkeys(homes):
        some = [i for i, home in enumerate(homes) if home == number]
        spread = settings.named(by_key=any(jobs[i].key is not None for i in some))
        shard = store.session.keys.shard(topic, number)
        for i in (yield from _put_into(scripts, shard, spread, some, said, jobs)):
            found[i] = None
    if None in found:
        yield from store.topics.shared(topic, store.topics.repair)
    return found


def _put_into(
    scripts: Scripts,
    shard: ShardKeys,
    spread: str,
    some: Sequence[int],
    said: Sequence[NewInFlow],
    jobs: Sequence[Encoded],
) -> Op[list[int]]:
    """Puts ``some`` of the jobs into a shard. Returns those that were not put in, as the number of shards has changed.

    Raises:
        JobExists: an id is taken.
    """
    left: list[int] = []
    for part in parts(some, lambda i: _bytes_of(said[i]), MAX_BATCH, MAX_BYTES):
        reply = yield from scripts.enqueue_after_many(shard, spread, [said[i] for i in part])
        for i, record in reply.taken.items():
            if nonce_of(record) != jobs[part[i]].nonce:
                raise JobExists(shard.topic, jobs[part[i]].id, in_flow=True)
        left += part[reply.looked :]
    return left


def _bytes_of(new: NewInFlow) -> int:
    return len(new.rest) + sum(map(len, new.dependencies))


def _homes(store: RedisStore, topic: str, settings: TopicSettings, jobs: Sequence[Encoded]) -> Op[list[int]]:
    """The numbers of their shards.

    Raises:
        JobExists: another job has been there since before the number of shards changed.
    """
    for job in jobs if settings.former else ():
        if (yield from _in_previous_shards(store, topic, settings, job)) is not None:
            raise JobExists(topic, job.id, in_flow=True)
    return [shard_of(job.id, settings.shards, job.key) for job in jobs]


def _attach_each_job(
    store: RedisStore, topic: str, new: Sequence[InFlow], homes: Sequence[int]
) -> Op[list[list[Known]]]:
    """What is known of those that each of the jobs waits for. Their first place is that of the gate."""
    lines: dict[int, tuple[Parent, str]] = {}
    owners: list[int] = []
    for number, ((job, _, inside), home) in enumerate(zip(new, homes, strict=True)):
        assert job.waits is not None
        for i, parent in enumerate(job.waits.parents, 1):
            lines[len(owners)] = parent, follower(topic, home, i, job.nonce, job.id, parent in inside)
            owners.append(number)
    found = yield from attach_lines(store, lines, in_flow=True)
    known: list[list[Known]] = [[] for _ in new]
    for i, number in enumerate(owners):
        known[number].append(found[i])
    return known


def put_own(store: RedisStore, shard: ShardKeys, job: Encoded, jobs: Sequence[Known], durable: str | None) -> Op[None]:
    """Enqueues a flow's own job in this shard. ``jobs``: all of the flow, which know of it from the start.

    Raises:
        FlowExists
    """
    if store.session.bodies.offload:
        (job,) = yield from put_away(store.session, shard.topic, [job])
    assert job.waits is not None
    settings = yield from expect_links(store.topics, shard.topic, has_keys=False)
    scripts, said = store.at(durable, settings), dependencies(job.waits, jobs)
    reply = yield from scripts.enqueue_after(shard, settings.named(by_key=False), "keep", (job.id, job.rest), said)
    if not reply.current:
        raise changing(shard.topic)
    if reply.taken and nonce_of(reply.taken[0]) != job.nonce:
        raise FlowExists(job.id)


def _done(waits: Waits, known: Sequence[Known], reply: Enqueued) -> PutAfter:
    failed = sum(one.how not in ("", "done") for one in known)
    ended = sum(one.how == "done" for one in known) + (failed if waits.on_failure == "run" else 0)
    due_ms = reply.now_ms + waits.delay_ms if ended == len(known) else None
    return PutAfter(
        reply.now_ms, reply.taken.get(0), due_ms, failed > 0 and waits.on_failure == "cancel", reply.skips_bucket > 0
    )


def _check(topic: str, id: str, waits: Waits, on_conflict: OnConflict) -> None:
    if on_conflict not in _HOWS:
        raise InvalidInput(
            f"on_conflict: {on_conflict!r} does not go together with after; pass reject, keep or replace"
        )
    if any((parent.topic, parent.id) == (topic, id) for parent in waits.parents):
        raise InvalidInput(f"after: job {id!r} of topic {topic!r} can't wait for itself")


def _in_previous_shards(store: RedisStore, topic: str, settings: TopicSettings, job: Encoded) -> Op[bytes | None]:
    """The record of a job that has the id, in a shard where it was at home before the number of shards changed."""
    if not settings.former or job.has_new_id:
        return None
    *former, _ = candidate_shards(job.id, settings.shards, settings.former, job.key)
    places = [(store.session.keys.shard(topic, number), job.id) for number in former]
    return next((record for record in (yield from lookup.records(store.session, places)) if record), None)


def _attach_in_time(store: RedisStore, waits: Waits, shard: ShardKeys, job: Encoded) -> Op[list[Known]]:
    """One of the others that ends forgets who waits if that is not there within a minute (``delivered``). If this
    process stood still for so long, they are notified once more.
    """
    began = monotonic()
    known = yield from _attach_all(store, waits, shard, job)
    if monotonic() - began < _KEPT_S / 2:
        return known
    again = yield from _attach_all(store, waits, shard, job)
    for before, one in zip(known, again, strict=True):
        if one.life != before.life and not one.life.startswith(BY_RESULT):  # a later job has the id
            raise ParentUnknown(one.topic, one.id)
    return again


def _attach_all(store: RedisStore, waits: Waits, shard: ShardKeys, job: Encoded) -> Op[list[Known]]:
    """Tells each of the parents who waits for it. ``shard``: of the job that waits."""
    lines = {
        i: (parent, follower(shard.topic, shard.shard, i, job.nonce, job.id)) for i, parent in enumerate(waits.parents)
    }
    found = yield from attach_lines(store, lines, in_flow=False)
    return [found[i] for i in range(len(lines))]


def attach_lines(store: RedisStore, lines: Mapping[int, tuple[Parent, str]], in_flow: bool) -> Op[dict[int, Known]]:
    """Tells each of the parents who waits for it. ``lines``: parents, each with who waits (``links.follower``).
    ``in_flow``: those of which nothing is known any more count as lost, as the flow has put them in.

    Raises:
        InvalidInput: a parent is a flow's own job, which never counts as done.
        ParentUnknown
    """
    found: dict[int, Known] = {}
    for topic in dict.fromkeys(parent.topic for parent, _ in lines.values()):
        if topic == FLOWS:
            raise InvalidInput("after: no job can wait for a flow; let it wait for the flow's last job")
        some = {i: one for i, one in lines.items() if one[0].topic == topic}
        found |= yield from _attach_in(store, topic, some, in_flow)
    return found


def _attach_in(
    store: RedisStore, topic: str, lines: dict[int, tuple[Parent, str]], in_flow: bool
) -> Op[dict[int, Known]]:
    """The same for the parents in one topic."""
    some = next(iter(lines.values()))[0]
    try:
        yield from store.topics.get(topic)
    except UnknownTopic:
        raise ParentUnknown(topic, some.id) from None
    settings, found = yield from _attach_where_they_lead(store, topic, lines)
    if in_flow:
        found |= _lost(settings, {i: parent for i, (parent, _) in lines.items() if parent.life and i not in found})
    for i in lines.keys() - found.keys():
        found |= yield from _attach_elsewhere(store, topic, settings, {i: lines[i]})
    if left := {i: lines[i] for i in lines if i not in found}:
        found |= yield from _attach_to_ended(store, topic, settings, left)
    for i in left.keys() - found.keys():
        raise ParentUnknown(topic, lines[i][0].id)
    return found


def _attach_where_they_lead(
    store: RedisStore, topic: str, lines: dict[int, tuple[Parent, str]]
) -> Op[tuple[TopicSettings, dict[int, Known]]]:
    """Those that are where their ids or keys lead, and the topic's settings."""
    for _ in range(REPAIRS):
        settings = yield from expect_links(store.topics, topic)
        found = yield from _attach_at_homes(store, topic, settings, lines)
        if found is not None:
            return settings, found
        yield from store.topics.renew(topic)
    raise changing(topic)


def _lost(settings: TopicSettings, parents: Mapping[int, Parent]) -> dict[int, Known]:
    """What is known of jobs that were cancelled while their flow was built, or lost."""
    return {
        i: Known(one.topic, shard_of(one.id, settings.shards, one.key), one.id, one.life, 1, "lost")
        for i, one in parents.items()
    }


def _attach_at_homes(
    store: RedisStore, topic: str, settings: TopicSettings, lines: dict[int, tuple[Parent, str]]
) -> Op[dict[int, Known] | None]:
    """Those that were found where their ids or keys lead, or led before the number of shards changed. None: our
    settings are out of date.
    """
    found: dict[int, Known] = {}
    candidates = {i: candidate_shards(p.id, settings.shards, settings.former, p.key) for i, (p, _) in lines.items()}
    for turn in range(1 + len(settings.former)):
        left = [i for i in sorted(lines) if i not in found and turn < len(candidates[i])]
        more = yield from _attach_at(store, topic, settings, lines, {i: candidates[i][turn] for i in left})
        if more is None:
            return None
        found |= more
    return found


def _attach_elsewhere(
    store: RedisStore, topic: str, settings: TopicSettings, lines: dict[int, tuple[Parent, str]]
) -> Op[dict[int, Known]]:
    """The same for one of which only the id is known, if it has a key."""
    ((i, (parent, line)),) = lines.items()
    if parent.key is not None:
        return {}
    place = yield from shard_with(store, topic, settings, parent.id)
    return _found({i: parent}, place.shard, (yield from store.scripts.attach(place, None, (parent.id, "", line))) or [])


def _attach_to_ended(
    store: RedisStore, topic: str, settings: TopicSettings, lines: dict[int, tuple[Parent, str]]
) -> Op[dict[int, Known]]:
    """Those that have ended, and of which results are kept: results stay where the jobs ended, in any shard that the
    topic has ever had. Of several jobs with the same id the last one counts.
    """
    everywhere = [
        (number, some) for shard in range(settings.reach) for number, some in _calls(dict.fromkeys(lines, shard))
    ]
    ended: dict[int, Known] = {}
    for i, one in (yield from _attach_results(store, topic, lines, everywhere, dict.fromkeys(lines, BY_RESULT))):
        ended[i] = max(one, ended.get(i, one), key=lambda known: known.generation)
    where = _calls({i: one.shard for i, one in ended.items()})
    lives = {i: one.life for i, one in ended.items()}
    return dict((yield from _attach_results(store, topic, lines, where, lives)))


def _attach_results(
    store: RedisStore,
    topic: str,
    lines: Mapping[int, tuple[Parent, str]],
    calls: Sequence[tuple[int, list[int]]],
    lives: Mapping[int, str],
) -> Op[list[tuple[int, Known]]]:
    """What these shards know of them, whatever the number of shards is now."""
    replies = yield from _attach_each(store, topic, None, _said(calls, lines, lives))
    return [
        one
        for (number, some), reply in zip(calls, replies, strict=True)
        for one in _found({i: lines[i][0] for i in some}, number, reply or []).items()
    ]


def _attach_at(
    store: RedisStore,
    topic: str,
    settings: TopicSettings,
    lines: Mapping[int, tuple[Parent, str]],
    homes: Mapping[int, int],
) -> Op[dict[int, Known] | None]:
    """The same in these shards. ``homes``: their numbers."""
    calls, found = _calls(homes), dict[int, Known]()
    lives = {i: parent.life for i, (parent, _) in lines.items()}
    replies = yield from _attach_each(store, topic, settings, _said(calls, lines, lives))
    for (number, some), reply in zip(calls, replies, strict=True):
        if reply is None:
            return None
        found |= _found({i: lines[i][0] for i in some}, number, reply)
    return found


def _found(parents: Mapping[int, Parent], shard: int, said: Sequence[Attached]) -> dict[int, Known]:
    """Those of them that are, or were, in the shard of this number. ``said``: of each."""
    together = zip(parents.items(), said, strict=True)
    return {i: _known(parent, shard, one) for (i, parent), one in together if one.how != UNKNOWN}


def _calls(homes: Mapping[int, int]) -> list[tuple[int, list[int]]]:
    """Which of them go together into a shard, of this number."""
    places: dict[int, list[int]] = {}
    for i, number in homes.items():
        places.setdefault(number, []).append(i)
    return [
        (number, some[begin : begin + MAX_BATCH])
        for number, some in sorted(places.items())
        for begin in range(0, len(some), MAX_BATCH)
    ]


def _said(
    calls: Sequence[tuple[int, list[int]]], lines: Mapping[int, tuple[Parent, str]], lives: Mapping[int, str]
) -> list[tuple[int, list[str]]]:
    """What each call says."""
    return [
        (number, [value for i in some for value in (lines[i][0].id, lives.get(i, ""), lines[i][1])])
        for number, some in calls
    ]


def _attach_each(
    store: RedisStore, topic: str, settings: TopicSettings | None, calls: Sequence[tuple[int, list[str]]]
) -> Op[list[list[Attached] | None]]:
    """``calls``: numbers of shards, and what is said to them."""
    if not calls:
        return []
    keys = store.session.keys
    return (
        yield from store.scripts.attach_each([(keys.shard(topic, number), settings, some) for number, some in calls])
    )


def _known(parent: Parent, shard: int, one: Attached) -> Known:
    if one.how == "full":
        raise InvalidInput(
            f"after: about 2,500 jobs wait for {parent.id!r} of topic {parent.topic!r}, and no more can: let one in "
            "between wait for it, and others for that one"
        )
    return Known(parent.topic, shard, parent.id, one.life, one.generation, one.how)
