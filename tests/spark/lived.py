"""A history that the queue itself makes, on a clock that jumps: groups, keys with a limit, schedules, retries, snoozes,
burials, cancels, delays that a handler gives, and letters that are sent back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamdq import Bury, Job, Queue, Retry, Snooze, Worker
from streamdq.dump import Dumper
from streamdq.dump.local import LocalFolder
from streamdq.testing import Memory, drain, memory
from streamdq_spark.dump_files import open_dump, read_file
from tests.spark.dumps import write_dump
from tests.spark.logs import MONDAY
from tests.waiting import HANG_S

DAYS, EACH = 3, 120
ORDERS, REFUNDS = "order.close", "refund.check"


def live(dump: Path) -> None:
    """Three days, dumped into the folder."""
    server = memory(MONDAY)
    with server.queue() as queue:
        queue.configure(ORDERS, groups=["default", "audit"], shards=2, key_concurrency=1, create=True)
        queue.schedule(REFUNDS, id="hourly", every="1h")
        for day in range(DAYS):
            _one_day(server, queue, day)
        with TemporaryDirectory() as raw:
            with (dumper := Dumper(LocalFolder(Path(raw)), server.url)).opened():
                dumper.dump()
            write_dump(dump, _on_one_clock(raw), hours_each=24)
    server.close()


def _on_one_clock(raw: str) -> Iterator[dict[str, Any]]:
    """The rows. The jumping clock is not Redis's, by which a row says when the job was moved."""
    whole = open_dump(raw)
    for file in whole.files:
        for row in read_file(whole.folder, file).to_pylist():
            yield row | {"moved": row["moved"] and row["started"]}


def _one_day(server: Memory, queue: Queue, day: int) -> None:
    for n in range(EACH):
        queue.enqueue(ORDERS, n, id=str(day * EACH + n), delay=f"{n % 50 + 1}m", key=f"customer-{n % 5}")
    queue.cancel(ORDERS, str(day * EACH + 118))
    for worker, hours in ((_orders(server), "12h"), (_audit(server), "12h")):
        asyncio.run(drain(worker, server.clock, hours, within_s=10 * HANG_S))
    for letter in queue.dead(ORDERS)[:2]:
        queue.kick(ORDERS, letter.id)


def _orders(server: Memory) -> Worker:
    worker = server.worker(concurrency=3)

    @worker.handler(ORDERS, retry="15s 3m 1h")
    async def close(_: int, job: Job) -> None:
        number = int(job.id)
        if number % 11 == 0 and not job.snoozed:
            raise Snooze("20s")
        if number % 29 == 0:
            raise Bury("no such order")
        if number % 9 == 0 and job.attempt <= number % 4:
            raise Retry("40s")
        if number % 7 == 0 and job.attempt <= number % 6:
            raise OSError

    @worker.handler(REFUNDS, retry="10s 20s")
    async def check(_: object, job: Job) -> None:
        if job.attempt == 1:
            raise TimeoutError

    return worker


def _audit(server: Memory) -> Worker:
    worker = server.worker(group="audit")

    @worker.handler(ORDERS, retry="30s")
    async def note(_: int, job: Job) -> None:
        if int(job.id) % 13 == 0 and job.attempt < 3:
            raise ValueError

    return worker
