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
    waiting, results, failed, lock = iter(work), dict[str, int](), False, Lock()

    def run_next() -> None:
        nonlocal failed
        with lock:  # so that they begin, and are told, in this order
            if failed:
                return
            name = next(waiting)
            if tell:
                tell(name, len(results), len(work))
        try:
            result = work[name]()
        except BaseException:
            failed = True
            raise
        with lock:
            results[name] = result

    if at_once == 1:
        for _ in work:
            run_next()
        return results
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for future in [pool.submit(run_next) for _ in work]:
                future.result()
        except BaseException:  # also if this thread is interrupted
            failed = True
            raise
    return results
