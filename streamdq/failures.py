"""Why calls to Redis fail, in a few words for the metrics: each failure is counted where it arrives (connection.py)."""

from __future__ import annotations

import redis
from redis.exceptions import BusyLoadingError, ResponseError

from . import metrics
from .errors import AuthenticationFailed, UnsupportedServer

# Words of an error reply, or redis-py's class for it, which leaves the word out of the text.
_KINDS = (
    ("refused_writes", ("OOM ", "OutOfMemoryError", "READONLY", "ReadOnlyError", "MISCONF", "NOREPLICAS")),
    ("group_missing", ("NOGROUP", "requires the key to exist", "UNBLOCKED")),
    ("cluster", ("MovedError", "AskError", "ClusterDownError", "TryAgainError", "CrossSlot")),
    ("login", ("WRONGPASS", "NOAUTH", "NOPERM", "NoPermissionError", "Authentication")),
    ("loading", ("LOADING", "BusyLoadingError")),
)
KINDS = ("timeout", "connection", "protocol", "server", *(kind for kind, _ in _KINDS))
for _kind in KINDS:  # there from the beginning: a rate needs a 0 to start from
    metrics.REDIS_ERRORS.labels(_kind)
_NO_FAILURE = ("NOSCRIPT", "NoScriptError", "BUSYGROUP")


def count_reply(error: ResponseError) -> None:
    """Redis answered with an error."""
    text = f"{type(error).__name__} {error}"
    if not any(word in text for word in _NO_FAILURE):
        kind = next((kind for kind, words in _KINDS if any(word in text for word in words)), "server")
        metrics.REDIS_ERRORS.labels(kind).inc()


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
    metrics.REDIS_ERRORS.labels(kind).inc()
