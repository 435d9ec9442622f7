"""Whether a regular expression takes a time that grows no faster than the text, whatever the text.

Python's engine goes back and tries again. It takes a quadratic time or worse where two repetitions without a small
limit can divide the same stretch of text in many ways: two in a row, one within another, or one that a search begins
anew at each place of what it has just looked through. The expression shows that: between the two there has
to be something that one of them can't run across.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from re import _constants as sre
from re import _parser as parser
from typing import Any

MOST = 64
"""A repetition of up to so many times a single character is a constant factor."""
_SAMPLE = [*range(0x180), 0x2028, 0x4E16, 0x1F600, 0xD800]
Chars = frozenset[int]
ANY: Chars = frozenset(_SAMPLE)


@dataclass(frozen=True)
class Run:
    """A repetition without a small limit, of these characters."""

    chars: Chars


@dataclass(frozen=True)
class One:
    """Something that has to be there: any of these characters."""

    chars: Chars


Part = Run | One
Way = tuple[Part, ...]
"""One way through an expression."""


def trouble(pattern: re.Pattern[Any], *, searched: bool) -> str:
    """Why the expression is not linear; '' if it is. ``searched``: it may begin anywhere in the text."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    for way in _ways(tree, pattern.flags):
        parts: Way = (Run(ANY), *way) if searched and not _is_anchored(tree) else way
        if not searched:
            parts = (*parts, One(frozenset()))  # the end of the text, which may fail to come
        if found := _trouble_of(parts, pattern):
            return found
    return ""


def _trouble_of(parts: Way, pattern: re.Pattern[Any]) -> str:
    runs = [number for number, part in enumerate(parts) if isinstance(part, Run)]
    for first, second in combinations(runs, 2):
        if all(isinstance(part, Run) for part in parts[second + 1 :]):  # what follows can't fail
            continue
        one, other = parts[first].chars, parts[second].chars
        between = [part.chars for part in parts[first + 1 : second] if isinstance(part, One)]
        if not one & other:
            continue
        if all(chars & one and chars & other for chars in between):
            return f"{pattern.pattern!r}: repetitions {runs.index(first) + 1} and {runs.index(second) + 1} share a text"
    return ""


def _is_anchored(tree: Any) -> bool:
    return bool(tree) and tree[0] == (sre.AT, sre.AT_BEGINNING_STRING)


def _ways(tree: Any, flags: int, in_run: bool = False) -> Iterator[Way]:
    """All ways through the expression; of what is repeated, as if it came twice. ``in_run``: it is a part of what is
    repeated without a small limit, so a small limit within it helps nothing.
    """
    found: list[Way] = [()]
    for kind, value in tree:
        these = list(_ways_of(kind, value, flags, in_run))
        found = list(dict.fromkeys(before + after for before, after in product(found, these)))
        assert len(found) < 5000, "too many ways: write it simpler"
    yield from found


def _ways_of(kind: Any, value: Any, flags: int, in_run: bool) -> Iterator[Way]:
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, most, inner = value
        yield from _repeated(least, most, inner, flags, in_run)
    elif kind is sre.BRANCH:
        for branch in value[1]:
            yield from _ways(branch, flags, in_run)
    elif kind is sre.SUBPATTERN:
        yield from _ways(value[3], flags, in_run)
    elif kind is sre.ATOMIC_GROUP:
        yield from _ways(value, flags, in_run)
    elif kind is sre.GROUPREF:
        yield (One(ANY),)
    elif kind in (sre.ASSERT, sre.ASSERT_NOT):
        direction, inner = value
        yield _looked(kind, direction, inner, flags)
    elif kind is sre.AT:
        yield ()
    else:
        yield (One(_chars(kind, value, flags)),)


def _looked(kind: Any, direction: int, inner: Any, flags: int) -> Way:
    """What a look around adds: one back is like a part of no length, as a search begins only after it."""
    inside = list(_ways(inner, flags))
    assert not any(isinstance(part, Run) for way in inside for part in way), "one more search at each place"
    if direction > 0:
        return ()
    if kind is sre.ASSERT:
        return inside[0][-1:]
    return (One(ANY - inside[0][0].chars),) if len(inside[0]) == 1 else ()


def _repeated(least: int, most: Any, inner: Any, flags: int, in_run: bool) -> Iterator[Way]:
    without_limit = most is sre.MAXREPEAT or most > MOST
    inside = list(_ways(inner, flags, in_run or without_limit))
    single = all(len(way) == 1 and isinstance(way[0], One) for way in inside)
    if single:
        chars = frozenset().union(*(way[0].chars for way in inside))
        if without_limit or (in_run and 1 < most != least):
            yield (One(chars), Run(chars)) if least else (Run(chars),)
        elif least:
            yield (One(chars),) * min(least, 2)
        else:
            yield from [(), (One(chars),)]
        return
    if not least:
        yield ()
    yield from inside
    if most is sre.MAXREPEAT or most > 1:
        whole = Run(frozenset().union(*(part.chars for way in inside for part in way)))
        for one, other in product(inside, inside):
            yield one + other
            if without_limit and one and other:
                # Where copies can be divided in several ways, there are two runs in a row. Else there is one for what
                # comes before and after, and it has a beginning.
                begins = (one[0],) if isinstance(one[0], One) else ()
                yield (whole, whole) if _may_split(inside) else (*begins, whole)


def _may_split(inside: Sequence[Way]) -> bool:
    """Whether copies may begin at several places within copies. Not if all have the same length, or if what they begin
    with is nowhere else in them. Where they contain a run, it is enough to look at two copies.
    """
    if any(isinstance(part, Run) for way in inside for part in way) or len({len(way) for way in inside}) == 1:
        return False
    return any(part.chars & first.chars for first, *_ in inside for way in inside for part in way[1:])


def _chars(kind: Any, value: Any, flags: int) -> Chars:
    if kind is sre.LITERAL:
        found = {value}
    elif kind is sre.NOT_LITERAL:
        found = {char for char in _SAMPLE if char != value}
    elif kind is sre.ANY:
        found = {char for char in _SAMPLE if flags & re.DOTALL or char != 10}
    else:
        assert kind is sre.IN, kind
        found = _of_set(value, flags)
    if flags & re.IGNORECASE:
        found |= {ord(other) for char in found for other in (chr(char).lower(), chr(char).upper()) if len(other) == 1}
    return frozenset(found)


def _of_set(value: Sequence[Any], flags: int) -> set[int]:
    negated = bool(value) and value[0] == (sre.NEGATE, None)
    found: set[int] = set()
    for kind, one in value[negated:]:
        if kind is sre.LITERAL:
            found.add(one)
        elif kind is sre.RANGE:
            found |= {char for char in _SAMPLE if one[0] <= char <= one[1]}
        else:
            found |= {char for char in _SAMPLE if _is_in_category(one, char, flags)}
    return {char for char in _SAMPLE if char not in found} if negated else found


def _is_in_category(category: Any, char: int, flags: int) -> bool:
    name = str(category).removeprefix("CATEGORY_")
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.removeprefix("NOT_")]
    matched = re.match(rf"\{letter}", chr(char), flags & re.ASCII) is not None
    return matched != name.startswith("NOT_")
