"""What the commands share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from streamdq.cli.common import run_until_signal
from streamdq.errors import FolderBusy, FolderError, ServerUnavailable
from streamdq.process import signals

AWAY = (ServerUnavailable, FolderError)


@pytest.fixture(autouse=True)
def _handlers_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def pauses_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited; no time passes."""
    found: list[float] = []

    monkeypatch.setattr(signals.Stop, "wait", lambda _stop, timeout_s: found.append(timeout_s))
    return found


class Runs:
    """Ends as given, once after the other; the last one gets the signal."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)

    def __call__(self, stopping: Callable[[], bool]) -> None:
        end = self.ends.pop(0)
        assert not stopping()
        if not self.ends:
            signal.raise_signal(signal.SIGTERM)
            assert stopping(), "a run that is under way sees the signal"
        if end is not None:
            raise end


def test_it_runs_until_the_signal(pauses_s: list[float]) -> None:
    runs = Runs(None, None, None)
    run_until_signal(runs, 5, AWAY)
    assert runs.ends == []
    assert pauses_s == [5, 5, 5]


def test_what_is_away_is_tried_again_later_and_later(pauses_s: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    away = ServerUnavailable("Redis is gone")
    run_until_signal(Runs(away, away, away, away, None, away), 5, AWAY, longest_pause_s=30)
    assert pauses_s == [10, 20, 30, 30, 5, 10]
    assert capsys.readouterr().err.count("Redis is gone; next try in 30 s") == 2


def test_the_pause_is_never_shorter_than_between_runs(pauses_s: list[float]) -> None:
    run_until_signal(Runs(FolderError("no disk"), None), 60, AWAY)
    assert pauses_s == [60, 60]


def test_what_is_final_ends_it(pauses_s: list[float]) -> None:
    with pytest.raises(FolderBusy):
        run_until_signal(Runs(None, FolderBusy("another works here"), None), 5, AWAY, final=(FolderBusy,))
    assert pauses_s == [5]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_interrupts_what_hangs(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    signal.signal(number, signal.default_int_handler)

    def hang(stopping: Callable[[], bool]) -> None:
        for _ in range(3):
            signal.raise_signal(number)
        assert stopping(), "those that come at once are one"
        monkeypatch.setattr(signals, "ONE_SIGNAL_S", 0)
        signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        run_until_signal(hang, 5, AWAY)
