"""The signals that end a worker, and whose they are afterwards."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from streamdq.worker.signals import ONE_SIGNAL_S, SIGNALS, install, uninstall

heard: list[str] = []


def own(_number: int, _frame: Any) -> None:
    heard.append("program")


def workers(_number: int, _frame: Any) -> None:
    heard.append("worker")


@pytest.fixture(autouse=True)
def as_they_were() -> Iterator[None]:
    heard.clear()
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
    assert heard == ["worker"]
    assert [signal.getsignal(number) for number in SIGNALS] == [handler] * len(SIGNALS)


@pytest.mark.parametrize("number", SIGNALS)
def test_after_one_the_program_gets_those_that_come_later(number: signal.Signals) -> None:
    signal.signal(number, own)
    uninstall(install(workers), time.monotonic() - ONE_SIGNAL_S)
    signal.raise_signal(number)
    signal.raise_signal(number)
    assert heard == ["program", "program"]


@pytest.mark.parametrize("number", SIGNALS)
def test_those_that_belong_to_it_are_dropped(number: signal.Signals) -> None:
    signal.signal(number, own)
    uninstall(install(workers), time.monotonic())
    signal.raise_signal(number)
    assert heard == []


def test_a_program_that_serves_again_keeps_its_own_handler() -> None:
    signal.signal(SIGNALS[0], own)
    for _ in range(3):
        uninstall(install(workers), time.monotonic() - ONE_SIGNAL_S)
    signal.raise_signal(SIGNALS[0])
    assert heard == ["program"]
