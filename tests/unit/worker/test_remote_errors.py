"""Exceptions of another process, with the calls and the exceptions that led to them."""

from __future__ import annotations

import pickle
import traceback

import pytest

from streamdq import Retry
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
