"""Why calls to Redis fail: turns redis-py's exceptions into streamdq's, and counts them by kind."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import redis
from redis.exceptions import InvalidResponse, ResponseError

from ..errors import AuthenticationFailed, UnsupportedServer
from ..metrics import recorded
from . import error_replies
from .error_replies import Meaning, meaning_of, metrics_kind

KINDS = ("timeout", "connection", "protocol", "no_connection", "not_durable", *error_replies.KINDS)
_namespace: ContextVar[str] = ContextVar("namespace", default="")


class LinkError(Exception):
    """A call without a reply. ``sent`` False: Redis can't have run it. ``answered``: the replies of a Cluster's other
    nodes, by the commands' indexes. ``refused``: nobody listens there. ``timed_out``: the time for it was over.
    """

    def __init__(self, cause: BaseException, sent: bool) -> None:
        super().__init__(str(cause).rstrip(".") or type(cause).__name__)
        self.sent = sent
        self.answered: dict[int, Any] = {}
        self.refused = _was_refused(cause)
        self.timed_out = isinstance(cause, TimeoutError | redis.TimeoutError)


def _was_refused(error: BaseException | None) -> bool:
    """Whether nobody listens at the address, or the socket's file does not exist."""
    while error is not None and not isinstance(error, ConnectionRefusedError | FileNotFoundError):
        error = error.__cause__ or error.__context__
    return error is not None


class PoolExhausted(LinkError):
    """No connection became free within the time that the call may take; nothing was sent."""

    def __init__(self, limit: int, blocking: bool) -> None:
        what, setting = ("blocked reads", "BLOCKED_READS") if blocking else ("connections", "CONNECTIONS")
        why = f"all {limit} {what} to this node were in use; make fewer calls at once, or raise STREAMDQ_MAX_{setting}"
        super().__init__(TimeoutError(why), sent=False)
        count("no_connection")


class LoginRefused(LinkError):
    """With credentials that change: those of a moment later may be right, so the call may be sent again."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause, sent=False)

    def as_streamdq(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"Redis refused the login ({self}) with what the credential provider gave; check the user name and the "
            "password that it returns, and the user in Redis"
        )


class ProviderFailed(redis.ConnectionError):
    """The credential provider failed, and has never given any credentials."""


class NoCredentials(LinkError):
    """Nobody can log in yet. ``refused`` is False also if the provider's file does not exist: it may come."""

    def __init__(self, cause: ProviderFailed) -> None:
        super().__init__(cause, sent=False)
        self.refused = False


def translate(error: BaseException, sent: bool, connection: Any = None) -> Exception:
    """Counts the failure of a call on this connection, and returns the exception that the call raises."""
    _hide_arguments(error)
    translated = _as_ours(error, sent)
    provider = getattr(connection, "credential_provider", None)
    if provider is not None and isinstance(translated, AuthenticationFailed):
        translated = LoginRefused(error)
    count_call(error, translated)
    return translated


def _hide_arguments(error: BaseException) -> None:
    """Redis quotes the arguments of a command that it does not know. Those of AUTH are a password, and this error is
    the cause of the call's: tracebacks show both.
    """
    before, quoted, _ = str(error).partition(", with args beginning with")
    if quoted:
        error.args = (before,)


def _as_ours(error: BaseException, sent: bool) -> Exception:
    if isinstance(error, ProviderFailed):
        return NoCredentials(error)
    meaning = meaning_of(error)
    if meaning is Meaning.LOGIN:
        why = str(error).rstrip(".")
        return AuthenticationFailed(f"Redis refused the login ({why}); check user name and password in the URL")
    if isinstance(error, InvalidResponse) or type(error).__name__ == "ProtocolError":
        return UnsupportedServer(f"the server does not speak Redis's protocol ({error}); check host and port")
    if isinstance(error, ResponseError) and "DB index" in str(error):
        return UnsupportedServer(f"Redis has no database of the URL's number ({error}); use a lower one, such as 0")
    if type(error).__name__ == "MasterNotFoundError":  # its text describes every sentinel's connection at length
        why = "no sentinel names a primary: check their addresses, the service's name, and the password"
        return LinkError(ConnectionError(why), sent=False)
    return LinkError(error, sent and meaning not in (Meaning.LOADING, Meaning.FULL))


def expect(namespace: str) -> None:
    """Creates the namespace's counters before its first failure, because a rate needs a 0 to start from."""
    for kind in KINDS:
        recorded.redis_errors(namespace, kind, 0)


def calls_of(namespace: str) -> None:
    """Counts failed calls of this thread or task for this namespace; connections don't know theirs."""
    if _namespace.get() != namespace:  # to set it costs more
        _namespace.set(namespace)


def count(kind: str) -> None:
    recorded.redis_errors(_namespace.get(), kind, 1)


def count_reply(error: ResponseError) -> None:
    """Counts an error reply."""
    if kind := metrics_kind(error):
        count(kind)


def count_call(error: BaseException, seen_as: Exception) -> None:
    """Counts a call without an answer. ``seen_as``: the exception that streamdq turns it into."""
    if isinstance(seen_as, AuthenticationFailed | LoginRefused):
        kind = "login"
    elif isinstance(seen_as, UnsupportedServer):
        kind = "protocol"
    elif isinstance(error, TimeoutError | redis.TimeoutError):
        kind = "timeout"
    else:
        kind = "loading" if meaning_of(error) is Meaning.LOADING else "connection"
    count(kind)
