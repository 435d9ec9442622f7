"""RQ: delayed jobs wait in a sorted set, at which a scheduler looks each second."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

from redis import Redis

if __name__ == "__main__":
    from peer import Log, Producer, ready, run
    from rq import Queue, SimpleWorker

    class RqProducer(Producer):
        version = version("rq")

        def __init__(self, url: str) -> None:
            self._queue = Queue("t", connection=Redis.from_url(url))

        def one(self, job: dict, delay_s: float) -> None:
            if delay_s:
                self._queue.enqueue_in(timedelta(seconds=delay_s), "rq_app.handle", job, result_ttl=0)
            else:
                self._queue.enqueue("rq_app.handle", job, result_ttl=0)

    def work(url: str, log: Log, _: bool) -> None:
        logging.disable(logging.CRITICAL)
        sys.path.insert(0, str(Path(__file__).parent))
        import rq_app  # the worker imports the handler by name

        rq_app.log = log
        ready()
        SimpleWorker([Queue("t", connection=Redis.from_url(url))]).work(with_scheduler=True)

    run(RqProducer, work)

log = None


def handle(job: dict) -> None:
    log.note(job)
