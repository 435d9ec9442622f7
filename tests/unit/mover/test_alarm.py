"""The mover's timer ends at a moment, or with an event before. How exact it is: `python -m benchmarks trickle`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable

import pytest

from streamdq.mover import alarm as module
from streamdq.mover.alarm import NEVER, Alarm
from tests.waiting import HANG_S, eventually

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS.append(uvloop.new_event_loop)
each_loop = pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__module__)
is_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these timers")


@pytest.fixture(params=["the system's timer", "the event loop's"])
def _timer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "the event loop's":
        monkeypatch.setattr(module, "_new_timer", lambda: None)


async def _passes(alarm: Alarm, in_s: float) -> None:
    """It ends in so many seconds, or the test hangs."""
    until = time.monotonic() + in_s
    while until > time.monotonic():  # the event loop's timers may be early
        await alarm.wait(asyncio.Event(), until)


@each_loop
@pytest.mark.usefixtures("_timer")
def test_it_ends_at_the_moment(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def check() -> None:
        with Alarm() as alarm:
            async with asyncio.timeout(HANG_S):
                for in_s in (0.01, 0.0001, -1.0, 0.0, 0.02):
                    await _passes(alarm, in_s)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


@each_loop
@pytest.mark.usefixtures("_timer")
def test_an_event_ends_it_before_and_its_time_does_not_end_the_next_wait(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def check() -> None:
        with Alarm() as alarm:
            event, loop = asyncio.Event(), asyncio.get_running_loop()
            loop.call_later(0.01, event.set)
            async with asyncio.timeout(HANG_S):
                await alarm.wait(event, time.monotonic() + 3600)
            event.clear()
            loop.call_soon(event.set)
            before = time.monotonic() + 0.05
            await alarm.wait(event, before)
            event.clear()
            waiting = asyncio.create_task(alarm.wait(event, NEVER))
            await eventually(lambda: time.monotonic() > before + 0.05, "its time has passed")
            assert not waiting.done()
            event.set()
            await waiting

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


async def test_an_earlier_moment_takes_the_place_of_a_later_one() -> None:
    with Alarm() as alarm:
        later = asyncio.create_task(alarm.wait(asyncio.Event(), time.monotonic() + 3600))
        await asyncio.sleep(0)
        later.cancel()
        await asyncio.gather(later, return_exceptions=True)
        async with asyncio.timeout(HANG_S):
            await alarm.wait(asyncio.Event(), time.monotonic() + 0.01)


@each_loop
@is_linux
@pytest.mark.parametrize(("off_s", "in_s"), [(3600, 0.01), (-3600, 3600)], ids=["late", "early"])
def test_where_the_systems_timer_is_wrong_the_event_loop_keeps_the_time(
    loop: Callable[[], asyncio.AbstractEventLoop], off_s: int, in_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under libfaketime, which sets it to another time. Of a moment in an hour, it rings early on any machine."""
    set_it = module._set
    monkeypatch.setattr(module, "_set", lambda timer, when: set_it(timer, max(0.001, when + off_s)))

    async def check() -> None:
        with Alarm() as alarm:
            async with asyncio.timeout(HANG_S):
                await alarm.wait(asyncio.Event(), time.monotonic() + in_s)
                assert alarm._timer is None
                await _passes(alarm, 0.01)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


@each_loop
@is_linux
def test_a_busy_event_loop_does_not_give_the_systems_timer_up(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def check() -> None:
        with Alarm() as alarm:
            # Beyond the moment, and beyond when it is overdue.
            asyncio.get_running_loop().call_soon(time.sleep, 0.03)
            await alarm.wait(asyncio.Event(), time.monotonic() + 0.005)
            assert alarm._timer is not None

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check())


@is_linux
@pytest.mark.parametrize("error", [NotImplementedError, OSError])
async def test_where_the_loop_can_not_watch_it_the_event_loop_keeps_the_time(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the system lets nobody watch more descriptors: else each try would leave one open."""
    timers: list[int] = []

    def add_reader(timer: int, *_: object) -> None:
        timers.append(timer)
        raise error

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", add_reader)
    with Alarm() as alarm:
        await _passes(alarm, 0.01)
    (timer,) = timers
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(timer)


@is_linux
async def test_its_descriptor_is_closed_at_the_end() -> None:
    with Alarm() as alarm:
        timer = alarm._timer
        assert timer is not None
        os.fstat(timer)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(timer)
    assert not asyncio.get_running_loop().remove_reader(timer)


async def test_without_a_descriptor_left_the_event_loop_keeps_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        @staticmethod
        def timerfd_create(*_: object) -> int:
            return -1

    monkeypatch.setattr(module, "_libc", Full())
    with Alarm() as alarm:
        assert alarm._timer is None
        await _passes(alarm, 0.01)
