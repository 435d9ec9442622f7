"""The workers of the example: a shop that closes unpaid orders, and tells merchants of payments.

``streamdq worker shop:worker`` runs it. It fails now and then, so that retries and dead letters can be seen.
"""

from __future__ import annotations

import asyncio
import random

from pydantic import BaseModel

from streamdq import Bury, Job, Worker

worker = Worker(concurrency=50)
_random = random.Random()


class Order(BaseModel):
    """An order that was not paid in time."""

    order_id: int


class Payment(BaseModel):
    """A payment that the merchant must hear of."""

    order_id: int
    merchant: str


class MerchantDown(Exception):
    """The merchant's server did not answer."""


@worker.handler("order.close", ttr="30s")
async def close(order: Order) -> None:  # noqa: ARG001 - an example has no stock system to call
    """Gives the stock back."""
    await asyncio.sleep(_random.expovariate(1 / 0.02))


@worker.handler("payment.notify", ttr="30s", retry="5s 15s 1m 5m")
async def notify(payment: Payment, job: Job) -> None:
    """Tells the merchant: one in ten times he does not answer, one merchant never does."""
    await asyncio.sleep(_random.expovariate(1 / 0.05))
    if payment.merchant == "gone":
        raise Bury("this merchant has closed")
    if _random.random() < 0.1:
        raise MerchantDown(f"{payment.merchant} answered 503, attempt {job.attempt}")
