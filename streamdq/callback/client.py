"""Sends one POST: bounded in time and memory whatever the receiver does, and never to a refused address.

No error text contains what was sent or received: both may be secret, and a receiver may echo the request.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from ..job.retry import Retry
from ..times.clock import wall_s
from ..version import __version__
from .address import AddressRefused, explained
from .lookup import Lookup
from .retry_after import retry_after_s
from .settings import CallbackSettings
from .target import Targets
from .unproven import connecting

MOST_REPLY_BYTES = 64 * 1024
MOST_PROVISIONAL = 10
_REPLY_S = 1.0  # how long the rest of a reply may take after its status
_KEEP_S = 1.5  # some servers close idle connections after 2 s; below that, no call uses a connection that closes
_JSON = re.compile(r"[/+]json$")  # a type of content
_HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": f"streamdq/{__version__}",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
}


class TooManyProvisional(aiohttp.ClientConnectionError):
    """The receiver has sent too many provisional answers (1xx)."""


class CallbackFailed(Retry):
    """A call that failed: the job takes its next retry step, not before ``retry_after_s`` from now."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason=reason, at_least=retry_after_s)


class CallbackTimeout(CallbackFailed):
    """No answer in time."""


class CallbackUnreachable(CallbackFailed):
    """There was no connection, or it broke."""


class CallbackAddressRefused(CallbackFailed):
    """The name resolved to an address that is refused. Next time it may resolve to another one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The parts of an answer that matter."""

    status: int
    retry_after_s: float | None
    json: bytes | None = None  # its body, if that was wanted, and is JSON by its type

    @property
    def alive(self) -> bool:
        """Whether the receiver works, whatever it answers about the job."""
        return self.status < 500 and self.status != 429


class _Answer(aiohttp.ClientResponse):
    """A response with a limited number of provisional answers (1xx) before it. aiohttp reads any number of them, and
    blocks the event loop as long as more have arrived.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        assert protocol is not None
        read, left = protocol.read, MOST_PROVISIONAL + 1

        async def read_few() -> tuple[RawResponseMessage, StreamReader]:
            nonlocal left
            left -= 1
            if left < 0:
                raise TooManyProvisional
            return await read()

        protocol.read = read_few  # type: ignore[method-assign]
        try:
            return await super().start(connection)
        finally:
            protocol.read = read  # type: ignore[method-assign]


class Client:
    """Connections to all receivers; use it in an ``async with`` statement."""

    def __init__(self, targets: Targets, settings: CallbackSettings, connections: int) -> None:
        self._targets = targets
        self._settings = settings
        self._connections = connections

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=self._settings.ca_file)
        self._lookup = Lookup(self._connections)
        self._checked = self._session(context, trusted=False)
        self._trusted = self._session(context, trusted=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._checked.close()
        await self._trusted.close()
        await self._lookup.close()

    def _session(self, context: ssl.SSLContext, *, trusted: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=context,
            resolver=self._lookup,
            limit=self._connections,
            limit_per_host=self._settings.per_host,
            keepalive_timeout=_KEEP_S,
            socket_factory=self._targets.addresses.socket_factory(trusted=trusted, connecting=connecting),
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            auto_decompress=False,
            trust_env=False,  # neither a proxy nor passwords from the environment
            read_bufsize=MOST_REPLY_BYTES // 4,
            response_class=_Answer,
        )

    async def post(
        self, url: URL, headers: Mapping[str, str], body: bytes, timeout_s: float, *, wanted: bool = False
    ) -> Reply:
        """Sends one request. ``wanted``: the body of the reply is.

        Raises:
            CallbackFailed: no answer.
        """
        host = url.raw_host or ""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(url, headers, body, wanted)
        except TimeoutError:
            raise CallbackTimeout(f"no answer from {host} within {timeout_s:.3g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(host, error) from None

    async def _exchange(self, url: URL, headers: Mapping[str, str], body: bytes, wanted: bool) -> Reply:
        session = self._trusted if self._targets.trusts(url) else self._checked
        async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
            # Only the status counts, as a rule. The rest is read so that the connection can be used again.
            content = bytearray()
            if not await _drained(response, content if wanted else None):
                response.close()
                wanted = False
            found = bytes(content) if wanted and _JSON.search(response.content_type) else None
            after_s = retry_after_s(response.headers, wall_s(), self._settings.retry_after_s)
            return Reply(response.status, after_s, found)


async def _drained(response: aiohttp.ClientResponse, content: bytearray | None) -> bool:
    """Reads the reply's body, into ``content`` if given; returns False if it is too long, too slow or broken."""
    left = MOST_REPLY_BYTES
    try:
        async with asyncio.timeout(_REPLY_S):
            while left > 0 and (chunk := await response.content.readany()):
                left -= len(chunk)
                if content is not None:
                    content += chunk
    except (aiohttp.ClientError, OSError):
        return False
    return left > 0


def _failure(host: str, error: Exception) -> CallbackFailed:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return CallbackUnreachable(f"{host} can't be looked up")
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, AddressRefused):
        return CallbackAddressRefused(f"the address of {host} is refused: {explained(cause.reason)}")
    return CallbackUnreachable(f"{host}: {_reason(cause)}")


def _reason(error: Exception) -> str:
    """The error, without any text from the receiver."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or 'failed'}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed the connection without an answer"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return f"no HTTP ({type(error).__name__})"
