"""The very call of a script that an enqueue makes, without streamdq: by redis-py, and by nothing but a socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import hiredis
import redis
import redis.asyncio

from streamdq import NewJob
from streamdq.store.assembly import function_of, keys_of, sha_of
from streamdq.store.batches import MAX_BYTES
from streamdq.store.jobs.records import encode

from .harness import SHARD, body, hours
from .server import RedisServer

_MOST_BODY_BYTES = 65_536


def enqueue_calls(server: RedisServer, count: int) -> list[tuple[Any, ...]]:
    """The calls for so many new jobs, in a topic that is there already and has one shard."""
    keys, jobs = (
        keys_of("enqueue", SHARD),
        (encode(NewJob(body(i), delay=hours(i)), _MOST_BODY_BYTES) for i in range(count)),
    )
    how = ("FCALL", function_of("enqueue")) if server.has_functions else ("EVALSHA", sha_of("enqueue"))
    return [(*how, len(keys), *keys, "", "1", MAX_BYTES, job.id, job.when, job.rest) for job in jobs]


def by_redis_py(client: redis.Redis, calls: Sequence[tuple[Any, ...]]) -> None:
    for call in calls:
        client.execute_command(*call)  # type: ignore[no-untyped-call]


async def by_async_redis_py(client: redis.asyncio.Redis, calls: Sequence[tuple[Any, ...]], at_once: int) -> None:
    async def some(left: Iterator[tuple[Any, ...]]) -> None:
        for call in left:
            await client.execute_command(*call)  # type: ignore[no-untyped-call]

    left = iter(calls)
    await asyncio.gather(*(some(left) for _ in range(at_once)))


class BareSocket:
    """The least that calls one after the other can cost a Python process: packing, two system calls, parsing. It has no
    time-out, and would not notice a lost connection.
    """

    def __init__(self, server: RedisServer) -> None:
        if server.port:
            self._socket = socket.create_connection(("127.0.0.1", server.port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(server.url.removeprefix("unix://"))
        self._reader = hiredis.Reader()

    def send(self, calls: Sequence[tuple[Any, ...]]) -> None:
        for call in calls:
            self._socket.sendall(hiredis.pack_command(call))
            while (reply := self._reader.gets()) is False:
                self._reader.feed(self._socket.recv(65_536))
            if isinstance(reply, Exception):
                raise reply

    def close(self) -> None:
        self._socket.close()
