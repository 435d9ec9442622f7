"""Exceptions of another process, with the calls and the exceptions that led to them."""

from __future__ import annotations

import os
import pickle
import traceback
from typing import Any

import pytest

from streamdq import Bury, Retry
from streamdq.operations.attempts.error_text import traceback_of
from streamdq.process.logs import where
from streamdq.worker.remote_errors import RemoteError


def raised_by(function: object) -> BaseException:
    try:
        function()  # type: ignore[operator]
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def sent(error: BaseException) -> BaseException:
    remote: RemoteError = pickle.loads(pickle.dumps(RemoteError.of(error)))
    return remote.exception()


def inner() -> None:
    raise KeyError("order")


def outer() -> None:
    try:
        inner()
    except KeyError as error:
        raise ValueError("no such order") from error


def test_the_traceback_reads_as_it_did_there() -> None:
    error = raised_by(outer)
    got = sent(error)
    assert type(got) is ValueError
    assert traceback_of(got, hidden=False) == traceback_of(error, hidden=False)
    assert where(got) == where(error)
    lines = "".join(traceback.format_exception(got))
    assert 'raise ValueError("no such order") from error' in lines
    assert "in inner" in lines


def test_what_a_handler_asks_for_stays() -> None:
    got = sent(Retry("1h", "later"))
    assert isinstance(got, Retry)
    assert got.delay_ms == 3_600_000


def test_an_exception_that_cant_be_pickled_keeps_its_name_and_message() -> None:
    class Local(Exception):
        pass

    got = sent(Local("only here"))
    assert (type(got).__name__, str(got)) == ("Local", "only here")


def test_an_exception_that_cant_be_loaded_again_does_too() -> None:
    got = sent(NeedsTwo(1, 2))
    assert (type(got).__name__, str(got)) == ("NeedsTwo", "1 of 2")


class NeedsTwo(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} of {two}")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_would_end_a_process_is_only_told(error: BaseException) -> None:
    assert type(sent(error)) is type(error)


def test_a_long_chain_ends() -> None:
    error: BaseException = ValueError("0")
    for n in range(1, 30):
        following = ValueError(str(n))
        following.__cause__ = error
        error = following
    count, got = 0, sent(error)
    while got.__cause__ is not None:
        count, got = count + 1, got.__cause__
    assert count == 10


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


@pytest.mark.parametrize("how", [(str, ("no exception",)), (raise_exit, ()), (os.stat, ("/none",)), ("no module", ())])
def test_what_can_not_be_unpickled_has_its_class_s_name_and_message(how: Any) -> None:
    error = sent(Broken(how))
    assert (type(error).__name__, str(error)) == ("Broken", "order 7")


def test_what_tells_nothing_has_its_class_s_name() -> None:
    error = sent(Silent())
    assert (type(error).__name__, str(error)) == ("Silent", "its message can't be read")


def test_of_the_data_that_it_carries_the_worker_gets_little() -> None:
    large = ValueError("x" * 10**7)
    assert len(pickle.dumps(RemoteError.of(large))) < 100_000
    error = sent(large)
    assert type(error).__name__ == "ValueError"
    assert str(error).startswith("xxx")


def test_what_a_handler_asks_for_stays_however_long_its_reason_is() -> None:
    assert isinstance(sent(Bury("x" * 10**7)), Bury)


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
    assert pickle.dumps(RemoteError.of(error)).count(b"number ") < 30
    remote: BaseException | None = sent(error)
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
        remote = sent(error)
    assert (repr(remote), repr(remote.__context__)) == ("ValueError('second')", "KeyError('first')")
