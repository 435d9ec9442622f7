"""How many occurrences of a schedule are due in each of equal steps: of those that are no jobs yet."""

from __future__ import annotations

from itertools import pairwise

from .definition import Definition
from .recurrence import Every


def coming(
    definition: Definition, id: str, after_ms: int, now_ms: int, step_ms: int, steps: int, most: int
) -> tuple[list[int], int, bool]:
    """Of the occurrences after ``after_ms`` by the clock, those that are due from now on: how many in each step, how
    many were looked at, at most ``most``, and whether these are all. Those of an interval without jitter are counted
    without a look at each.
    """
    recurrence = definition.recurrence()
    if isinstance(recurrence, Every) and not definition.jitter_ms:
        first, last = definition.clipped(max(after_ms, now_ms))
        passed = [recurrence.count_to(min(max(first, now_ms + step_ms * i), last)) for i in range(steps + 1)]
        return [after - before for before, after in pairwise(passed)], 0, True
    counts, looked_at, end_ms = [0] * steps, 0, now_ms + step_ms * steps
    for one in definition.occurrences(id, max(after_ms, now_ms - definition.jitter_ms - 1)):
        if one.due_ms > end_ms:
            break
        if looked_at == most:
            return counts, looked_at, False
        looked_at += 1
        if one.due_ms > now_ms:
            counts[(one.due_ms - now_ms - 1) // step_ms] += 1
    return counts, looked_at, True
