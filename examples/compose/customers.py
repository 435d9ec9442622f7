"""Customers of the example: they order, most pay in time, some do not. Runs until it is stopped."""

from __future__ import annotations

import random
import time
from itertools import count

from prometheus_client import start_http_server

from streamdq import Queue

METRICS_PORT = 9102
_UNPAID_AFTER = "2m"
_EVERY_S = 0.1


def order(queue: Queue, number: int, chance: random.Random, unpaid_after: str = _UNPAID_AFTER) -> None:
    """One customer orders; enqueues the job for the case that they do not pay. Another customer pays."""
    queue.enqueue("order.close", {"order_id": number}, delay=unpaid_after, id=f"order-{number}")
    paid = number - chance.randrange(100)
    if chance.random() < 0.8 and queue.cancel("order.close", f"order-{paid}"):
        merchant = "gone" if chance.random() < 0.005 else f"merchant-{paid % 7}"
        queue.enqueue("payment.notify", {"order_id": paid, "merchant": merchant}, delay=chance.expovariate(1 / 5))


def main() -> None:
    """About ten customers a second."""
    start_http_server(METRICS_PORT)
    chance = random.Random()
    with Queue() as queue:
        for number in count(int(time.time())):
            order(queue, number, chance)
            time.sleep(_EVERY_S)


if __name__ == "__main__":
    main()
