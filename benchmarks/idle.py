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

_QUIET_S = 30.0
_TARGETS = {1: 4.0, 8: 4.0}  # worker processes -> commands per second


def idle(bench: Bench) -> list[Figure]:
    """One job is due in an hour. Both deployments idle at the same time, each with its own Redis."""
    seconds = bench.seconds(60)  # what an idle worker does most seldom, it does once a minute
    with ExitStack() as stack:
        servers = {workers: stack.enter_context(bench.server()) for workers in _TARGETS}
        for workers, server in servers.items():
            _start(stack, server, workers)
        time.sleep(_QUIET_S)
        with ThreadPoolExecutor(len(servers)) as threads:
            counted = threads.map(lambda server: _run_by(server, seconds), servers.values())
            found = dict(zip(servers, counted, strict=True))
    return [figure for workers in _TARGETS for figure in _figures(workers, *found[workers], seconds)]


def _figures(workers: int, sent: Counter[str], inside: Counter[str], seconds: float) -> list[Figure]:
    target, raw = _TARGETS[workers], {"seconds": seconds, "sent": sent, "inside scripts": inside}
    who = f"{workers} worker process{'es' * (workers > 1)}"
    total = sent.total() + inside.total()
    return [
        Figure("idle", f"{who}: sent by clients", sent.total() / seconds, "/s", at_most=target, raw=raw),
        Figure("idle", f"{who}: with those inside scripts", total / seconds, "/s", at_most=target, raw=raw),
    ]


def _start(stack: ExitStack, server: RedisServer, workers: int) -> None:
    with Queue(server.url, NAMESPACE) as queue:
        queue.enqueue(TOPIC, body(0), delay="1h")
    for worker in stack.enter_context(processes(server.url, "noop", workers)):
        worker.serve()
    must(lambda: server.blocked() >= workers + 1, "workers and mover wait")


def _run_by(server: RedisServer, seconds: float) -> tuple[Counter[str], Counter[str]]:
    """The commands that clients send meanwhile, and those that scripts make of them."""
    sent, inside = Counter[str](), Counter[str]()
    until = time.monotonic() + seconds
    with server.client.monitor() as monitor:
        for seen in monitor.listen():
            if time.monotonic() >= until:
                break
            found = inside if seen["client_type"] == "lua" else sent
            found[seen["command"].split()[0].lower()] += 1
    return sent, inside
