"""Authentication: bearer tokens and their roles. Only hashes of tokens are kept, in a file or in the environment.

``api/route.py`` enforces the roles (``Route.let_in``). An operation names those that it needs: ``operation(roles=…)``.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..config import read_text
from ..errors import InvalidInput
from ..job.job import check_group, check_topic
from ..times.clock import wall_s
from ..times.durations import Duration, has_unit, to_ms
from .scope import ALL, Scope, scope_in

PREFIX = "sdq_"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._@-]{1,64})\s+(?P<roles>[a-z]+(?:,[a-z]+)*)(?P<limits>(?:\s+[a-z]+=\S+)*)"
    r"\s+sha256:(?P<hash>[0-9a-f]{64})"
)
_CHECKS: dict[str, Callable[[str], str]] = {"topics": check_topic, "groups": check_group}
MAX_TOKEN_CHARS = 200


class Role(StrEnum):
    """What a token allows; an admin may do everything."""

    PRODUCER = "producer"  # enqueues jobs, looks at, cancels and reschedules them
    WORKER = "worker"  # takes jobs and ends them
    VIEWER = "viewer"  # looks at everything and changes nothing
    ADMIN = "admin"


ANYONE = frozenset(Role)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who makes a request: the token's name, its roles, topics and groups, and when it expires."""

    name: str
    roles: frozenset[Role]
    topics: Scope = ALL
    groups: Scope = ALL
    until_s: float | None = None  # Unix time

    @property
    def expired(self) -> bool:
        return self.until_s is not None and wall_s() >= self.until_s

    def may(self, allowed: Iterable[Role]) -> bool:
        return Role.ADMIN in self.roles or not self.roles.isdisjoint(allowed)


@dataclass(frozen=True, slots=True)
class _Known:
    digest: str
    identity: Identity


class Tokens:
    """The tokens that are accepted.

    One line each: ``NAME ROLE[,ROLE…] [topics=…] [groups=…] [expires=…] sha256:HEX``. Empty lines and lines that begin
    with ``#`` are ignored. For the form of topics and groups see ``scope_in``; without them the token is for all. The
    expiry is a moment in ISO 8601 with a zone.

    A token is 32 random bytes made by ``new_token``, so its plain SHA-256 can't be turned back by guessing.

    ``required``: a request needs a token. That is so if there are any, or if they come from a file, even an empty one:
    then no request is allowed.
    """

    def __init__(self, known: Iterable[_Known] = (), *, required: bool | None = None) -> None:
        self._known = tuple(known)
        self.required = bool(self._known) if required is None else required

    def __len__(self) -> int:
        return len(self._known)

    @classmethod
    def parse(cls, text: str, source: str = "tokens") -> Tokens:
        """Parses such lines; a semicolon ends a line as well.

        Raises:
            InvalidInput: a line can't be read, names an unknown role, or repeats a name.
        """
        known: dict[str, _Known] = {}
        for number, line in enumerate(re.split(r"[\n;]", text), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            found = _LINE.fullmatch(line)
            if found is None:  # the line is not shown: it may contain a token
                raise InvalidInput(
                    f"{source}: line {number} is not NAME ROLE[,ROLE…] [topics=…] [groups=…] [expires=…] sha256:HEX; "
                    "`streamdq token` makes such a line"
                )
            name = found["name"]
            if name in known:
                raise InvalidInput(f"{source}: line {number}: there is a token {name!r} already")
            at = f"{source}: line {number}"
            limits = limits_in(found["limits"], at)
            known[name] = _Known(found["hash"], Identity(name, roles_in(found["roles"], at), **limits))
        return cls(known.values(), required=bool(text.strip()))

    @classmethod
    def read(cls, path: Path | str) -> Tokens:
        """From a file.

        Raises:
            InvalidInput: the file or a line can't be read.
        """
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"tokens: can't read {path}: {error}") from None
        return cls(cls.parse(text, str(path))._known, required=True)

    def identify(self, token: str) -> Identity | None:
        """The token's identity, if it has not expired. Takes the same time for every token, known or not."""
        return self.holder(hash_token(token))

    def holder(self, digest: str) -> Identity | None:
        """The identity of the token with this hash, if it has not expired."""
        found = self._find(digest)
        return None if found is None or found.expired else found

    def why_not(self, token: str) -> str:
        """Why a token is refused, in words."""
        found = self._find(hash_token(token))
        return "this token is not known" if found is None else f"the token {found.name} has expired"

    def _find(self, digest: str) -> Identity | None:
        found = None
        for known in self._known:
            if hmac.compare_digest(known.digest, digest):
                found = known.identity
        return found


