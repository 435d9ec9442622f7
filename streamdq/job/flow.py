"""Flows: jobs that are put in together, and start together or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .job import FLOWS

__all__ = ["FLOWS", "FlowJob", "FlowStage", "FlowState", "FlowStatus"]


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
class FlowStatus:
    """How a flow stands. ``stages``: in the order in which they were added; none while it is being built."""

    name: str
    state: FlowState
    stages: tuple[FlowStage, ...]

    @property
    def jobs(self) -> int:
        """How many jobs it has."""
        return sum(stage.jobs for stage in self.stages)

    def count(self, *states: str) -> int:
        """How many of its jobs are in one of these states."""
        return sum(stage.counts.get(state, 0) for stage in self.stages for state in states)
