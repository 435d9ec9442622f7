"""The end of a history: everything heals, and time goes on until nothing is left to do. Then promises are judged that
concern the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from streamdq import AsyncQueue
from streamdq.errors import StreamdqError, UnknownTopic
from streamdq.job.flow import FLOWS

from .archiver import serials_in
from .link import LATEST_S
from .linkers import HELD_S, NOTIFIED_WITHIN_S, blocked_in, cancel_all, undelivered_in, waiting_in
from .links import at_rest
from .model import Broken, Shard
from .plan import GROUPS, KEYS
from .relays import left_in, put_back, relay_all
from .schedulers import end_schedules
from .troubles import heal
from .waiters import longest_s
from .workers import terminate, work

if TYPE_CHECKING:
    from .world import World

_EPOCH_S = 1_800_000_000.0
_STUCK_S = 200  # the longest TTR of a group is a minute
_REST_WITHIN_S = 3_600  # a single slot may have many handlers that hang to go through
_FAR_OFF_MS = 60_000
_RESHARDED_WITHIN_S = 200  # the longest span of an id is a minute


async def come_to_rest(world: World) -> None:
    await _calm_down(world)
    async with AsyncQueue(settings=world.settings) as queue:
        await asyncio.sleep(LATEST_S + 1.0)  # what was sent before has arrived: a job, a schedule, a pause, perhaps
        for topic in world.topics:
            await _until_done(partial(queue.configure, topic, rate=0))
            await _until_done(partial(queue.resume, topic))
            for key in KEYS:
                await _until_done(partial(queue.resume, topic, key=key))
        await _until_done(partial(end_schedules, world, queue))
        if world.relays:
            world.database.keep_nothing_back()
            await _until_done(partial(relay_all, world))
        await _until_nothing_is_due(world, queue)
        if world.relays:
            await _until_rows_are_written(world, queue)
        if world.links:
            await _until_nothing_waits(world, queue)
        if world.plan.night_s:
            await asyncio.sleep(world.plan.night_s)
        world.check()
        archived = serials_in(world) if world.plan.archive else ()
        world.model.at_rest(GROUPS[:1], _stored(world), _counted(world), archived)
        for topic in world.topics:
            audit = await queue.audit(topic)
            if not audit.balanced:
                raise Broken(f"the audit does not balance: {audit}")
        await _until_all_resharded(world, queue)
        if world.links:
            await _until_all_are_notified(world)
        await _everything_ends(world, queue)


async def _calm_down(world: World) -> None:
    """No more troubles; clients end, and a worker for each group is there for what is left."""
    world.calm = True
    for process in world.processes:
        if process.stopped:
            world.loop.continue_process(process)
            world.progress.trouble()
        process.dies_at = None
    while world.others_at_work():
        await asyncio.sleep(0.1)
        world.check()
    heal(world)
    if world.clock_s < _EPOCH_S:
        world.clock_s = _EPOCH_S
        world.model.disturb()
    for group in GROUPS:
        world.start("worker", partial(work, world, group))


async def _until_done(operation: Callable[[], Awaitable[Any]]) -> None:
    for _ in range(100):
        try:
            await operation()
            return
        except StreamdqError:
            await asyncio.sleep(0.5)
    raise Broken("operations go on failing, though nothing is broken any more")


async def _until_rows_are_written(world: World, queue: AsyncQueue) -> None:
    while await put_back(world):
        await _until_nothing_is_due(world, queue)
    world.model.outbox.at_rest(world.model, left_in(world.database))


async def _until_nothing_is_due(world: World, queue: AsyncQueue) -> None:
    before, same_s = None, 0
    for _ in range(_REST_WITHIN_S):
        await asyncio.sleep(1.0)
        world.check()
        for far_off in world.model.far_off(_FAR_OFF_MS):  # a topic that was flushed has the default schedule
            await queue.reschedule(*far_off, delay=0)
        found = await queue.stats()
        groups = [group for topic in found.topics.values() for group in topic.groups.values()]
        waiting = sum(waiting_in(world).values()) if world.links else 0
        if sum(group.delayed + group.ready + group.running for group in groups) == waiting:
            await asyncio.sleep(5.0)
            return
        before, same_s = found, same_s + 1 if found == before else 0
        if same_s == _STUCK_S:
            break
    raise Broken(f"it does not come to rest: {before}")


async def _until_nothing_waits(world: World, queue: AsyncQueue) -> None:
    """Jobs that wait for others: those that can start do, the rest is reported, and then cancelled."""
    for passed_s in range(0, NOTIFIED_WITHIN_S, 10):
        try:
            at_rest(world.model, {*waiting_in(world)}, blocked_in(world))
            break
        except Broken:
            if passed_s + 10 >= NOTIFIED_WITHIN_S:
                raise
            await asyncio.sleep(10.0)
            await _until_nothing_is_due(world, queue)
    while waiting_in(world):
        await cancel_all(world, queue)
        await _until_nothing_is_due(world, queue)


async def _until_all_are_notified(world: World) -> None:
    """Nothing is left of who waited for whom."""
    for _ in range(0, NOTIFIED_WITHIN_S, 10):
        if not undelivered_in(world):
            break
        await asyncio.sleep(10.0)
        world.check()
    else:
        raise Broken(f"it is not forgotten who waited for whom: {undelivered_in(world)}")
    held = [key for key in world.store.all_keys() if _is_held(world, key)]
    deleted = world.happened["delete"] + world.happened["delete_by_force"]  # with a topic goes who waited for its jobs
    if held and not deleted and not world.model.lost_data:
        raise Broken(f"these results are kept for others, which have ended: {held}")


def _is_held(world: World, key: str) -> bool:
    """Results of jobs that others wait for are kept longer than the topic asks."""
    return ":result:" in key and bool(world.store.ask("PTTL", key) > 1000 * longest_s(world.retention))


def _shard_of(key: str) -> Shard:
    topic, _, number = key[key.index("{") + 1 : key.index("}")].rpartition(":")
    return topic, int(number)


def _stored(world: World) -> list[tuple[Shard, str]]:
    jobs = [key for key in world.store.all_keys() if key.endswith(":jobs")]
    return [
        (_shard_of(key), id.decode())
        for key in jobs
        for id in world.store.ask("HKEYS", key)
        if _shard_of(key)[0] != FLOWS
    ]


def _counted(world: World) -> dict[Shard, dict[str, int]]:
    found = {}
    for key in world.store.all_keys():
        if key.endswith(":counts") and _shard_of(key)[0] != FLOWS:
            flat = world.store.ask("HGETALL", key)
            pairs = zip(flat[::2], flat[1::2], strict=True)
            found[_shard_of(key)] = {name.decode(): int(value) for name, value in pairs}
    return found


async def _until_all_resharded(world: World, queue: AsyncQueue) -> None:
    """Without dead letters and taken ids, nothing is left where it was put before the number of shards changed."""
    for topic in world.topics:
        for group in (await queue.stats(topic)).topics[topic].groups:
            await _until_done(partial(queue.purge, topic, group=group, all=True))
    for _ in range(_RESHARDED_WITHIN_S):
        left = [topic for topic in world.topics if (await queue.configure(topic)).former]
        if not left:
            return
        await asyncio.sleep(1.0)
        world.check()
    raise Broken(f"{left} are still resharding")


async def _everything_ends(world: World, queue: AsyncQueue) -> None:
    """Workers drain, and topics are deleted: then Redis holds nothing of them any more, once results have expired."""
    for process in world.at_work("worker"):
        terminate(world, process)
    for _ in range(30):
        if not world.at_work("worker"):
            break
        await asyncio.sleep(1.0)
        world.check()
    else:
        raise Broken(f"workers go on: {[process.name for process in world.at_work('worker')]}")
    for topic in [*world.topics, *[FLOWS] * world.flows]:
        with suppress(UnknownTopic):
            await queue.delete_topic(topic, force=True)
    await asyncio.sleep(longest_s(world.retention) + (HELD_S if world.links else 0))
    left = [key for key in world.store.all_keys() if "{" in key and "}:" in key and not _may_stay(world, key)]
    if left:
        raise Broken(f"keys without an owner: {left}")


def _may_stay(world: World, key: str) -> bool:
    """A deleted shard keeps its version for an hour. Keys of the namespace have no shard."""
    return not key[key.index("{") + 1 : key.index("}")].rpartition(":")[0] or (
        key.endswith(":settings") and world.store.ask("PTTL", key) > 0
    )
