"""Turns the URL of Redis into arguments for redis-py."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import redis

from ..errors import InvalidInput
from ..process.logs import hide_credentials

if TYPE_CHECKING:
    from ..embedded.server import EmbeddedServer

SCHEMES = "redis:// rediss:// unix:// redis+cluster:// redis+sentinel:// embedded:// memory://"


@dataclass
class Target:
    """A parsed URL. ``embedded``: the server that was started for it; close it with the link."""

    kind: str  # "node", "cluster", "sentinel" or "memory"
    url: str = field(repr=False)
    hosts: list[tuple[str, int]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    service: str = ""
    embedded: EmbeddedServer | None = None

    def describe(self) -> str:
        """The address without its password."""
        if self.hosts:
            return f"redis+{self.kind}://" + ",".join(f"{host}:{port}" for host, port in self.hosts)
        netloc = urlsplit(self.url).netloc
        # redis-py also accepts a password in the query.
        return hide_credentials(self.url.replace(netloc, netloc.rpartition("@")[2]) if "@" in netloc else self.url)


def without_password(url: str) -> str:
    """An invalid URL without anything that could be a password, so that it may be shown."""
    head, at, tail = url.rpartition("@")
    if at:
        scheme, colon, _ = head.partition("://")  # without a scheme, all of the head may be a password
        return hide_credentials(f"{scheme if colon else ''}{colon}…@{tail}")
    # redis://:PASSWORD and redis://user:PASSWORD: text after a colon that is not a port. IPv6's colons are in brackets.
    scheme, colon, rest = url.partition("://")
    rest = re.sub(r"(\[[^][]*\])|:(?!\d{1,5}(?:[/?#,]|$)).*", lambda found: found[1] or ":…", rest)
    return hide_credentials(f"{scheme}{colon}{rest}")


def parse_url(url: str) -> Target:
    """Parses the URL; starts the embedded server if the URL asks for one.

    Raises:
        InvalidInput: the scheme or a host is not understood.
        EmbeddedError: no embedded server can be started.
    """
    if not isinstance(url, str):  # a queue, or a client of Redis
        raise InvalidInput(f"url: {type(url).__name__} is not text; write for example redis://localhost:6379/0")
    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        return Target("memory", url)
    if scheme == "embedded":
        from ..embedded.server import EmbeddedServer  # few programs need it

        server = EmbeddedServer.open(_folder(rest) if rest else None)
        return Target("node", f"unix://{quote(os.fsencode(server.socket_path))}", embedded=server)
    if scheme in ("redis", "rediss", "unix"):
        _check_node(url, scheme)
        return Target("node", url)
    if scheme in ("redis+cluster", "redis+sentinel"):
        return _parse_hosts(url, scheme.removeprefix("redis+"))
    raise InvalidInput(f"url: {without_password(url)!r} does not begin with one of {SCHEMES}")


def _folder(path: str) -> Path:
    """The embedded server's folder. Its name is UTF-8 where the locale has no such characters.

    Raises:
        InvalidInput: there is no such user.
    """
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        path = os.fsdecode(path.encode(errors="surrogateescape"))
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InvalidInput(f"url: embedded://{path}: {error}; write embedded:///FOLDER") from None


def _check_node(url: str, scheme: str) -> None:
    _check_that_redis_py_takes(url)
    shown, parts = without_password(url), urlsplit(url)
    if scheme != "unix" and "@" in url and "@" not in parts.netloc:
        # A slash, ? or # in the password ends the host part; the rest would be read as port and database.
        raise InvalidInput(f"url: can't read {shown!r}: write user and password percent-encoded")
    if scheme == "unix":
        if "%00" in parts.path:
            raise InvalidInput(f"url: {shown!r} is no path")
        return
    _check_host(unquote(parts.hostname or ""), url)
    database = unquote(parts.path).strip("/")
    if database and not database.isdecimal():  # redis-py would take it for 0
        raise InvalidInput(f"url: {shown!r} names no database; write its number: {scheme}://host:port/0")


def _check_that_redis_py_takes(url: str) -> None:
    shown = without_password(url)
    try:
        pool = redis.ConnectionPool.from_url(url)
    except (ValueError, TypeError) as error:
        if "@" in url:
            why = "write user and password percent-encoded"
        else:  # the error quotes the text that should be a port
            why = "write a password as :PASSWORD@host" if "…" in shown else str(error)
        raise InvalidInput(f"url: can't read {shown!r}: {why}") from None
    try:
        pool.make_connection()  # connects to nothing, but refuses options that it does not know
    except (TypeError, redis.RedisError) as error:
        raise InvalidInput(f"url: can't use an option of {shown!r}: {error}") from None


def _check_host(host: str, url: str) -> None:
    """Else it fails where the name is looked up, with an error that is none of the system's."""
    try:
        host.encode("idna")
    except UnicodeError:
        valid = False
    else:
        valid = "\0" not in host
    if not valid:
        raise InvalidInput(f"url: {without_password(url)!r} has a host that can't be one")


def _parse_hosts(url: str, kind: str) -> Target:
    try:
        parts = urlsplit(url)
    except ValueError as error:  # brackets
        raise InvalidInput(f"url: can't read {without_password(url)!r}: {error}") from None
    credentials, _, hosts = parts.netloc.rpartition("@")
    target = Target(kind, url)
    for item in hosts.split(","):
        host, _, port = item.rpartition(":")
        if not host or not port.isdigit():
            raise InvalidInput(
                f"url: {without_password(url)!r} has a host without a port; write redis+{kind}://host:port,host:port"
            )
        _check_host(host, url)
        target.hosts.append((host.strip("[]"), int(port)))
    if credentials:
        user, _, password = credentials.rpartition(":")
        target.options = {"password": unquote(password), **({"username": unquote(user)} if user else {})}
    if kind == "sentinel":
        target.service = parts.path.strip("/")
        if not target.service:
            raise InvalidInput("url: redis+sentinel:// needs the service's name: redis+sentinel://host:port/NAME")
    return target
