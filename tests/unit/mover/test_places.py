"""Which mover has which shard, also among processes that know of different places."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import chain, combinations, product

import pytest

from streamdq.config import Settings
from streamdq.link.connection import AsyncLink
from streamdq.link.opening import open_session
from streamdq.mover.places import Places, place_of
from tests.unit.virtual_time import in_virtual_time

NAMES = [f"t{topic}:{shard}" for topic in range(20) for shard in range(12)]


def places(mine: int, *held: int) -> Places:
    link, session = open_session("memory://places", "test", Settings(url="memory://places"), None, AsyncLink)
    found = Places(link, session)
    found.begin(mine)
    found.saw(mine, held)
    return found


def subsets(of: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(combinations(of, size) for size in range(len(of) + 1)))


@pytest.mark.parametrize("count", [2, 3, 5, 16])
def test_each_place_has_about_as_many(count: int) -> None:
    names = [f"t{n}:0" for n in range(6_000)]
    found = Counter(place_of(name, range(1, count + 1)) for name in names)
    for place in range(1, count + 1):
        assert 0.8 < found[place] * count / len(names) < 1.2


def test_when_a_place_is_lost_the_others_keep_what_they_have_and_share_the_rest() -> None:
    before = {name: place_of(name, {1, 2, 3, 4}) for name in NAMES}
    after = {name: place_of(name, {1, 2, 4}) for name in NAMES}
    assert all(after[name] == place for name, place in before.items() if place != 3)
    assert {after[name] for name, place in before.items() if place == 3} == {1, 2, 4}


def test_who_is_alone_has_everything() -> None:
    for mine in (1, 2, 7):
        assert all(map(places(mine).is_mine, NAMES))


@pytest.mark.parametrize("held", [(1, 2), (1, 2, 3), (1, 3), (2, 3, 5)])
def test_each_shard_has_a_mover_whatever_each_process_knows_of(held: tuple[int, ...]) -> None:
    """Such as with another setting, or having heard of a change later. Those that know of all have one each."""
    for known in product(*(subsets(held) for _ in held)):
        movers = [places(mine, *others) for mine, others in zip(held, known, strict=True)]
        assert all(any(mover.is_mine(name) for mover in movers) for name in NAMES[:60])
    movers = [places(mine, *held) for mine in held]
    assert all(sum(mover.is_mine(name) for mover in movers) == 1 for name in NAMES)


def test_each_watches_another_one_so_that_all_are_watched() -> None:
    for held in subsets((1, 2, 3, 5, 8)):
        watched = [places(mine, *held).neighbour for mine in held]
        assert sorted(map(str, watched)) == sorted(map(str, held if len(held) > 1 else [None] * len(held)))


def split(one: Places) -> tuple[bool, ...]:
    return tuple(map(one.is_mine, NAMES))


@in_virtual_time
async def test_what_another_one_takes_over_is_let_go_a_little_later() -> None:
    one = places(1, 1, 2)
    half, part = split(one), one.part
    assert not all(half)
    one.saw(1, {1, 2, 3})
    assert split(one) == half
    assert one.part != part
    await asyncio.sleep(1.9)
    one.let_go()
    assert split(one) == half
    await asyncio.sleep(0.2)
    one.saw(1, {1, 2, 3})
    assert split(one) == split(places(1, 1, 2, 3)) != half


@in_virtual_time
async def test_who_gets_another_place_keeps_its_part_for_a_while() -> None:
    one = places(3, 1, 2, 3)
    had = split(one)
    one.saw(1, {2})
    now = split(places(1, 1, 2))
    assert split(one) == tuple(a or b for a, b in zip(had, now, strict=True))
    await asyncio.sleep(2.1)
    one.let_go()
    assert split(one) == now
