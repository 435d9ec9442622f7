"""The server of `streamdq serve`: uvicorn, with limits on what a stranger's connection may cost."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..config import HttpSettings
from ..errors import InvalidInput
from ..process.logs import log
from .auth import Tokens, check_bind
from .limits import ConnectionLimiter, no_room
from .problems import problem
from .proxy_users import KnowsPeer
from .refusals import Refusals, unmapped
from .request_body import LINGER_S

_MAX_HEAD_BYTES = 32 * 1024
_GRACE_S = 5
_EVENTS_A_TURN = 100
_UNREADABLE = "Invalid HTTP request received."  # uvicorn's text


class _Flow(FlowControl):
    """Reads no more from the socket while earlier input waits to be handled."""

    held = False

    def hold(self) -> None:
        self.held = self.read_paused = True
        self._transport.pause_reading()  # uvicorn may have resumed it past this

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class _Connection(h11.Connection):
    """h11 checks the length of a request's head only while it is incomplete; one that arrives at once may be longer.
    This class checks it always. It also returns a limited number of events per turn: a body may come in chunks of one
    byte, and nobody else would be served while 40,000 of them are handled.
    """

    turn_left = _EVENTS_A_TURN
    is_paused = False

    def next_event(self) -> Any:
        if self.turn_left == 0:
            return h11.NEED_DATA
        self.turn_left -= 1
        event = super().next_event()
        self.is_paused = event is h11.PAUSED  # until the request before it is answered
        if isinstance(event, h11.Request) and _head_bytes(event) > _MAX_HEAD_BYTES:
            raise h11.RemoteProtocolError("the head is too large", error_status_hint=431)
        return event


def _head_bytes(request: h11.Request) -> int:
    first = len(request.method) + len(request.target) + len(b"  HTTP/1.1\r\n")
    return first + sum(len(name) + len(value) + len(b": \r\n") for name, value in request.headers) + len(b"\r\n")


class TimeoutProtocol(H11Protocol):
    """The HTTP protocol of a connection, with a time limit for a request's head to arrive and for an answer to be read;
    uvicorn would wait forever.
    """

    header_timeout_s = 10.0
    limiter: ConnectionLimiter
    refusals: Refusals
    _giving_up: asyncio.TimerHandle | None = None
    _looking: asyncio.TimerHandle | None = None
    _unread_bytes = 0
    _parting = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:  # a proxy is trusted by its own address
            self.client = (unmapped(self.client[0]), self.client[1])
        self.conn: _Connection = _Connection(h11.SERVER, _MAX_HEAD_BYTES)
        self.flow: _Flow = _Flow(transport)
        if not self.limiter.enter(transport, self.loop.time()):
            self.app = no_room
        self._watch()
        self._look()

    def data_received(self, data: bytes) -> None:
        if self._parting:
            return
        if self._giving_up is None and self._waits_for_head():
            self._watch()
        super().data_received(data)
        if not self._waits_for_head() and self.limiter.near_limit:  # close as if the caller had asked for it
            self.headers.append((b"connection", b"close"))

    def handle_events(self) -> None:
        """Handles some events; the rest wait until other connections have had their turn."""
        self.conn.turn_left = _EVENTS_A_TURN
        super().handle_events()
        if not self._waits_for_head():
            self._unwatch()
            self.limiter.speaks(self.transport)
        if self.conn.turn_left == 0 and not self.flow.held:
            self.flow.hold()
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self.flow.held = False
        if self._parting or self.transport.is_closing():
            return
        self.handle_events()
        body = b"" if self._waits_for_head() else self.cycle.body
        if not self.conn.is_paused and len(body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._waits_for_head() and not self.transport.is_closing():
            self.limiter.waits(self.transport, self.loop.time())

    def send_400_response(self, msg: str) -> None:
        """Answers unreadable requests with a problem, like every other error."""
        self.refusals.unreadable(self.client[0] if self.client else "", msg)
        answer = problem("malformed", msg, {"Connection": "close"})
        events = (
            h11.Response(status_code=answer.status_code, headers=answer.raw_headers, reason=b"Bad Request"),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self._part()

    def _part(self) -> None:
        """Closes the connection when the caller does, or a little later: input that arrives after a close would reset
        the connection, and the answer could be lost.
        """
        self._parting = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        if self._looking is not None:
            self._looking.cancel()
        self.limiter.leave(self.transport)
        super().connection_lost(exc)

    def _waits_for_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        self._giving_up = self.loop.call_later(self.header_timeout_s, self.transport.close)

    def _unwatch(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _look(self) -> None:
        """Aborts the connection of a caller that has read nothing of its answer since the last check; a regular close
        would wait for it.
        """
        before, self._unread_bytes = self._unread_bytes, self.transport.get_write_buffer_size()
        if before and self._unread_bytes == before:
            self.transport.abort()
        else:
            self._looking = self.loop.call_later(self.header_timeout_s, self._look)


class Server(uvicorn.Server):
    """A uvicorn server that ends waiting requests when it is asked to stop, and reads its files again on SIGHUP, which
    does not end it.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, tokens_file: Path | None) -> None:
        super().__init__(config)
        self._app = app
        self._tokens_file = tokens_file

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal handlers are called
        """Like uvicorn's, but ends normally instead of raising the signal again."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self._app.state.streamdq.stopping.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Raises the error if the queue can't be opened; uvicorn would only log it, with a traceback."""
        await self._app.state.streamdq.queue()
        await super().startup(sockets)
        if self._app.state.streamdq.user_of is None:
            tell_if_none(self._app.state.streamdq.tokens)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one that came while the server began
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            log.info("serving", url=f"{'https' if self.config.is_ssl else 'http'}://{shown}:{port}")

    def _hang_up(self) -> None:
        """Reads the files again; if one can't be read, its old content stays in use."""
        self._app.state.streamdq.audit.open_again()
        if self._tokens_file is not None:
            self._read_tokens(self._tokens_file)
        else:
            log.info("nothing to reload", hint="SIGHUP reloads the file of --tokens-file")

    def _read_tokens(self, file: Path) -> None:
        try:
            tokens = Tokens.read(file)
        except InvalidInput as error:
            log.error("tokens not reloaded", error=str(error))
            return
        self._app.state.streamdq.tokens = tokens
        log.info("tokens reloaded", count=len(tokens))
        tell_if_none(tokens)


