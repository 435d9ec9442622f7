"""How many replicas keep the objective, against a simulation that is independent of the calculation."""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heapify, heapreplace

import pytest

from streamdq.operations.topics.scale import MOST_REPLICAS, _let_through, _Load


def late_ms(due: list[float], slots: int, took: list[float]) -> list[float]:
    """How late each attempt starts if they start in their order, each in the slot that is free first."""
    free = [0.0] * slots
    heapify(free)
    late = []
    for due_ms, took_ms in zip(sorted(due), took, strict=True):
        start = max(due_ms, free[0])
        heapreplace(free, start + took_ms)
        late.append(start - due_ms)
    return late


def p99(values: list[float]) -> float:
    return sorted(values)[-(-len(values) * 99 // 100) - 1]


def rising(rng: random.Random) -> list[int]:
    return [int(20 + i * rng.uniform(1, 3)) for i in range(60)]


def bursts(rng: random.Random) -> list[int]:
    return [rng.choice([0, 0, 0, 500]) for _ in range(60)]


def steady(rng: random.Random) -> list[int]:
    return [rng.randint(80, 120) for _ in range(60)]


@pytest.mark.parametrize("shape", [rising, bursts, steady])
@pytest.mark.parametrize("attempt_ms", [20, 700, 4000, 30_000])
@pytest.mark.parametrize("slo_ms", [1000, 5000])
def test_the_objective_is_kept_with_as_many_and_not_with_a_third(
    shape: Callable[[random.Random], list[int]], attempt_ms: float, slo_ms: int
) -> None:
    rng, step_ms = random.Random(f"{shape.__name__} {attempt_ms} {slo_ms}"), 1000.0
    loads = shape(rng)
    load = _Load(loads, step_ms, 0, 0, slo_ms, attempt_ms)
    due = [i * step_ms + rng.uniform(0, step_ms) for i, count in enumerate(loads) for _ in range(count)]
    took = [rng.expovariate(1 / attempt_ms) for _ in due]
    slots = load.replicas(1, ahead=True)
    assert p99(late_ms(due, slots, took)) <= slo_ms
    assert load.replicas(10, ahead=True) == -(-slots // 10)
    if slots > 20:
        assert p99(late_ms(due, slots // 3, took)) > slo_ms, "a third of them is not enough"


def test_what_is_ready_counts_now_and_what_is_due_ahead() -> None:
    load = _Load([0] * 5 + [1000], 1000, 100, 0, 1000, 1000)
    # In the objective's second each slot starts two; of ten slots, eight are planned.
    assert (load.replicas(10, ahead=False), load.replicas(10, ahead=True)) == (7, 63)


def test_short_attempts_taken_together_are_not_late_behind_each_other() -> None:
    """However long the time is that is looked at."""
    steady = [4 * 900] * 240  # four minutes of work every fifteen seconds
    assert _Load(steady, 15_000, 0, 0, 1000, 1000).replicas(1, ahead=True) == pytest.approx(300, rel=0.1)


def test_steps_longer_than_the_objective_are_no_bursts() -> None:
    day = _Load([150] * 240, 15_000, 0, 0, 1000, 1000)  # ten a second
    second = _Load([10] * 240, 1000, 0, 0, 1000, 1000)
    assert day.replicas(1, ahead=True) == second.replicas(1, ahead=True)


def test_what_runs_keeps_its_slots() -> None:
    assert _Load([0], 1000, 0, 95, 1000, 60_000).replicas(10, ahead=True) == 10
    assert _Load([0], 1000, 10, 80, 100, 60_000).replicas(10, ahead=False) == 12, "and what is ready gets others"


def test_no_work_needs_nobody_and_work_of_unknown_length_one() -> None:
    assert _Load([0, 0], 1000, 0, 0, 1000, 50).replicas(10, ahead=True) == 0
    assert _Load([0, 0], 1000, 0, 0, 1000, 0).replicas(10, ahead=True) == 0
    unknown = _Load([0, 7], 1000, 0, 0, 1000, 0)
    assert (unknown.replicas(10, ahead=False), unknown.replicas(10, ahead=True)) == (0, 1)


def test_more_than_the_most_is_not_looked_for() -> None:
    assert _Load([10**9], 1000, 0, 0, 1, 10**6).replicas(1, ahead=True) == MOST_REPLICAS


def test_a_rate_spreads_what_is_due() -> None:
    assert _let_through([100, 0, 0, 5], None, 1000) == [100, 0, 0, 5]
    assert _let_through([100, 0, 0, 5], 30, 1000) == [30, 30, 30, 15]
    assert _let_through([0, 3, 0], 0.5, 1000) == [0, 1, 0]
