"""dramatiq: a worker takes delayed messages into its memory, and puts them back when they are due."""

from __future__ import annotations

import sys
import time
from importlib.metadata import version

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Retries
from peer import Log, Producer, delay_ms, ready, run

CRASH = sys.argv[-1] == "1"
# Every 20th command looks for workers that are gone, instead of every 1 000th: the crash waits for that.
IN_CRASH = {"heartbeat_timeout": 2_000, "maintenance_chance": 50_000} if CRASH else {}
broker = RedisBroker(url=sys.argv[2], middleware=[Retries()], **IN_CRASH)
dramatiq.set_broker(broker)
log: Log


@dramatiq.actor
def handle(job: dict) -> None:
    log.note(job)


class DramatiqProducer(Producer):
    version = version("dramatiq")

    bulk = "no call for many messages"

    def one(self, job: dict, due_ns: int | None) -> None:
        handle.send_with_options(args=(job,), delay=None if due_ns is None else delay_ms(due_ns))


def work(_: str, given: Log, crash: bool) -> None:
    global log
    log = given
    dramatiq.Worker(broker, worker_threads=20 if crash else 8).start()
    ready()
    time.sleep(1e6)


run(DramatiqProducer, work)
