"""What takes too long to be tried in whole for each change takes turns: ``--turn N`` keeps a part, another for each N.

A test says so by ``@pytest.mark.in_turn(of=3)``: of three of its parameters one is kept. With ``by="case"``, all tests
of the file that have the same ``case`` have their turn together, so that what a fixture makes of a case is not made for
nothing. With ``among="GROUP"``, all tests that say the same group take turns, those of the same ``name`` together. Of
each at least one is kept; without ``--turn`` all are tried. Of several marks the closest counts: by two of them, some
tests would never have their turn. Only what is ``thorough`` takes turns: ``make test`` is whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import pytest

Place = tuple[Hashable, ...]
"""Of a test's turn: those that have the same one take turns."""


def kept_in(turn: int, items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of this turn, and the others."""
    turns = [(item, _turn(item)) for item in items]
    who: dict[Place, dict[Hashable, None]] = defaultdict(dict)
    for _, own in turns:
        if own:
            place, _, name = own
            who[place][name] = None
    kept: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item, own in turns:
        its = own is None or own[2] in chosen(turn, own[1], tuple(who[own[0]]))
        (kept if its else others).append(item)
    return kept, others


def chosen(turn: int, of: int, among: Sequence[Hashable]) -> Sequence[Hashable]:
    """One in ``of``, or one if there are fewer."""
    of = min(of, len(among))
    return among[turn % of :: of]


def _turn(item: pytest.Item) -> tuple[Place, int, Hashable] | None:
    """The place, how many take turns, and by which name this test is known among them."""
    mark = item.get_closest_marker("in_turn")
    if mark is None or item.get_closest_marker("thorough") is None:
        return None
    of, by, among = mark.kwargs["of"], mark.kwargs.get("by"), mark.kwargs.get("among")
    if among is not None:
        return (among,), of, mark.kwargs.get("name", (item.path, item.name))
    if by is None:
        return (item.path, getattr(item, "originalname", item.name)), of, item.name
    callspec = getattr(item, "callspec", None)
    return None if callspec is None or by not in callspec.params else ((item.path, by), of, callspec.params[by])


def others_later(values: Iterable[object], *first: object) -> list[object]:
    """Parameters of a test: all but the first take turns in the second stage."""
    later = (pytest.mark.thorough, pytest.mark.in_turn(of=3))
    return [value if value in first else pytest.param(value, marks=later) for value in values]
