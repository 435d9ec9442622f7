"""Calls of a storage of large bodies, which may hang: nobody waits for them longer than its timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from ..errors import BodyStorageUnavailable
from ..forks import renew_in_child
from ..threads import HandlerThreads

T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 8
_MOST_HANGING = 64


class StorageCalls:
    """Several at the same time, in threads that the process does not wait for when it exits. Those that were given up
    go on in their threads, as a thread can't be ended; while many do, no others begin.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """A forked child has none of its parent's threads."""
        self.hanging = 0
        self._lock = threading.Lock()

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The results, in order, or the first error.

        Raises:
            BodyStorageUnavailable: for as long as the timeout none of the calls has ended, or many earlier ones hang.
        """
        self._check_hanging()
        threads = HandlerThreads(_AT_ONCE)
        try:
            calls = [threads.submit(function, item) for item in items]
            self._await(calls)
            return [call.result() for call in calls]
        finally:
            threads.shutdown()

    def _check_hanging(self) -> None:
        with self._lock:
            if self.hanging >= _MOST_HANGING:
                raise BodyStorageUnavailable(
                    f"the storage of large bodies hangs: {self.hanging} calls to it have not ended"
                )

    def _await(self, calls: list[Future[Any]]) -> None:
        left = set(calls)
        while left:
            done, left = wait(left, self._timeout_s, FIRST_COMPLETED)
            failed = next((error for call in done if (error := call.exception())), None)
            if failed is None and done:
                continue
            for call in left:
                if not call.cancel():
                    self._note_hanging(call)
            raise failed or BodyStorageUnavailable(
                f"the storage of large bodies has not answered for {self._timeout_s:g} s"
            )

    def _note_hanging(self, call: Future[Any]) -> None:
        with self._lock:
            self.hanging += 1
        call.add_done_callback(self._ended)

    def _ended(self, _: Future[Any]) -> None:
        with self._lock:
            self.hanging -= 1
