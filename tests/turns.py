"""What takes too long to be tried in whole for each change takes turns: ``--turn N`` keeps a part, another for each N.

A test says so by ``@pytest.mark.in_turn(of=3)``: of three of its parameters one is kept. With ``by="case"``, all tests
of the file that have the same ``case`` have their turn together, so that what a fixture makes of a case is not made for
nothing. With ``among="NAME"``, all tests that say the same name take turns. At least one of each is kept.
Without ``--turn`` all are tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

import pytest

Place = tuple[Hashable, ...]
"""Of a test's turn: those that have the same one take turns."""


def kept_in(turn: int, items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of this turn, and the others."""
    turns = [(item, list(_turns(item))) for item in items]
    who: dict[Place, dict[Hashable, None]] = defaultdict(dict)
    for _, own in turns:
        for place, _, name in own:
            who[place][name] = None
    kept: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item, own in turns:
        its = all(name in chosen(turn, of, tuple(who[place])) for place, of, name in own)
        (kept if its else others).append(item)
    return kept, others


def chosen(turn: int, of: int, among: Sequence[Hashable]) -> Sequence[Hashable]:
    """One in ``of``, or one if there are fewer."""
    of = min(of, len(among))
    return among[turn % of :: of]


def _turns(item: pytest.Item) -> Iterator[tuple[Place, int, Hashable]]:
    """Of each of its marks: the place, how many take turns, and by which name this test is known among them."""
    callspec = getattr(item, "callspec", None)
    for mark in item.iter_markers("in_turn"):
        by, among = mark.kwargs.get("by"), mark.kwargs.get("among")
        if among is not None:
            yield (among,), mark.kwargs["of"], (item.path, item.name)
        elif by is None:
            yield (item.path, getattr(item, "originalname", item.name)), mark.kwargs["of"], item.name
        elif callspec is not None and by in callspec.params:
            yield (item.path, by), mark.kwargs["of"], callspec.params[by]
