"""Programs that make schedules, and change and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamdq import AsyncQueue

from .model import Broken
from .plan import body

if TYPE_CHECKING:
    from .world import World

_MS = 1000


async def keep_schedules(world: World) -> None:
    """The main function of such a program's process."""
    random = world.random
    async with world.queue() as queue:
        while not world.calm:
            await world.pause(3.0)
            what = random.choice(("make", "make", "change", "pause", "resume", "remove"))
            with world.client(what):
                if what == "make" or not world.schedules:
                    await _make(world, queue, random.choice(world.topics), f"s{world.serial()}")
                else:
                    await _meddle(world, queue, what, *random.choice(world.schedules))


async def _make(world: World, queue: AsyncQueue, topic: str, id: str) -> None:
    world.schedules.append((topic, id))
    await queue.schedule(topic, id=id, **_given(world, id))


def _given(world: World, id: str) -> dict[str, Any]:
    random = world.random
    return {
        "body": {**body(random, 0), "n": f"{id} {{due}}"},
        "every": random.choice((1, 2, 7)),
        "jitter": random.choice((0, 0, "500ms")),
        "overlap": random.choice(("allow", "skip", "queue")),
        "catch_up": random.choice(("none", "last", "50s")),
    }


async def _meddle(world: World, queue: AsyncQueue, what: str, topic: str, id: str) -> None:
    world.changed.add(id)
    if what == "change":
        await queue.schedule(topic, id=id, **_given(world, id))
    elif what == "pause":
        await queue.pause_schedule(topic, id)
    elif what == "resume":
        await queue.resume_schedule(topic, id)
    else:
        await queue.unschedule(topic, id)


async def end_schedules(world: World, queue: AsyncQueue) -> None:
    """At the end all go. Of one that was never changed, each occurrence was enqueued, skipped or missed."""
    for schedule in await queue.schedules():
        await queue.unschedule(schedule.topic, schedule.id)
        definition, accounted = schedule.definition, schedule.fired + schedule.skipped + schedule.missed
        if schedule.id in world.changed or world.model.lost_data or not schedule.next_ms:
            continue
        assert definition.every_ms is not None
        passed = (schedule.next_ms[0] - definition.anchor_ms) // definition.every_ms - 1
        if accounted + schedule.waiting != passed:
            raise Broken(f"of {passed} occurrences of {schedule.id}, {accounted} are accounted for: {schedule}")
        world.note("schedule: all accounted for")
