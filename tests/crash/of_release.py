"""A worker and a producer of another release. Uses only what every release has.

python tests/crash/of_release.py CHECKOUT URL JOURNAL OPTIONS      a worker, as in tests/crash/workers.py
python tests/crash/of_release.py CHECKOUT URL NAME COUNT produce   jobs NAME-0 to NAME-COUNT; prints [id, due_ms]
"""

import asyncio
import json
import os
import sys
import threading
import time
from typing import Any

import structlog


def produce(url: str, name: str, count: int) -> None:
    from streamdq import Queue

    with Queue(url) as queue:
        for number in range(count):
            body, delay = {"ms": 5, "fail": int(number % 5 == 0)}, (number % 4) / 2
            job = queue.enqueue("work", body, id=f"{name}-{number}", delay=delay)
            print(json.dumps([job.id, job.due_ms]), flush=True)  # noqa: T201


def work(url: str, journal: str, options: dict[str, Any]) -> None:
    from streamdq import Job, Worker

    file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    started_at = float(os.environ["JOURNAL_STARTED_AT"])

    def write(what: str, job: Job) -> None:
        line = [what, job.topic, job.id, job.attempt, os.getpid(), started_at + time.monotonic()]
        os.write(file, (json.dumps(line) + "\n").encode())

    worker = Worker(url, concurrency=options["concurrency"])

    @worker.handler("work", ttr=options["ttr"] or None, retry=options["retry"])
    async def handle(body: dict[str, Any], job: Job) -> None:
        write("start", job)
        try:
            await asyncio.sleep(body.get("ms", 0) / 1000)  # real time: as told
            if job.attempt <= body.get("fail", 0):
                raise ValueError("as told")
        except asyncio.CancelledError:
            write("cancelled", job)
            raise
        except ValueError:
            write("raised", job)
            raise
        write("end", job)

    worker.run()


def end_with_test() -> None:
    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    checkout, *arguments = sys.argv[1:]
    sys.path.insert(0, checkout)
    end_with_test()
    structlog.configure(processors=[structlog.processors.LogfmtRenderer(bool_as_flag=False)])
    if arguments[-1] == "produce":
        produce(arguments[0], arguments[1], int(arguments[2]))
    else:
        work(arguments[0], arguments[1], json.loads(arguments[2]))
