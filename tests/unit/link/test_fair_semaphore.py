"""First come, first served, and nobody's place gets lost."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import CodeType, FrameType
from typing import Any

import pytest

from streamdq.link import fair_semaphore
from streamdq.link.command import Command
from streamdq.link.fair_semaphore import FairSemaphore
from streamdq.link.node import ConnectionLimits, Connections
from tests.waiting import until


def _stands(line: FairSemaphore, count: int) -> bool:
    return line.waiting == count


def test_who_comes_first_is_served_first() -> None:
    line, served = FairSemaphore(1), []
    first = line.enter(0)
    assert first

    def come(number: int) -> None:
        place = line.enter(10)
        assert place
        served.append(number)
        place = None
        line.wake()

    threads = [threading.Thread(target=come, args=(number,)) for number in range(20)]
    for number, thread in enumerate(threads):
        thread.start()
        until(partial(_stands, line, number + 1), "it stands in line")
    first = None
    line.wake()
    for thread in threads:
        thread.join()
    assert served == list(range(20))


def test_who_gives_up_keeps_no_place() -> None:
    line = FairSemaphore(1)
    place = line.enter(0)
    assert place
    assert not line.enter(0.01)
    assert not line.waiting
    place = None
    line.wake()
    assert line.enter(0)


def test_who_waits_finds_a_place_that_nobody_told_it_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that left was interrupted before it could."""
    line = FairSemaphore(1)
    monkeypatch.setattr(fair_semaphore, "_LOOK_S", 0.01)
    place = line.enter(0)
    assert place
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(line.enter, 10)
        until(partial(_stands, line, 1), "it stands in line")
        place = None
        assert waits.result()


def test_never_more_than_there_are_places() -> None:
    line, lock, inside, most, refused = FairSemaphore(3), threading.Lock(), 0, 0, 0

    def come(number: int) -> None:
        nonlocal inside, most, refused
        for _ in range(200):
            place = line.enter(0.0001 if number % 2 else 10)
            if place is None:
                with lock:
                    refused += 1
                continue
            with lock:
                inside += 1
                most = max(most, inside)
            with lock:
                inside -= 1
            place = None
            line.wake()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(come, range(12)))
    assert (inside, line.free, line.waiting) == (0, 3, 0)
    assert 1 <= most <= 3


# -- interrupted anywhere


class _Interrupted(BaseException):
    pass


def _codes(*functions: Callable[..., Any]) -> set[CodeType]:
    return {function.__code__ for function in functions}


_CODES = _codes(
    FairSemaphore.enter, FairSemaphore.wake, FairSemaphore._wait, FairSemaphore._take, FairSemaphore._first,
    fair_semaphore._note, Connections.send, Connections._call,
)  # fmt: skip


def _interrupted_at(step: int, call: Callable[[], Any]) -> bool:
    """Calls it; raises at this entry or return of the functions of a line, or of what they call in C.
    Python has a signal's handler run at such a point; an entry to ``with`` and the way out of it are none. Returns
    whether it came so far.
    """
    seen = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal seen
        if frame.f_code not in _CODES or event not in ("call", "return", "c_return"):
            return
        seen += 1
        if seen == step:
            sys.setprofile(None)
            raise _Interrupted

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    except _Interrupted:
        return True
    finally:
        sys.setprofile(before)
    return False


class _Server:
    """A connection that answers at once."""

    _sock = None

    def connect(self) -> None:
        pass

    def send_command(self, *args: Any) -> None:
        pass

    def read_response(self) -> bytes:
        return b"OK"

    def disconnect(self) -> None:
        pass


def test_a_call_that_is_interrupted_anywhere_leaves_its_place() -> None:
    connections = Connections(_Server, ConnectionLimits(2, 2), packed=False)
    steps = 1
    while _interrupted_at(steps, lambda: connections.send([Command("k", ("GET", "k"))], 1)):
        assert (connections._line.free, connections._line.waiting) == (2, 0), steps
        steps += 1
    assert steps > 15


def test_who_is_interrupted_while_it_waits_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_semaphore, "_LOOK_S", 0.01)
    steps, whole = 0, False
    while not whole:
        steps += 1
        line = FairSemaphore(1)
        place = line.enter(0)
        assert place
        whole = not _interrupted_at(steps, lambda line=line: line.enter(0.02))  # type: ignore[misc]
        assert (line.free, line.waiting) == (0, 0), steps
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(line.enter, 10)
            place = None
            line.wake()
            assert waits.result()
    assert steps > 15
