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
from ...link.session import Op, Session
from ...process.logs import log
from ..batches import parts
from ..calling import Spread
from ..commands import one
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
)
from ..jobs.lookup import records
from ..jobs.records import nonce_of
from ..scripts import Scripts
from ..scripts.links import NewInFlow
from ..topics.changes import expect_links, expect_priorities_of
from ..topics.topics import Topics, changing

_TRIES = 5
_TAKEN = -1
"""Instead of the number of a shard: another job has the id."""


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
    left, homes = (yield from _stored(session, place, ending)), dict[Child, int]()
    for _ in range(_TRIES):
        for topic in dict.fromkeys(child.topic for child in left):
            of_topic = [child for child in left if child.topic == topic]
            homes |= yield from _put_into_topic(session, scripts, topics, (place, ending), of_topic)
        left = [child for child in left if child not in homes]
        if not left:
            yield from scripts.link_children(place, ending.id, ending.life, _lines(homes))
            return
    raise changing(left[0].topic)


def _stored(session: Session, place: ShardKeys, ending: Ending) -> Op[list[Child]]:
    """The children of a job, as ``finish`` has kept them. Of several with the same id, by several groups, the first."""
    field = children_field(ending.id, ending.life)
    text = yield from one(session, place.followers, "HGET", place.followers, field)
    found: dict[tuple[str, str], Child] = {}
    for child in children_in(text or b""):
        found.setdefault((child.topic, child.id), child)
    return [*found.values()]


def _lines(homes: Mapping[Child, int]) -> list[str]:
    """As link_children takes them."""
    return [
        text
        for child, home in homes.items()
        if home != _TAKEN
        for text in (before_text(child.before), follower(child.topic, home, 0, child.nonce, child.id))
    ]


def _put_into_topic(
    session: Session, scripts: Scripts, topics: Topics, of: tuple[ShardKeys, Ending], children: Sequence[Child]
) -> Op[dict[Child, int]]:
    """The number of the shard of each that is there now. Others were not put in, as the number of the topic's shards
    has changed. ``of``: the shard of the job, and its ending.
    """
    topic = children[0].topic
    has_keys = any(child.key is not None for child in children)
    yield from expect_priorities_of(topics, topic, children)
    settings = yield from expect_links(topics, topic, has_keys=has_keys)
    homes = dict.fromkeys((yield from _taken_before(session, topic, settings, children)), _TAKEN)
    places: dict[int, list[Child]] = {}
    for child in children:
        if child not in homes:
            places.setdefault(shard_of(child.id, settings.shards, child.key), []).append(child)
    for number, some in places.items():
        shard, spread = session.keys.shard(topic, number), settings.named(by_key=has_keys)
        for part in parts(some, lambda child: len(child.rest), MAX_BATCH):
            homes |= yield from _put_into_shard(scripts, (shard, spread), of, part)
    if len(homes) < len(children):
        yield from topics.shared(topic, topics.repair)
    return homes


def _put_into_shard(
    scripts: Scripts, to: tuple[ShardKeys, Spread], of: tuple[ShardKeys, Ending], children: Sequence[Child]
) -> Op[dict[Child, int]]:
    """The same for some in one shard. ``to``: the shard, and the topic's number of shards as the scripts take it."""
    (shard, spread), (place, ending) = to, of
    gate = Known(place.topic, place.shard, ending.id, ending.life, 0, "")
    new = [
        NewInFlow(child.id, child.rest, _own(ending, child), dependencies(Waits((), "block", child.delay_ms), (), gate))
        for child in children
    ]
    reply = yield from scripts.enqueue_after_many(shard, spread, new, "once")
    homes = dict.fromkeys(children[: reply.looked], shard.shard)
    for i, record in reply.taken.items():
        if nonce_of(record) != children[i].nonce:
            homes[children[i]] = _taken(children[i])
    return homes


def _taken_before(session: Session, topic: str, settings: TopicSettings, children: Sequence[Child]) -> Op[list[Child]]:
    """Whose ids other jobs have, in shards where they were at home before the number of shards changed."""
    asked = [
        (child, session.keys.shard(topic, number))
        for child in (children if settings.former else ())
        for number in candidate_shards(child.id, settings.shards, settings.former, child.key)[:-1]
    ]
    found = yield from records(session, [(shard, child.id) for child, shard in asked])
    taken = {
        child: _taken(child)
        for (child, _), record in zip(asked, found, strict=True)
        if record and nonce_of(record) != child.nonce
    }
    return [*taken]


def _taken(child: Child) -> int:
    log.warning("a job was not added to its flow, as another one has its id", topic=child.topic, id=child.id)
    return _TAKEN


def _own(ending: Ending, child: Child) -> str:
    """Who waits for the child from the start: its flow's own job, and those that it is to be done before."""
    lines = [
        follower(one.topic, one.shard, ADDED + child.nonce, one.nonce, one.id)
        for one in ending.others
        if waits_too(one, child.before)
    ]
    return "\n0\x1f".join(lines)


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
