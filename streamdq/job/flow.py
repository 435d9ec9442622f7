"""Flows: jobs that are put in together, and start together or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .job import FLOWS

__all__ = ["FLOWS", "FlowJob", "FlowStage", "FlowState", "FlowStatus", "FlowStep", "FlowTimes", "StageTimes"]


@dataclass(frozen=True, slots=True)
class FlowJob:
    """A job that was added to a flow. Pass it as ``after`` to a later one of the same flow. ``life``: tells it from
    other jobs with its id.
    """

    topic: str
    id: str
    key: str | None = None
    life: str = ""


class FlowState(StrEnum):
    """How a flow stands."""

    BUILDING = "building"  # its block has not ended: nothing has started
    RUNNING = "running"
    BLOCKED = "blocked"  # what has not ended waits for jobs that have failed
    DONE = "done"
    FAILED = "failed"  # all has ended, and some of its jobs have failed
    CANCELLED = "cancelled"  # all has ended, some of it by being cancelled, and nothing has failed otherwise


@dataclass(frozen=True, slots=True)
class FlowStage:
    """Jobs of one topic that wait for the same stages, and were added one after the other. ``after``: the numbers of
    these stages, from 0. ``counts``: how many of its jobs are in each state: waiting, blocked, delayed, ready, running;
    or, if they have ended, how: done, dead, cancelled, expired and so on.
    """

    topic: str
    jobs: int
    after: tuple[int, ...]
    on_failure: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StageTimes:
    """How long the jobs of a stage took that have ended: the median, and the longest. ``known``: of how many that is
    known; the rest are 0 if it is of none. For *waited* and *ran* see FlowStep.
    """

    known: int
    waited_ms: int
    ran_ms: int
    longest_waited_ms: int
    longest_ran_ms: int


@dataclass(frozen=True, slots=True)
class FlowStep:
    """A job of the critical path. ``stage``: its number, from 0. ``state``: as in ``FlowStage.counts``. ``begun_ms``:
    when the last job of the flow had ended that it waits for, or the block; None: it still waits for one. It *ran*
    during its attempts. It *waited* for the rest of the time: for its delay, for jobs of other flows, for a worker, for
    the next attempt. These are None if it has not ended.
    """

    topic: str
    id: str
    stage: int
    state: str
    begun_ms: int | None
    waited_ms: int | None
    ran_ms: int | None
    ended_ms: int | None


@dataclass(frozen=True, slots=True)
class FlowTimes:
    """How long a flow took, by the history of its topics. ``begun_ms``: when its block had ended. ``ended_ms``: when
    all jobs had; None: not yet. ``stages``: of each of them. ``path``: the critical path. Each of its jobs began when
    the one before had ended, so that what they waited and ran is what the flow took. If the flow has not ended,
    it can't end before these have, one after the other. The path is empty if ``why_no_path`` says why.
    """

    begun_ms: int
    ended_ms: int | None
    stages: tuple[StageTimes, ...]
    path: tuple[FlowStep, ...]
    why_no_path: str = ""


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """How a flow stands. ``stages``: in the order in which they were added; none while it is being built. ``times``:
    None if nobody asked for them, or it is being built.
    """

    name: str
    state: FlowState
    stages: tuple[FlowStage, ...]
    times: FlowTimes | None = None

    @property
    def jobs(self) -> int:
        """How many jobs it has."""
        return sum(stage.jobs for stage in self.stages)

    def count(self, *states: str) -> int:
        """How many of its jobs are in one of these states."""
        return sum(stage.counts.get(state, 0) for stage in self.stages for state in states)
