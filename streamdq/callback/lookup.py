"""Looks up host names, each in its own thread: a name whose servers do not answer must not hold up the others."""

from __future__ import annotations

import asyncio
import errno
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from ..threads import HandlerThreads


class Lookup(AbstractResolver):
    """Like aiohttp's own resolver, but that uses the event loop's threads: six on two cores. ``calls``: how many calls
    there are at once. A look-up may go on after its call was given up, so there are threads for twice as many.
    """

    def __init__(self, calls: int) -> None:
        self._threads = HandlerThreads(2 * calls)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
        )
        usable = [
            ResolveResult(
                hostname=host, host=str(where[0]), port=int(where[1]), family=kind, proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, where in found
            if len(where) == 2 or not where[3]  # an address with a zone is not public
        ]  # fmt: skip
        if not usable:
            raise OSError(errno.EADDRNOTAVAIL, "no address without a zone")
        return usable

    async def close(self) -> None:
        self._threads.shutdown()
