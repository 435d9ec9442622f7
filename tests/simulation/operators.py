"""Operators: what they do with jobs and topics, while everything else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from streamdq import AsyncQueue

from .plan import GROUPS, KEYS, RATES, RETRIES, key_limits

if TYPE_CHECKING:
    from .world import World

Operation = Callable[["World", AsyncQueue, str], Awaitable[object]]


async def operate(world: World) -> None:
    """The main function of an operator's process."""
    async with world.queue() as queue:
        while not world.calm:
            await world.pause(2.0)
            topic = world.random.choice(world.topics)
            what = world.random.choice(_OPERATIONS)
            world.note_states(what.__name__)
            with world.client(what.__name__):
                await what(world, queue, topic)


async def cancel(world: World, queue: AsyncQueue, _: str) -> None:
    await queue.cancel(*world.known_id())


async def abort_some(world: World) -> None:
    """The main function of a process that aborts jobs."""
    random = world.aborts
    async with AsyncQueue(settings=world.settings) as queue:
        while not world.calm:
            await asyncio.sleep(random.expovariate(3.0))
            runs = world.model.running() if random.random() < 0.7 else []
            topic, id = random.choice(runs) if runs else world.known_id(random)
            with world.client("abort"):
                group = None if random.random() < 0.7 else random.choice(GROUPS[:2])
                result = await queue.abort(topic, id, group=group)
                world.note(f"abort: {result}")


async def reschedule(world: World, queue: AsyncQueue, _: str) -> None:
    await queue.reschedule(*world.known_id(), delay=world.random.choice((0, 0.5, 4.0)))


async def pause(world: World, queue: AsyncQueue, topic: str) -> None:
    await queue.pause(topic)
    await world.pause(3.0)
    await queue.resume(topic)


async def pause_key(world: World, queue: AsyncQueue, topic: str) -> None:
    """If the topic has no limit, or the operator is killed, nobody has to resume it before the end."""
    if world.plan.has_keys:
        key = world.random.choice(KEYS)
        await queue.pause(topic, key=key)
        await world.pause(3.0)
        await queue.resume(topic, key=key)


async def relimit(world: World, queue: AsyncQueue, topic: str) -> None:
    if world.plan.has_keys:
        await queue.configure(topic, **key_limits(world.random, world.paces))


async def kick(world: World, queue: AsyncQueue, topic: str) -> None:
    await queue.kick(topic, group=world.random.choice(GROUPS[:2]))


async def kick_one(world: World, queue: AsyncQueue, _: str) -> None:
    topic, id = world.known_id()
    await queue.kick(topic, id, group=world.random.choice(GROUPS[:2]))


async def purge(world: World, queue: AsyncQueue, topic: str) -> None:
    await queue.purge(topic, group=world.random.choice(GROUPS[:2]), all=True)


async def regroup(world: World, queue: AsyncQueue, topic: str) -> None:
    await queue.configure(topic, groups=GROUPS[: world.random.choice((1, 2, 3))])


async def tune(world: World, queue: AsyncQueue, topic: str) -> None:
    random = world.random
    await queue.configure(
        topic, ttr=random.choice(("1s", "2s", "4s")), retry=random.choice(RETRIES), rate=random.choice(RATES),
    )  # fmt: skip


async def reshard(world: World, queue: AsyncQueue, topic: str) -> None:
    """Whether the topic holds jobs or not."""
    await queue.configure(_fleeting(world, topic), shards=world.random.choice((1, 2, 3)))


async def delete(world: World, queue: AsyncQueue, topic: str) -> None:
    await queue.delete_topic(_fleeting(world, topic))


async def delete_by_force(world: World, queue: AsyncQueue, topic: str) -> None:
    await queue.delete_topic("fleeting" if "fleeting" in world.topics else topic, force=True)


def _fleeting(world: World, topic: str) -> str:
    """Preferably the topic that is often empty."""
    return "fleeting" if "fleeting" in world.topics and world.random.random() < 0.7 else topic


async def look(world: World, queue: AsyncQueue, topic: str) -> None:
    await queue.stats(topic)
    await queue.upcoming(topic)
    await queue.dead(topic)
    await queue.history(topic)
    await queue.keys(topic, world.random.choice(("waiting", "running", "paused")))
    await queue.get(*world.known_id())


async def audit(_: World, queue: AsyncQueue, topic: str) -> None:
    await queue.audit(topic)


_OPERATIONS: tuple[Operation, ...] = (
    cancel, cancel, reschedule, reschedule, pause, pause_key, pause_key, kick, kick, kick_one, purge, regroup, tune,
    relimit, reshard, reshard, delete, delete_by_force, look, audit,
)  # fmt: skip
