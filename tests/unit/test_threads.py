"""Threads for handlers, also where the system has none left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from streamdq.threads import HandlerThreads

WITHIN_S = 10


class Scarce:
    """A system that starts so many more threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        self.asked = 0
        start = threading.Thread.start

        def starts(thread: threading.Thread) -> None:
            self.asked += 1
            if self.left == 0:
                raise RuntimeError("can't start new thread")
            self.left -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", starts)


def together(threads: HandlerThreads, count: int) -> None:
    """So many calls run at the same time."""
    barrier = threading.Barrier(count)
    for future in [threads.submit(barrier.wait, WITHIN_S) for _ in range(count)]:
        future.result(WITHIN_S)


def test_as_many_threads_as_calls_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    system = Scarce(monkeypatch, 100)
    threads = HandlerThreads(3)
    try:
        for _ in range(3):
            together(threads, 3)
    finally:
        threads.shutdown()
    assert system.asked == 3


def test_a_call_that_no_thread_could_take_is_never_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    system = Scarce(monkeypatch, 0)
    threads = HandlerThreads(2)
    try:
        for _ in range(5):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                threads.submit(called.append, "refused")
        system.left = 100
        threads.submit(called.append, "taken").result(WITHIN_S)
        together(threads, 2)
    finally:
        threads.shutdown()
    assert called == ["taken"]


def test_once_there_is_a_thread_no_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    system = Scarce(monkeypatch, 0)
    threads = HandlerThreads(2)
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.begin()
        system.left = 1
        threads.begin()
        threads.begin()
        for future in [threads.submit(called.append, number) for number in range(3)]:
            future.result(WITHIN_S)
    finally:
        threads.shutdown()
    assert called == [0, 1, 2]


def test_with_fewer_threads_than_calls_each_call_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """And there are more threads, as soon as the system has some again."""
    called: list[int] = []
    system = Scarce(monkeypatch, 1)
    threads, hold = HandlerThreads(4), threading.Event()

    def submit(function: Callable[..., object], *args: object) -> Future[object]:
        return threads.submit(function, *args)

    try:
        held = submit(hold.wait, WITHIN_S)
        waiting = [submit(called.append, number) for number in range(3)]
        hold.set()
        for future in (held, *waiting):
            future.result(WITHIN_S)
        assert called == [0, 1, 2]
        system.left = 100
        together(threads, 4)
    finally:
        threads.shutdown()
