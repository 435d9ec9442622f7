"""Flows: what is promised of them, and programs that build and cancel them.

None of its jobs starts before the flow is complete (F1). Once ``cancel_flow`` has returned, none of them is claimed any
more (F5). At the end nothing of it is left (F6): ``rest`` looks for that.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from streamdq import AsyncQueue, FlowState, InvalidInput, JobExists, RunningJob
from streamdq.job.flow import FLOWS

from .model import Call, Model, Shard, Tracked
from .plan import body, key_of

if TYPE_CHECKING:
    from .world import World

Run = tuple[Shard, str, str]
"""The shard, name and life of a flow."""

WITHIN_MS = 20_000
"""So long after the last call of its builder, a flow is withdrawn."""
AT_ONCE = 3
"""Jobs that a builder sends together."""
_OF_TOPIC = ("configure_shard", "drop_shard")


class _Interrupted(Exception):
    """The block of a flow raises it."""


# -- the judge


def is_own(call: Call) -> bool:
    """Whether the call is about the flows' own jobs and gates: these are judged by what becomes of the others."""
    return bool(call.keys) and call.shard[0] == FLOWS and call.name not in _OF_TOPIC


def applied(model: Model, call: Call) -> None:
    if call.name == "enqueue_after" and call.reply[0] != 0 and len(call.reply) == 3 and call.args[3] != b"look":
        life = call.args[5].split(b"\n", 3)[2]
        model.complete.add((call.shard, call.args[4].decode(), life.decode()))
    elif call.name == "decide_flow":
        state, _, *gates = call.reply
        model.happened[f"decide_flow: {state.decode() or 'neither'}"] += 1
        if call.args[3] == b"cancel":
            model.closed.add((call.shard, call.args[1].decode()))
        for field in gates[::2] if state == b"w" else ():
            gate, _, life = field.decode().partition("\x1f")
            model.withdrawn.add((call.shard, gate.rpartition("~")[0], life))
    elif call.name == "begin_flow":
        model.happened[f"begin_flow: {call.reply[0]}"] += 1
        if call.reply[0] == 1:
            name = call.args[2].decode()
            model.begun[name] = call.shard, name, call.args[3].decode()
    elif call.name == "add_gate":
        model.happened[f"add_gate: {call.reply}"] += 1
    elif call.name == "sweep_flows" and call.reply[3:]:
        model.happened["sweep_flows: a deadline has passed"] += 1


def run_in(line: list[str]) -> Run:
    """The flow of a gate, as a job that waits names it."""
    topic, number, life, gate = line
    return (topic, int(number)), gate.rpartition("~")[0], life


def starts(model: Model, job: Tracked) -> None:
    if job.flow is not None and job.flow not in model.complete:
        model.broken(f"job {job.serial} starts, though its flow is not complete: {job}")


def may_be_cancelled(model: Model, job: Tracked) -> bool:
    """Whether the job may be cancelled because its flow was withdrawn."""
    return job.flow is not None and (
        job.flow in model.withdrawn or job.flow not in model.complete or job.flow[:2] in model.closed or model.lost_data
    )


def cancelled(model: Model, name: str) -> None:
    """cancel_flow has returned. Dead letters stay, and may be kicked. An earlier flow of that name had been forgotten
    when this one was begun, as its jobs had ended or were dead.
    """
    for job in model.live.values():
        if job.flow is None or job.flow != model.begun.get(name) or job.gone:
            continue
        if not any(one.ended in ("dead", "purged", "archived", "restored") for one in job.deliveries.values()):
            model.stopped[job.first] = model.groups.get(job.shard, {})
    for child in model.children.values():
        if child.flow is not None and child.flow == model.begun.get(name) and not child.first:
            child.stopped = True


