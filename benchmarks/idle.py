"""Quiet: commands that idle workers send."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from streamdq import Queue

from .figures import Figure
from .harness import NAMESPACE, TOPIC, Bench, body, must
from .server import RedisServer
from .workers import processes

_SETTLE_S = 30.0
_TARGETS = {1: 4.0, 8: 4.0}  # worker processes -> commands per second


def idle(bench: Bench) -> list[Figure]:
    """One job is due in an hour. Both deployments idle at the same time, each with its own Redis."""
    seconds = bench.seconds(60)  # what an idle worker does most seldom, it does once a minute
    with ExitStack() as stack:
        servers = {workers: stack.enter_context(bench.server()) for workers in _TARGETS}
        for workers, server in servers.items():
            _start(stack, server, workers)
        time.sleep(_SETTLE_S)
        with ThreadPoolExecutor(len(servers)) as threads:
            counted = threads.map(lambda server: _sent_to(server, seconds), servers.values())
            sent = dict(zip(servers, counted, strict=True))
    return [
        Figure(
            "idle",
            f"{workers} worker process{'es' * (workers > 1)}",
            sent[workers].total() / seconds,
            "/s",
            at_most=target,
            raw={"seconds": seconds, "commands": sent[workers]},
        )
        for workers, target in _TARGETS.items()
    ]


def _start(stack: ExitStack, server: RedisServer, workers: int) -> None:
    with Queue(server.url, NAMESPACE) as queue:
        queue.enqueue(TOPIC, body(0), delay="1h")
    for worker in stack.enter_context(processes(server.url, "noop", workers)):
        worker.serve()
    must(lambda: server.blocked() >= workers + 1, "workers and mover wait")


def _sent_to(server: RedisServer, seconds: float) -> Counter[str]:
    """The commands that clients send meanwhile; not those that scripts make of them."""
    found: Counter[str] = Counter()
    until = time.monotonic() + seconds
    with server.client.monitor() as monitor:
        for seen in monitor.listen():
            if time.monotonic() >= until:
                return found
            if seen["client_type"] != "lua":
                found[seen["command"].split()[0].lower()] += 1
    return found
