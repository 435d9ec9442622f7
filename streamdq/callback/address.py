"""Which addresses may be connected to: public ones, unless a setting says more or less.

The list is explicit, because the standard library's ``is_global`` accepts NAT64, 6to4 and multicast, which can reach
hosts that are not public. It is checked against the address that a socket is about to connect to, so neither a literal
address in a URL nor a name that resolves to another address the second time can avoid it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address
AddressInfo = tuple[Any, ...]  # as socket.getaddrinfo gives them

# IANA's special-purpose registries, and other addresses that are not hosts on the public Internet. The first match is
# reported.
_NOT_PUBLIC = (
    ("0.0.0.0/8", "this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by a provider's customers"),
    ("127.0.0.0/8", "loopback"),
    ("168.63.129.16/32", "a cloud's own services"),
    ("169.254.0.0/16", "link-local, cloud metadata"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "protocol assignments"),
    ("192.0.2.0/24", "documentation"),
    ("192.88.99.0/24", "6to4 relays"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "benchmarks"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("240.0.0.0/4", "reserved"),
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "IPv4 mapped into IPv6"),
    ("64:ff9b::/96", "NAT64"),
    ("64:ff9b:1::/48", "NAT64"),
    ("2001::/32", "Teredo"),
    ("2001::/23", "protocol assignments"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4"),
    ("3fff::/20", "documentation"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
    # Only 2000::/3 is given to hosts; IPv4-compatible addresses, discard-only and segment routing lie outside of it.
    ("::/3", "not unicast on the Internet"),
    ("4000::/2", "not unicast on the Internet"),
    ("8000::/1", "not unicast on the Internet"),
)  # fmt: skip
NOT_PUBLIC: tuple[tuple[Network, str], ...] = tuple((ip_network(text), why) for text, why in _NOT_PUBLIC)


_ENDS_IN_IPV4 = tuple(ip_network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96", "::/96"))


def _wrapped(address: Address) -> IPv4Address | None:
    """The IPv4 address embedded in an IPv6 address, if there is one."""
    if isinstance(address, IPv4Address):
        return None
    if any(address in network for network in _ENDS_IN_IPV4):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour


def explained(reason: str) -> str:
    """Why an address is refused, and what allows it."""
    is_known = any(reason == why for _, why in NOT_PUBLIC)
    return f"{reason}; --allow or STREAMDQ_CALLBACK_ALLOW can allow it" if is_known else reason


class AddressRefused(OSError):
    """Callbacks must not go to this address."""

    def __init__(self, reason: str) -> None:
        # Always the same text: if every address of a name is refused, aiohttp passes the first error on unchanged.
        super().__init__("address refused")
        self.reason = reason


class AddressRules:
    """``allow``: networks that may be reached in addition to the public ones; ``deny``: networks that never may."""

    def __init__(self, allow: Iterable[Network] = (), deny: Iterable[Network] = ()) -> None:
        self._allow = tuple(allow)
        self._deny = tuple(deny)

    def allows(self, address: Address) -> bool:
        """Whether the address is in one of the allowed networks."""
        return any(address in network for network in self._allow)

    def refusal(self, text: str, *, trusted: bool = False) -> str | None:
        """Why an address is refused; None if it is not. ``trusted``: its host was allowed by name."""
        try:
            address = ip_address(text)
        except ValueError:
            return "not an address"
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            return "has a zone"
        if any(one in network for one in (address, _wrapped(address)) if one for network in self._deny):
            return "denied by a setting"
        if trusted or self.allows(address):
            return None
        return next((why for network, why in NOT_PUBLIC if address in network), None)

    def socket_factory(
        self, *, trusted: bool, connecting: Callable[[str], None] = lambda _address: None
    ) -> Callable[[AddressInfo], socket.socket]:
        """A function that creates the socket for each address that aiohttp is about to connect to, or refuses.
        ``connecting`` gets the address before, and may refuse it by an OSError as well.
        """

        def make(info: AddressInfo) -> socket.socket:
            family, kind, protocol, _, where = info
            # A zone comes as text after a "%", or as the fourth value of an IPv6 address.
            zoned = len(where) == 4 and where[3] != 0
            if reason := "has a zone" if zoned else self.refusal(where[0], trusted=trusted):
                raise AddressRefused(reason)
            connecting(where[0])
            return socket.socket(family, kind, protocol)

        return make
