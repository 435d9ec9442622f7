"""beanstalkd, a queue server of its own. Delays are whole seconds: rounded up, or jobs would be early."""

from __future__ import annotations

import json
import threading
from importlib.metadata import version
from urllib.parse import urlsplit

from greenstalk import Client
from peer import Log, Producer, delay_ms, dumped, ready, run


def client(url: str) -> Client:
    address = urlsplit(url)
    return Client((address.hostname, address.port))


class BeanstalkdProducer(Producer):
    version = f"greenstalk {version('greenstalk')}"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client = client(url)

    def one(self, job: dict, due_ns: int | None) -> None:
        delay_s = 0 if due_ns is None else -(-delay_ms(due_ns) // 1000)
        self._client.put(dumped(job), delay=delay_s, ttr=2)


def work(url: str, log: Log, crash: bool) -> None:
    def serve() -> None:
        server = client(url)
        while True:
            job = server.reserve()
            log.note(json.loads(job.body))
            server.delete(job)

    threads = [threading.Thread(target=serve) for _ in range(20 if crash else 1)]
    for thread in threads:
        thread.start()
    ready()


run(BeanstalkdProducer, work)
