"""Exceptions of another process, whatever their classes do."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import pytest

from streamdq.worker.remote_errors import RemoteError


class Broken(Exception):
    """``how``: what happens when it is unpickled."""

    def __init__(self, how: Any) -> None:
        super().__init__("order 7")
        self.how = how

    def __reduce__(self) -> Any:
        return self.how


def raise_exit() -> None:
    raise SystemExit(5)


class Silent(Exception):
    def __str__(self) -> str:
        raise SystemExit(5)

    __reduce__ = __str__


def received(error: BaseException) -> BaseException:
    """What the worker gets of it."""
    sent: RemoteError = pickle.loads(pickle.dumps(RemoteError.of(error)))
    return sent.exception()


@pytest.mark.parametrize("how", [(str, ("no exception",)), (raise_exit, ()), (os.stat, ("/none",)), ("no module", ())])
def test_what_can_not_be_unpickled_has_its_class_s_name_and_message(how: Any) -> None:
    error = received(Broken(how))
    assert (type(error).__name__, str(error)) == ("Broken", "order 7")


def test_what_tells_nothing_has_its_class_s_name() -> None:
    error = received(Silent())
    assert (type(error).__name__, str(error)) == ("Silent", "its message can't be read")


def test_of_the_data_that_it_carries_the_worker_gets_little() -> None:
    large = ValueError("x" * 10**7)
    assert len(pickle.dumps(RemoteError.of(large))) < 100_000
    error = received(large)
    assert type(error).__name__ == "ValueError"
    assert str(error).startswith("xxx")


def test_a_chain_is_sent_once() -> None:
    error: Exception = ValueError("the first")
    for number in range(30):
        try:
            try:
                raise error
            except ValueError as cause:
                raise ValueError(f"number {number}") from cause
        except ValueError as raised:
            error = raised
    data = pickle.dumps(RemoteError.of(error))
    assert data.count(b"number ") < 30
    assert sys.getsizeof(data) < 20_000
    remote: BaseException | None = received(error)
    for number in range(29, 19, -1):
        assert str(remote) == f"number {number}"
        remote = remote.__cause__ if remote is not None else None


def test_an_exception_that_came_while_another_was_handled_keeps_that() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904
    except ValueError as error:
        remote = received(error)
    assert (repr(remote), repr(remote.__context__)) == ("ValueError('second')", "KeyError('first')")
