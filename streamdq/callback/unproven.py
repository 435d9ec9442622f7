"""Room for receivers that do not answer, or have never answered: at most half of the slots of a worker.

A receiver is proven while it answers (``Endpoint.proven``). The other half of the slots is left to proven ones, so that
they are called however many receivers hang. And because ports cost nothing and names little, the unproven calls to one
host, and those to one address, are limited as well: whoever has many of them gets no more than others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import IPv6Address, IPv6Network, ip_address

from .breaker import Endpoint, NotNow

PER_RECEIVER = 1
PER_HOST = 2
_SITE_BITS = 64  # of an IPv6 address: its owner has all addresses that begin with them

_current: ContextVar[Call | None] = ContextVar("current_call", default=None)


class NoRoom(OSError):
    """There are as many calls to this address as one that does not answer may have."""

    def __init__(self) -> None:
        super().__init__("no room")  # always the same text, as for AddressRefused


class Call:
    """One call that takes a slot. ``no_room``: it was not made, because of the other calls to its address."""

    def __init__(self, calls: Calls, endpoint: Endpoint, host: str) -> None:
        self._calls = calls
        self.endpoint = endpoint
        self.host = host
        self.addresses: set[str] = set()
        self.no_room = False

    def connect(self, address: str) -> None:
        """Counts the address that is about to be connected to.

        Raises:
            NoRoom: it has had its share.
        """
        site = _site(address)
        if not self.endpoint.proven:
            others = sum(call is not self and site in call.addresses for call in self._calls.unproven())
            if others >= PER_HOST:
                self.no_room = True
                raise NoRoom
        self.addresses.add(site)


class Calls:
    """The calls of a worker with this many slots."""

    def __init__(self, slots: int) -> None:
        self._most_unproven = max(1, slots // 2)
        self._under_way: set[Call] = set()

    @contextmanager
    def slot(self, endpoint: Endpoint, host: str) -> Iterator[Call]:
        """Holds a slot for a call.

        Raises:
            NotNow: the receiver is not proven, and such receivers have no room left.
        """
        if not endpoint.proven and not self._room(endpoint, host):
            raise NotNow
        call = Call(self, endpoint, host)
        self._under_way.add(call)
        _current.set(call)
        try:
            yield call
        finally:
            _current.set(None)
            self._under_way.discard(call)

    def _room(self, endpoint: Endpoint, host: str) -> bool:
        unproven = self.unproven()
        return (
            len(unproven) < self._most_unproven
            and sum(call.endpoint is endpoint for call in unproven) < PER_RECEIVER
            and sum(call.host == host for call in unproven) < PER_HOST
        )

    def unproven(self) -> list[Call]:
        """The calls under way to receivers that are not proven."""
        return [call for call in self._under_way if not call.endpoint.proven]


def connecting(address: str) -> None:
    """Counts the address for the call of the present context, if there is one.

    Raises:
        NoRoom: it has had its share.
    """
    if (call := _current.get()) is not None:
        call.connect(address)


def _site(address: str) -> str:
    found = ip_address(address)
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or IPv6Network((int(found), _SITE_BITS), strict=False))
    return str(found)
