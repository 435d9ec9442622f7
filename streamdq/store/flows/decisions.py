"""Opens a flow or withdraws it, and cancels one that was opened."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ...config import MAX_BATCH
from ...errors import ServerError
from ...keys import ShardKeys
from ...link.session import Op, Session, returned, together
from ...process.logs import log
from ..aborts import AbortedAttempt, notify_workers
from ..jobs.linked import on_failures
from ..jobs.links import Ending, News, StoredParent
from ..replies import OUTDATED, AbortReply
from ..scripts import Scripts
from ..scripts.flows import Run
from ..topics.topics import Topics, changing
from .reading import members

_AT_ONCE = 100
_TRIES = 5


def decide(session: Session, scripts: Scripts, topics: Topics, run: Run, how: str) -> Op[str]:
    """Opens the flow, or withdraws it (FlowScripts.decide_flow). Returns its state. The jobs of one that is withdrawn
    are cancelled at once, as far as their shards answer; otherwise the mover does so. It also starts those of one that
    is open.
    """
    while True:
        decided = yield from scripts.decide_flow(run, how)
        if decided.state == "w":
            yield from _tell(session, scripts, topics, decided.gates)
        if not decided.left:
            return decided.state


def _tell(session: Session, scripts: Scripts, topics: Topics, gates: Sequence[Ending]) -> Op[None]:
    news: dict[ShardKeys, list[News]] = {}
    for gate in gates:
        for one in gate.followers:
            if one.topic in topics.known or (yield from topics.read(one.topic)) is not None:  # else it was deleted
                some = news.setdefault(session.keys.shard(one.topic, one.shard), [])
                some.append(News(one.id, one.nonce, one.place, gate.generation, gate.how))
    for reply in (yield from together([scripts.deliver(place, some) for place, some in news.items()])):
        if isinstance(reply, ServerError):
            log.debug("jobs of a flow were not cancelled at once", error=str(reply))
        else:
            returned(reply)


def cancel(session: Session, scripts: Scripts, topics: Topics, run: Run) -> Op[bool]:
    """Nothing of the flow starts any more: its jobs that wait are cancelled, and attempts that run are aborted. Repeat
    it if it is interrupted. False: there is no such flow.
    """
    state = yield from decide(session, scripts, topics, run, "cancel")
    found = yield from members(session, run)
    jobs = [one for one in reversed(found) if one.outcome in (None, "dead")]
    hows = yield from on_failures(session, [(_place(session, one), one.id, one.life) for one in jobs])
    # A job that runs if another one fails must be cancelled before that one. Those that were added last come first, as
    # they may wait for the others.
    runs = [one for one, how in zip(jobs, hows, strict=True) if how == "run"]
    others = [one for one, how in zip(jobs, hows, strict=True) if how != "run"]
    for _, in_one_shard in groupby(runs, lambda one: _place(session, one)):
        yield from _abort_all(session, scripts, topics, list(in_one_shard))
    yield from _abort_all(session, scripts, topics, others)
    yield from decide(session, scripts, topics, run, "forget")
    return state == "w" or bool(found)


def _place(session: Session, one: StoredParent) -> ShardKeys:
    return session.keys.shard(one.topic, one.shard)


def _abort_all(session: Session, scripts: Scripts, topics: Topics, jobs: Sequence[StoredParent]) -> Op[None]:
    for begin in range(0, len(jobs), _AT_ONCE):
        yield from _abort_some(session, scripts, topics, jobs[begin : begin + _AT_ONCE])


def _abort_some(session: Session, scripts: Scripts, topics: Topics, jobs: Sequence[StoredParent]) -> Op[None]:
    places: dict[ShardKeys, list[StoredParent]] = {}
    for one in jobs:
        places.setdefault(_place(session, one), []).append(one)
    running: list[AbortedAttempt] = []
    for place, some in places.items():
        for reply in (yield from _abort(scripts, topics, place, [(one.id, one.life) for one in some])):
            running += [AbortedAttempt(place.prefix, *claim) for claim in reply.claims]
    if running:
        yield from _notify(session, running)


def _abort(
    scripts: Scripts, topics: Topics, place: ShardKeys, jobs: Sequence[tuple[str, str]]
) -> Op[Sequence[AbortReply]]:
    for _ in range(_TRIES):
        settings = topics.known.get(place.topic) or (yield from topics.read(place.topic))
        if settings is None:
            return ()  # the topic was deleted
        replies = yield from scripts.abort_each(place, settings, jobs)
        if all(reply.status != OUTDATED for reply in replies):
            return replies
        yield from topics.renew(place.topic)
    raise changing(place.topic)


def _notify(session: Session, running: Sequence[AbortedAttempt]) -> Op[None]:
    try:
        for begin in range(0, len(running), MAX_BATCH):
            yield from notify_workers(session, running[begin : begin + MAX_BATCH])
    except ServerError as error:  # they learn of it at their next touch, or when the attempt ends
        log.warning("workers were not notified of aborts", error=str(error))
