"""Rate limits: a token bucket for each address and each token, with a limited number of buckets."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict

from ..config import HttpSettings
from .problems import ProblemError

MAX_BUCKETS = 10_000
_BURST_S = 10.0


class Buckets:
    """Token buckets: each name may make ``per_s`` requests a second on average, and as many at once as ``burst_s``
    seconds allow. If there are too many names, the least recent one is forgotten. ``per_s`` 0: no limit.
    """

    def __init__(self, per_s: float, burst_s: float = _BURST_S) -> None:
        self._step_s = 1 / per_s if per_s else 0.0
        self._ahead_s = max(burst_s, self._step_s)
        self._full_at: OrderedDict[str, float] = OrderedDict()  # when each bucket is full again

    def wait_s(self, name: str, now: float) -> float:
        """Takes one token and returns 0, or returns how long to wait."""
        if not self._step_s:
            return 0.0
        full_at = max(self._full_at.get(name, 0.0), now) + self._step_s
        wait_s = full_at - now - self._ahead_s
        if wait_s > 1e-9:
            return wait_s
        self._full_at[name] = full_at
        self._full_at.move_to_end(name)
        if len(self._full_at) > MAX_BUCKETS:
            self._full_at.popitem(last=False)
        return 0.0


class Rates:
    """The limits of one server."""

    def __init__(self, http: HttpSettings) -> None:
        self._failures = Buckets(http.failures_per_minute / 60, burst_s=60)
        self._addresses = Buckets(http.address_rate)
        self._tokens = Buckets(http.token_rate)

    def failed(self, address: str) -> None:
        """Counts a request from this address without a valid token.

        Raises:
            ProblemError: too often. A valid token from the same address is still accepted.
        """
        _check(self._failures, _network(address), "requests without a valid token")

    def asked(self, address: str) -> None:
        """
        Raises:
            ProblemError: too often from this address.
        """
        _check(self._addresses, _network(address), "requests from this address")

    def came(self, token: str) -> None:
        """
        Raises:
            ProblemError: too often with this token.
        """
        _check(self._tokens, token, "requests with this token")


def _check(buckets: Buckets, name: str, what: str) -> None:
    wait_s = buckets.wait_s(name, time.monotonic())
    if wait_s:
        raise ProblemError("rate-limited", f"too many {what}", {"Retry-After": str(math.ceil(wait_s))})


def _network(address: str) -> str:
    """The address, or the /64 network of an IPv6 address: who has one such address has 2^64."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
