"""What each kind of Spark's processes takes of the processors."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

DRIVER, EXECUTORS, DAEMONS, PYTHON = "driver", "executors", "master and workers", "Python"
COMPILERS, COLLECTOR = "Java's compilers", "Java's collector"
KINDS, PARTS = (DRIVER, EXECUTORS, DAEMONS, PYTHON), (COMPILERS, COLLECTOR)
_MAIN_CLASSES = {
    "CoarseGrainedExecutorBackend": EXECUTORS, "SparkSubmit": DRIVER,
    "deploy.master.Master": DAEMONS, "deploy.worker.Worker": DAEMONS,
}  # fmt: skip
_THREADS = {"C1 ": COMPILERS, "C2 ": COMPILERS, "GC ": COLLECTOR, "G1 ": COLLECTOR, "VM Thread": COLLECTOR}
_EVERY_S = 0.5


@contextmanager
def cpu_seconds() -> Iterator[Mapping[str, float]]:
    """Fills a mapping by the end of the block: the CPU seconds that all processes below this one have used, from their
    start, by kind; and of them those of Java's compilers and collector. Of a process that ends, the last half second
    may be missing.
    """
    used: dict[tuple[int, int], tuple[str, float]] = {}
    found: defaultdict[str, float] = defaultdict(float)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(used, ended), daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()
        for kind, seconds in used.values():
            found[kind] += seconds


def _watch(used: dict[tuple[int, int], tuple[str, float]], ended: threading.Event) -> None:
    here, last = psutil.Process(), False
    while not last:
        last = ended.wait(_EVERY_S)
        for process in here.children(recursive=True):
            with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                used[process.pid, 0] = _kind(process), sum(process.cpu_times()[:2])
                for thread in process.threads():
                    if part := _part(process.pid, thread.id):
                        used[process.pid, thread.id] = part, thread.user_time + thread.system_time


def _kind(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    return next((kind for name, kind in _MAIN_CLASSES.items() if name in line), PYTHON)


def _part(process: int, thread: int) -> str | None:
    name = Path(f"/proc/{process}/task/{thread}/comm").read_text(encoding="utf-8")
    return next((part for start, part in _THREADS.items() if name.startswith(start)), None)
