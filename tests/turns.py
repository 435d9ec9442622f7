"""What takes too long to be tried in whole for each change takes turns: ``--turn N`` keeps a part, another for each N.

A test says so by ``@pytest.mark.in_turn(of=3)``: of three of its parameters one is kept, and always at least one. With
``by="case"``, all tests of the file that have the same ``case`` take their turn together, so that what a fixture makes
of a case is not made for nothing. Without ``--turn`` all are tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import pytest

Place = tuple[Hashable, ...]
"""Of a test's turn: who takes turns with it."""


def kept_in(turn: int, items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of this turn, and the others."""
    items = list(items)
    who: dict[Place, list[Hashable]] = defaultdict(list)
    for item in items:
        for place, _, own in _turns(item):
            if own not in who[place]:
                who[place].append(own)
    kept, others = [], []
    for item in items:
        its = all(own in chosen(turn, of, who[place]) for place, of, own in _turns(item))
        (kept if its else others).append(item)
    return kept, others


def chosen(turn: int, of: int, among: Sequence[Hashable]) -> Sequence[Hashable]:
    """One in ``of``, or one if there are fewer."""
    of = min(of, len(among))
    return among[turn % of :: of]


def _turns(item: pytest.Item) -> Iterable[tuple[Place, int, Hashable]]:
    """Of each of its marks: the place, how many take turns, and by what this one is known among them."""
    callspec = getattr(item, "callspec", None)
    for mark in item.iter_markers("in_turn"):
        by = mark.kwargs.get("by")
        if by is None:
            yield (item.path, getattr(item, "originalname", item.name)), mark.kwargs["of"], item.name
        elif callspec is not None and by in callspec.params:
            yield (item.path, by), mark.kwargs["of"], callspec.params[by]
