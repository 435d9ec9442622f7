"""The audit and the health of a deployment in answers."""

from __future__ import annotations

from pydantic import BaseModel, Field

from .common import example


class BalanceOut(BaseModel):
    """One group's account: enqueued = done + dead + cancelled + expired + live."""

    topic: str
    group: str
    enqueued: int
    done: int
    dead: int
    cancelled: int
    expired: int
    delayed: int
    ready: int
    running: int
    live: int
    imbalance: int


class OrphanOut(BaseModel):
    topic: str
    id: str
    what: str


class AuditOut(BaseModel):
    """The result of an audit."""

    balanced: bool = Field(description="Whether every account balances and there are no orphans.")
    left: int = Field(description="How many jobs have not ended, each counted once for each of its groups.")
    balances: list[BalanceOut] = Field(description="The account of each topic and group.")
    orphans: list[OrphanOut] = Field(description="What is stored of a job in one place and missing in another.")

    model_config = example(
        {
            "balanced": True,
            "left": 1,
            "orphans": [],
            "balances": [
                {
                    "topic": "order.close",
                    "group": "default",
                    "enqueued": 14,
                    "done": 12,
                    "dead": 0,
                    "cancelled": 1,
                    "expired": 0,
                    "delayed": 1,
                    "ready": 0,
                    "running": 0,
                    "live": 1,
                    "imbalance": 0,
                }
            ],
        }
    )


class HealthOut(BaseModel):
    status: str = Field(examples=["ok"])

    model_config = example({"status": "ok"})
