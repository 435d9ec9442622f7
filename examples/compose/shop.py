"""The workers of the example: a shop that closes unpaid orders, and notifies merchants of payments.

``streamdq worker shop:worker`` runs it. It fails now and then, so that you can see retries and dead letters.
"""

from __future__ import annotations

import asyncio
import random

from pydantic import BaseModel

from streamdq import Bury, RunningJob, Worker

worker = Worker(concurrency=50)
_random = random.Random()


class Order(BaseModel):
    """An order that was not paid in time."""

    order_id: int


class Payment(BaseModel):
    """A payment to notify the merchant of."""

    order_id: int
    merchant: str


class MerchantDown(Exception):
    """The merchant's server did not answer."""


@worker.handler("order.close", ttr="30s")
async def close(order: Order) -> None:  # noqa: ARG001 - an example has no stock system to call
    """Returns the stock."""
    await asyncio.sleep(_random.expovariate(1 / 0.02))


@worker.handler("payment.notify", ttr="30s", retry="5s 15s 1m 5m")
async def notify(payment: Payment, job: RunningJob) -> None:
    """Notifies the merchant: one time in ten there is no answer; one merchant never answers."""
    await asyncio.sleep(_random.expovariate(1 / 0.05))
    if payment.merchant == "gone":
        raise Bury("this merchant has closed")
    if _random.random() < 0.1:
        raise MerchantDown(f"{payment.merchant} answered 503, attempt {job.attempt}")
