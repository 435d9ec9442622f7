"""Claiming one job without a worker, and ending the claim: the operations behind Queue.take and Claim."""

from __future__ import annotations

import time
from collections.abc import Callable
from shlex import quote
from typing import Any

from ...config import TopicSettings
from ...errors import BodyUnreadable, GroupMissing, InvalidInput, JobAborted, NoResult, StaleClaim
from ...job.job import JobState, check_group, check_own_topic, check_ttr
from ...job.retry import Bury, Retry
from ...keys import ShardKeys
from ...link.session import Op, Work, pause
from ...store.blocking import Entries, read_streams
from ...store.redis_store import RedisStore
from ...times.durations import Duration, to_ms
from ..jobs.large_bodies import EndedJob, drop_ended, fetched
from ..known import known_group
from .claimed import ClaimedJob, held_in
from .ends import AttemptResult, End, end_of_failure, lost_too_often, send_ends, tell_calls, too_late, unreadable
from .error_text import is_instruction, without_credentials
from .returned import kept_result

_LONGEST_BLOCK_S = 5.0
_CLUSTER_BLOCK_S = 0.2
_PAUSED_S = 0.25


def take(
    store: RedisStore, topic: str, group: str, timeout: Duration, wanted: Callable[[], bool] = lambda: True
) -> Op[ClaimedJob | None]:
    """Claims one job of the topic. Returns None after ``timeout``, or if no job is ``wanted`` any more."""
    deadline = time.monotonic() + to_ms(timeout, "timeout") / 1000
    topic, group = check_own_topic(topic), check_group(group)
    while True:
        settings = yield from known_group(store, topic, group)
        try:
            held, paused = yield from _claim_any(store, settings, topic, group, {})
            left_s = deadline - time.monotonic()
            if held or left_s <= 0 or not wanted():
                return held
            if paused:
                yield from pause(min(_PAUSED_S, left_s))
                continue
            # No job: perhaps because the number of the topic's shards has changed.
            settings = yield from known_group(store, topic, group, anew=True)
            found = yield from _wait(store, topic, group, left_s)
            held, _ = yield from _claim_any(store, settings, topic, group, found)
            if held:
                return held
        except GroupMissing:
            yield from store.topics.shared(topic, store.topics.repair)
            if time.monotonic() >= deadline:
                return None


def _wait(store: RedisStore, topic: str, group: str, left_s: float) -> Op[dict[ShardKeys, Entries]]:
    """What a blocking read returns. A Cluster can't block on several shards at once, so each gets a short turn."""
    session, shards = store.session, store.topics.shards(topic)
    turns = [[shard] for shard in shards] if session.is_cluster and len(shards) > 1 else [shards]
    block_s = min(left_s, _LONGEST_BLOCK_S if len(turns) == 1 else _CLUSTER_BLOCK_S)
    for turn in turns:
        found = yield from read_streams(session, group, session.consumer, turn, 1, max(1, int(block_s * 1000)))
        if found:
            return found
    return {}


def _claim_any(
    store: RedisStore, settings: TopicSettings, topic: str, group: str, found: dict[ShardKeys, Entries]
) -> Op[tuple[ClaimedJob | None, bool]]:
    """Claims the first job of any shard; also returns whether the topic is paused. With ``found``, it only claims the
    entries that were read: keeps one job and hands the others back.
    """
    kept: ClaimedJob | None = None
    paused = False
    turns = [(shard, found.get(shard, [])) for shard in found or store.topics.shards(topic)]
    while turns:
        shard, read = turns.pop(0)
        asked = time.monotonic()
        claimed = yield from store.scripts.claim(
            shard, group, store.session.consumer, 1 if kept is None else 0, settings.ttr_of(group), read,
            prioritized=settings.prioritized,
        )  # fmt: skip
        paused |= claimed.paused
        if claimed.unlooked:
            turns.insert(0, (shard, read[-3 * claimed.unlooked :]))
        for held in held_in(shard, group, claimed, asked, store.session.bodies):
            held.started_ms = claimed.now_ms
            if (yield from _is_kept(store, held, settings, room=kept is None)):
                kept = held
        if kept and not found:
            break
    return kept, paused


def _is_kept(store: RedisStore, held: ClaimedJob, settings: TopicSettings, *, room: bool) -> Op[bool]:
    """Whether the attempt may begin and there is ``room`` for it; otherwise ends it. If Redis refuses that, another
    consumer has the job already, which is fine, too.
    """
    yield from fetched([held.job])
    end = _unfit(held, settings)
    if end is None and room:
        return True
    ends = [end or End(held, AttemptResult.RELEASED)]
    yield from send_ends(store.scripts, held.shard, held.group, store.session.consumer, ends)
    return False


def _unfit(held: ClaimedJob, settings: TopicSettings) -> End | None:
    """The end of an attempt that must not start, because its job crashed too often, its TTR has passed, or its body
    can't be read here; or None.
    """
    if (end := lost_too_often(held, settings.max_deliveries)) is not None:
        return end
    if held.start_by <= time.monotonic():
        return too_late(held, settings.retry_of(held.group), held.started_ms)
    try:
        held.job.body  # noqa: B018 - its JSON is kept for the caller
    except BodyUnreadable as error:
        return unreadable(held, error)
    return None


