"""What a forked child renews.

A child has one thread, that which forked. It inherits every lock as it was, and the parent's other threads, which could
release one, do not exist there; it inherits sockets that its parent still uses. So whatever has a lock, an event or a
connection is renewed in a child: it has a method ``after_fork`` that makes them anew, and is registered here.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol


class Renewed(Protocol):
    """Has something to renew."""

    def after_fork(self) -> None:
        """Makes locks and the like anew. It is called in a forked child, and by ``__init__``."""


depth = 0
"""How many forks lie between this process and the one that imported this module: it tells a child from its parent."""
_renewed: weakref.WeakSet[Renewed] = weakref.WeakSet()
_functions: list[Callable[[], object]] = []


def renew_in_child(shared: Renewed) -> None:
    """Calls ``shared.after_fork`` in forked children, for as long as the object lives."""
    _renewed.add(shared)


def call_in_child(function: Callable[[], object]) -> None:
    """Calls the function, which belongs to a module, in forked children."""
    _functions.append(function)


class ModuleLock:
    """A lock that belongs to a module. It may be taken in one ``with`` block at a time."""

    def __init__(self) -> None:
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        if self._lock.locked():  # not if the block has forked, in the child
            self._lock.release()


def _after_fork() -> None:
    global depth
    depth += 1
    failures = []
    for renew in (*(shared.after_fork for shared in list(_renewed)), *_functions):
        try:
            renew()
        except Exception as error:  # the others all the same
            failures.append(error)
    if failures:
        raise ExceptionGroup("not renewed in a forked child", failures)  # Python prints it, and the child goes on


os.register_at_fork(after_in_child=_after_fork)


def _renew_cached_properties() -> None:
    """Each has a lock before Python 3.12, which all objects share."""
    own = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == __package__]
    for module in own:
        for found in [value for value in vars(module).values() if isinstance(value, type)]:
            for member in vars(found).values():
                if isinstance(member, cached_property):
                    any_version: Any = member
                    any_version.lock = threading.RLock()


if sys.version_info < (3, 12):
    call_in_child(_renew_cached_properties)
