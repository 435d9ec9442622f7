"""RQ: delayed jobs wait in a sorted set, at which a scheduler looks each second."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from redis import Redis

if __name__ == "__main__":
    from peer import Log, Producer, ready, run
    from rq import Queue, Retry, SimpleWorker

    class RqProducer(Producer):
        version = version("rq")

        def __init__(self, url: str) -> None:
            super().__init__(url)
            self._queue = Queue("t", connection=Redis.from_url(url))

        def one(self, job: dict, due_ns: int | None, pipe: object = None) -> None:
            made = self._queue.create_job("rq_app.handle", (job,), result_ttl=0, timeout=2, retry=Retry(max=3))
            if due_ns is None:
                self._queue.enqueue_job(made, pipeline=pipe)
            else:
                self._queue.schedule_job(made, datetime.fromtimestamp(due_ns / 1e9, UTC), pipeline=pipe)

        def flow(self, jobs: list[dict], last: dict) -> None:
            options = {"result_ttl": 3600, "timeout": 2, "retry": Retry(max=3)}
            made = [self._queue.create_job("rq_app.handle", (job,), **options) for job in jobs]
            with self._queue.connection.pipeline() as pipe:
                for one in made:
                    self._queue.enqueue_job(one, pipeline=pipe)
                pipe.execute()
            self._queue.enqueue("rq_app.handle", last, depends_on=made, job_timeout=2)

        def bulk(self, jobs: list[dict], dues: list) -> None:
            with self._queue.connection.pipeline() as pipe:
                for job, due_ns in zip(jobs, dues, strict=True):
                    self.one(job, due_ns, pipe)
                pipe.execute()

    def work(url: str, log: Log, crash: bool) -> None:
        logging.disable(logging.CRITICAL)
        sys.path.insert(0, str(Path(__file__).parent))
        import rq_app  # the worker imports the handler by name

        rq_app.log = log
        ready()
        looks = {"maintenance_interval": 2} if crash else {}
        SimpleWorker([Queue("t", connection=Redis.from_url(url))], **looks).work(with_scheduler=True)

    run(RqProducer, work)

log = None


def handle(job: dict) -> None:
    log.note(job)
