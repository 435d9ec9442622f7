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
        Exception: what the first of them that failed has raised. Those that had begun have ended by then, and no others
            have begun.
    """
    done, failed, lock = 0, False, Lock()

    def run(name: str) -> int:
        nonlocal done, failed
        with lock:
            if failed:
                return 0  # nobody will see it
            if tell:
                tell(name, done, len(work))
        try:
            result = work[name]()
        except BaseException:
            failed = True
            raise
        with lock:
            done += 1
        return result

    if at_once == 1:
        return {name: run(name) for name in work}
    with ThreadPoolExecutor(at_once) as pool:
        begun = {name: pool.submit(run, name) for name in work}
        try:
            return {name: future.result() for name, future in begun.items()}
        except BaseException:  # also if this thread is interrupted
            failed = True
            raise
