"""Jobs that a handler has added to the flow of its own job: its children. ``finish`` stores them beside how the job has
ended; the active mover puts them in, each to its topic, and links them to the job. They wait for it, and start when its
ending is delivered: after those that wait for the job, and for which they are conditions, too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...config import MAX_BATCH, TopicSettings
from ...job.after import Waits
from ...job.flow import FLOWS
from ...job.job import Priority
from ...keys import ShardKeys, candidate_shards, shard_of
from ...link.command import Command
from ...link.session import Op, Session, checked
from ...process.logs import log
from ..batches import parts
from ..calling import Spread
from ..commands import in_steps, one
from ..jobs.links import (
    ADDED,
    Ending,
    Follower,
    Known,
    before_text,
    child_line,
    children_field,
    dependencies,
    follower,
    followers_in,
    member,
)
from ..jobs.records import nonce_of
from ..scripts import Scripts
from ..scripts.links import NewInFlow
from ..topics.changes import expect_links, expect_priorities_of
from ..topics.topics import Topics, changing

_TRIES = 5


class Child(NamedTuple):
    """``nonce``: its life, which no other job has. ``rest``: of its record. ``before``: those that wait for the job,
    and are to wait for this one, too, by nonce and id.
    """

    topic: str
    id: str
    key: str | None
    nonce: str
    delay_ms: int
    before: tuple[tuple[str, str], ...]
    priority: Priority | None
    rest: bytes


def children_text(children: Iterable[Child]) -> bytes:
    """The form that is stored."""
    out: list[bytes] = []
    for child in children:
        *head, rest = child
        out += (json.dumps([len(rest), *head]).encode(), b"\n", rest)
    return b"".join(out)


def children_in(text: bytes) -> list[Child]:
    """Reads what ``children_text`` writes."""
    found, begin = list[Child](), 0
    while begin < len(text):
        end = text.index(b"\n", begin) + 1
        length, topic, id, key, nonce, delay_ms, before, priority = json.loads(text[begin:end])
        begin = end + length
        names = tuple((name, of) for name, of in before)
        found.append(Child(topic, id, key, nonce, delay_ms, names, priority, text[end:begin]))
    return found


def put_in(session: Session, scripts: Scripts, topics: Topics, place: ShardKeys, ending: Ending) -> Op[None]:
    """Puts the children of a job in, and links them to it. To repeat it is harmless: until they are linked, none can
    start, and one that was cancelled is not put in again.
    """
    left, homes = (yield from _stored(session, place, ending)), dict[Child, _Home]()
    for _ in range(_TRIES):
        for topic in dict.fromkeys(child.topic for child in left):
            of_topic = [child for child in left if child.topic == topic]
            homes |= yield from _put_into_topic(session, scripts, topics, (place, ending), of_topic)
        left = [child for child in left if child not in homes]
        if not left:
            yield from scripts.link_children(place, ending.id, ending.life, _lines(homes))
            return
    raise changing(left[0].topic)


class _Home(NamedTuple):
    """``life``: of the job that has the child's id: of the child itself, or of one that another job has added to the
    flow; "": another job has it.
    """

    shard: int
    life: str


def _stored(session: Session, place: ShardKeys, ending: Ending) -> Op[list[Child]]:
    """The children of a job, as ``finish`` has kept them. Several groups may have added one with the same id: that is
    the first, for which all of those wait.
    """
    field = children_field(ending.id, ending.life)
    text = yield from one(session, place.followers, "HGET", place.followers, field)
    found: dict[tuple[str, str], Child] = {}
    for child in children_in(text or b""):
        first = found.get((child.topic, child.id), child)
        before = tuple(dict.fromkeys((*first.before, *child.before)))
        found[child.topic, child.id] = first._replace(before=before)
    return [*found.values()]


def _lines(homes: Mapping[Child, _Home]) -> list[str]:
    """As link_children takes them."""
    return [
        text
        for child, home in homes.items()
        if home.life
        for text in (before_text(child.before), follower(child.topic, home.shard, 0, home.life, child.id))
    ]


def _places_before(
    session: Session, topic: str, settings: TopicSettings, children: Sequence[Child]
) -> list[tuple[Child, ShardKeys]]:
    """The shards in which each may have been put before the number of the topic's shards changed."""
    return [
        (child, session.keys.shard(topic, number))
        for child in children
        for number in candidate_shards(child.id, settings.shards, settings.former, child.key)[:-1]
    ]


