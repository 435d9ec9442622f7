"""What the machine costs a Cluster: bare scripts that do the least to put jobs into a hash and a sorted set, move them
to a stream, read them, and remove them with a row of history; in as many calls as streamdq, with as many bytes, on as
many shards. They fence nothing, count nothing and try nothing again. What they lose with more servers is the machine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Any

from streamdq.link.command import Command
from streamdq.link.connection import AsyncLink, ConnectionLimits
from streamdq.link.session import checked

_PUT = b"""
for i = 1, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('ZADD', KEYS[2], 1, ARGV[i])
end
"""
_MOVE = b"""
local last = tonumber(ARGV[1]) - 1
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, last)) do redis.call('XADD', KEYS[3], '*', 'j', id) end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, last)
"""
_READ = b"""
local ids, entries = {}, redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', ARGV[1])
for i, entry in ipairs(entries) do ids[i] = entry[2][2] end
return {entries, redis.call('HMGET', KEYS[1], unpack(ids))}
"""
_END = b"""
local ids, entries = {}, {}
for i = 1, #ARGV, 3 do
  ids[#ids + 1], entries[#entries + 1] = ARGV[i], ARGV[i + 1]
  redis.call('XADD', KEYS[4], '*', 'e', ARGV[i + 2])
end
redis.call('XDEL', KEYS[3], unpack(entries))
redis.call('HDEL', KEYS[1], unpack(ids))
"""
_SCRIPTS = (_PUT, _MOVE, _READ, _END)
_SHA = {script: sha1(script, usedforsecurity=False).hexdigest() for script in _SCRIPTS}
_AT_ONCE = 3  # calls under way: a mover's, a worker's claim, and its outcomes
_CALL_S = 10.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """What servers have had to do: calls of scripts, commands inside scripts, and bytes that came and went."""

    calls: int
    commands: int
    received: int
    sent: int

    def __sub__(self, before: Traffic) -> Traffic:
        return Traffic(
            self.calls - before.calls, self.commands - before.commands, self.received - before.received,
            self.sent - before.sent,
        )  # fmt: skip


class Bare:
    """``tags``: of the shards, to which jobs go in equal parts. ``put``, ``drained``: streamdq's traffic for as many
    jobs.
    """

    def __init__(self, url: str, tags: Sequence[str], count: int, put: Traffic, drained: Traffic) -> None:
        self._url = url
        self._shards = [[f"bare:{{{tag}}}:{name}" for name in ("jobs", "bucket", "ready", "history")] for tag in tags]
        self._each = count // len(tags)
        self._put_batch = max(1, count // put.calls)
        self._batch = max(1, 3 * count // drained.calls)
        self._record = b"r" * max(1, put.received // count - 30)  # beside the id, and what Redis's protocol adds
        self._row = b"h" * max(1, drained.received // count - 60)  # beside the id and the entry

    def put(self) -> None:
        asyncio.run(self._everywhere(self._puts))

    def drain(self) -> None:
        asyncio.run(self._everywhere(self._drains))

    async def _everywhere(self, part: _Part) -> None:
        link = AsyncLink(self._url, _CALL_S, ConnectionLimits(_AT_ONCE, _AT_ONCE))
        try:
            load = [Command(keys[0], ("SCRIPT", "LOAD", script)) for keys in self._shards for script in _SCRIPTS]
            for reply in await link.send(load, _CALL_S):
                checked(reply)
            shards = iter(self._shards)
            await asyncio.gather(*(self._some(link, part, shards) for _ in range(_AT_ONCE)))
        finally:
            await link.close()

    @staticmethod
    async def _some(link: AsyncLink, part: _Part, shards: Iterator[Sequence[str]]) -> None:
        for keys in shards:
            await part(link, keys)

    async def _puts(self, link: AsyncLink, keys: Sequence[str]) -> None:
        ids = [f"{number:022d}" for number in range(self._each)]
        for begin in range(0, self._each, self._put_batch):
            some = ids[begin : begin + self._put_batch]
            await _call(link, _PUT, keys, *(part for id in some for part in (id, self._record)))

    async def _drains(self, link: AsyncLink, keys: Sequence[str]) -> None:
        for _ in range(0, self._each, self._batch):
            await _call(link, _MOVE, keys, self._batch)
            entries, _ = await _call(link, _READ, keys, self._batch)
            await _call(link, _END, keys, *(part for entry, (_, id) in entries for part in (id, entry, self._row)))


_Part = Callable[[AsyncLink, Sequence[str]], Coroutine[Any, Any, None]]


async def _call(link: AsyncLink, script: bytes, keys: Sequence[str], *arguments: str | bytes | int) -> Any:
    (reply,) = await link.send([Command(keys[0], ("EVALSHA", _SHA[script], len(keys), *keys, *arguments))], _CALL_S)
    return checked(reply)
