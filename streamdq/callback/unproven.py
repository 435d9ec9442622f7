"""How many of a worker's slots a receiver may have, so that receivers that hang leave some to the others.

All calls to one host, and all to one address, have at most half of the slots: ports and names cost little, so a
receiver with many of them gets no more than others. All calls to unproven receivers together have half of the slots
too: those that do not answer, or have never answered (``Endpoint.proven``). Of these, one receiver has one call, and
one host or address has two to the usual ports and two to all others: other ports that hang do not shut out a new
receiver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import IPv6Address, IPv6Network, ip_address

from yarl import URL

from .breaker import Endpoint, NotNow
from .target import WEB_PORTS

PER_RECEIVER = 1
PER_PLACE = 2
_SITE_BITS = 64  # of an IPv6 address: its owner has all addresses that begin with them

_current: ContextVar[Call | None] = ContextVar("current_call", default=None)


class NoRoom(OSError):
    """The calls to this address have had their share."""

    def __init__(self) -> None:
        super().__init__("no room")  # always the same text, as for AddressRefused


class Call:
    """One call that takes a slot. ``no_room``: it was not made, because of the other calls to its address.

    A call over a connection that was kept counts for the address that its receiver last connected to.
    """

    def __init__(self, calls: Calls, endpoint: Endpoint, url: URL) -> None:
        self._calls = calls
        self.endpoint = endpoint
        self.host = url.raw_host or ""
        self.usual_port = url.port in WEB_PORTS
        self.places = {self.host, endpoint.site or self.host}  # its host and its addresses
        self.made = False  # it has had its turn
        self.no_room = False
        self._connects = False

    def begin(self) -> None:
        """Its turn has come.

        Raises:
            NotNow: its host or its address has had half of the slots.
        """
        if any(self._calls.has_half(place) for place in self.places):
            raise NotNow
        self.made = True

    def connect(self, address: str) -> None:
        """Counts the address that is about to be connected to.

        Raises:
            NoRoom: it has had its share.
        """
        site = _site(address)
        self.no_room = self._calls.has_half(site, self) or not self._calls.room_at(site, self)
        if self.no_room:
            raise NoRoom
        if not self._connects:
            self._connects, self.places = True, {self.host}
        self.places.add(site)
        self.endpoint.site = site


class Calls:
    """The calls of a worker with this many slots."""

    def __init__(self, slots: int) -> None:
        self.half = max(1, slots // 2)
        self._under_way: set[Call] = set()

    @contextmanager
    def slot(self, endpoint: Endpoint, url: URL) -> Iterator[Call]:
        """Holds a slot for a call.

        Raises:
            NotNow: the receiver is not proven, and such receivers have no room left.
        """
        call = Call(self, endpoint, url)
        if not self._room(call):
            raise NotNow
        self._under_way.add(call)
        _current.set(call)
        try:
            yield call
        finally:
            _current.set(None)
            self._under_way.discard(call)

    def _room(self, call: Call) -> bool:
        if call.endpoint.proven:
            return True
        unproven = self.unproven()
        return (
            len(unproven) < self.half
            and sum(other.endpoint is call.endpoint for other in unproven) < PER_RECEIVER
            and self.room_at(call.host, call)
        )

    def room_at(self, place: str, call: Call) -> bool:
        """Whether the calls to this host or address that are not proven have room for one more, if this endpoint is not
        proven.
        """
        others = (other for other in self.unproven() if other is not call and place in other.places)
        return call.endpoint.proven or sum(other.usual_port == call.usual_port for other in others) < PER_PLACE

    def has_half(self, place: str, call: Call | None = None) -> bool:
        """Whether the calls to this host or address, without this one, have half of the slots. Those that still wait
        for their turn do not count, as they wait for a moment only.
        """
        others = (other for other in self._under_way if other is not call and place in other.places)
        return sum(other.made for other in others) >= self.half

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
