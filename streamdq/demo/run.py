"""`streamdq demo`: the story (play.py) on an embedded Redis, the audit, and the report if wanted. Only that stays."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..embedded import supervisor
from ..job.retry import DEFAULT_RETRY
from ..queue import Queue
from ..terminal import console, print_json, say
from ..times.durations import show_ms
from .analysis import as_json as page_json
from .analysis import check_installed, keep_history, say_where, write_up
from .interrupts import ending_on_sigterm
from .play import Play
from .processes import WorkerProcesses
from .report import build, report_json, report_view
from .shop import ANALYST_GROUP, NAMESPACE, SHOP_GROUP, UNPAID_AFTER_S, Scale
from .view import open_view

_END_S = 15.0
_TICK_S = 0.02
_REDIS = "redis"


def run_demo(speed: float, as_json: bool, as_page: bool) -> int:
    """Runs the demo and prints its figures; returns 0 if all went well and the accounts balance. ``as_page``: also
    writes Spark's report of the history, which takes a minute.

    Raises:
        MissingExtra: a package for that is not installed.
    """
    if as_page:
        check_installed()
    for name in [name for name in os.environ if name.startswith("STREAMDQ_")]:
        del os.environ[name]  # the demo runs with the default settings
    scale = Scale(speed)
    with ending_on_sigterm(), _temporary_directory() as directory:
        url = f"embedded://{directory / _REDIS}"
        with Queue(url, NAMESPACE) as queue, WorkerProcesses(url, directory, scale) as processes:
            redis = next((finding.what for finding in queue.doctor()), "")
            with open_view(_intro(redis, scale), stderr=as_json) as view:
                play = Play(queue, processes, view, directory, scale)
                play.run()
            processes.end()
            report = build(queue.audit(), queue.stats(), play.rows, directory, scale, play.killed_ms)
            report.missing = play.missing()
        kept = keep_history(url, NAMESPACE) if as_page else None
    if not as_json:
        console().print(report_view(report, scale))
    page = write_up(kept) if kept else None
    if as_json:
        print_json(report_json(report) | page_json(page))
    else:
        _say_of_page(page, as_page)
    return 0 if report.good else 1


def _say_of_page(page: Path | None, is_wanted: bool) -> None:
    if page:
        say_where(page)
    elif not is_wanted:
        say("\na report of all this as a page: streamdq demo --report (needs streamdq[analytics])")


def _intro(redis: str, scale: Scale) -> list[str]:
    closed_after = show_ms(UNPAID_AFTER_S / scale.orders * 1000)
    ttr = show_ms(scale.ttr_s * 1000)
    return [
        f"Embedded {redis.partition(',')[0]}; 2 workers in group {SHOP_GROUP}, 1 in {ANALYST_GROUP}; TTR {ttr}",
        f"orders   1 s = {show_ms(scale.orders * 1000)}: closed when unpaid after 30m, here {closed_after}",
        f"notices  1 s = {show_ms(scale.notices * 1000)}: refused, they are repeated after",
        f"         {DEFAULT_RETRY}",
        f"   here  {scale.retry}",
    ]


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    """A directory that is removed when Redis, which ends a moment after its last user, no longer writes to it."""
    with tempfile.TemporaryDirectory(prefix="streamdq-demo-") as name:
        directory = Path(name)
        try:
            yield directory
        finally:
            if (directory / _REDIS).exists():
                _await_supervisor(directory / _REDIS)


def _await_supervisor(directory: Path) -> None:
    lock = supervisor.open_lock(directory / supervisor.SUPERVISOR_LOCK)
    deadline = time.monotonic() + _END_S
    while not supervisor.try_lock(lock) and time.monotonic() < deadline:
        time.sleep(_TICK_S)
    os.close(lock)
