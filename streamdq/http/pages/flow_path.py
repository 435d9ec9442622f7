"""The bars of a flow's critical path: each job below the one before, on the same axis of time. The template draws them
as SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...job.flow import FlowStep, FlowTimes
from .flow_chart import Stretch

MOST_STEPS = 40
WIDTH = 600
_LEAST = 3.0


@dataclass(frozen=True, slots=True)
class PathStep:
    """A job of the path. ``bar``: what it waited, and ran; of one that has not ended, the time since it could begin."""

    step: FlowStep
    took_ms: int | None
    bar: Sequence[Stretch]


@dataclass(frozen=True, slots=True)
class FlowPath:
    """``took_ms``: from the beginning of the flow to its end, or until now. ``waited_ms``, ``ran_ms``: all the jobs of
    the path together that have ended. ``left_out``: of the jobs that took the least, how many are not drawn.
    """

    took_ms: int
    waited_ms: int
    ran_ms: int
    steps: Sequence[PathStep]
    left_out: int


def path_of(times: FlowTimes, now_ms: int) -> FlowPath:
    total = max(1, (now_ms if times.ended_ms is None else times.ended_ms) - times.begun_ms)
    ended = [one for one in times.path if one.ended_ms is not None]
    longest = sorted(range(len(times.path)), key=lambda n: -_took(times.path[n], now_ms))[:MOST_STEPS]
    steps = [_drawn(times.path[n], times.begun_ms, total, now_ms) for n in sorted(longest)]
    return FlowPath(
        total, sum(one.waited_ms or 0 for one in ended), sum(one.ran_ms or 0 for one in ended), steps,
        len(times.path) - len(steps),
    )  # fmt: skip


def _took(step: FlowStep, now_ms: int) -> int:
    if step.begun_ms is None:
        return 0
    return (now_ms if step.ended_ms is None else step.ended_ms) - step.begun_ms


def _drawn(step: FlowStep, begun_ms: int, total_ms: int, now_ms: int) -> PathStep:
    if step.begun_ms is None:
        return PathStep(step, None, ())
    if step.ended_ms is None:
        parts = [("open", max(0, now_ms - step.begun_ms))]
    else:
        parts = [("worker", step.waited_ms or 0), ("ran", step.ran_ms or 0)]
    x = min(max(0.0, (step.begun_ms - begun_ms) / total_ms) * WIDTH, WIDTH - _LEAST * len(parts))
    bar = []
    for kind, ms in parts:
        width = max(_LEAST, ms / total_ms * WIDTH) if ms or kind != "worker" else 0.0
        bar.append(Stretch(kind, round(x, 2), round(min(width, WIDTH - x), 2)))
        x += width
    return PathStep(step, _took(step, now_ms), bar)
