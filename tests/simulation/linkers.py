"""Programs that enqueue jobs which wait for others: chains, fans, and jobs that wait for any others."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from streamdq import AsyncQueue, Job, JobState
from streamdq.errors import StreamdqError

from .model import NEVER_MS, Shard
from .plan import body, key_of

if TYPE_CHECKING:
    from .world import World

_DELAYS = (0, 0, 0.5, 3.0)
NOTIFIED_WITHIN_S = 1_500
"""What a failover has lost is asked for again within ten minutes, and notified again as late."""
HELD_S = 86_400
"""How much longer a result is kept at most, if nobody is left to tell that those which waited have ended."""


async def link(world: World) -> None:
    """The main function of such a program's process."""
    random = Random(f"{world.seed} links {len(world.processes)}")
    async with world.queue() as queue:
        known: list[Job] = []
        while not world.calm:
            await world.pause(2.0)
            with world.client("link"):
                await _flow(world, queue, random, known)


async def _flow(world: World, queue: AsyncQueue, random: Random, known: list[Job]) -> None:
    """A few jobs, and one that waits for them, and one for that."""
    parents: list[Any] = [await _put(world, queue, random) for _ in range(random.choice((1, 1, 2, 4)))]
    if known and random.random() < 0.3:
        parents.append(random.choice(known))
    if random.random() < 0.1:
        parents.append(world.known_id())
    for _ in range(random.choice((1, 1, 2))):
        made = await _put(
            world, queue, random, after=parents, on_failure=random.choice(("block", "block", "run", "cancel"))
        )
        known.append(made)
        parents = [made]
    del known[:-20]


async def _put(world: World, queue: AsyncQueue, random: Random, **after: Any) -> Job:
    topic = random.choice(world.topics)
    id = world.new_id(topic)
    made = await queue.enqueue(
        topic, body(random, world.serial()), id=id, delay=random.choice(_DELAYS),
        on_conflict=random.choice(("reject", "keep", "replace")), **after,
        **(key_of(id) if world.plan.has_keys else {}),
    )  # fmt: skip
    if made.state is not JobState.ENDED:
        world.note("acknowledged" + (" to wait" if after else ""))
        with world.judged():
            world.model.acknowledged(made.body["n"])
    return made


def waiting_in(world: World) -> dict[tuple[Shard, str], int]:
    """The jobs that wait for others in Redis: their shard and id, and for how many groups."""
    found: dict[tuple[Shard, str], int] = {}
    for key in world.store.all_keys():
        if not key.endswith(":jobs"):
            continue
        shard, flat = _shard_of(key), world.store.ask("HGETALL", key)
        for id, record in zip(flat[::2], flat[1::2], strict=True):
            if record[12:25] == b"%d" % NEVER_MS:
                begun = world.store.ask("HKEYS", key.removesuffix("jobs") + "progress")
                own = sum(field.endswith(b"\x1f" + id) for field in begun)
                found[shard, id.decode()] = own or len(world.model.groups.get(shard, {}))
    return found


def blocked_in(world: World) -> set[tuple[Shard, str]]:
    return {
        (_shard_of(key), member.decode().partition("\x1f")[0])
        for key in world.store.all_keys()
        if key.endswith(":blocked")
        for member in world.store.ask("ZRANGE", key, "0", "-1")
    }


def _shard_of(key: str) -> Shard:
    topic, _, number = key[key.index("{") + 1 : key.index("}")].rpartition(":")
    return topic, int(number)


async def cancel_all(world: World, queue: AsyncQueue) -> None:
    """So that the topics are empty."""
    for shard, id in waiting_in(world):
        for _ in range(100):
            try:
                await queue.cancel(shard[0], id)
                break
            except StreamdqError:
                continue


def undelivered_in(world: World) -> list[str]:
    """Keys that tell who waits for whom."""
    return [
        key
        for key in world.store.all_keys()
        if key.endswith((":followers", ":endings", ":dependencies", ":dependents", ":blocked", ":flows", ":flow_times"))
    ]
