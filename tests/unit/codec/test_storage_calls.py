"""Calls of a storage that hangs end in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamdq.codec import storage_calls as module
from streamdq.codec.storage_calls import StorageCalls
from streamdq.errors import BodyStorageUnavailable
from tests.waiting import until


class Storage:
    """Its calls hang until it is told to go on."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.begun: list[int] = []

    def hang(self, item: int) -> int:
        self.begun.append(item)
        self.goes_on.wait()
        return item


@contextmanager
def hanging() -> Iterator[Storage]:
    storage = Storage()
    try:
        yield storage
    finally:
        storage.goes_on.set()


def test_results_are_in_order() -> None:
    assert StorageCalls(10).each(lambda item: item * 2, range(100)) == [item * 2 for item in range(100)]


def test_an_error_is_raised_and_what_has_not_begun_never_does() -> None:
    with hanging() as storage:

        def fail(item: int) -> int:
            if item == 0:
                raise OSError("disk full")
            return storage.hang(item)

        with pytest.raises(OSError, match="disk full"):
            StorageCalls(10).each(fail, range(100))
        assert len(storage.begun) <= 9


def test_it_is_given_up_in_time() -> None:
    with hanging() as storage, pytest.raises(BodyStorageUnavailable, match=r"not answered for 0\.02 s"):
        StorageCalls(0.02).each(storage.hang, range(100))
    assert len(storage.begun) == 8


def test_the_time_begins_anew_with_each_that_ends() -> None:
    """A storage that is slow is not one that hangs."""
    waited: list[float] = []

    def wait(left: set[object], timeout_s: float, _: str) -> tuple[set[object], set[object]]:
        waited.append(timeout_s)
        done = set(list(left)[:1])
        for call in done:
            call.result()  # type: ignore[attr-defined]
        return done, left - done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "wait", wait)
        StorageCalls(7).each(str, range(5))
    assert waited == [7] * 5


def test_while_many_hang_no_others_begin() -> None:
    calls = StorageCalls(0.02)
    with hanging() as storage:
        for _ in range(8):
            with pytest.raises(BodyStorageUnavailable, match="has not answered"):
                calls.each(storage.hang, range(8))
        with pytest.raises(BodyStorageUnavailable, match="64 calls to it have not ended"):
            calls.each(storage.hang, [0])
        assert len(storage.begun) == 64
    until(lambda: calls.hanging == 0, "they have ended")
    assert calls.each(str, [1]) == ["1"]


def test_a_forked_child_has_none_that_hang() -> None:
    calls = StorageCalls(0.02)
    with hanging() as storage:
        for _ in range(8):
            with pytest.raises(BodyStorageUnavailable):
                calls.each(storage.hang, range(8))
        calls.after_fork()
        assert calls.each(str, [1]) == ["1"]
