"""The errors that streamdq raises, and what handlers raise, get from one process to another."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from streamdq import Bury, Retry, Snooze, errors
from streamdq.errors import (
    BodyDamaged,
    BodyUnreadable,
    FlowExists,
    FlowWithdrawn,
    HandlersHung,
    IdTaken,
    JobExists,
    JobFailed,
    MissingExtra,
    NewerFormat,
    NotDurable,
    ParentUnknown,
    Portable,
    ResultNotKept,
    ResultTooLarge,
    StreamdqError,
)
from tests.cases import each

MADE: list[Portable] = [
    ParentUnknown("t", "a"), FlowExists("f"), FlowWithdrawn("f"),
    JobExists("t", "a", ", and it is dead"), IdTaken("t", "a", 1_900_000_000_000), NotDurable("disk", "no reply", "a"),
    NewerFormat(3), BodyUnreadable("no key", "job a"), BodyDamaged("no key"), MissingExtra("zstandard", "zstd"),
    Retry("5s", "busy", at_least="1s", max_attempts=3), Retry(), Snooze("1h"), Bury("no such order"),
    HandlersHung(8, 60), JobFailed("t", "a", "exhausted", "ValueError: no"), ResultNotKept("t", "a", "no JSON"),
    ResultTooLarge("t", "a", "70000 bytes"),
]  # fmt: skip


def kinds(of: type[StreamdqError] = StreamdqError) -> Iterator[type[StreamdqError]]:
    if of.__module__ == errors.__name__:
        yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


PLAIN = sorted(set(kinds()) - {type(error) for error in MADE}, key=lambda kind: kind.__name__)


@each("error", [*MADE, *(kind("what happened") for kind in PLAIN)])
def test_copies_say_the_same(error: Portable) -> None:
    error.add_note("how far it came")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))


def refuse(error: Portable) -> None:
    raise error


@pytest.mark.thorough
@pytest.mark.parametrize("error", [JobExists("t", "a"), Retry("5s")])
def test_an_error_comes_out_of_a_pool_of_processes(error: Portable) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(type(error)) as caught:
        pool.submit(refuse, error).result(timeout=60)
    assert {**vars(error), **vars(caught.value)} == vars(caught.value)
