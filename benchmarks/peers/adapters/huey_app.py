"""huey: delayed tasks wait in a sorted set, at which a scheduler looks each second."""

from __future__ import annotations

import sys
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

    def __init__(self, _: str) -> None: ...

    def one(self, job: dict, delay_s: float) -> None:
        if delay_s:
            handle.schedule((job,), delay=delay_s)
        else:
            handle(job)


def work(_: str, given: Log, crash: bool) -> None:
    global log
    log = given
    consumer = huey.create_consumer(workers=20 if crash else 8, worker_type="thread", scheduler_interval=1)
    ready()
    consumer.run()


run(HueyProducer, work)
