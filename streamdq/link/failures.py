"""Why calls to Redis fail: what redis-py raises in streamdq's terms, and in a few words for the metrics."""

from __future__ import annotations

from contextvars import ContextVar

import redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    ReadOnlyError,
    ResponseError,
)

from ..errors import AuthenticationFailed, UnsupportedServer
from ..metrics import declared

# Words of an error reply, or redis-py's class for it, which leaves the word out of the text.
_KINDS = (
    ("refused_writes", ("OOM ", "OutOfMemoryError", "READONLY", "ReadOnlyError", "MISCONF", "NOREPLICAS")),
    ("group_missing", ("NOGROUP", "requires the key to exist", "UNBLOCKED")),
    ("cluster", ("MovedError", "AskError", "ClusterDownError", "TryAgainError", "CrossSlot")),
    ("login", ("WRONGPASS", "NOAUTH", "NOPERM", "NoPermissionError", "Authentication", "unauthenticated")),
    ("loading", ("LOADING", "BusyLoadingError")),
)
KINDS = ("timeout", "connection", "protocol", "server", "crowded", *(kind for kind, _ in _KINDS))
_namespace: ContextVar[str] = ContextVar("namespace", default="")
_NO_FAILURE = ("NOSCRIPT", "NoScriptError", "BUSYGROUP")
# A Redis that loads its data, or takes no more clients, answers so instead of running anything.
_REFUSED = "max number of clients reached"


class LinkError(Exception):
    """No reply. ``sent`` False: Redis can't have run it."""

    def __init__(self, cause: BaseException, sent: bool) -> None:
        super().__init__(str(cause).rstrip(".") or type(cause).__name__)
        self.sent = sent


class Crowded(LinkError):
    """The call waited in line for a connection for as long as it may take; nothing was sent."""

    def __init__(self, limit: int, blocking: bool) -> None:
        what, setting = ("blocked reads", "BLOCKED_READS") if blocking else ("connections", "CONNECTIONS")
        why = f"all {limit} {what} to this node were in use; make fewer calls at once, or raise STREAMDQ_MAX_{setting}"
        super().__init__(TimeoutError(why), sent=False)
        count("crowded")


def translate(error: BaseException, sent: bool) -> Exception:
    """What the call raises; counted."""
    translated = _as_ours(error, sent)
    count_call(error, translated)
    return translated


def _as_ours(error: BaseException, sent: bool) -> Exception:
    if isinstance(error, AuthenticationError) or "WRONGPASS" in str(error) or "NOAUTH" in str(error):
        return AuthenticationFailed(f"Redis refused the login ({error}); check user name and password in the URL")
    if isinstance(error, InvalidResponse) or type(error).__name__ == "ProtocolError":
        return UnsupportedServer(f"the server does not speak Redis's protocol ({error}); check host and port")
    if type(error).__name__ == "MasterNotFoundError":  # its text describes every sentinel's connection at length
        why = "no sentinel names a primary: check their addresses, the service's name, and the password"
        return LinkError(ConnectionError(why), sent=False)
    refused = isinstance(error, BusyLoadingError) or _REFUSED in str(error)
    return LinkError(error, sent and not refused)


def expect(namespace: str) -> None:
    """Its calls begin: their figures are there before the first failure, as a rate needs a 0 to start from."""
    for kind in KINDS:
        declared.REDIS_ERRORS.labels(namespace, kind)


def calls_of(namespace: str) -> None:
    """What this thread or task sends from now on belongs to this namespace: connections don't know their calls' own."""
    _namespace.set(namespace)


def count(kind: str) -> None:
    declared.REDIS_ERRORS.labels(_namespace.get(), kind).inc()


def count_reply(error: ResponseError) -> None:
    """Redis answered with an error."""
    text = f"{type(error).__name__} {error}"
    if not any(word in text for word in _NO_FAILURE):
        kind = next((kind for kind, words in _KINDS if any(word in text for word in words)), "server")
        count(kind)


def is_read_only(error: ResponseError) -> bool:
    """Redis is a replica and takes no writes; before 7.0 it tells so of a script in the midst of the text."""
    return isinstance(error, ReadOnlyError) or "READONLY" in str(error)


def count_call(error: BaseException, seen_as: Exception) -> None:
    """There was no answer; ``seen_as``: what streamdq makes of it."""
    if isinstance(seen_as, AuthenticationFailed):
        kind = "login"
    elif isinstance(seen_as, UnsupportedServer):
        kind = "protocol"
    elif isinstance(error, TimeoutError | redis.TimeoutError):
        kind = "timeout"
    else:
        kind = "loading" if isinstance(error, BusyLoadingError) else "connection"
    count(kind)
