"""What is kept of an exception, and how much of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from streamdq.job.job import Job
from streamdq.operations.attempts.error_text import kept_text, traceback_of
from streamdq.store.history.failures import MAX_MESSAGE_CHARS, MAX_TRACEBACK_CHARS, Failure, failure_in, failure_text


class Order(BaseModel):
    amount: int


def raised(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def fails() -> None:
    amount = "swordfish"
    raise ValueError("no answer") from KeyError(len(amount))


def refuses() -> None:
    Order.model_validate({"amount": "swordfish"})


def goes_round() -> None:
    goes_round()


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_it_reads_as_pythons_own_with_the_raising_call_last() -> None:
    reported = traceback_of(raised(fails), hidden=False)
    assert reported.startswith(
        "KeyError: 9\n\nThe above exception was the direct cause of the following exception:\n\n"
    )
    *_, where, line, said = reported.splitlines()
    assert where.startswith(f'  File "{__file__}", line ')
    assert where.endswith(", in fails")
    assert line == '    raise ValueError("no answer") from KeyError(len(amount))'
    assert said == "ValueError: no answer"
    assert "swordfish" not in reported, "the values of variables are nobody's business"


def test_what_came_before_is_shown_unless_it_is_hidden_by_from_none() -> None:
    def again(*, tell: bool) -> None:
        try:
            fails()
        except ValueError:
            if tell:
                raise TypeError("again")  # noqa: B904
            raise TypeError("again") from None

    reported = traceback_of(raised(lambda: again(tell=True)), hidden=False)
    parts = ("KeyError: 9", "ValueError: no answer", "During handling", "TypeError: again")
    assert sorted(parts, key=reported.index) == list(parts)
    alone = raised(lambda: again(tell=False))
    assert "no answer" not in traceback_of(alone, hidden=False)


def test_the_parts_of_a_group_are_shown() -> None:
    group = BaseExceptionGroup("several", [raised(fails), raised(refuses)])
    reported = traceback_of(group, hidden=False)
    parts = ("ExceptionGroup: several", "\n  ValueError: no answer", ", in refuses", "\n  ValidationError: amount")
    assert sorted(parts, key=reported.index) == list(parts)
    assert "swordfish" not in reported.replace('{"amount": "swordfish"}', "")  # a line of the source


def test_an_endless_recursion_is_cut_and_so_is_an_endless_chain() -> None:
    assert traceback_of(raised(goes_round), hidden=False).count("in goes_round") == 30
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert traceback_of(first, hidden=False).count("second") == 1
    deep: BaseException = ValueError("0")
    for number in range(1, 100):
        deeper = ValueError(str(number))
        deeper.__cause__, deep = deep, deeper
    assert [line for line in traceback_of(deep, hidden=False).splitlines() if line.startswith("ValueError")] == [
        f"ValueError: {number}" for number in range(90, 100)
    ]


def test_calls_of_streamdq_that_led_to_the_users_code_are_left_out() -> None:
    from streamdq.worker.handlers import called

    _, error = called(fails)
    assert error is not None
    assert "handlers.py" not in traceback_of(error, hidden=False)


def test_of_an_encrypted_body_no_message_is_kept() -> None:
    error = raised(fails)
    reported = traceback_of(error, hidden=True)
    assert "no answer" not in reported.replace('raise ValueError("no answer")', "")
    assert reported.endswith("\nValueError")


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (Odd(), "Odd: its message can't be read"),
        (ValueError("at https://me:swordfish@shop/?token=swordfish"), "ValueError: at https://…@shop/?token=…"),
        (ValueError("x" * 5000), "x" * 400),
    ],
)
def test_a_message_that_can_t_be_kept_as_it_is(error: Exception, ends: str) -> None:
    reported = traceback_of(error, hidden=False)
    assert reported.endswith(ends)
    assert len(reported) < 1000


def test_of_what_a_model_refuses_the_values_are_not_kept() -> None:
    error = raised(refuses)
    assert "swordfish" in str(error)
    said = kept_text(Job("t", "j", b"1", 0, 0), error)
    assert said.startswith("ValidationError: amount: Input should be a valid integer")
    assert "swordfish" not in said
    assert "swordfish" not in traceback_of(error, hidden=False).replace('{"amount": "swordfish"}', "")


def test_a_failure_comes_back_as_it_was_stored() -> None:
    failure = Failure("KeyError: 'ä'", 'Traceback (most recent call last):\n  File "x", line 1, in f')
    assert failure_in(failure_text(failure).encode()) == failure
    assert failure_in(b"KeyError: 'a'\x1f") == Failure("KeyError: 'a'")


def test_of_a_long_one_the_beginning_of_the_message_and_the_end_of_the_traceback_stay() -> None:
    lines = [f"line {number}" for number in range(2000)]
    kept = failure_in(failure_text(Failure("x" * 5000, "\n".join(lines))).encode())
    assert kept.message == "x" * (MAX_MESSAGE_CHARS - 1) + "…"
    assert len(kept.traceback) <= MAX_TRACEBACK_CHARS
    first, *rest = kept.traceback.split("\n")
    assert (first, rest) == ("…", lines[-len(rest) :])
    assert len(failure_in(failure_text(Failure("", "y" * 5000)).encode()).traceback) == MAX_TRACEBACK_CHARS


def test_what_can_t_be_printed_or_sent_is_left_out() -> None:
    kept = failure_in(failure_text(Failure("a\x1fb\nc\udfff", "d\x1f\te\nf\x00\x9b")).encode())
    assert kept == Failure("a b c ", "d  e\nf  ")


def test_an_entry_of_somebody_else_is_no_trouble() -> None:
    assert failure_in(b"\xff") == Failure("�")


def test_a_message_is_cut_after_credentials_are_hidden() -> None:
    """Of a URL that is cut within its password, nobody could tell that it has one."""
    for length in range(460, 500):
        error = OSError("x" * (length - len("OSError: ")) + " redis://user:swordfish@host/0 does not answer")
        assert "swordf" not in traceback_of(error, hidden=False)
