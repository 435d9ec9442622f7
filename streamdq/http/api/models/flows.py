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


class FlowOut(BaseModel):
    """How a flow stands."""

    name: str
    state: FlowState = Field(
        description="`blocked`: the jobs that have not ended wait for failed ones. `failed`: all jobs have ended, and "
        "some have failed."
    )
    jobs: int
    stages: list[FlowStageOut] = Field(description="In the order in which they were added; none while it is built.")

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