def tell_if_none(tokens: Tokens) -> None:
    if tokens.required and len(tokens) == 0:
        log.warning("no token is valid", hint="requests that need a token are refused until there is one")


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        InvalidInput: the address can't be listened on.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        opened = socket.socket(family, kind)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(2048)
        except OSError:
            opened.close()
            raise
    except (OSError, UnicodeError) as error:  # UnicodeError: it can't be a host name
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"can't listen on {host} port {port}: {why}; choose another --port") from None
    return opened


def _is_logged_here(record: logging.LogRecord) -> bool:
    """Drops uvicorn's own line for unreadable requests: it has no address, and a stranger could fill the disk with
    it.
    """
    return record.msg != _UNREADABLE


def serve(
    app: FastAPI,
    host: str,
    port: int,
    http: HttpSettings,
    tokens_file: Path | None = None,
    tls: Mapping[str, Any] | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT; requests under way get a few seconds to end. SIGHUP reloads ``tokens_file``.
    ``tls``: uvicorn's options that begin with ``ssl_``.

    Raises:
        InvalidInput: the certificate can't be used, or the address can't be listened on.
    """
    check_bind(host, app.state.streamdq.tokens)
    limiter = ConnectionLimiter(http.max_connections)
    with listening_socket(host, port) as opened:
        here = {"header_timeout_s": http.header_timeout_s, "limiter": limiter, "refusals": app.state.streamdq.refusals}
        logging.getLogger("uvicorn.error").addFilter(_is_logged_here)
        options: dict[str, Any] = {
            "http": type("TimeoutProtocol", (TimeoutProtocol,), here),
            "proxy_headers": bool(http.trusted_proxies),
            "forwarded_allow_ips": [part.strip() for part in http.trusted_proxies.split(",")],
            **(tls or {}),
        }
        config = uvicorn.Config(
            app, lifespan="on", ws="none", log_config=None, access_log=False, server_header=False,
            timeout_graceful_shutdown=_GRACE_S, **options,
        )  # fmt: skip
        try:
            config.load()
        except (OSError, ValueError) as error:  # the ssl module names no file
            if not tls:
                raise
            raise InvalidInput(
                "--ssl-certfile is no certificate, or --ssl-keyfile not its key, or "
                f"$STREAMDQ_HTTP_SSL_KEYFILE_PASSWORD not the key's password: {error}"
            ) from None
        config.loaded_app = KnowsPeer(config.loaded_app)  # around what reads X-Forwarded-For
        Server(config, app, tokens_file).run(sockets=[opened])