def limits_in(text: str, source: str) -> dict[str, Any]:
    """The fields between roles and hash.

    Raises:
        InvalidInput: a field is repeated or can't be read.
    """
    found: dict[str, Any] = {}
    for limit in text.split():
        name, _, value = limit.partition("=")
        if name in found:
            raise InvalidInput(f"{source}: {name} is given twice")
        if name in _CHECKS:
            found[name] = scope_in(value, f"{source}: {name}", _CHECKS[name])
        elif name == "expires":
            found[name] = _moment_in(value, source)
        else:
            raise InvalidInput(f"{source}: {name[:80]} is not one of topics, groups, expires")
    if "expires" in found:
        found["until_s"] = found.pop("expires")
    return found


def _moment_in(text: str, source: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise InvalidInput(f"{source}: expires: write it as 2030-01-31T09:00:00Z") from None


def roles_in(text: str, source: str = "roles") -> frozenset[Role]:
    """The roles in ``producer,worker``.

    Raises:
        InvalidInput: a role is unknown.
    """
    try:
        return frozenset(Role(name) for name in text.split(","))
    except ValueError:
        unknown = ", ".join(repr(name) for name in text.split(",") if name not in set(map(str, Role)))
        raise InvalidInput(f"{source}: there is no role {unknown}; roles are {', '.join(Role)}") from None


def hash_token(token: str) -> str:
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def new_token(
    name: str,
    roles: Iterable[Role],
    *,
    topics: str | None = None,
    groups: str | None = None,
    expires: Duration | None = None,
) -> tuple[str, str]:
    """A new token, and its line for the file. ``topics`` and ``groups``: as ``scope_in`` reads them; None: all.
    ``expires``: after this time; None: never.

    Raises:
        InvalidInput: the name is not valid, there is no role, or a limit can't be read.
    """
    if not (names := sorted(set(roles))):
        raise InvalidInput(f"token: it needs a role: {', '.join(Role)}")
    token = PREFIX + secrets.token_urlsafe(32)
    limits = [
        f" {what}={scope_in(given, what, check)}"
        for (what, check), given in zip(_CHECKS.items(), (topics, groups), strict=True)
        if given is not None
    ]
    if isinstance(expires, str) and not has_unit(expires):
        raise InvalidInput(f"expires: {expires!r} has no unit; write '{expires}d' for days")
    if expires is not None:
        until = datetime.fromtimestamp(int(wall_s() + to_ms(expires, "expires") / 1000), UTC)
        limits.append(f" expires={until:%Y-%m-%dT%H:%M:%SZ}")
    line = f"{name} {','.join(names)}{''.join(limits)} sha256:{hash_token(token)}"
    if not _LINE.fullmatch(line):
        raise InvalidInput(f"name: {name!r} can't be a token's name: use 1 to 64 of A-Z a-z 0-9 . _ @ -")
    return token, line


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind(host: str, tokens: Tokens) -> None:
    """Checks that a server without tokens can only be reached from this machine.

    Raises:
        InvalidInput: others could reach it.
    """
    if not tokens.required and not is_loopback(host):
        raise InvalidInput(
            f"host: {host} can be reached from other machines, and without tokens anyone could do everything: make a "
            "token with `streamdq token NAME admin --file FILE` and pass --tokens-file FILE"
        )