def _put_into_topic(
    session: Session, scripts: Scripts, topics: Topics, of: tuple[ShardKeys, Ending], children: Sequence[Child]
) -> Op[dict[Child, _Home]]:
    """Where each is that is there now. Others were not put in, as the number of the topic's shards has changed.
    ``of``: the shard of the job, and its ending.
    """
    topic = children[0].topic
    has_keys = any(child.key is not None for child in children)
    yield from expect_priorities_of(topics, topic, children)
    settings = yield from expect_links(topics, topic, has_keys=has_keys)
    before = _places_before(session, topic, settings, children) if settings.former else []
    homes = yield from _found(session, scripts, of[1], before)
    places: dict[int, list[Child]] = {}
    for child in children:
        if child not in homes:
            places.setdefault(shard_of(child.id, settings.shards, child.key), []).append(child)
    for number, some in places.items():
        shard, spread = session.keys.shard(topic, number), settings.named(by_key=has_keys)
        for part in parts(some, lambda child: len(child.rest), MAX_BATCH):
            put, taken = yield from _put_into_shard(scripts, (shard, spread), of, part)
            homes |= {child: _Home(number, child.nonce) for child in put}
            homes |= yield from _found(session, scripts, of[1], [(child, shard) for child in taken])
    if len(homes) < len(children):
        yield from topics.shared(topic, topics.repair)
    return homes


def _put_into_shard(
    scripts: Scripts, to: tuple[ShardKeys, Spread], of: tuple[ShardKeys, Ending], children: Sequence[Child]
) -> Op[tuple[list[Child], list[Child]]]:
    """Those that are there now, or were and have ended; and those whose ids jobs have. ``to``: the shard, and the
    topic's number of shards as the scripts take it.
    """
    (shard, spread), (place, ending) = to, of
    gate = Known(place.topic, place.shard, ending.id, ending.life, 0, "")
    new = [
        NewInFlow(
            child.id, child.rest, "\n0\x1f".join(_own(ending, child, child.nonce)),
            dependencies(Waits((), "block", child.delay_ms), (), gate),
        )
        for child in children
    ]  # fmt: skip
    reply = yield from scripts.enqueue_after_many(shard, spread, new, "once")
    looked = children[: reply.looked]
    return [child for i, child in enumerate(looked) if i not in reply.taken], [looked[i] for i in reply.taken]


def _reads(child: Child, k: ShardKeys) -> list[Command]:
    """The record of its id, who waits for that, and who waits for the child itself, also when it has ended."""
    places = (k.jobs, child.id), (k.followers, child.id), (k.followers, member(child.id, child.nonce))
    return [Command(key, ("HGET", key, field)) for key, field in places]


def _is_added(ending: Ending, text: bytes | None) -> bool:
    """Whether those that wait for a job are jobs of this ending: then it was added to their flow before."""
    others = followers_in(text) if text else []
    return any(is_added_to(others, own) for own in ending.others)


def _lives(
    session: Session, ending: Ending, asked: Sequence[tuple[Child, ShardKeys]]
) -> Op[list[tuple[Child, ShardKeys, str, bool]]]:
    """Those whose ids jobs have in these shards, or which have been there and have ended: the life of that job, and
    whether it is the child.
    """
    reads = [read for child, k in asked for read in _reads(child, k)]
    replies = [checked(reply) for reply in (yield from in_steps(session, reads))]
    found = []
    for (child, k), record, text, left in zip(asked, replies[::3], replies[1::3], replies[2::3], strict=True):
        if record or left:
            life = child.nonce if left else nonce_of(record)
            found.append((child, k, life, life == child.nonce or _is_added(ending, text)))
    return found


def _found(
    session: Session, scripts: Scripts, ending: Ending, asked: Sequence[tuple[Child, ShardKeys]]
) -> Op[dict[Child, _Home]]:
    """Where those are that are in these shards, or have been there and have ended."""
    found: dict[Child, _Home] = {}
    waiting: dict[ShardKeys, list[str]] = {}
    for child, k, life, is_of_flow in (yield from _lives(session, ending, asked)):
        found[child] = _Home(k.shard, life if is_of_flow else "")
        if is_of_flow:
            waiting.setdefault(k, []).extend(v for one in _own(ending, child, life) for v in (child.id, life, one))
        else:
            log.warning("a job was not added to its flow, as another one has its id", topic=k.topic, id=child.id)
    for k, lines in waiting.items():  # who waits for the child waits for the job that has its id
        yield from scripts.attach(k, None, lines)
    return found


def _own(ending: Ending, child: Child, life: str) -> list[str]:
    """Who waits for the child from the start: its flow's own job, and those that it is to be done before."""
    return [
        follower(one.topic, one.shard, ADDED + life, one.nonce, one.id)
        for one in ending.others
        if waits_too(one, child.before)
    ]


def is_added_to(followers: Iterable[Follower], own: Follower) -> bool:
    """Whether a job with these followers has been added to a flow by one of its jobs. ``own``: the flow's own job, as
    it follows any of them.
    """
    return own.topic == FLOWS and any(
        (one.topic, one.nonce, one.id) == (FLOWS, own.nonce, own.id) and isinstance(one.place, str) for one in followers
    )


def waits_too(one: Follower, before: Collection[tuple[str, str]]) -> bool:
    """Whether this follower of a job waits for its child, too, which is to be done ``before`` these."""
    return one.topic == FLOWS or (one.nonce, one.id) in before


def children_for(ending: Ending, one: Follower) -> tuple[str, ...]:
    """The children of the job for which this follower has to wait, too."""
    return tuple(
        child_line(child.topic, child.shard, child.nonce, child.id)
        for child in ending.added
        if waits_too(one, child.before)
    )
