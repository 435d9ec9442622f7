"""How a flow stands, and how it is cancelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from ...config import MAX_BATCH
from ...job.after import NEVER_MS
from ...job.flow import FLOWS, FlowStage, FlowState, FlowStatus, FlowTimes
from ...job.job import Job, JobState, check_id
from ...keys import ShardKeys
from ...link.session import Op
from ...store.flows import decisions, reading, shards
from ...store.flows.times import Members, times_of
from ...store.jobs import linked, lookup
from ...store.jobs.links import StoredParent
from ...store.jobs.records import nonce_of
from ...store.redis_store import RedisStore
from ...store.replies import FoundJob
from ...store.scripts.flows import Run
from ..jobs.get import get, job_of

_ACTIVE = ("delayed", "ready", "running")


def flow_status(store: RedisStore, name: str, *, times: bool = False) -> Op[FlowStatus | None]:
    """How the flow stands, stage by stage. None: there is none with this name, or it was forgotten since it ended.
    Reads the state of each job that has not ended. ``times``: also reads how long its jobs took, and the critical path,
    from what the history of its topics has since the flow began.
    """
    for run in (yield from shards.found(store.session, store.topics, check_id(name))):
        return (yield from _status(store, run, times))
    return None


def _status(store: RedisStore, run: Run, with_times: bool) -> Op[FlowStatus | None]:
    letter = yield from reading.state(store.session, run)
    own = yield from get(store, FLOWS, run.name)
    jobs = yield from reading.members(store.session, run)
    if own is None or not jobs:
        early = {"b": FlowState.BUILDING, "w": FlowState.CANCELLED}
        return FlowStatus(run.name, early[letter], ()) if letter in early else None
    states = yield from _states(store, jobs)
    known, left, stages = [*reading.stages_of(own.body, jobs)], iter(states), []
    for one in known:
        counted = dict(Counter(islice(left, one.jobs)))
        stages.append(FlowStage(one.topic, one.jobs, one.after, one.on_failure, counted))
    times = (yield from _times(store, run, own, Members(jobs, states, known, own.body))) if with_times else None
    return FlowStatus(run.name, _state(letter, own.state, Counter(states)), tuple(stages), times)


def _times(store: RedisStore, run: Run, own: Job, members: Members) -> Op[FlowTimes]:
    (record,) = yield from lookup.records(store.session, [(run.shard, run.name)])
    waited = (yield from linked.dependencies(store.session, run.shard, run.name, record, 0)) if record else None
    ended_ms = own.due_ms - waited.delay_ms if waited and own.due_ms != NEVER_MS else None
    return (yield from times_of(store.session, members, own.created_ms, ended_ms))


def _state(letter: str, own: JobState, known: Counter[str]) -> FlowState:
    if letter == "b":
        return FlowState.BUILDING
    if any(known[one] for one in _ACTIVE):  # perhaps one that was dead, and was kicked when all others had ended
        return FlowState.RUNNING
    if own is JobState.WAITING:
        return FlowState.BLOCKED if known["blocked"] else FlowState.RUNNING
    return reading.outcome_of(known)


def _states(store: RedisStore, jobs: Sequence[StoredParent]) -> Op[list[str]]:
    """The state of each, or how it has ended."""
    states = [one.outcome or "" for one in jobs]
    places: dict[ShardKeys, list[int]] = {}
    for i, one in enumerate(jobs):
        if one.outcome is None:
            places.setdefault(store.session.keys.shard(one.topic, one.shard), []).append(i)
    for place, some in places.items():
        for begin in range(0, len(some), MAX_BATCH):
            part = some[begin : begin + MAX_BATCH]
            found = yield from _states_at(store, place, [jobs[i] for i in part])
            for i, state in zip(part, found, strict=True):
                states[i] = state
    return states


def _states_at(store: RedisStore, place: ShardKeys, jobs: Sequence[StoredParent]) -> Op[list[str]]:
    """The same of some in this shard, which have not ended."""
    found = yield from store.scripts.get_each(place, [one.id for one in jobs])
    states = [_state_of(one, there) for one, there in zip(jobs, found, strict=True)]
    waiting = [i for i, state in enumerate(states) if state == JobState.WAITING]
    blocked = yield from linked.blocked(store.session, [(place, jobs[i].id, jobs[i].life) for i in waiting])
    for i, is_blocked in zip(waiting, blocked, strict=True):
        if is_blocked:
            states[i] = "blocked"
    return states


def _state_of(one: StoredParent, there: FoundJob) -> str:
    """``there``: the job with its id, perhaps a later one."""
    job = job_of(one.topic, one.id, there) if there.record and nonce_of(there.record) == one.life else None
    return job.state.value if job else "running"  # it has ended, and the flow will be notified of that


def cancel_flow(store: RedisStore, name: str) -> Op[bool]:
    """Cancels all jobs of the flow that have not ended, and aborts attempts that run. When this returns, none of them
    starts any more. Dead letters stay. False: there is no such flow.

    Raises:
        ServerUnavailable: no reply in time; repeat the call.
    """
    runs = yield from shards.found(store.session, store.topics, check_id(name))
    known = False
    for run in runs:
        known |= yield from decisions.cancel(store.session, store.scripts, store.topics, run)
    return known
