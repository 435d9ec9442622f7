"""How many workers the coming hours need: as plain Python has it, enough for what then comes, and not far more."""

import heapq
import math
import random
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from tests.spark import plain
from tests.spark.answers import answer
from tests.spark.frames import assert_same
from tests.spark.logs import MONDAY, corners, done, random_log
from tests.spark.plain import DAY, HOUR, Happened

SLO = 1000
DAYS, AHEAD = 22, 5  # so many days are known, and these are not
Moments = Callable[[random.Random, int], list[int]]
"""When jobs come due in an hour of the day, in ms from its begin."""


def by_chance(an_hour: int) -> Moments:
    def moments(chance: random.Random, hour: int) -> list[int]:
        jobs = an_hour * (3 if 9 <= hour < 17 else 1)
        return sorted(chance.randrange(HOUR) for _ in range(round(chance.gauss(jobs, jobs**0.5))))

    return moments


def in_bursts(chance: random.Random, hour: int) -> list[int]:
    """Fifty at the full hour, in office hours, beside some others."""
    return sorted([0] * (50 if 9 <= hour < 17 else 0) + by_chance(60)(chance, hour))


SHAPES: dict[str, tuple[Moments, float]] = {
    "short": (by_chance(150), 80),
    "a second": (by_chance(150), 1500),
    "long": (by_chance(200), 30_000),
    "hardly any": (by_chance(4), 5000),
    "bursts": (in_bursts, 3000),
}


def days(shape: str, seed: int, first: int, count: int) -> list[tuple[int, int]]:
    """When jobs are due and how long their attempts take."""
    moments, mean_ms = SHAPES[shape]
    chance = random.Random(f"{shape} {seed}")
    return [
        (MONDAY + day * DAY + hour * HOUR + ms, round(chance.expovariate(1 / mean_ms)))
        for day in range(first, first + count)
        for hour in range(24)
        for ms in moments(chance, hour)
    ]


def known(jobs: Sequence[tuple[int, int]]) -> list[Happened]:
    log = [done("t", due + took, id=f"{n}", due=due, started=due) for n, (due, took) in enumerate(jobs)]
    return [*log, done("t", MONDAY + DAYS * DAY + 1, id="last")]


@cache
def slots_for(shape: str) -> dict[int, float]:
    """By hour of the day."""
    reported = plain.capacity(known(days(shape, 1, 0, DAYS)))
    return {row["hour"] % DAY: row["slots"] for row in reported}


def on_time(jobs: Sequence[tuple[int, int]], slots: dict[int, int]) -> float:
    """The share that starts within the SLO, first come, first served, if so many slots are there in each hour of a
    day.
    """
    busy: list[int] = []
    within = 0
    for due, took in jobs:
        there = slots[due % DAY // HOUR * HOUR]
        while busy and busy[0] <= due:
            heapq.heappop(busy)
        start = due
        while len(busy) >= there:
            start = max(start, heapq.heappop(busy))
        heapq.heappush(busy, start + took)
        within += start - due <= SLO
    return within / len(jobs)


@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=[] if shape == "hardly any" else pytest.mark.thorough) for shape in SHAPES]
)
def test_with_so_many_slots_the_objective_is_met(shape: str) -> None:
    slots = slots_for(shape)
    assert on_time(days(shape, 2, DAYS, AHEAD), {clock: math.ceil(some) for clock, some in slots.items()}) >= 0.99


@pytest.mark.thorough
@pytest.mark.parametrize("tz", ["UTC", "America/New_York"])
def test_it_equals_the_plain_calculation_with_what_waits(tz: str) -> None:
    log = random_log(seed=5, jobs=1500) + [e for e in corners() if e.group]
    asked_at = max(e.finished for e in log) + 20 * 60_000
    first = asked_at // HOUR * HOUR
    waiting = {("orders", first): 90, ("orders", first + 5 * HOUR): 7, ("new", first + HOUR): 4, ("few", first): 1}
    found = answer(log, "capacity", waiting=waiting, asked_at=asked_at, slo_ms=5000, objective=0.9, tz=tz)
    assert_same(found, plain.capacity(log, waiting, asked_at, 5000, 0.9, tz))
    new = next(row for row in found if row["topic"] == "new" and row["load"])
    assert (new["group"], new["load"], new["slots"], new["workers"]) == (None, 4, None, None)


@pytest.mark.thorough
def test_what_waits_is_not_expected_once_more() -> None:
    """All jobs are enqueued ten hours before they are due: what is due within ten hours waits, and no more comes."""
    log = [
        done("t", MONDAY + hour * HOUR + 1000 * n, id=f"{hour}.{n}", created=MONDAY + (hour - 10) * HOUR + 1000 * n)
        for hour in range(22 * 24)
        for n in range(20)
    ]
    start = MONDAY + 22 * DAY
    rows = answer(log, "capacity", waiting={("t", start + k * HOUR): 5 for k in range(10)}, asked_at=start)
    assert [row["load"] for row in sorted(rows, key=lambda row: row["hour"])] == pytest.approx([5.0] * 10 + [20.0] * 14)


@pytest.mark.thorough
def test_a_delay_that_the_handler_gave_is_known_from_the_failure_on() -> None:
    """Each job fails when it is enqueued, and again comes due after ten hours: half of what comes waits meanwhile."""
    log = [
        done("t", MONDAY + hour * HOUR + 1000 * n, id=f"{hour - again * 10}.{n}", error=(None if again else "E"),
             created=MONDAY + (hour - again * 10) * HOUR, event=("retry", "done")[again], attempt=1 + again)
        for hour in range(10, 22 * 24) for again in (0, 1) for n in range(10)
    ]  # fmt: skip
    start = MONDAY + 22 * DAY
    rows = answer(log, "capacity", waiting={}, asked_at=start)
    loads = [row["load"] for row in sorted(rows, key=lambda row: row["hour"])]
    assert loads == pytest.approx([10.0] * 10 + [20.0] * 14)
    assert_same(rows, plain.capacity(log, {}, start))


def test_an_attempt_alone_takes_one_slot_however_the_load_grows() -> None:
    """Ten an hour, each for a second, six minutes apart; twenty wait for the next hour."""
    log = [
        done("t", MONDAY + hour * HOUR + 360_000 * n + 5000, due=MONDAY + hour * HOUR + 360_000 * n,
             started=MONDAY + hour * HOUR + 360_000 * n, id=f"{hour}.{n}")
        for hour in range(22 * 24) for n in range(10)
    ]  # fmt: skip
    start = MONDAY + 22 * DAY
    rows = answer(log, "capacity", waiting={("t", start): 20}, asked_at=start)
    assert_same(rows, plain.capacity(log, {("t", start): 20}, start))
    assert {row["load"]: row["pool_slots"] for row in rows}[30] == 1.0