def claimed(model: Model, job: Tracked, group: str, again: bool) -> None:
    """A group that joins while an attempt of before still runs may get the job."""
    since = model.groups.get(job.shard, {}).get(group)
    was_there = since is not None and model.stopped.get(job.first, {}).get(group) == since
    if was_there and not again and not model.lost_data:
        model.broken(f"job {job.serial} is claimed, though its flow was cancelled: {job}")


# -- programs


async def add_children(world: World, job: RunningJob) -> None:
    """What some handlers do: a job is added to the flow of their own, and may be a condition of others, too."""
    random, model = world.adds, world.model
    if random is None or world.calm or random.random() >= 0.25:  # with three groups, a child has fewer than one
        return
    lives = [life for life in model.first_of if life[1] == job.id]
    waiting = [
        one for one in model.live.values() if one.waits is not None and any(life in one.waits.parents for life in lives)
    ]
    before = [(one.shard[0], one.id) for one in waiting if random.random() < 0.7] or None
    topic = random.choice(world.topics)
    id = f"child-{world.serial()}"
    if world.twins is not None and (drawn := world.twins.random()) < 0.8:
        id = f"twin-{world.twins.randrange(3)}" if drawn < 0.75 else world.known_id(world.twins)[1]
    options = key_of(id) if world.plan.has_keys else {}
    try:
        await job.async_flow.enqueue(
            topic, body(random, world.serial()), id=id, before=before, delay=random.choice((0, 0, 1.0)), **options
        )
    except InvalidInput:
        world.note("flow: nothing is added")
    except JobExists:
        world.note("flow: another job has the id of what is added")
    else:
        world.note("flow: added")


async def build_flows(world: World) -> None:
    """The main function of such a program's process."""
    random = Random(f"{world.seed} flows {len(world.processes)}")
    number = 0
    async with AsyncQueue(settings=world.settings) as queue:
        while not world.calm:
            await world.pause(3.0)
            number += 1
            name = f"f{random.randrange(6)}" if random.random() < 0.4 else f"{world.here().name}-{number}"
            with world.client("flow"):
                await _build(world, queue, random, name)
            if random.random() < 0.3:
                await world.pause(1.0)
                with world.client("cancel flow"):
                    await _cancel(world, queue, name)


async def _build(world: World, queue: AsyncQueue, random: Random, name: str) -> None:
    deadline = random.choice((None, None, "15s"))
    try:
        async with queue.flow(name, deadline=deadline, keep="1s") as flow:
            stages: list[list[Any]] = []
            for _ in range(random.choice((1, 2, 2, 3))):
                stages.append(await _stage(world, flow, random, stages))
                await world.pause(random.choice((0.0, 0.0, 0.5)))
            if random.random() < 0.15:
                raise _Interrupted
        world.note("flow: complete")
    except _Interrupted:
        world.note("flow: interrupted")


async def _stage(world: World, flow: Any, random: Random, before: list[list[Any]]) -> list[Any]:
    after = random.choice(before) if before else None
    how = random.choice(("block", "run", "cancel"))
    topic = random.choice(world.topics)
    made = []
    for _ in range(random.choice((1, 1, 3))):
        id = world.new_id(topic) if random.random() < 0.2 else f"{flow.name}-{world.serial()}"
        options = key_of(id) if world.plan.has_keys else {}
        made.append(
            await flow.enqueue(
                topic,
                body(random, world.serial()),
                id=id,
                delay=random.choice((0, 0, 1.0)),
                after=after,
                on_failure=how,
                **options,
            )
        )
    return made


async def _cancel(world: World, queue: AsyncQueue, name: str) -> None:
    begun = {run for run in world.model.complete if run[1] == name}
    if not await queue.cancel_flow(name):
        return
    world.note("flow: cancelled")
    if begun == {run for run in world.model.complete if run[1] == name}:  # else it was built anew meanwhile
        with world.judged():
            cancelled(world.model, name)
    status = await queue.flow_status(name)
    world.note(f"flow: then {status.state.value if status else FlowState.DONE.value}")
