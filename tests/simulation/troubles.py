"""Troubles: processes that are killed and stopped, a bad network, and a Redis that restarts, fails over or forgets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from .loop import Process
from .plan import GROUPS, Plan
from .workers import terminate

if TYPE_CHECKING:
    from .world import World

READY = re.compile(r":ready(:|$)")
STOPPED_S = 8.0
"""How long a process is stopped at most."""

Trouble = Callable[["World"], Coroutine[Any, Any, None]]


def planned(plan: Plan) -> Iterator[Trouble]:
    for trouble, there in (
        (kill_some, plan.crashes),
        (kill_movers, plan.crashes),
        (deploy, plan.deploys),
        (cut_some, plan.network),
        (shake, plan.server),
        (destroy_groups, plan.vandal),
    ):
        if there:
            yield trouble


async def kill_some(world: World) -> None:
    while not world.calm:
        await world.pause(3.0)
        alive = [process for process in world.at_work("") if not process.stopped]
        if not alive or world.calm:
            continue
        process = world.random.choice(alive)
        if world.random.random() < 0.5:
            world.loop.kill(process)
        else:
            stop(world, process, world.random.choice((0.1, 1.0, 3.0, STOPPED_S)))


def stop(world: World, process: Process, seconds: float) -> None:
    world.note("stopped", process)
    if process is world.mover():
        world.note("stopped as the mover")
    world.loop.stop_process(process)
    world.progress.trouble()
    world.loop.call_later(seconds, _go_on, world, process)


def _go_on(world: World, process: Process) -> None:
    world.loop.continue_process(process)
    world.progress.trouble()


async def kill_movers(world: World) -> None:
    """The active mover: of many processes it is seldom hit by chance."""
    chance = Random(f"{world.seed} movers")
    while not world.calm:
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        process = world.mover()
        if world.calm or process is None or process.stopped or not process.alive:
            continue
        if chance.random() < 0.5:
            world.loop.kill(process)
        else:
            stop(world, process, chance.choice((1.0, 8.0)))
        await asyncio.sleep(chance.uniform(1.0, 10.0))


async def deploy(world: World) -> None:
    """Tells workers to end, one or all. Others start in their place."""
    while not world.calm:
        await world.pause(10.0)
        alive = world.at_work("worker")
        chosen = alive if world.random.random() < 0.3 else alive[:1]
        for process in chosen if not world.calm else ():
            terminate(world, process)
            if world.random.random() < 0.2:
                world.loop.call_later(world.random.choice((0.1, 1.5)), terminate, world, process)  # impatiently


async def cut_some(world: World) -> None:
    faults, random = world.network.faults, world.random
    while not world.calm:
        await world.pause(4.0)
        kind = random.choice(("lossy", "slow", "cut", "fine"))
        world.note(f"network {kind}")
        rate = random.choice((0.01, 0.1, 0.3)) if kind == "lossy" else 0.0
        faults.lose_request = faults.lose_reply = faults.late = faults.refuse = rate
        faults.slow_s = random.choice((0.01, 0.1, 0.5)) if kind == "slow" else 0.0005
        faults.cut = _half(world) if kind == "cut" else set()
        world.troubled_at = world.loop.time() if kind == "fine" else float("inf")


async def destroy_groups(world: World) -> None:
    """Redis forgets who has which entries of a stream, and which of them were read."""
    while not world.calm:
        await world.pause(10.0)
        streams = [key for key in world.store.all_keys() if READY.search(key)]
        if world.calm or not streams:
            continue
        stream, group = world.random.choice(streams), world.random.choice(GROUPS)
        if world.store.apply((b"XGROUP", b"DESTROY", stream.encode(), group.encode())) == 1:
            world.note_states("destroy_group")
            world.model.disturb()


def _half(world: World) -> set[Process]:
    return {process for process in world.at_work("") if world.random.random() < 0.5}


def heal(world: World) -> None:
    faults = world.network.faults
    faults.lose_request = faults.lose_reply = faults.late = faults.refuse = 0.0
    faults.slow_s, faults.cut, faults.down = 0.0005, set(), False
    world.troubled_at = world.loop.time()


async def shake(world: World) -> None:
    while not world.calm:
        await world.pause(8.0)
        what = world.random.choice((restart, fail_over, fail_over, flush, flush_scripts, jump))
        world.note_states(what.__name__)
        await what(world)
        world.troubled_at = max(world.troubled_at, world.loop.time())


async def restart(world: World) -> None:
    world.network.faults.down = True
    world.network.drop_all()
    world.store.restart()
    await world.pause(3.0)
    world.network.faults.down = False


async def fail_over(world: World) -> None:
    """To a replica that lacks the last writes."""
    lost = min(len(world.store.log), world.random.choice((0, 1, 3, 20)))
    world.network.drop_all()
    world.store.take_over(lost)
    world.model.forget(len(world.store.log))


async def flush(world: World) -> None:
    world.store.flush()
    world.flushed()


async def flush_scripts(world: World) -> None:
    world.store.flush_scripts()


async def jump(world: World) -> None:
    """Redis's clock is set, forward or back."""
    world.clock_s += world.random.choice((-3600.0, -5.0, -0.5, 0.5, 5.0))
    world.model.disturb()
    world.model.moves.clear()
