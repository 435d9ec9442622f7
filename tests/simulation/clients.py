"""Producers, which put jobs in, and takers, which claim and end jobs without a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from streamdq import AsyncQueue, JobState, NewJob
from streamdq.queue import AsyncClaim, held_by, store_of

from .model import Broken
from .plan import CONFLICTS, GROUPS, PRIORITIES, body, key_of, options, uniqueness
from .results import returned

if TYPE_CHECKING:
    from .world import World


async def produce(world: World) -> None:
    """The main function of a producer's process."""
    async with world.queue() as queue:
        while not world.calm:
            await world.pause(30.0 if world.sparse else 1.0)
            topic = _any_topic(world)
            with world.client("enqueue"):
                if world.random.random() < 0.3:
                    await _put_many(world, queue, topic)
                else:
                    await _put_one(world, queue, topic)


def _any_topic(world: World) -> str:
    """The fleeting topic gets few jobs, so that it is often empty."""
    topic = world.random.choice(world.topics)
    return topic if topic != "fleeting" or world.random.random() < 0.2 else world.topics[0]


async def _put_one(world: World, queue: AsyncQueue, topic: str) -> None:
    random = world.random
    is_unique = world.plan.unique and random.random() < 0.5
    made = await queue.enqueue(
        topic, body(random, world.serial()),
        **(uniqueness(random) if is_unique else {"on_conflict": random.choice(CONFLICTS)}),
        **_options(world, world.new_id(topic, few=is_unique)),
    )  # fmt: skip
    if made.state is not JobState.ENDED:
        _acknowledged(world, made.body["n"])


def _options(world: World, id: str) -> dict[str, Any]:
    classes = {"priority": world.classes.choice(PRIORITIES)} if world.classes else {}
    return options(world.random, id) | (key_of(id) if world.plan.has_keys else {}) | classes


async def _put_many(world: World, queue: AsyncQueue, topic: str) -> None:
    random = world.random
    jobs = [
        NewJob(body(random, world.serial()), **_options(world, world.new_id(topic)))
        for _ in range(random.randrange(1, 12))
    ]
    result = await queue.enqueue_many(topic, jobs, on_conflict=random.choice(CONFLICTS))
    for job in jobs:
        if job.id not in result.existing:
            _acknowledged(world, job.body["n"])


def _acknowledged(world: World, serial: int) -> None:
    world.note("acknowledged")
    with world.judged():
        world.model.acknowledged(serial)


async def take(world: World) -> None:
    """The main function of a taker's process."""
    async with AsyncQueue(settings=world.settings) as queue:
        while not world.calm:
            await world.pause(0.5)
            topic, group = world.random.choice(world.topics), world.random.choice(GROUPS[:2])
            with world.client("take"):
                claim = await queue.take(topic, group, timeout=world.random.choice((0, 0.3, 3)))
                if not claim:
                    world.note("nothing taken")
                else:
                    await _Taken(world, queue, claim, group).use()


class _Taken:
    """One claim of a taker."""

    def __init__(self, world: World, queue: AsyncQueue, claim: AsyncClaim, group: str) -> None:
        self._world = world
        self._claim = claim
        self._group = group
        self._serial: int = claim.job.body["n"]
        self._consumer = held_by(claim).consumer or store_of(queue).session.consumer

    async def use(self) -> None:
        world, random = self._world, self._world.random
        world.note("taken")
        with world.judged():
            world.model.started(self._serial, self._claim.job.attempt, self._group, self._consumer)
        if random.random() < 0.3:
            await asyncio.sleep(random.choice((0.01, 1.0, 5.0)))
        if random.random() < 0.2:
            await self._claim.touch(random.choice((None, 1, 4)))
        how = random.choice(("finish", "finish", "fail", "fail later", "bury", "block", "block that fails", "forget"))
        world.note(f"taker: {how}")
        await self._end(how)
        if random.random() < 0.2:
            with world.client("again"), world.judged():
                await self._claim.finish()
                if how != "forget":
                    raise Broken(f"job {self._serial}: its claim was ended twice")

    async def _end(self, how: str) -> None:
        claim = self._claim
        if how == "finish":
            given = {"result": returned(self._serial, self._group, self._consumer)} if self._world.retention else {}
            await claim.finish(**given)
            self._ended("finish")
        elif how == "fail":
            await claim.fail("as told")
        elif how == "fail later":
            await claim.fail("as told", delay=self._world.random.choice((0, 1)))
            self._ended("retry")
        elif how == "bury":
            await claim.bury("as told")
            self._ended("bury")
        elif how != "forget":
            await self._block(fails=how == "block that fails")

    async def _block(self, *, fails: bool) -> None:
        try:
            async with self._claim:
                await self._world.pause(0.5)
                if fails:
                    raise ValueError("as told")
        except ValueError:
            return
        self._ended("finish")

    def _ended(self, script: str) -> None:
        with self._world.judged():
            self._world.model.ended(self._serial, self._group, self._consumer, script)
