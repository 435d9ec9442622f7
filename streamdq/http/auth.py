"""Who asks: bearer tokens and their roles. Only hashes of tokens are kept, in a file or in the environment."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from ..errors import InvalidInput

PREFIX = "sdq_"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._@-]{1,64})\s+(?P<roles>[a-z]+(?:,[a-z]+)*)\s+sha256:(?P<hash>[0-9a-f]{64})")
MAX_TOKEN_CHARS = 200


class Role(StrEnum):
    """What a token is good for; an admin may do everything."""

    PRODUCER = "producer"  # puts jobs in, looks at, cancels and reschedules them
    WORKER = "worker"  # takes jobs and ends them
    VIEWER = "viewer"  # looks at everything and changes nothing
    ADMIN = "admin"


ANYONE = frozenset(Role)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who makes a request, by the name of the token, and as what."""

    name: str
    roles: frozenset[Role]

    def may(self, allowed: Iterable[Role]) -> bool:
        return Role.ADMIN in self.roles or not self.roles.isdisjoint(allowed)


@dataclass(frozen=True, slots=True)
class _Known:
    digest: str
    identity: Identity


class Tokens:
    """The tokens that are accepted.

    A line for each: ``NAME ROLE[,ROLE…] sha256:HEX``; empty lines and those that begin with ``#`` are passed over.
    A token is 32 random bytes made by ``new_token``, so its plain SHA-256 can't be turned back by guessing.

    ``required``: a request needs one. So it is where there are any, and where they are in a file, also when that has
    none left: then no request is let in.
    """

    def __init__(self, known: Iterable[_Known] = (), *, required: bool | None = None) -> None:
        self._known = tuple(known)
        self.required = bool(self._known) if required is None else required

    def __len__(self) -> int:
        return len(self._known)

    @classmethod
    def parse(cls, text: str, source: str = "tokens") -> Tokens:
        """From such lines; a semicolon ends a line as well.

        Raises:
            InvalidInput: a line can't be read, names an unknown role, or repeats a name.
        """
        known: dict[str, _Known] = {}
        for number, line in enumerate(re.split(r"[\n;]", text), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            found = _LINE.fullmatch(line)
            if found is None:  # the line is not shown: it may hold a token
                raise InvalidInput(
                    f"{source}: line {number} is not NAME ROLE[,ROLE…] sha256:HEX; `streamdq token` makes such a line"
                )
            name = found["name"]
            if name in known:
                raise InvalidInput(f"{source}: line {number}: there is a token {name!r} already")
            known[name] = _Known(found["hash"], Identity(name, roles_in(found["roles"], f"{source}: line {number}")))
        return cls(known.values(), required=bool(text.strip()))

    @classmethod
    def read(cls, path: Path | str) -> Tokens:
        """From a file.

        Raises:
            InvalidInput: it can't be read, or has a line that can't.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"tokens: can't read {path}: {error}") from None
        return cls(cls.parse(text, str(path))._known, required=True)

    def identify(self, token: str) -> Identity | None:
        """Whose token it is. Takes as long whichever it is, or none."""
        return self.holder(hash_token(token))

    def holder(self, digest: str) -> Identity | None:
        """Whose token has this hash."""
        found = None
        for known in self._known:
            if hmac.compare_digest(known.digest, digest):
                found = known.identity
        return found


def roles_in(text: str, source: str = "roles") -> frozenset[Role]:
    """The roles in ``producer,worker``.

    Raises:
        InvalidInput: one is none.
    """
    try:
        return frozenset(Role(name) for name in text.split(","))
    except ValueError as error:
        raise InvalidInput(f"{source}: {error}; roles are {', '.join(Role)}") from None


def hash_token(token: str) -> str:
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def new_token(name: str, roles: Iterable[Role]) -> tuple[str, str]:
    """A new token, and the line that makes it known.

    Raises:
        InvalidInput: the name can't be one, or there is no role.
    """
    token = PREFIX + secrets.token_urlsafe(32)
    line = f"{name} {','.join(sorted(set(roles)))} sha256:{hash_token(token)}"
    if not _LINE.fullmatch(line):
        raise InvalidInput(f"token: {name!r} can't name one, or it has no role; use 1 to 64 of A-Z a-z 0-9 . _ @ -")
    return token, line


def is_loopback(host: str) -> bool:
    """Can only this machine reach an address of this name?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind(host: str, tokens: Tokens) -> None:
    """Without tokens, this machine alone may reach the server.

    Raises:
        InvalidInput: others could.
    """
    if not tokens.required and not is_loopback(host):
        raise InvalidInput(
            f"host: {host} can be reached from other machines, and without tokens anyone there could do everything: "
            "make one with `streamdq token NAME admin --file FILE` and pass --tokens-file FILE"
        )
