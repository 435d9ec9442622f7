"""Behind Sentinel: which server is the primary, and whether that of a connection still is.

After a failover on command (``SENTINEL FAILOVER``) the old primary goes on for about ten seconds, until the sentinels
make it a replica: a client that stays connected writes changes that are then lost. So processes that make calls ask the
sentinels once a second, and use no connection to another server than the sentinels name.

A sentinel that is cut off from the others goes on naming the old primary. Each failover has a higher number, the
configuration's epoch, and what has the highest is true. So each time another sentinel is asked. A process that has seen
an epoch believes no sentinel with a lower one, unless all that answer have one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import redis.asyncio.sentinel
import redis.sentinel
from redis.exceptions import RedisError
from redis.sentinel import MasterNotFoundError

from ..forks import renew_in_child

_ASK_S = 1.0
_OLD_S = 3 * _ASK_S
_LAST_S = 10.0  # how long a sentinel that failed comes after the others
_FAILURES = (RedisError, OSError)

Address = tuple[str, int]


class PrimaryWatch:
    """``find`` asks the sentinels, which may take a while: it runs in a thread, and no call waits for it. ``close``
    closes what it has opened.
    """

    def __init__(self, find: Callable[[], Address], close: Callable[[], object]) -> None:
        self._find = find
        self._close = close
        self._named: Address | None = None
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """A forked child has none of its parent's threads."""
        self._is_asking = False
        self._is_closed = False
        self._asked_at = float("-inf")

    def has_left(self, connection: Any) -> bool:
        """Whether the sentinels name another server than that of the connection."""
        now = time.monotonic()
        if now - self._asked_at >= _ASK_S and not self._is_asking:
            if now - self._asked_at >= _OLD_S:  # nobody made calls for a while
                self._named = None
            self._asked_at, self._is_asking, self._is_closed = now, True, False
            try:
                threading.Thread(target=self._ask, name="streamdq-primary", daemon=True).start()
            except RuntimeError:  # the system starts no thread
                self._is_asking = False
        named = self._named
        return named is not None and named != (connection.host, connection.port)

    def _ask(self) -> None:
        try:
            named = None
            with suppress(Exception):  # no sentinel answers: that alone is no reason to leave
                named = self._find()
            self._named = named
        finally:
            self._is_asking = False
            if self._is_closed:  # while it asked
                self._close()

    def close(self) -> None:
        """A later call opens connections again."""
        self._is_closed = True
        self._close()


class Epoch:
    """The highest epoch that a sentinel has reported; -1: none yet."""

    def __init__(self) -> None:
        self.highest = -1


class Asking:
    """Which sentinel to ask for the primary, and which one to believe. ``logins``: clients of the sentinels, once for
    each login that they may have. Another sentinel comes first each time, as the answer of the last one may have been
    wrong; one that failed comes last for a while, as it may hang.
    """

    def __init__(self, logins: Iterable[Sequence[Any]], epoch: Epoch) -> None:
        self._logins = [list(login) for login in logins]
        self._epoch = epoch
        self._failed_at: dict[Any, float] = {}

    def primary(
        self, service: str, is_up: Callable[[Any, str], bool]
    ) -> Generator[Any, Mapping[str, Mapping[str, Any]], Address]:
        """Yields sentinels, and gets the services that each knows, or its error.

        Raises:
            MasterNotFoundError: no sentinel names a primary.
        """
        errors: list[str] = []
        for login in list(self._logins):
            if best := (yield from self._best(login, service, is_up, errors)):
                self._epoch.highest = best[0]
                return best[1]
        details = f": {', '.join(errors)}" if errors else ""
        raise MasterNotFoundError(f"No master found for {service!r}{details}")

    def _best(
        self, login: list[Any], service: str, is_up: Callable[[Any, str], bool], errors: list[str]
    ) -> Generator[Any, Mapping[str, Mapping[str, Any]], tuple[int, Address] | None]:
        """The highest epoch that one of these sentinels tells of, and its primary."""
        best: tuple[int, Address] | None = None
        for sentinel in sorted(login, key=self._has_failed):
            try:
                state = (yield sentinel).get(service)
            except _FAILURES as error:
                self._failed_at[sentinel] = time.monotonic()
                errors.append(f"{sentinel} - {error!r}")
                continue
            if not state or not is_up(state, service):
                continue
            epoch = int(state.get("config-epoch", 0))
            if best is None or epoch > best[0]:
                best = epoch, (state["ip"], state["port"])
                self._go_on_after(login, sentinel)
            if epoch >= self._epoch.highest:
                break
        return best

    def _has_failed(self, sentinel: Any) -> bool:
        return time.monotonic() - self._failed_at.get(sentinel, float("-inf")) < _LAST_S

    def _go_on_after(self, login: list[Any], sentinel: Any) -> None:
        """In new lists, as other threads may walk through these."""
        following = login.index(sentinel) + 1
        order = login[following:] + login[:following]
        self._logins = [order, *(other for other in self._logins if sentinel not in other)]


class Sentinel(redis.sentinel.Sentinel):
    asking: Asking

    def discover_master(self, service_name: str) -> Address:
        asked = self.asking.primary(service_name, self.check_master_state)
        sentinel = next(asked)
        try:
            while True:
                try:
                    services = sentinel.sentinel_masters()
                except _FAILURES as error:
                    sentinel = asked.throw(error)
                else:
                    sentinel = asked.send(services)
        except StopIteration as found:
            return cast("Address", found.value)


class AsyncSentinel(redis.asyncio.sentinel.Sentinel):
    asking: Asking

    async def discover_master(self, service_name: str) -> Address:
        asked = self.asking.primary(service_name, self.check_master_state)
        sentinel = next(asked)
        try:
            while True:
                try:
                    services = await sentinel.sentinel_masters()
                except _FAILURES as error:
                    sentinel = asked.throw(error)
                else:
                    sentinel = asked.send(services)
        except StopIteration as found:
            return cast("Address", found.value)
