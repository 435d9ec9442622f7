"""Checks a URL before its host is resolved. A URL that is refused here will never be allowed, so its job is buried."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network

from yarl import URL

from ..errors import InvalidInput
from .address import Address, AddressRules, Network, explained

_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.(?!-)[a-z0-9_-]{1,63})*")
# As in browsers: a host whose last label is a number is an IPv4 address, in whatever notation.
_NUMERIC = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")
_SCHEMES = {"https": 443, "http": 80}
WEB_PORTS = (80, 443)


class TargetRefused(Exception):
    """Callbacks must not go to this URL. The text contains no more of it than the host."""


class Targets:
    """Which URLs may be called. ``allow``: host names and networks, which may then also be called over plain http;
    ``deny``: networks that are never connected to.

    Raises:
        InvalidInput: an entry is neither.
    """

    def __init__(self, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> None:
        networks: list[Network] = []
        self._hosts: set[str] = set()
        for entry in allow:
            if (network := _network(entry)) is not None:
                networks.append(network)
            elif _NAME.fullmatch(entry.lower()) and not _NUMERIC.fullmatch(entry.lower()):
                self._hosts.add(entry.lower())
            else:
                raise InvalidInput(f"allow: {entry!r} is neither a host name nor a network such as 10.1.0.0/16")
        denied = [(entry, _network(entry)) for entry in deny]
        if wrong := [entry for entry, network in denied if network is None]:
            raise InvalidInput(f"deny: {wrong[0]!r} is not a network such as 10.1.0.0/16")
        self.addresses = AddressRules(networks, [network for _, network in denied if network is not None])

    def check(self, text: str) -> URL:
        """The URL to call: without its fragment, which is never sent to servers.

        Raises:
            TargetRefused: it may not be called.
        """
        url, host, port = _parsed(text)
        if self._check_host(host):
            return url
        if url.scheme != "https":
            raise TargetRefused(f"http://{host} is not encrypted, and the host is not among those allowed")
        if port < 1024 and port not in WEB_PORTS:
            raise TargetRefused(f"port {port} of {host} is not allowed for callbacks")
        return url

    def trusts(self, url: URL) -> bool:
        """Whether the host is allowed by name, to whatever address that resolves."""
        return url.raw_host in self._hosts

    def _check_host(self, host: str) -> bool:
        """Whether a setting allows the host, by its name or as an address."""
        if (address := _literal(host)) is not None:
            if reason := self.addresses.refusal(str(address)):
                raise TargetRefused(f"the address {address} is refused: {explained(reason)}")
            return self.addresses.allows(address)
        if host in self._hosts:
            return True
        if not _NAME.fullmatch(host) or len(host) > 253:
            raise TargetRefused("the URL's host is not a valid DNS name")
        if host == "localhost" or host.endswith(".localhost"):
            raise TargetRefused(f"{host} is refused: {explained('loopback')}")
        return False


def _parsed(text: str) -> tuple[URL, str, int]:
    """The URL without its fragment, its host and port."""
    try:
        url = URL(text).with_fragment(None)
        host, port = url.raw_host, url.port
        _ = url.host  # decodes Punycode, which may fail
    except ValueError:
        raise TargetRefused("the URL can't be read") from None
    if url.scheme not in _SCHEMES or not host or port is None:
        raise TargetRefused("the URL is not an https URL with a host")
    if "@" in url.authority or "@" in text.partition("://")[2].partition("/")[0]:
        raise TargetRefused("the URL holds a user name or password")
    return url, host, port


def _literal(host: str) -> Address | None:
    """The address, if the host is one in its canonical notation.

    Raises:
        TargetRefused: it is an address in another notation, such as 0x7f.1, or has a zone.
    """
    try:
        address = ip_address(host)
    except ValueError:
        if ":" in host or "%" in host or _NUMERIC.fullmatch(host.rstrip(".")):
            raise TargetRefused("the URL's host is an address written in an unusual way") from None
        return None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise TargetRefused("the URL's address has a zone")
    return address


def _network(text: str) -> Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None
