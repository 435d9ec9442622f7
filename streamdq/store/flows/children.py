"""Jobs that a handler has added to the flow of its own job: its children. ``finish`` stores them beside how the job has
ended; the active mover puts them in, each to its topic, and links them to the job. They wait for it, and start when its
ending is delivered: after those that wait for the job, and for which they are conditions, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...config import TopicSettings
from ...job.after import Waits
from ...job.flow import FLOWS
from ...keys import ShardKeys, candidate_shards, shard_of
from ...link.session import Op, Session
from ...process.logs import log
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
from ..topics.changes import expect_keys, expect_links
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
    found: list[Child] = []
    while text:
        head, _, text = text.partition(b"\n")
        length, topic, id, key, nonce, delay_ms, before = json.loads(head)
        names = tuple((name, of) for name, of in before)
        found.append(Child(topic, id, key, nonce, delay_ms, names, text[:length]))
        text = text[length:]
    return found


def put_in(session: Session, scripts: Scripts, topics: Topics, place: ShardKeys, ending: Ending) -> Op[None]:
    """Puts the children of a job in, and links them to it. To repeat it is harmless: until they are linked, none can
    start, and one that was cancelled is not put in again.
    """
    field = children_field(ending.id, ending.life)
    text = yield from one(session, place.followers, "HGET", place.followers, field)
    # Several groups may have added a job with the same id.
    left = [*{(child.topic, child.id): child for child in reversed(children_in(text or b""))}.values()][::-1]
    lines: list[str] = []
    for _ in range(_TRIES):
        some, left = left, []
        for topic in dict.fromkeys(child.topic for child in some):
            of_topic = [child for child in some if child.topic == topic]
            found = yield from _put_into_topic(session, scripts, topics, (place, ending), of_topic)
            for child, home in zip(of_topic, found, strict=True):
                if home is None:
                    left.append(child)
                elif home >= 0:
                    lines += (before_text(child.before), follower(topic, home, 0, child.nonce, child.id))
        if not left:
            yield from scripts.link_children(place, ending.id, ending.life, lines)
            return
    raise changing(left[0].topic)


def _put_into_topic(
    session: Session, scripts: Scripts, topics: Topics, of: tuple[ShardKeys, Ending], children: Sequence[Child]
) -> Op[list[int | None]]:
    """The number of the shard of each; -1: another job has its id; None: it was not put in, as the number of the
    topic's shards has changed. ``of``: the shard of the job, and its ending.
    """
    place, ending = of
    topic = children[0].topic
    settings = yield from expect_links(topics, topic)
    has_keys = any(child.key is not None for child in children)
    if has_keys and settings.shards + len(settings.former) > 1:
        settings = yield from expect_keys(topics, topic)
    gate = Known(place.topic, place.shard, ending.id, ending.life, 0, "")
    found: list[int | None] = [shard_of(child.id, settings.shards, child.key) for child in children]
    for i in (yield from _taken_before(session, topic, settings, children)):
        found[i] = _taken(topic, children[i])
    for home in sorted({home for home in found if home is not None and home >= 0}):
        some = [i for i, number in enumerate(found) if number == home]
        new = [
            NewInFlow(
                children[i].id, children[i].rest, _own(ending, children[i]),
                dependencies(Waits((), "block", children[i].delay_ms), (), gate),
            )
            for i in some
        ]  # fmt: skip
        spread = settings.named(by_key=has_keys)
        reply = yield from scripts.enqueue_after_many(session.keys.shard(topic, home), spread, new, "once")
        for i, record in reply.taken.items():
            if nonce_of(record) != children[some[i]].nonce:
                found[some[i]] = _taken(topic, children[some[i]])
        if not reply.current:
            for i in some[reply.looked :]:
                found[i] = None
    if None in found:
        yield from topics.shared(topic, topics.repair)
    return found


def _taken_before(session: Session, topic: str, settings: TopicSettings, children: Sequence[Child]) -> Op[list[int]]:
    """Whose ids other jobs have, in shards where they were at home before the number of shards changed."""
    places: list[tuple[ShardKeys, str]] = []
    owners: list[int] = []
    for i, child in enumerate(children if settings.former else ()):
        *former, _ = candidate_shards(child.id, settings.shards, settings.former, child.key)
        places += [(session.keys.shard(topic, number), child.id) for number in former]
        owners += [i] * len(former)
    found = (yield from records(session, places)) if places else []
    there = zip(owners, found, strict=True)
    return [i for i, record in there if record and nonce_of(record) != children[i].nonce]


def _taken(topic: str, child: Child) -> int:
    log.warning("a job was not added to its flow, as another one has its id", topic=topic, id=child.id)
    return -1


def _own(ending: Ending, child: Child) -> str:
    """Who waits for the child from the start: its flow's own job, and those that it is to be done before."""
    lines = [
        follower(one.topic, one.shard, ADDED + child.nonce, one.nonce, one.id)
        for one in ending.followers
        if waits_too(one, child.before)
    ]
    return "\n0\x1f".join(lines)


def waits_too(one: Follower, before: Any) -> bool:
    """Whether this follower of a job waits for its child, too, which is to be done ``before`` these."""
    return not one.is_child and (one.topic == FLOWS or (one.nonce, one.id) in before)


def children_for(ending: Ending, one: Follower) -> tuple[str, ...]:
    """The children of the job for which this follower has to wait, too."""
    if not ending.children or one.is_child:
        return ()
    return tuple(
        child_line(child.topic, child.shard, child.nonce, child.id)
        for child in ending.followers
        if child.is_child and waits_too(one, child.before)
    )
