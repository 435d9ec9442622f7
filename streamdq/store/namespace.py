"""Single keys of the namespace (the mover's leases, the signing secret, sessions of the web page, open breakers), and
Redis's time and INFO. Each operation is one command, unless it says otherwise.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from ..clock import wall_s
from ..link.command import Command
from ..link.session import Op, Session, checked
from . import registry
from .commands import one

# -- Redis itself


def redis_time_us(session: Session) -> Op[int]:
    """Redis's own clock: microseconds since 1970, whatever clock the session has."""
    seconds, micros = yield from one(session, session.keys.mover, "TIME")
    return int(seconds) * 1_000_000 + int(micros)


def redis_info(session: Session) -> Op[dict[str, str]]:
    """What INFO tells."""
    text: bytes = yield from one(session, session.keys.mover, "INFO")
    lines = (line.partition(":") for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in lines}


def write_probe(session: Session, keep_ms: int) -> Op[None]:
    """Writes a key of its own; fails if Redis refuses writes."""
    key = session.keys.probe
    yield from one(session, key, "SET", key, "1", "PX", keep_ms)


def check_formats(session: Session) -> Op[None]:
    """Raises:
    NewerFormat: a newer version has written a topic of the namespace.
    """
    key = session.keys.topics
    reply = yield from one(session, key, "HGETALL", key)
    registry.check_formats(reply[1::2])


# -- who is the mover at work: a lease is a key that expires and names its holder


def lease_holder(session: Session, key: str) -> Op[str | None]:
    """None: nobody holds it."""
    name: bytes | None = yield from one(session, key, "GET", key)
    return None if name is None else name.decode()


def mover_at_work(session: Session) -> Op[str | None]:
    """The consumer whose mover it is; None: there is none."""
    return (yield from lease_holder(session, session.keys.mover))


def skew_and_mover(session: Session) -> Op[tuple[float, str | None]]:
    """How many seconds this host's clock is ahead of Redis's, which was read in the middle of the call's round trip;
    and as mover_at_work. One call.
    """
    key, began, at_s = session.keys.mover, time.monotonic(), wall_s()
    replies = yield from session.call([Command(key, ("TIME",)), Command(key, ("GET", key))])
    middle_s = at_s + (time.monotonic() - began) / 2
    (seconds, micros), name = map(checked, replies)
    return middle_s - int(seconds) - int(micros) / 1e6, None if name is None else name.decode()


def prolong_lease(session: Session, key: str, ms: int) -> Op[str | None]:
    """Whoever holds it holds it for so long from now on: the holder, or None.

    One plain command costs a fraction of what a script does, and is not refused at the memory limit.
    """
    name: bytes | None = yield from one(session, key, "GETEX", key, "PX", ms)
    return None if name is None else name.decode()


def lease_left_ms(session: Session, key: str) -> Op[int]:
    """For how long it is held; below 0: it is not."""
    left: int = yield from one(session, key, "PTTL", key)
    return left


def drop_lease(session: Session, key: str) -> Op[None]:
    """It is free, whoever had it."""
    yield from one(session, key, "DEL", key)


# -- the HTTP server's


def keep_secret(session: Session, mine: str) -> Op[str]:
    """What is kept; ``mine``, where there was nothing: Redis may have lost it. Two calls."""
    key = session.keys.secret
    yield from one(session, key, "SET", key, mine, "NX")
    kept: bytes = yield from one(session, key, "GET", key)
    return kept.decode()


def begin_session(session: Session, key: str, token_hash: str, length_s: int) -> Op[None]:
    """A session at the web pages (NamespaceKeys.session) stands for the token with this hash."""
    yield from one(session, key, "SET", key, token_hash, "PX", length_s * 1000)


def session_token(session: Session, key: str) -> Op[str | None]:
    """The hash of the token that it stands for; None: it has ended."""
    found: bytes | None = yield from one(session, key, "GET", key)
    return None if found is None else found.decode()


def end_session(session: Session, key: str) -> Op[None]:
    yield from one(session, key, "DEL", key)


# -- callbacks


class OpenBreaker(NamedTuple):
    """A receiver that was found dead, as open_breaker and try_breaker keep it."""

    until_ms: int
    open_ms: int
    trying: bool


def open_breakers(session: Session) -> Op[dict[str, OpenBreaker]]:
    """All of them, by receiver: at most 500."""
    key = session.keys.breakers
    flat: list[bytes] = yield from one(session, key, "HGETALL", key)
    return {
        receiver.decode(): _breaker(value.decode()) for receiver, value in zip(flat[::2], flat[1::2], strict=True)
    }  # fmt: skip


def _breaker(value: str) -> OpenBreaker:
    until_ms, open_ms, trying = value.split("|")
    return OpenBreaker(int(until_ms), int(open_ms), trying == "1")


def close_breaker(session: Session, receiver: str) -> Op[None]:
    key = session.keys.breakers
    yield from one(session, key, "HDEL", key, receiver)