def _end(store: RedisStore, end: End) -> Op[None]:
    held = end.held
    if held.ended:
        raise StaleClaim(f"job {held.job.id!r}: this claim has ended already")
    is_done = end.outcome is AttemptResult.DONE
    held.took_s = time.monotonic() - held.deadline + held.ttr_ms / 1000
    refused = yield from send_ends(
        store.scripts, held.shard, held.group, held.consumer or store.session.consumer, [end]
    )
    held.ended = True
    is_over = (is_done or refused.aborted) and not refused.stale
    if is_over and store.session.bodies.blocks(held.job.raw_body):
        yield from drop_ended(store.session, [(held.shard, EndedJob(held.job.topic, held.job.id, held.job.raw_body))])
    if refused.stale:
        raise StaleClaim(
            f"job {held.job.id!r} of {held.job.topic!r}: its TTR passed, and another consumer may have it; the result "
            "of this attempt was not recorded, so the job may run again"
        )
    if refused.aborted and is_done:
        raise JobAborted(f"job {held.job.id!r} of {held.job.topic!r} was aborted: it has ended as cancelled, not done")


NOTHING: Any = object()
"""Stands for a result that was not given; None is one."""


def finish(store: RedisStore, held: ClaimedJob, result: Any = NOTHING) -> Op[None]:
    """``result``: is kept for those that wait for the job.

    Raises:
        NoResult: one is given, and the topic keeps none of this group. The claim goes on.
        InvalidInput: it can't be kept, as it is no JSON, or too large. The claim goes on.
    """
    if result is not NOTHING:
        yield from _check_kept(store, held)
        bodies = store.session.bodies
        stored, why = yield Work(lambda: kept_result(bodies, held.job.topic, held.group, held.job.id, result))
        if why:
            raise InvalidInput(f"result: {why}")
        held.result = stored
    yield from _end(store, End(held, AttemptResult.DONE))


def _check_kept(store: RedisStore, held: ClaimedJob) -> Op[None]:
    topic, group = held.job.topic, held.group
    settings = yield from store.topics.get(topic)
    if group not in settings.results:
        settings = yield from store.topics.get(topic, anew=True)
    if group not in settings.results:
        raise NoResult(
            f"result: topic {topic!r} keeps no results of group {group!r}; `streamdq topic configure "
            f'{quote(topic)} --result 1d`, or queue.configure({topic!r}, result="1d"), makes it keep them'
        )


def fail(
    store: RedisStore, held: ClaimedJob, error: BaseException | str, delay: Duration | None, traceback: str = ""
) -> Op[None]:
    """``delay``: as ``Retry(delay)``, with this error. ``traceback``: of an error that is text."""
    if delay is not None and not isinstance(error, str) and is_instruction(error):
        raise InvalidInput(f"fail: {type(error).__name__} says what follows; pass no delay beside it")
    asked = None if delay is None else Retry(delay)
    settings = yield from store.topics.get(held.job.topic)
    end = end_of_failure(held, error, settings.retry_of(held.group))
    if asked is not None:
        then = end_of_failure(held, asked, settings.retry_of(held.group))
        end = End(held, then.outcome, end.error, then.delay_ms, reason=then.reason)
    if isinstance(error, str):
        end.traceback = without_credentials(traceback)
    else:
        tell_calls(end, error)
    yield from _end(store, end)


def bury(store: RedisStore, held: ClaimedJob, reason: str) -> Op[None]:
    yield from _end(
        store, end_of_failure(held, Bury(reason), (yield from store.topics.get(held.job.topic)).retry_of(held.group))
    )


def release(store: RedisStore, held: ClaimedJob) -> Op[None]:
    yield from _end(store, End(held, AttemptResult.RELEASED))


def touch(store: RedisStore, held: ClaimedJob, ttr: Duration | None) -> Op[None]:
    group_ttr_ms = (yield from store.topics.get(held.job.topic)).ttr_of(held.group)
    ttr_ms = held.ttr_ms if ttr is None else check_ttr(ttr)
    claim = [held.main, held.entry, held.job.id, ttr_ms]
    consumer = held.consumer or store.session.consumer
    refused = yield from store.scripts.touch(held.shard, held.group, held.generation, consumer, group_ttr_ms, claim)
    if refused.aborted and not held.ended:
        held.aborted = True
        raise JobAborted(f"job {held.job.id!r} of {held.job.topic!r} was aborted: stop, and end the claim")
    if held.ended or refused.stale:
        raise StaleClaim(f"job {held.job.id!r}: the claim can't be extended: its TTR passed, or it has ended")


_LEFT = {
    AttemptResult.DONE: JobState.DONE, AttemptResult.RETRY: JobState.DELAYED, AttemptResult.SNOOZED: JobState.DELAYED,
    AttemptResult.DEAD: JobState.DEAD, AttemptResult.RELEASED: JobState.READY,
}  # fmt: skip


def repeatable(store: RedisStore, held: ClaimedJob, ending: Op[None], *ends: AttemptResult) -> Op[JobState | None]:
    """Ends a claim that leaves a receipt, and returns None. If the claim had already ended in one of these ways,
    returns the state in which it left its job.
    """
    try:
        yield from ending
    except StaleClaim:
        ended = yield from store.scripts.ended(held.shard, held.group, held.main, held.entry)
        if ended not in ends:
            raise
        return _LEFT[AttemptResult(ended)]
    return None


def leaving(store: RedisStore, held: ClaimedJob, error: BaseException | None) -> Op[None] | None:
    """The operation at the end of a ``with`` block; None if the claim has already ended within the block."""
    if held.ended:
        return None
    return finish(store, held) if error is None else fail(store, held, error, None)
