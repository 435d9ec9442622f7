"""The result of a job, on its page."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import BodyUnreadable, StreamdqError
from ...keys import ShardKeys
from ...operations.results.value import json_of
from ...operations.results.wanted import Wanted, failure_in
from ...store.jobs import results
from ...store.jobs.results import EndState
from ...store.redis_store import RedisStore
from ..backend import Backend
from .render import pretty


@dataclass(frozen=True, slots=True)
class ShownResult:
    """How the job has ended in a group that keeps results. ``outcome`` "": nothing is kept, or not yet."""

    group: str
    outcome: str
    ended_ms: int = 0
    text: str = ""
    error: str = ""


async def shown_result(backend: Backend, store: RedisStore, shard: ShardKeys, group: str, id: str) -> ShownResult:
    (found,) = await backend.do(results.look(store.session, [shard], group, id))
    if (kept := found.kept) is None:
        return ShownResult(group, "")
    asked = Wanted(shard.topic, id, None, group)
    if kept.outcome is EndState.DONE:
        try:
            text = pretty(await backend.do(json_of(store.session.bodies, asked, group, kept)))
        except BodyUnreadable as unreadable:
            text = f"({unreadable.why})"
        return ShownResult(group, kept.outcome, kept.ended_ms, text)
    error: StreamdqError | None = failure_in(shard.topic, id, kept)
    return ShownResult(group, kept.outcome, kept.ended_ms, error=str(error))
