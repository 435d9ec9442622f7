"""Celery on Redis: a worker fetches delayed tasks, too, and keeps them in its memory until they are due."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.metadata import version

from celery import Celery, chord
from peer import FLOWS, Log, Producer, ready, run

CRASH = sys.argv[-1] == "1"
app = Celery("t", broker=sys.argv[2], backend=sys.argv[2] if FLOWS else None)
app.conf.update(
    task_ignore_result=not FLOWS,
    task_acks_late=True,
    worker_hijack_root_logger=False,
    broker_transport_options={"visibility_timeout": 5 if CRASH else 3 * 3600},
)
log: Log


@app.task(name="handle")
def handle(job: dict) -> int:
    log.note(job)
    return job["n"]


class CeleryProducer(Producer):
    version = version("celery")
    bulk = "no call for many tasks: a group sends them one by one"

    def one(self, job: dict, due_ns: int | None) -> None:
        handle.apply_async((job,), eta=None if due_ns is None else datetime.fromtimestamp(due_ns / 1e9, UTC))

    def flow(self, jobs: list[dict], last: dict) -> None:
        chord([handle.s(job) for job in jobs])(handle.si(last))

    def result(self, job: dict) -> None:
        handle.apply_async((job,)).get(timeout=30)


def work(_: str, given: Log, crash: bool) -> None:
    global log
    log = given
    threads = 20 if crash else 8
    ready()
    quiet = ("--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat")
    app.worker_main(["worker", "--pool=threads", f"--concurrency={threads}", *quiet])


if __name__ == "__main__":
    run(CeleryProducer, work)
