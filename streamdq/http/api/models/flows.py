"""Flows in answers."""

from __future__ import annotations

from pydantic import BaseModel, Field

from ....job.after import OnFailure
from ....job.flow import FlowState
from .common import example


class FlowStageOut(BaseModel):
    """Jobs of one topic that wait for the same stages."""

    topic: str
    jobs: int
    after: list[int] = Field(description="The stages that it waits for: their numbers, from 0.")
    on_failure: OnFailure
    counts: dict[str, int] = Field(
        description="How many of its jobs are in each state: `waiting`, `blocked`, `delayed`, `ready`, `running`; or, "
        "if they have ended, how: `done`, `dead`, `cancelled`, `expired` and so on."
    )


class StageTimesOut(BaseModel):
    """How long the jobs of a stage took that have ended."""

    known: int = Field(description="Of how many jobs this is known; the other numbers are 0 if it is of none.")
    waited_ms: int = Field(description="The median.")
    ran_ms: int = Field(description="The median.")
    longest_waited_ms: int
    longest_ran_ms: int


class FlowStepOut(BaseModel):
    """A job of the critical path."""

    topic: str
    id: str
    stage: int = Field(description="Its stage: its number, from 0.")
    state: str = Field(description="As in `counts` of a stage.")
    begun_ms: int | None = Field(
        description="When the last job of the flow had ended that it waits for, or the flow began. null: not yet."
    )
    waited_ms: int | None = Field(description="How long, of the time until it ended, it did not run. null: not ended.")
    ran_ms: int | None = Field(description="How long its attempts ran. null: not ended.")
    ended_ms: int | None = Field(description="null: not yet.")


class FlowTimesOut(BaseModel):
    """How long a flow took, by the history of its topics."""

    begun_ms: int
    ended_ms: int | None = Field(description="When all of its jobs had ended; null: not yet.")
    stages: list[StageTimesOut] = Field(description="Of each stage.")
    path: list[FlowStepOut] = Field(
        description="The critical path: jobs each of which began when the one before had ended. The last one decided "
        "when the flow ended. A flow that has not ended can't end before these have, one after the other."
    )
    why_no_path: str = Field(description="Why `path` is empty, or empty itself.")


class FlowOut(BaseModel):
    """How a flow stands."""

    name: str
    state: FlowState = Field(
        description="`blocked`: the jobs that have not ended wait for failed ones. `failed`: all jobs have ended, and "
        "some have failed."
    )
    jobs: int
    stages: list[FlowStageOut] = Field(description="In the order in which they were added; none while it is built.")
    times: FlowTimesOut | None = Field(default=None, description="If the request has `times=true`.")

    model_config = example(
        {
            "name": "report-7",
            "state": "running",
            "jobs": 101,
            "stages": [
                {"topic": "part.make", "jobs": 100, "after": [], "on_failure": "block",
                 "counts": {"done": 92, "running": 8}},
                {"topic": "report.join", "jobs": 1, "after": [0], "on_failure": "block", "counts": {"waiting": 1}},
            ],
        }
    )  # fmt: skip
