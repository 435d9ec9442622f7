"""A job's way through the files: docs/way.md names those whose code runs for a job, and no others."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, GeneratorType
from typing import Any

import streamdq
from streamdq import Worker
from tests.redis.harness import Space
from tests.waiting import HANG_S, until

PACKAGE = Path(streamdq.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "way.md").read_text()
BY_THE_CLOCK = (
    "DeadWorkers.", "Election.", "Firing.", "HungHandlers.run.", "LoopWatch.", "Mover._refresh.", "Mover._clean_up.",
    "NodeMover._walk.", "Pulse.", "Reclaimer.", "Resharding.", "ShardLoop._walk.", "WorkerRun._watch_topics.",
)  # fmt: skip
"""Classes and methods that work by the clock, whether there is a job or not: nothing that they call is on its way."""


def test_what_works_by_the_clock_is_there() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    names = [name.rstrip(".").split(".") for name in BY_THE_CLOCK]
    assert [name for name in names if f"class {name[0]}" not in code] == []
    assert [name for name in names if name[1:] and f"def {name[1]}(" not in code] == []


class Trace:
    """Notes which files of the package have code that runs: for the caller of ``enqueue``, the mover and the worker."""

    def __init__(self) -> None:
        self.caller: set[str] = set()
        self.mover: set[str] = set()
        self.worker: set[str] = set()
        self._is_on = False
        self._files: dict[CodeType, str] = {}

    @contextmanager
    def of_new_threads(self) -> Iterator[None]:
        """Follows the threads that begin in the block, while it is ``on``."""
        threading.setprofile(self._called_elsewhere)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextmanager
    def on(self) -> Iterator[None]:
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    @contextmanager
    def here(self) -> Iterator[None]:
        """Follows this thread."""
        before = sys.getprofile()
        sys.setprofile(self._called_here)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _called_here(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and (file := self._file_of(frame.f_code)):
            self.caller.add(file)

    def _called_elsewhere(self, frame: FrameType, event: str, _argument: Any) -> None:
        if not self._is_on or event != "call" or not (file := self._file_of(frame.f_code)):
            return
        calls = list(self._calls(frame))
        if not any(f"{code.co_qualname}.".startswith(BY_THE_CLOCK) for code in calls):
            of_mover = any(self._file_of(code).startswith("mover/") for code in calls)
            (self.mover if of_mover else self.worker).add(file)

    def _calls(self, frame: FrameType | None) -> Iterator[CodeType]:
        """Of the package: this one, and those that led to it."""
        while frame is not None:
            if self._file_of(frame.f_code):
                yield frame.f_code
            frame = frame.f_back

    def _file_of(self, code: CodeType) -> str:
        """Within the package; '' for others."""
        if code not in self._files:
            path = Path(code.co_filename)
            self._files[code] = str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else ""
        return self._files[code]


def chain_to_the_socket(space: Space) -> list[str]:
    """The files of the calls that have not returned when ``enqueue`` sends its command, those of suspended generators
    among them.
    """
    trace, chain = Trace(), list[str]()

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and isinstance(getattr(called, "__self__", None), socket.socket) and not chain:
            for code in (code for outer in frames_of(frame) for code in outer):
                if file := trace._file_of(code):
                    chain.append(file)

    space.queue.enqueue("t", {"n": 0})
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        space.queue.enqueue("t", {"n": 1})
    finally:
        sys.setprofile(before)
    return list(dict.fromkeys(chain))


def frames_of(frame: FrameType | None) -> Iterator[list[CodeType]]:
    """Of each call under way, the innermost first: its code, and that of the generators that it waits for."""
    while frame is not None:
        codes = [frame.f_code]
        for value in list(frame.f_locals.values()):
            while isinstance(value, GeneratorType) and value.gi_frame is not None:
                codes.append(value.gi_code)
                value = value.gi_yieldfrom
        yield codes
        frame = frame.f_back


def followed(space: Space, handler: Callable[[dict], Any]) -> Trace:
    """One job's way, after another one has had whatever happens but once."""
    trace, worker, topics = Trace(), space.worker(), space.queue.stats().topics
    done = topics["t"].groups["default"].done if topics else 0
    worker.handler("t")(handler)
    with trace.of_new_threads():
        serving = threading.Thread(target=worker.run)
        serving.start()
        try:
            until(lambda: worker._run is not None and worker._run.begun, "the worker has started")
            space.queue.enqueue("t", {"n": 1}, delay="10ms")
            until(lambda: has_ended(space, worker, done + 1), "the first job has ended")
            with trace.on():
                with trace.here():
                    space.queue.enqueue("t", {"n": 2}, delay="50ms")
                until(lambda: has_ended(space, worker, done + 2), "the job has ended")
        finally:
            worker.stop()
            serving.join(HANG_S)
    return trace


def has_ended(space: Space, worker: Worker, count: int) -> bool:
    """So many jobs are done, and the worker knows it."""
    serving = worker._run
    assert serving is not None
    return space.stats().done == count and serving._sender.size == 0 and serving._runner.idle


async def in_the_loop(_body: dict) -> None: ...


def in_a_thread(_body: dict) -> None: ...


def test_the_page_names_the_files_that_run_for_a_job(space: Space) -> None:
    """Those of a handler in the event loop and of one in a thread, with its topic's and its worker's defaults."""
    traces = [followed(space, in_the_loop), followed(space, in_a_thread)]
    ran = {file for trace in traces for file in (*trace.caller, *trace.mover, *trace.worker)}
    named = set(re.findall(r"`((?!tests/)[\w/]+\.py)`", PAGE))
    assert sorted(ran - named) == [], "the page does not name them"
    assert sorted(named - ran) == [], "no job runs them"


def test_eight_files_from_enqueue_to_the_socket(space: Space) -> None:
    chain = chain_to_the_socket(space)
    assert {"queue.py", "link/session.py"} < {*chain}
    assert len(chain) <= 8, chain
    assert all(f"`{file}`" in PAGE for file in chain)
