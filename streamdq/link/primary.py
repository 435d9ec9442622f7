"""Behind Sentinel: whether the server of a connection is still the primary.

After a failover on command (``SENTINEL FAILOVER``) the old primary goes on for about ten seconds, until the sentinels
make it a replica: whoever stays connected writes what is lost then. So processes that make calls ask the sentinels once
a second, and use no connection to another server than the sentinels name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..forks import renew_in_child

_ASK_S = 1.0
_OLD_S = 3 * _ASK_S


class PrimaryWatch:
    """``find`` asks the sentinels, which may take a while: it runs in a thread, and no call waits for it."""

    def __init__(self, find: Callable[[], tuple[str, int]]) -> None:
        self._find = find
        self._named: tuple[str, int] | None = None
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """A forked child has none of its parent's threads."""
        self._is_asking = False
        self._asked_at = float("-inf")

    def has_left(self, connection: Any) -> bool:
        """Whether the sentinels name another server than that of the connection."""
        now = time.monotonic()
        if now - self._asked_at >= _ASK_S and not self._is_asking:
            if now - self._asked_at >= _OLD_S:  # nobody made calls for a while
                self._named = None
            self._asked_at, self._is_asking = now, True
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
