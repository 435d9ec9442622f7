"""A server with replicas, which can be cut off or stop confirming."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import redis

from tests.redis.proxies import Filter, Proxy, pass_on, proxy
from tests.servers import Binary, Server
from tests.waiting import until

_AT_ONCE = {"repl-diskless-sync-delay": "0"}


class Replicated:
    """A primary, its replicas, and a way to it (``url``) whose traffic a test may ``filter``."""

    def __init__(self, primary: Server, replicas: list[Server], front: Proxy) -> None:
        self.primary = primary
        self.replicas = replicas
        self.front = front
        self.url = front.url

    @contextmanager
    def filtered(self, filter: Filter) -> Iterator[None]:
        self.front.filter = filter
        yield
        self.front.filter = pass_on

    @contextmanager
    def silent(self) -> Iterator[None]:
        """No replica receives anything meanwhile."""
        for replica in self.replicas:
            os.kill(replica.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for replica in self.replicas:
                os.kill(replica.pid, signal.SIGCONT)

    def promote(self) -> Server:
        """The primary is lost, and a replica takes its place."""
        self.primary.kill()
        new = self.replicas[0]
        with new.client() as client:
            client.replicaof("NO", "ONE")
        self.front.lead_to(new.port)
        return new


def _follows(client: redis.Redis) -> bool:
    return bool(client.info("replication")["master_link_status"] == "up")


@contextmanager
def replicated(
    binary: Binary, count: int = 1, appendonly: bool = False, fsync: str = "everysec"
) -> Iterator[Replicated]:
    with ExitStack() as stack:
        options = {**_AT_ONCE, "appendfsync": fsync}
        primary = stack.enter_context(Server(binary, options=options, appendonly=appendonly))
        replicas = [stack.enter_context(Server(binary, options=_AT_ONCE)) for _ in range(count)]
        for replica in replicas:
            with replica.client() as client:
                client.replicaof("127.0.0.1", primary.port)
                until(partial(_follows, client), "the replica follows")
        with primary.client() as client:
            client.set("written", 1, px=1)
            until(lambda: client.wait(count, 100) == count, "the replicas confirm what is written")
        yield Replicated(primary, replicas, stack.enter_context(proxy(primary.port)))
