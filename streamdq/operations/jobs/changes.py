"""Changes a waiting job: cancels it, or gives it a new due time."""

from __future__ import annotations

from ...config import TopicSettings
from ...errors import InvalidInput
from ...job.durability import check_level
from ...keys import ShardKeys
from ...link.session import Op
from ...store.jobs.records import encode_when
from ...store.redis_store import RedisStore
from ...times.durations import Duration, Moment
from .get import ask


def cancel(store: RedisStore, topic: str, id: str, *, key: str | None = None, durable: str | None = None) -> Op[bool]:
    """Cancel a waiting job. True: the job is deleted, with its dead letters in other groups, and no new attempt of it
    starts in any group. False: nothing was changed, because there is no such job, or no group waits for it: it is
    running or dead. ``key``: the job's, if it has one; then only the key's shard is read. ``durable``: as for
    ``enqueue``; a cancellation that a failover undoes lets the job run.

    Raises:
        UnknownTopic: there is no such topic.
        ServerUnavailable: no reply in time; repeat the call (False may then mean that the first call did it).
        NotDurable: the same; the answer of the repeated call covers the first one as well.
        DurabilityUnsupported: this Redis can't confirm it; nothing was changed.
    """
    check_level(durable)
    asked = ask(store, topic, id, lambda k, settings, _: store.at(durable, settings).cancel(k, settings, id), key)
    return (yield from asked) == 1


def reschedule(
    store: RedisStore,
    topic: str,
    id: str,
    *,
    delay: Duration | None = None,
    at: Moment | None = None,
    key: str | None = None,
    durable: str | None = None,
) -> Op[bool]:
    """Gives a waiting job (delayed, ready, or before its next attempt) a new due time. False: nothing was changed,
    because there is no such job, or it is running or dead. ``key``: as for ``cancel``; ``durable``: as for ``enqueue``.

    Raises:
        UnknownTopic: there is no such topic.
        ServerUnavailable: no reply in time; repeat the call (False may then mean that the first call did it).
        NotDurable, DurabilityUnsupported: as for ``cancel``.
    """
    check_level(durable)
    if delay is None and at is None:
        raise InvalidInput("reschedule: pass delay or at")
    when = encode_when(delay, at)

    def script(k: ShardKeys, settings: TopicSettings, id: str) -> Op[int]:
        return store.at(durable, settings).reschedule(k, settings, id, when)

    return (yield from ask(store, topic, id, script, key)) == 1
