"""Several pieces of work at the same time, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

Tell = Callable[[str, int, int], None]
"""Called with the piece that begins, how many are done, and how many there are; never twice at the same time."""


def side_by_side(work: Mapping[str, Callable[[], int]], at_once: int, tell: Tell | None = None) -> dict[str, int]:
    """What each piece of work returns, by its name. They begin in this order, ``at_once`` at the same time.

    Raises:
        Exception: what the first of them that failed has raised. Those that had begun have ended before that, and no
            others have begun.
    """
    pieces = _Pieces(work, tell)
    if at_once == 1:
        for _ in work:
            pieces.run_next()
        return pieces.results
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for future in [pool.submit(pieces.run_next) for _ in work]:
                future.result()
        except BaseException:  # also if this thread is interrupted
            pieces.failed = True
            raise
    return pieces.results


class _Pieces:
    def __init__(self, work: Mapping[str, Callable[[], int]], tell: Tell | None) -> None:
        self.results: dict[str, int] = {}
        self.failed = False
        self._work, self._left, self._tell = work, iter(work), tell
        self._lock = Lock()

    def run_next(self) -> None:
        """Unless one has failed."""
        with self._lock:  # so that they begin, and are reported, in this order
            if self.failed:
                return
            name = next(self._left)
            if self._tell:
                self._tell(name, len(self.results), len(self._work))
        try:
            result = self._work[name]()
        except BaseException:
            self.failed = True
            raise
        with self._lock:
            self.results[name] = result
