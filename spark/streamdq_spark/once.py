"""What several questions need is made once, although they may be asked in several threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from threading import Lock, RLock
from typing import Any, TypeVar

T = TypeVar("T")


class Once:
    """Values by name. Each is made by the first thread that asks for it; others that do wait. One may ask for others
    while it is made.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}
        self._lock = Lock()
        self._making: defaultdict[Hashable, Any] = defaultdict(RLock)

    def get(self, name: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            making = self._making[name]
        with making:
            if name not in self._made:
                self._made[name] = make()
            made: T = self._made[name]
            return made
