"""The shop whose figures the live test watches: its workers, and with ``python -m`` its customers."""

import asyncio
import contextlib
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

from prometheus_client import REGISTRY, start_http_server
from pydantic import BaseModel
from sqlalchemy import create_engine

from streamdq import Bury, Job, JobExists, NewJob, Queue, Worker, outbox
from streamdq.callback import CallbackSettings, CallbackWorker
from streamdq.outbox.collector import OutboxCollector
from streamdq.outbox.relay import Relay

GOOD, FAILING, HELD, AHEAD, SLOW = "order.close", "payment.notify", "held", "sms.remind", "report.make"
"""The topics: one that does well, one that fails, a paused one, one with more ahead than it can do, and a slow one."""
HOOK = "merchant.hook"
"""Another one, whose jobs call back."""

_STAMPEDE = 3000

worker = CallbackWorker(concurrency=20, topics=[HOOK], callback=CallbackSettings(allow=("127.0.0.1",)))
doomed = Worker(concurrency=20)
"""Another worker, to be killed while it runs."""


class Work(BaseModel):
    """Any job's body."""

    number: int


@worker.handler(GOOD, ttr="5s")
async def good(work: Work) -> None:
    await asyncio.sleep(work.number % 5 / 1000)  # real time: durations for the panels


@worker.handler(FAILING, ttr="5s", retry="100ms 300ms")
async def failing(work: Work, job: Job) -> None:
    if work.number % 20 == 0:
        raise Bury("not wanted")
    if work.number % 3 == 0 and job.attempt <= 1 + work.number % 4:
        raise ConnectionError("the merchant does not answer")


@worker.handler(AHEAD)
async def ahead(_: Work) -> None:
    await asyncio.sleep(0)


@doomed.handler(SLOW, ttr="1s")
async def slow(work: Work) -> None:
    await asyncio.sleep(0.01 if work.number % 4 else 0.9)  # real time: durations for the panels


class _Merchant(BaseHTTPRequestHandler):
    """Takes every callback."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not each call."""


def _customer(queue: Queue, number: int, chance: random.Random, hook: str) -> None:
    body = {"number": number}
    queue.enqueue(HOOK, body, url=hook)
    queue.enqueue(GOOD, body, delay=chance.random(), id=f"order-{number}")
    queue.enqueue(FAILING, body, delay=chance.random() / 2)
    queue.enqueue(SLOW, body)
    if number % 5 == 0:
        queue.cancel(GOOD, f"order-{number - 2}")
        queue.enqueue(AHEAD, body)
        queue.enqueue(GOOD, body, expire="1ms", delay="10ms")
        with contextlib.suppress(JobExists):
            queue.enqueue(GOOD, body, delay="1h", id="order-always")


def _relay(database: str, url: str) -> None:
    with Queue(url) as queue, Relay(database, queue) as relay:
        relay.run()


def main() -> None:
    """Customers, for as long as the test runs: URL, the URL of their database, and the port of their metrics."""
    url, database, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    start_http_server(port, "127.0.0.1")
    engine = create_engine(database)
    with engine.begin() as db:
        outbox.create(db)
    threading.Thread(target=_relay, args=(database, url), daemon=True).start()
    REGISTRY.register(OutboxCollector(database, "streamdq"))
    merchant = ThreadingHTTPServer(("127.0.0.1", 0), _Merchant)
    threading.Thread(target=merchant.serve_forever, daemon=True).start()
    hook = f"http://127.0.0.1:{merchant.server_port}/"
    chance = random.Random(1)
    with Queue(url) as queue:
        queue.configure(HELD, create=True)
        queue.pause(HELD)
        queue.enqueue_many(HELD, (NewJob(body={"number": n}) for n in range(20)))
        queue.enqueue_many(AHEAD, (NewJob(body={"number": n}, delay="50s") for n in range(_STAMPEDE)))
        queue.schedule(GOOD, {"number": -1}, id="often", every="1s")
        with queue.flow("report") as flow:
            flow.enqueue(GOOD, {"number": 0}, after=flow.enqueue(AHEAD, {"number": 0}, delay="1h"))
        for number in count():
            _customer(queue, number, chance, hook)
            if number % 5 == 0:
                with engine.begin() as db:
                    outbox.enqueue(db, GOOD, {"number": number})
            time.sleep(0.02)  # real time: so often a customer comes


if __name__ == "__main__":
    main()
