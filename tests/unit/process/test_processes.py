"""Several processes under one parent, without processes: what it does when one can't be started, and how soon again."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from streamdq.process import processes
from streamdq.process.processes import FIRST_BACKOFF_S, LONGEST_BACKOFF_S, Supervisor
from tests.waiting import HANG_S, until


class Process:
    """One that ends when it is told to, with this code."""

    pid = 1

    def __init__(self) -> None:
        self.ended, self.code, self.killed = threading.Event(), 0, False
        self.stdin = self

    def close(self) -> None:
        """Its stdin."""

    def end(self, code: int) -> None:
        self.code = code
        self.ended.set()

    def wait(self) -> int:
        self.ended.wait()
        return self.code

    def poll(self) -> int | None:
        return self.code if self.ended.is_set() else None

    def communicate(self) -> None:
        self.wait()

    def kill(self) -> None:
        self.killed = True
        self.end(-9)


def popen(monkeypatch: pytest.MonkeyPatch, start: Callable[[int], Process]) -> None:
    """``start`` makes the process with this number, counted from 0 over all that were asked for."""
    asked: list[int] = []

    def begin(*_: Any, **__: Any) -> Process:
        asked.append(0)
        return start(len(asked) - 1)

    monkeypatch.setattr(subprocess, "Popen", begin)


@pytest.mark.parametrize("first", [0, 1])
def test_a_process_that_can_not_be_started_ends_no_other(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """The system may have no memory or process left for a moment. Then it is tried again."""
    begun: list[Process] = []

    def start(number: int) -> Process:
        if number == first:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        begun.append(process := Process())
        if number == 2:  # the one that took its place
            for one in begun:
                one.end(0)
        return process

    popen(monkeypatch, start)

    assert Supervisor(["worker"], 2).run() == 0
    assert [process.killed for process in begun] == [False, False]


def test_a_process_that_nobody_could_wait_for_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is awaited in a thread, of which there may be too many."""
    begun: list[Process] = []
    begin, refused = threading.Thread.start, [True]

    def start_thread(thread: threading.Thread) -> None:
        if refused and thread.name.startswith("streamdq-wait"):
            refused.clear()
            raise RuntimeError("can't start new thread")
        begin(thread)

    def start(number: int) -> Process:
        begun.append(process := Process())
        if number == 1:
            process.end(0)
        return process

    monkeypatch.setattr(threading.Thread, "start", start_thread)
    popen(monkeypatch, start)

    assert Supervisor(["worker"], 1).run() == 0
    assert [process.killed for process in begun] == [True, False]


@pytest.mark.parametrize(
    ("code", "lived_s", "pause_s"),
    [(-9, 1, LONGEST_BACKOFF_S), (-9, 11, FIRST_BACKOFF_S), (3, 11, LONGEST_BACKOFF_S), (3, 61, FIRST_BACKOFF_S)],
)
def test_who_did_not_find_redis_was_not_healthy(
    monkeypatch: pytest.MonkeyPatch, code: int, lived_s: float, pause_s: float
) -> None:
    """However long it looked for it, the pauses grow: many processes that start at once keep a machine busy."""
    popen(monkeypatch, lambda _: Process())
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    supervisor = Supervisor(["worker"], 1)
    supervisor._start(0)
    (child,) = supervisor._children
    child.started, child.backoff_s = time.monotonic() - lived_s, LONGEST_BACKOFF_S
    process: Any = child.process

    supervisor._handle(processes._Ended(0, code))

    assert child.restart_at is not None
    assert child.restart_at == pytest.approx(1000 + pause_s, abs=0.4)
    process.end(code)


def test_a_signal_that_another_thread_receives_stops_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that answers a scrape: Python does not wake the main thread then, which alone runs handlers."""
    main, reported = threading.get_ident(), []

    class Stoppable(Process):
        def terminate(self) -> None:
            reported.append("terminate")
            self.end(0)

    started = Stoppable()
    popen(monkeypatch, lambda _: started)

    def receive() -> None:
        waits = Supervisor._next_event.__code__
        until(lambda: sys._current_frames()[main].f_code is waits, "the supervisor waits")
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        if not started.ended.wait(HANG_S):
            started.end(0)

    thread = threading.Thread(target=receive)
    thread.start()
    assert Supervisor(["worker"], 1).run() == 0
    thread.join()
    assert reported == ["terminate"]
