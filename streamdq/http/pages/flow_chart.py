"""The geometry of a flow's chart: its stages as boxes, each below those that it waits for. The template draws it as
SVG.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ...job.flow import FlowStage, FlowTimes, StageTimes
from .render import with_commas
from .timeline import brief

MOST_BOXES = 60
_WIDTH, _HEIGHT = 250, 94
_GAP_X, _GAP_Y, _EDGE = 28, 44, 8
_PER_ROW = 4
_PAD = 12
_TOPIC_CHARS, _FACTS_CHARS = 30, 38
_LEAST = 3.0  # of a part, so that it is visible
KINDS = ("done", "failed", "blocked", "running", "ready", "delayed", "waiting")
"""How the states of jobs are drawn, in this order; all other ends are failures."""


class Stretch(NamedTuple):
    """Of a box's bar."""

    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Box:
    """A stage. ``kind``: the state that tells most of it. ``took``: what its jobs waited and ran, in words."""

    number: int
    topic: str
    name: str
    jobs: str
    facts: str
    took: str
    kind: str
    x: float
    y: float
    parts: Sequence[Stretch]


@dataclass(frozen=True, slots=True)
class FlowChart:
    """``edges``: SVG paths. ``critical``: those of the critical path. ``left_out``: how many stages are not drawn."""

    width: float
    height: float
    boxes: Sequence[Box]
    edges: Sequence[str]
    critical: Sequence[str]
    left_out: int
    box_width: int = _WIDTH
    box_height: int = _HEIGHT
    pad: int = _PAD


def by_kind(counts: Mapping[str, int]) -> dict[str, int]:
    """How many jobs are drawn in each way; only those that there are."""
    found = dict.fromkeys(KINDS, 0)
    for state, count in counts.items():
        found[state if state in found else "failed"] += count
    return {kind: count for kind, count in found.items() if count}


def facts_of(counts: Mapping[str, int]) -> str:
    """The states in words: those of ``KINDS`` first, and failures by their names."""
    order = {kind: place for place, kind in enumerate(KINDS)}
    states = sorted(counts, key=lambda state: (order.get(state, order["failed"]), state))
    return " · ".join(f"{with_commas(counts[state])} {state}" for state in states if counts[state])


def took(stage: StageTimes) -> str:
    return f"waited {brief(stage.waited_ms)} · ran {brief(stage.ran_ms)}" if stage.known else ""


def chart_of(stages: Sequence[FlowStage], times: FlowTimes | None = None) -> FlowChart:
    """The first stages, up to MOST_BOXES."""
    shown = stages[:MOST_BOXES]
    rows = _rows(shown)
    width = max((len(row) for row in rows), default=0) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    places: dict[int, tuple[float, float]] = {}
    for n, row in enumerate(rows):
        for i, number in enumerate(row):  # from the left: a narrow screen shows the first of each row
            places[number] = _EDGE + i * (_WIDTH + _GAP_X), _EDGE + n * (_HEIGHT + _GAP_Y)
    height = len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _EDGE
    on_path = set(pairwise(step.stage for step in times.path)) if times else set[tuple[int, int]]()
    edges = _edges(shown, places, on_path)
    boxes = [_box(n, one, took(times.stages[n]) if times else "", *places[n]) for n, one in enumerate(shown)]
    return FlowChart(max(width, 0), max(height, 0), boxes, edges[False], edges[True], len(stages) - len(shown))


def _rows(stages: Sequence[FlowStage]) -> list[list[int]]:
    """The stages of each row: of one depth, up to _PER_ROW, those with the same parents beside each other."""
    depths = _depths(stages)
    rows = []
    for depth in range(max(depths, default=-1) + 1):
        level = sorted((n for n, at in enumerate(depths) if at == depth), key=lambda n: (stages[n].after, n))
        rows += [level[begin : begin + _PER_ROW] for begin in range(0, len(level), _PER_ROW)]
    return rows


def _depths(stages: Sequence[FlowStage]) -> list[int]:
    """As low as those that wait for it allow, so that edges are short."""
    depths: list[int] = []
    for one in stages:
        depths.append(1 + max((depths[parent] for parent in one.after if parent < len(depths)), default=-1))
    lowest: dict[int, int] = {}
    for n in reversed(range(len(stages))):
        depths[n] = lowest.get(n, depths[n])
        for parent in stages[n].after:
            lowest[parent] = min(depths[n] - 1, lowest.get(parent, depths[n] - 1))
    return depths


def _edges(
    stages: Sequence[FlowStage], places: Mapping[int, tuple[float, float]], on_path: Container[tuple[int, int]]
) -> dict[bool, list[str]]:
    """Those of the critical path, and the others."""
    found: dict[bool, list[str]] = {False: [], True: []}
    for n, one in enumerate(stages):
        for parent in one.after:
            if parent in places:
                found[(parent, n) in on_path].append(_edge(places[parent], places[n]))
    return found


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x1, y1, x2, y2 = start[0] + _WIDTH / 2, start[1] + _HEIGHT, end[0] + _WIDTH / 2, end[1] - 2
    bend = _GAP_Y / 2
    return f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"


def _box(number: int, stage: FlowStage, took: str, x: float, y: float) -> Box:
    kinds = by_kind(stage.counts)
    jobs = f"{with_commas(stage.jobs)} job{'' if stage.jobs == 1 else 's'}"
    return Box(
        number, stage.topic, _short(stage.topic, _TOPIC_CHARS), jobs, _short(facts_of(stage.counts), _FACTS_CHARS),
        took, _most_telling(kinds), x, y, _parts(kinds),
    )  # fmt: skip


def _most_telling(kinds: Mapping[str, int]) -> str:
    order = ("failed", "blocked", "running", "ready", "delayed", "waiting", "done")
    return next((kind for kind in order if kind in kinds), "waiting")


def _parts(kinds: Mapping[str, int]) -> list[Stretch]:
    """Each visible, however small."""
    room, total = _WIDTH - 2 * _PAD - _LEAST * len(kinds), sum(kinds.values())
    parts, x = [], float(_PAD)
    for kind, count in kinds.items():
        width = _LEAST + room * count / total
        parts.append(Stretch(kind, round(x, 2), round(width, 2)))
        x += width
    return parts


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1] + "…"
