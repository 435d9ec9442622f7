"""The workers of `streamdq demo`: a shop that closes unpaid orders and notifies merchants of payments, and an analyst
who also gets every job of both topics, in another group.

They run as any worker does: ``streamdq worker streamdq.demo.shop:shop``. The documented delays are hours; each is
divided by its topic's scale, which the demo prints.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from pydantic import BaseModel

from ..job.job import Job
from ..job.retry import DEFAULT_RETRY, RetrySchedule
from ..worker.running_job import RunningJob
from ..worker.worker import Worker

SPEED_VARIABLE, DIRECTORY_VARIABLE = "STREAMDQ_DEMO_SPEED", "STREAMDQ_DEMO_DIRECTORY"
NAMESPACE = "demo"
CLOSE, NOTIFY = "order.close", "payment.notify"
SHOP_GROUP, ANALYST_GROUP = "default", "analytics"
UNPAID_AFTER_S = 30 * 60
CLOSED_MERCHANT = "closed-shop.example"


class Scale:
    """Documented times in the demo's seconds."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.orders = 450 * speed  # 30 min become 4 s
        self.notices = 3000 * speed  # the nine steps, 25 h 13 min in all, become 30 s
        self.ttr_s = max(0.5, 2 / speed)

    @property
    def retry(self) -> RetrySchedule:
        steps = RetrySchedule.of(DEFAULT_RETRY).steps_ms
        return RetrySchedule(tuple(max(1, round(ms / self.notices)) for ms in steps))


class Order(BaseModel):
    """An order to close, unless it was paid in time. ``work_s``: how long the stock system takes."""

    order_id: int
    work_s: float


class Notice(BaseModel):
    """A payment to notify the merchant of, who refuses the first ``refusals`` attempts."""

    order_id: int
    merchant: str
    refusals: int
    work_s: float


class MerchantDown(Exception):
    """The merchant's server did not answer."""


scale = Scale(float(os.environ.get(SPEED_VARIABLE, "1")))
directory = Path(os.environ.get(DIRECTORY_VARIABLE, "."))
shop = Worker(namespace=NAMESPACE, group=SHOP_GROUP, concurrency=50)
analytics = Worker(namespace=NAMESPACE, group=ANALYST_GROUP, concurrency=50)


def effects_file(where: Path) -> Path:
    """A file with one line for each effect outside the queue, in which duplicates are counted."""
    return where / "effects.ndjson"


def mended_file(where: Path) -> Path:
    """A file that exists when the merchant that was down answers again."""
    return where / "mended"


def _effect(group: str, job: Job) -> None:
    line = json.dumps({"topic": job.topic, "group": group, "id": job.id, "attempt": job.attempt})
    # One short write in append mode: lines of several processes never mix.
    target = os.open(effects_file(directory), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(target, f"{line}\n".encode())
    finally:
        os.close(target)


@shop.handler(CLOSE, ttr=scale.ttr_s)
async def close(order: Order, job: RunningJob) -> None:
    """Closes an order that was not paid in time, and returns its stock."""
    await asyncio.sleep(order.work_s)
    _effect(SHOP_GROUP, job)


@shop.handler(NOTIFY, ttr=scale.ttr_s, retry=scale.retry)
async def notify(notice: Notice, job: RunningJob) -> None:
    """Notifies the merchant; if refused, the job takes the next step of the retry schedule."""
    await asyncio.sleep(notice.work_s)
    closed = notice.merchant == CLOSED_MERCHANT and not mended_file(directory).exists()
    if closed or job.step < notice.refusals:
        raise MerchantDown(f"{notice.merchant} answered 503")
    _effect(SHOP_GROUP, job)


@analytics.handler(CLOSE)
async def count_order(order: Order, job: RunningJob) -> None:  # noqa: ARG001 - the same body as the shop's, checked too
    """Counts closed orders."""
    _effect(ANALYST_GROUP, job)


@analytics.handler(NOTIFY)
async def count_payment(notice: Notice, job: RunningJob) -> None:  # noqa: ARG001
    """Counts payments."""
    _effect(ANALYST_GROUP, job)
