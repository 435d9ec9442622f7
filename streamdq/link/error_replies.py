"""What Redis's error replies mean. Nothing else classifies them. It looks at redis-py's class, because redis-py removes
Redis's error code from the text, and at words in the text, because a script's error has no class of its own.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from redis import exceptions

from ..errors import (
    AuthenticationFailed,
    GroupMissing,
    NewerFormat,
    ServerError,
    ServerRefusesWrites,
    StreamdqError,
    UnsupportedServer,
)


class Meaning(Enum):
    """The meaning of an error reply."""

    REPLICA = auto()  # the server refuses writes because it is a replica, perhaps only since a moment ago
    NO_WRITES = auto()  # it refuses writes for another reason, such as full memory
    GROUP_MISSING = auto()
    ELSEWHERE = auto()  # another node of the Cluster has the key, or none
    LOGIN = auto()
    RIGHTS = auto()
    LOADING = auto()  # the server has not read its data yet; it ran nothing
    FULL = auto()  # it accepts no more clients, and ran nothing
    UNKNOWN_COMMAND = auto()
    SCRIPT_MISSING = auto()
    FUNCTION_MISSING = auto()
    NO_FUNCTIONS = auto()  # the server has none, or this user may not call or load any
    LIBRARY_EXISTS = auto()
    GROUP_EXISTS = auto()
    NEWER_FORMAT = auto()  # a script met data of a newer version
    OTHER = auto()


class _Pattern(NamedTuple):
    meaning: Meaning
    kind: str  # in the metrics; "" if it is not a failure
    classes: tuple[type[BaseException], ...]
    words: tuple[str, ...]


# Redis before 7.0 quotes the command by backquotes.
_NO_FUNCTIONS = (
    "nknown command `FCALL`", "nknown command 'FCALL'", "nknown command 'FUNCTION'", "the 'fcall' command",
    "the 'function|load' command",
)  # fmt: skip
_PATTERNS = (
    _Pattern(Meaning.SCRIPT_MISSING, "", (exceptions.NoScriptError,), ("NOSCRIPT",)),
    _Pattern(Meaning.FUNCTION_MISSING, "", (), ("Function not found",)),
    _Pattern(Meaning.NO_FUNCTIONS, "", (), _NO_FUNCTIONS),
    _Pattern(Meaning.LIBRARY_EXISTS, "", (), ("Library '",)),
    _Pattern(Meaning.GROUP_EXISTS, "", (), ("BUSYGROUP",)),
    _Pattern(Meaning.NEWER_FORMAT, "", (), ("NEWERFORMAT ",)),  # lua/lib/stored_format.lua
    # UNBLOCKED: the stream was deleted during a blocked read (7.0).
    _Pattern(Meaning.GROUP_MISSING, "group_missing", (), ("NOGROUP", "requires the key to exist", "UNBLOCKED")),
    # Before 7.0 a script's error has READONLY in the middle of its text.
    _Pattern(
        Meaning.REPLICA, "refused_writes", (exceptions.ReadOnlyError,), ("READONLY", "used with replica instances")
    ),
    _Pattern(Meaning.NO_WRITES, "refused_writes", (exceptions.OutOfMemoryError,), ("OOM ", "MISCONF", "NOREPLICAS")),
    _Pattern(
        Meaning.ELSEWHERE,
        "cluster",
        (
            exceptions.AskError,  # and MovedError
            exceptions.ClusterDownError,
            exceptions.TryAgainError,
            exceptions.ClusterCrossSlotError,
        ),
        (),
    ),
    _Pattern(
        Meaning.LOGIN,
        "login",
        (exceptions.AuthenticationError, exceptions.AuthenticationWrongNumberOfArgsError),
        ("WRONGPASS", "NOAUTH"),
    ),
    _Pattern(
        Meaning.RIGHTS,
        "login",
        (exceptions.NoPermissionError,),
        ("NOPERM", "unauthenticated", "user executing the script", "ACL failure"),
    ),
    _Pattern(Meaning.LOADING, "loading", (exceptions.BusyLoadingError,), ("LOADING",)),
    _Pattern(Meaning.FULL, "server", (), ("max number of clients",)),
    # Not what Valkey says of a command within a script, which has begun: "Unknown command called from script".
    _Pattern(Meaning.UNKNOWN_COMMAND, "server", (), ("unknown command",)),
)
_OTHER = _Pattern(Meaning.OTHER, "server", (), ())
KINDS = tuple(dict.fromkeys(pattern.kind for pattern in (_OTHER, *_PATTERNS) if pattern.kind))


def meaning_of(error: BaseException) -> Meaning:
    return _pattern_of(error).meaning


def metrics_kind(error: BaseException) -> str:
    """The error's kind in the metrics; "" for a reply that is not a failure."""
    return _pattern_of(error).kind


def _pattern_of(error: BaseException) -> _Pattern:
    text = str(error)
    for pattern in _PATTERNS:
        if isinstance(error, pattern.classes) or any(word in text for word in pattern.words):
            return pattern
    return _OTHER


def as_streamdq(reply: exceptions.ResponseError) -> StreamdqError:
    """The exception for a call that got this reply."""
    text = str(reply)
    match meaning_of(reply):
        case Meaning.NEWER_FORMAT:
            return NewerFormat(text.partition("NEWERFORMAT ")[2].split()[0])
        case Meaning.GROUP_MISSING:
            return GroupMissing(text)
        case Meaning.REPLICA | Meaning.NO_WRITES:
            why = text.partition(" script: ")[0].rstrip(".")  # not the script's hash and line
            return ServerRefusesWrites(f"Redis refuses writes: {why}; run `streamdq doctor`")
        case Meaning.LOGIN | Meaning.RIGHTS:
            return AuthenticationFailed(
                f"Redis does not allow this user: {text}; `streamdq doctor --acl` prints the rights that it needs"
            )
        case Meaning.UNKNOWN_COMMAND:
            return UnsupportedServer(f"streamdq needs Redis 6.2 or later, or Valkey: {text}")
        case _:
            return ServerError(text)
