"""Who is dead, by what the mover reads: the silent, seen to be silent, and nobody for the trouble of others."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamdq.mover.alive.dead_workers import Silence

TIMEOUT_S = 3.0
TICK_S = 0.5
LATE_S = 1.9  # no live consumer lets more time pass between two heartbeats, or from the end of trouble to the next
HOUR_MS = 3_600_000
EPOCH_MS = 1_800_000_000_000


class Watching:
    """A mover that looks twice a second, and consumers that send a heartbeat every second, or no more."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.watch = Silence(timeout_s)
        self.now = 1000.0
        self.clock_ms = EPOCH_MS  # of Redis, at 0
        self.heartbeats: dict[str, int] = {}
        self.alive: set[str] = set()
        self._next: dict[str, float] = {}
        self._latest: dict[str, float] = {}

    @property
    def now_ms(self) -> int:
        return self.clock_ms + int(self.now * 1000)

    def heartbeat(self, *consumers: str) -> None:
        for consumer in consumers:
            self.heartbeats[consumer] = self.now_ms

    def live(self, *consumers: str) -> None:
        for consumer in consumers:
            self.alive.add(consumer)
            self._next[consumer] = self._latest[consumer] = self.now

    def meets(self, trouble: Callable[[Watching], None], late_s: float) -> None:
        """The next heartbeat of the living is so late. What takes no time keeps nobody from giving one."""
        began = self.now
        trouble(self)
        for consumer in self.alive:
            if self.now > began:
                self._latest[consumer] = self.now + LATE_S
            self._next[consumer] = min(self.now + late_s, self._latest[consumer])

    def look(self, takes_s: float = 0.001) -> set[str]:
        for consumer in self.alive:
            if self._next[consumer] <= self.now:
                self.heartbeat(consumer)
                self._next[consumer], self._latest[consumer] = self.now + 1.0, self.now + LATE_S
        asked = self.now
        self.now += takes_s
        return self.watch.dead(asked, self.now, self.now_ms, self.heartbeats)

    def until_dead(self, consumer: str, within_s: float = 60) -> float:
        """Seconds until it is found."""
        began = self.now
        while consumer not in self.look():
            assert self.now - began < within_s, "it is not found"
            self.now += min(TICK_S, max(0.01, self.watch.next - self.now))
        return self.now - began

    def nobody_dies(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            assert self.look() == set()
            self.now += TICK_S


def test_the_dead_are_found_as_soon_as_their_time_is_over_and_the_living_are_not() -> None:
    mover = Watching()
    mover.live("dies", "lives")
    mover.nobody_dies(10)
    mover.look()
    mover.alive.discard("dies")
    silent_s = (mover.now_ms - mover.heartbeats["dies"]) / 1000
    assert mover.until_dead("dies") == pytest.approx(TIMEOUT_S - silent_s, abs=0.02)
    assert mover.look() == {"dies"}
    mover.live("dies")
    assert mover.look() == set(), "it was merely silent"


@pytest.mark.parametrize("age_s", [0, 1, 3, 100_000])
def test_a_mover_that_has_just_begun_looks_for_a_while(age_s: int) -> None:
    mover = Watching()
    mover.heartbeats["dead"] = mover.now_ms - age_s * 1000
    assert mover.until_dead("dead") == pytest.approx(max(2.0, TIMEOUT_S - age_s), abs=0.03)


def test_a_worker_that_has_claimed_after_it_was_idle_has_time_for_a_heartbeat() -> None:
    mover = Watching()
    mover.live("busy")
    mover.nobody_dies(10)
    mover.heartbeats["idle"] = mover.now_ms - HOUR_MS
    mover.nobody_dies(1.0)
    mover.live("idle")
    mover.nobody_dies(10)


def test_nobody_else_is_known() -> None:
    mover = Watching()
    mover.nobody_dies(10)
    assert mover.watch.next == math.inf


def jump(ms: int) -> Callable[[Watching], None]:
    def trouble(mover: Watching) -> None:
        mover.clock_ms += ms

    return trouble


def stall(mover: Watching) -> None:
    """Redis stands still for ten seconds, and the heartbeats wait, too."""
    assert mover.look(takes_s=10) == set()


def fail(mover: Watching) -> None:
    for _ in range(10):
        mover.now += 1.0
        mover.watch.trouble(mover.now)


def stop(mover: Watching) -> None:
    """The mover was stopped, perhaps Redis as well."""
    mover.now += 30


def rewind(mover: Watching) -> None:
    """Another server goes on, which lacks the last heartbeats."""
    mover.heartbeats = {name: heartbeat - 10_000 for name, heartbeat in mover.heartbeats.items()}


def rest(mover: Watching) -> None:
    mover.watch.begin()
    mover.now += 3600


TROUBLES = [jump(HOUR_MS), jump(-HOUR_MS), jump(4_000), jump(-4_000), stall, fail, stop, rewind, rest]
NAMES = ["ahead", "back", "a-bit-ahead", "a-bit-back", "stall", "fail", "stop", "rewind", "rest"]


@pytest.mark.parametrize("trouble", TROUBLES, ids=NAMES)
@pytest.mark.parametrize("late_s", [0.0, 0.9, LATE_S])
def test_after_trouble_the_living_have_time_for_a_heartbeat(trouble: Callable[[Watching], None], late_s: float) -> None:
    mover = Watching()
    mover.live("lives")
    mover.nobody_dies(10)
    mover.meets(trouble, late_s)
    mover.nobody_dies(20)


@pytest.mark.parametrize("trouble", TROUBLES, ids=NAMES)
def test_after_trouble_the_dead_are_found(trouble: Callable[[Watching], None]) -> None:
    mover = Watching()
    mover.live("dies", "lives")
    mover.nobody_dies(10)
    trouble(mover)
    mover.alive.discard("dies")
    assert mover.until_dead("dies") <= 4.0
    assert mover.look() == {"dies"}


def test_a_sign_from_the_future_is_no_life_insurance() -> None:
    mover = Watching()
    mover.heartbeats["dead"] = mover.now_ms + HOUR_MS
    assert mover.until_dead("dead") == pytest.approx(TIMEOUT_S, abs=0.03)


def test_the_timeout_decides() -> None:
    mover = Watching(timeout_s=60)
    mover.live("dies")
    mover.nobody_dies(10)
    mover.alive.clear()
    assert 58.9 <= mover.until_dead("dies", within_s=70) <= 60.1


STORIES = st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0, 5), st.floats(0, LATE_S)), max_size=8)


@given(STORIES)
@example([("rewind", 1.2, 1.3), ("back", 0.9, 1.4), ("ahead", 0.0, 1.0)])
@example([("a-bit-back", 1.0, 1.4), ("a-bit-ahead", 0.3, 1.4), ("back", 1.2, 1.4), ("ahead", 0.0, 1.4)])
def test_whatever_happens_a_worker_with_heartbeats_lives(story: list[tuple[str, float, float]]) -> None:
    """Trouble may follow on trouble; once it is over, a live consumer sends its next heartbeat within 1.9 s."""
    mover = Watching()
    mover.live("lives")
    for name, pause_s, late_s in story:
        mover.nobody_dies(pause_s)
        mover.meets(TROUBLES[NAMES.index(name)], late_s)
    mover.nobody_dies(10)
