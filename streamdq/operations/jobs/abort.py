"""Aborts a job, whether it waits or runs."""

from __future__ import annotations

from enum import StrEnum

from ...config import TopicSettings
from ...errors import ServerError
from ...job.durability import check_level
from ...job.job import check_group
from ...keys import ShardKeys
from ...link.session import Op
from ...process.logs import log
from ...store.aborts import AbortedAttempt, notify_workers
from ...store.redis_store import RedisStore
from .get import ask


class AbortResult(StrEnum):
    """What ``abort`` found and did."""

    CANCELLED = "cancelled"  # no attempt ran; no new one starts
    ABORTING = "aborting"  # an attempt runs and is to stop; it ends as cancelled, and no new one starts
    WAITING = "waiting"  # nothing was changed: the group that was named waits together with others
    ENDED = "ended"  # nothing was changed: there is no such job, or no group waits for it or runs it


_RESULTS = {2: AbortResult.ABORTING, 1: AbortResult.CANCELLED, 0: AbortResult.ENDED, -3: AbortResult.WAITING}


def abort(
    store: RedisStore,
    topic: str,
    id: str,
    *,
    group: str | None = None,
    key: str | None = None,
    durable: str | None = None,
) -> Op[AbortResult]:
    """Abort a job. If it waits, it is cancelled, as by ``cancel``. If it runs, its worker is notified: an ``async def``
    handler is cancelled, a ``def`` handler finds ``job.aborted`` true. Whatever the handler does then, the attempt ends
    as cancelled and is never retried. "ended" means that it came too late, or that the job is dead.

    ``group``: abort it for this group alone. ``key``: the job's, if it has one; then only the key's shard is read.
    ``durable``: as for ``enqueue``; an abort that a failover undoes lets the job go on.

    Raises:
        UnknownTopic: there is no such topic.
        ServerUnavailable: no reply in time; repeat the call ("ended" may then mean that the first call did it).
        NotDurable: the same; the answer of the repeated call covers the first one as well.
        DurabilityUnsupported: this Redis can't confirm it; nothing was changed.
    """
    check_level(durable)
    only = "" if group is None else check_group(group)
    running: list[AbortedAttempt] = []

    def script(k: ShardKeys, settings: TopicSettings, id: str) -> Op[int]:
        reply = yield from store.at(durable, settings).abort(k, settings, id, only)
        running.extend(AbortedAttempt(k.prefix, *one) for one in reply.claims)
        return reply.status

    status = yield from ask(store, topic, id, script, key)
    if running:
        try:
            yield from notify_workers(store.session, running)
        except ServerError as error:  # they learn of it at their next touch, or when the attempt ends
            log.warning("a worker was not notified of an abort", topic=topic, id=id, error=str(error))
    return _RESULTS[status]
