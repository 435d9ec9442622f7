"""huey: delayed tasks wait in a sorted set, at which a scheduler looks each second."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.metadata import version

from huey import RedisHuey
from peer import Log, Producer, ready, run

huey = RedisHuey("bench", url=sys.argv[2], results=False)
log: Log


@huey.task()
def handle(job: dict) -> None:
    log.note(job)


class HueyProducer(Producer):
    version = version("huey")

    bulk = "no call for many tasks"

    def one(self, job: dict, due_ns: int | None) -> None:
        if due_ns is None:
            handle(job)
        else:
            handle.schedule((job,), eta=datetime.fromtimestamp(due_ns / 1e9, UTC))


def work(_: str, given: Log, crash: bool) -> None:
    global log
    log = given
    consumer = huey.create_consumer(workers=20 if crash else 8, worker_type="thread", scheduler_interval=1)
    ready()
    consumer.run()


run(HueyProducer, work)
