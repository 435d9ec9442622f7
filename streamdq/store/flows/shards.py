"""Where a flow is: the shard of its name, in the topic of the flows' own jobs."""

from __future__ import annotations

from ...errors import UnknownTopic
from ...job.flow import FLOWS
from ...keys import candidate_shards, shard_of
from ...link.command import Command
from ...link.session import Op, Session, checked
from ..commands import in_steps
from ..scripts import Scripts
from ..scripts.flows import Run
from ..topics.changes import expect_links
from ..topics.topics import Topics, changing

_TRIES = 5


def begin(
    session: Session, scripts: Scripts, topics: Topics, named: tuple[str, str], within_ms: int, deadline_ms: int
) -> Op[tuple[int, Run]]:
    """``named``: a flow, and its life. What begin_flow says, and where; of another one that is being built, its run."""
    name, life = named
    for _ in range(_TRIES):
        settings = yield from expect_links(topics, FLOWS)
        run = Run(session.keys.shard(FLOWS, shard_of(name, settings.shards)), name, life)
        for other in (yield from found(session, topics, name)):
            if other.shard != run.shard:  # from before the number of shards was changed
                return -1, other
        code, other_life = yield from scripts.begin_flow(run, settings, within_ms, deadline_ms)
        if code != 0:
            return code, Run(run.shard, name, other_life or life)
        yield from topics.shared(FLOWS, topics.repair)
    raise changing(FLOWS)


def found(session: Session, topics: Topics, name: str) -> Op[list[Run]]:
    """Where something is known of a flow: at most one shard. ``life`` "": whichever it is."""
    try:
        settings = yield from topics.get(FLOWS)
    except UnknownTopic:
        return []
    places = [session.keys.shard(FLOWS, number) for number in candidate_shards(name, settings.shards, settings.former)]
    reads = [Command(key, ("HEXISTS", key, name)) for place in places for key in (place.jobs, place.flows)]
    replies = [checked(reply) for reply in (yield from in_steps(session, reads))]
    return [
        Run(place, name, "") for place, *known in zip(places, replies[::2], replies[1::2], strict=True) if any(known)
    ]
