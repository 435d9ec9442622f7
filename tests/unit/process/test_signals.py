"""The signals that end a worker, and whose they are afterwards."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from streamdq.process.signals import ONE_SIGNAL_S, SIGNALS, Stop, install, uninstall
from tests.unit.test_forks import in_child
from tests.waiting import HANG_S, until

received: list[str] = []


def own(_number: int, _frame: Any) -> None:
    received.append("program")


def workers(_number: int, _frame: Any) -> None:
    received.append("worker")


@pytest.fixture(autouse=True)
def as_they_were() -> Iterator[None]:
    received.clear()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("handler", [own, signal.default_int_handler, signal.SIG_IGN, signal.SIG_DFL])
def test_without_a_signal_each_has_the_handler_from_before(handler: Any) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)
    before = install(workers)
    signal.raise_signal(SIGNALS[0])
    uninstall(before, None)
    assert received == ["worker"]
    assert [signal.getsignal(number) for number in SIGNALS] == [handler] * len(SIGNALS)


@pytest.mark.parametrize("number", SIGNALS)
def test_after_one_the_program_gets_those_that_come_later(number: signal.Signals) -> None:
    signal.signal(number, own)
    uninstall(install(workers), time.monotonic() - ONE_SIGNAL_S)
    signal.raise_signal(number)
    signal.raise_signal(number)
    assert received == ["program", "program"]


@pytest.mark.parametrize("number", SIGNALS)
def test_those_that_belong_to_it_are_dropped(number: signal.Signals) -> None:
    signal.signal(number, own)
    uninstall(install(workers), time.monotonic())
    signal.raise_signal(number)
    assert received == []


def test_a_program_that_serves_again_keeps_its_own_handler() -> None:
    signal.signal(SIGNALS[0], own)
    for _ in range(3):
        uninstall(install(workers), time.monotonic() - ONE_SIGNAL_S)
    signal.raise_signal(SIGNALS[0])
    assert received == ["program"]


def test_a_signal_that_another_thread_receives_ends_the_wait() -> None:
    """Python notes it there, and does not wake the main thread, which alone runs handlers."""
    stop, ended, main = Stop(), threading.Event(), threading.get_ident()

    def receive() -> None:
        until(lambda: sys._current_frames()[main].f_code is Stop.wait.__code__, "the main thread waits")
        signal.pthread_kill(threading.get_ident(), SIGNALS[0])
        if not ended.wait(HANG_S):
            received.append("hung")
            stop.set()

    install(stop.set)
    thread = threading.Thread(target=receive)
    thread.start()
    stop.wait()
    ended.set()
    thread.join()
    assert received == []


def hangs(*_: Any) -> None:
    raise AssertionError("it hangs")


def stopped_at(moment: int) -> tuple[Stop, int]:
    """Sets it at this one of the moments of a wait; how many there were."""
    stop, passed = Stop(), 0

    def pass_one(*_: Any) -> None:
        nonlocal passed
        if passed == moment:
            stop.set()
        passed += 1

    gc.disable()  # what a library does at a garbage collection would count as moments
    sys.setprofile(pass_one)
    try:
        stop.wait(0.001)
        stop.wait(0.001)
    finally:
        sys.setprofile(None)
        gc.enable()
    return stop, passed


def test_a_signal_at_any_moment_of_a_wait_ends_it() -> None:
    """Some moments within an Event's wait are fatal."""
    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, 20)
    try:
        _, moments = stopped_at(-1)
        assert moments > 5
        for moment in range(moments - 1):  # the last one is after the wait
            stop, _ = stopped_at(moment)
            assert stop.is_set()
            stop.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- in a child that a handler forks

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def ends_by(number: int) -> int:
    """The code of a forked child that gets this signal."""

    def get() -> None:
        signal.raise_signal(number)

    return in_child(get)


@pytest.mark.parametrize("served_before", [False, True], ids=["serving", "stopped by a signal"])
def test_a_forked_child_has_the_handlers_from_before(served_before: bool) -> None:
    """Those of the worker would make it ignore SIGTERM, and multiprocessing would wait for its end for ever."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    before = install(workers)
    if served_before:
        uninstall(before, time.monotonic())
    assert [ends_by(number) for number in SIGNALS] == [-number for number in SIGNALS]
    assert received == []


def test_of_two_that_serve_within_each_other_neither_is_in_the_child() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    install(workers)
    install(workers)
    assert ends_by(signal.SIGTERM) == -signal.SIGTERM


def test_a_forked_child_keeps_the_programs_own() -> None:
    signal.signal(signal.SIGTERM, own)
    install(workers)

    def get() -> None:
        signal.raise_signal(signal.SIGTERM)
        assert received == ["program"]

    assert in_child(get) == 0


def test_a_signal_before_the_childs_first_step_is_not_lost() -> None:
    """It finds the parent's handler."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    install(workers)
    parents: Any = signal.getsignal(signal.SIGTERM)

    def get() -> None:
        signal.signal(signal.SIGTERM, parents)
        signal.raise_signal(signal.SIGTERM)

    assert in_child(get) == -signal.SIGTERM


async def test_ctrl_c_in_a_forked_child_cancels_nothing_of_its_parent() -> None:
    """asyncio.run had its handler before."""
    runner = asyncio.Runner()
    signal.signal(signal.SIGINT, functools.partial(runner._on_sigint, main_task=asyncio.current_task()))  # type: ignore[attr-defined]
    install(workers)

    def get() -> None:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert in_child(get) == 0


def test_a_forked_child_wakes_no_loop_of_its_parent() -> None:
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    reader.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno())
    install(workers)

    def get() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.raise_signal(signal.SIGTERM)

    try:
        assert in_child(get) == 0
        with pytest.raises(BlockingIOError):
            reader.recv(1)
    finally:
        signal.set_wakeup_fd(before)
        reader.close()
        writer.close()


@pytest.mark.parametrize("times", [5, pytest.param(100, marks=pytest.mark.thorough)])
def test_a_child_ends_by_a_signal_that_comes_before_its_first_step(times: int) -> None:
    before, ended = install(lambda *_: None), 0
    try:
        for _ in range(times):  # the parent mostly goes on before its child does
            pid = os.fork()
            if pid == 0:
                signal.alarm(30)  # the child is not left behind
                signal.pause()
                os._exit(0)
            os.kill(pid, signal.SIGTERM)
            ended += os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM
    finally:
        uninstall(before, None)
    assert ended == times
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []).isdisjoint((signal.SIGTERM, signal.SIGINT))
