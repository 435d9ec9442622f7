"""Operators who search for jobs and act on those that they were shown, some time later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from streamdq import AsyncQueue
from streamdq.queue import AsyncFound

if TYPE_CHECKING:
    from .world import World

_SEARCHES: tuple[Mapping[str, Any], ...] = (
    {}, {"state": "delayed"}, {"state": "delayed", "due": (None, None)}, {"state": "dead"}, {"state": "ready"},
)  # fmt: skip
_ACTIONS: dict[str, Callable[[AsyncFound], Awaitable[Any]]] = {
    "cancel": AsyncFound.cancel,
    "reschedule": lambda found: found.reschedule("500ms"),
    "kick": AsyncFound.kick,
    "purge": AsyncFound.purge,
}


async def find_and_act(world: World) -> None:
    """The main function of such an operator's process."""
    random = world.random
    async with AsyncQueue(settings=world.settings) as queue:
        while not world.calm:
            await world.pause(4.0)
            with world.client("find"):
                found = queue.find(random.choice(world.topics), **random.choice(_SEARCHES))
                await found.count()
                await world.pause(2.0)
                action = random.choice(sorted(_ACTIONS))
                acted = await _ACTIONS[action](found)
                for field in ("done", "changed", "gone", "refused"):
                    world.happened[f"found {action}: {field}"] += getattr(acted, field)
