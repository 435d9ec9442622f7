"""Which jobs of a flow wait for which others of it, in few numbers: kept in the body of the flow's own job, if not each
job of a stage waits for all jobs of other stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

MOST_NUMBERS = 20_000
"""Of a flow in which the jobs wait for too many different ones, nothing is kept."""

Run = tuple[int, int, Sequence[int]]
"""Jobs that were added one after the other: how many, by how much the numbers rise from each of them to the next, and
the numbers of those that the first one waits for, as ``ranges_of`` writes them.
"""


def ranges_of(numbers: Iterable[int]) -> list[int]:
    """0, 1, 2, 7 as 0, 2, 7, 7: the first and the last of each range. ``numbers``: rising."""
    ranges: list[int] = []
    for number in numbers:
        if ranges and number == ranges[-1] + 1:
            ranges[-1] = number
        else:
            ranges += number, number
    return ranges


def add_to(runs: list[Run], ranges: Sequence[int]) -> None:
    """One more job, behind the others of its stage."""
    if runs:
        count, step, first = runs[-1]
        if count == 1 and ranges and first:
            step = ranges[0] - first[0]
        if _moved(first, step * count) == [*ranges]:
            runs[-1] = count + 1, step, first
            return
    runs.append((1, 0, ranges))


def each_of(runs: Iterable[Run]) -> Iterator[tuple[int, list[range]]]:
    """How many jobs, one after the other, and which ones these wait for, each of them for all."""
    for count, step, first in runs:
        if step == 0:
            yield count, _pairs(first)
        else:
            for n in range(count):
                yield 1, _pairs(_moved(first, step * n))


def _moved(ranges: Sequence[int], by: int) -> list[int]:
    return [number + by for number in ranges]


def _pairs(ranges: Sequence[int]) -> list[range]:
    return [range(first, last + 1) for first, last in zip(ranges[::2], ranges[1::2], strict=True)]


def written(stages: Sequence[Sequence[int]], runs: Sequence[Sequence[Run]]) -> dict[str, Sequence[Run]] | None:
    """What the flow keeps: the runs of stages, by their numbers, in which not each job waits for all of the stages that
    its stage waits for. None: too much. ``stages``: how many jobs each has, and then the stages that it waits for.
    """
    kept = {str(n): one for n, one in enumerate(runs) if [*one] != all_of(stages, n)}
    numbers = sum(2 + len(first) for one in kept.values() for _, _, first in one)
    return kept if numbers <= MOST_NUMBERS else None


def all_of(stages: Sequence[Sequence[int]], n: int) -> list[Run]:
    """The runs of a stage in which each job waits for all jobs of others."""
    begins, begin = [], 0
    for count, *_ in stages:
        begins.append(begin)
        begin += count
    count, *after = stages[n]
    others = (one for stage in after for one in range(begins[stage], begins[stage] + stages[stage][0]))
    return [(count, 0, ranges_of(others))]
