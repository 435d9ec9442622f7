"""Turns the URL of Redis into arguments for redis-py."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

import redis

from ..errors import InvalidInput
from ..process.logs import hide_credentials

if TYPE_CHECKING:
    from ..embedded.server import EmbeddedServer

SCHEMES = (
    "redis:// rediss:// unix:// redis+cluster:// rediss+cluster:// redis+sentinel:// rediss+sentinel:// embedded:// "
    "memory://"
)
# redis-py takes more. streamdq sets these itself, such as time-outs and the protocol, or they mean nothing to it.
_TLS_OPTIONS = frozenset({
    "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_ciphers",
    "ssl_keyfile", "ssl_min_version", "ssl_password",
})  # fmt: skip
_NODE_OPTIONS = frozenset({"db", "username", "password"})
_SENTINEL_OPTIONS = frozenset({"db", "sentinel_username", "sentinel_password"})


@dataclass
class Target:
    """A parsed URL. ``options``: of connections to the nodes of a Cluster, or to those that sentinels name.
    ``sentinel_logins``: of connections to the sentinels, to be tried in this order. ``embedded``: the server that was
    started for it; close it with the link.
    """

    kind: str  # "node", "cluster", "sentinel" or "memory"
    url: str = field(repr=False)
    hosts: list[tuple[str, int]] = field(default_factory=list)
    tls: bool = False
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    sentinel_logins: list[dict[str, Any]] = field(default_factory=list, repr=False)
    service: str = ""
    embedded: EmbeddedServer | None = None

    @property
    def takes_logins(self) -> bool:
        """Whether there may be users: not on a server that streamdq has started."""
        return self.kind != "memory" and self.embedded is None

    @property
    def has_login(self) -> bool:
        """Whether the URL has a user or a password."""
        if self.kind != "node":
            return bool(self.options.keys() & {"username", "password"})
        parts = urlsplit(self.url)
        return "@" in parts.netloc or bool(parse_qs(parts.query).keys() & {"username", "password"})

    @property
    def tls_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name in _TLS_OPTIONS}

    def describe(self) -> str:
        """The address without its password."""
        if self.hosts:
            scheme = "rediss" if self.tls else "redis"
            return f"{scheme}+{self.kind}://" + ",".join(f"{host}:{port}" for host, port in self.hosts)
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
    if scheme in ("redis+cluster", "redis+sentinel", "rediss+cluster", "rediss+sentinel"):
        return _parse_hosts(url, scheme)
    if not url:
        why = "set STREAMDQ_URL to your Redis, such as redis://localhost:6379/0, or unset it for an embedded one"
        raise InvalidInput(f"url: is empty; {why}")
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
    _check_options(url, _NODE_OPTIONS | (_TLS_OPTIONS if scheme == "rediss" else frozenset()))
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


def _check_options(url: str, allowed: frozenset[str]) -> None:
    try:
        names = parse_qs(urlsplit(url).query, keep_blank_values=True)
    except ValueError:
        return  # the code that reads the URL says what is wrong with it
    unknown = sorted(set(names) - allowed)
    if unknown:
        wants_tls = unknown[0].startswith("ssl") and not allowed & _TLS_OPTIONS
        what = "for TLS, begin it with rediss" if wants_tls else f"it may have {', '.join(sorted(allowed)) or 'none'}"
        raise InvalidInput(f"url: {without_password(url)!r} has the option {unknown[0]!r}; {what}")


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
        raise InvalidInput(f"url: {without_password(url)!r} has an invalid host")


def _parse_hosts(url: str, scheme: str) -> Target:
    redis_scheme, _, kind = scheme.partition("+")
    tls = redis_scheme == "rediss"
    allowed = _SENTINEL_OPTIONS if kind == "sentinel" else frozenset()
    _check_options(url, allowed | _TLS_OPTIONS if tls else allowed)
    parts = _parts_of(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    target = Target(kind, url, [_host_in(item, url, scheme) for item in hosts.split(",")], tls=tls)
    given = _options_in(url, redis_scheme, parts.query)
    login = _login_in(credentials)
    target.options = login | {name: value for name, value in given.items() if name in {*_TLS_OPTIONS, "db"}}
    where = parts.path.strip("/")
    if kind == "sentinel":
        target.service = _service_in(where, scheme)
        own = {name: given[f"sentinel_{name}"] for name in ("username", "password") if f"sentinel_{name}" in given}
        target.sentinel_logins = [own] if own else [login, {}] if login else [{}]
    elif where not in ("", "0"):
        raise InvalidInput(f"url: {without_password(url)!r} names a database; a Cluster has only 0")
    return target


def _parts_of(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:  # brackets
        raise InvalidInput(f"url: can't read {without_password(url)!r}: {error}") from None


def _service_in(path: str, scheme: str) -> str:
    if not path:
        raise InvalidInput(f"url: {scheme}:// needs the service's name: {scheme}://host:port/NAME")
    return path


def _host_in(item: str, url: str, scheme: str) -> tuple[str, int]:
    host, _, port = item.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInput(
            f"url: {without_password(url)!r} has a host without a port; write {scheme}://host:port,host:port"
        )
    _check_host(host, url)
    return host.strip("[]"), int(port)


def _login_in(credentials: str) -> dict[str, Any]:
    """Of ``user:password``, or what there is of it."""
    if not credentials:
        return {}
    user, _, password = credentials.rpartition(":")
    return {"password": unquote(password), **({"username": unquote(user)} if user else {})}


def _options_in(url: str, redis_scheme: str, query: str) -> dict[str, Any]:
    """The options of a URL of several hosts, as redis-py reads those of one."""
    one = f"{redis_scheme}://host:1/?{query}"
    try:
        options: dict[str, Any] = dict(redis.connection.parse_url(one))  # type: ignore[no-untyped-call]
        of_nodes = {name: value for name, value in options.items() if not name.startswith("sentinel_")}
        redis.ConnectionPool(**of_nodes).make_connection()  # connects to nothing
    except (ValueError, TypeError, redis.RedisError) as error:
        raise InvalidInput(f"url: can't use an option of {without_password(url)!r}: {error}") from None
    return options
