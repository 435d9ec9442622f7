"""What is changed in a decision, and that the change takes effect where the function is used already."""

from __future__ import annotations

import importlib
import os
from inspect import CO_OPTIMIZED

import pytest

from streamdq.job import retry
from streamdq.job.retry import RetrySchedule
from tests.mutants import python
from tests.mutants.mutant import ROOT, Mutant


def changed(source: str) -> list[str]:
    found = python.python_mutants("streamdq/x.py", f"def f(a, b):\n    {source}\n")
    assert all(mutant.was == source for mutant in found)
    return [mutant.now for mutant in found]


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("f(a)", ["pass"]),
        ("a.x = b", ["pass"]),
        ("a += b", ["pass"]),
        ("x = a", []),
        ("return a", ["pass"]),
        ("return", []),
        ('"""A docstring."""', []),
        ("raise ValueError('no')", ["pass"]),
        ("return f'{a + 1}'", ["pass"]),
        ("return a == b", ["pass", "return (a != b)"]),
        ("return a is b", ["pass", "return (a is not b)"]),
        ("return a <= b", ["pass", "return (a < b)", "return (a > b)"]),
        ("return a and b", ["pass", "return (a)", "return (b)"]),
        ("return not a", ["pass", "return (a)"]),
        ("return a + b", ["pass", "return (a - b)"]),
        ("return 7", ["pass", "return (8)"]),
        ("return 'x'", ["pass", "return ('')"]),
        ("return b''", ["pass", "return (b'x')"]),
        ("return True", ["pass", "return (False)"]),
        ("return a if b else f", ["pass", "return a if (not (b)) else f"]),
        ("while a: break", ["while (not (a)): break", "while a: pass"]),
    ],
)
def test_each_change(source: str, mutants: list[str]) -> None:
    assert sorted(changed(source)) == sorted(mutants)


def test_only_what_functions_do_is_changed() -> None:
    source = "X = 1 + 2\nclass C:\n    y: int = 3\n    def f(self, a: int = 4) -> 'C':\n        return self\n"
    assert [mutant.now for mutant in python.python_mutants("streamdq/x.py", source)] == ["pass"]


def test_every_decision_has_mutants_and_tests() -> None:
    for file in python.files():
        assert python.python_mutants(file, (ROOT / file).read_text()), file
        assert all((ROOT / path).exists() for path in python.tests_of(file)), file


@pytest.mark.thorough
def test_a_mutant_takes_effect_where_the_module_was_imported_from() -> None:
    file = "streamdq/job/retry.py"
    mutants = python.python_mutants(file, (ROOT / file).read_text())
    seen = {_in_child(mutant) for mutant in mutants}
    assert len(seen) > 1, "some of them change what the schedule says"
    assert _said() == (15_000, 180_000, None)


@pytest.mark.parametrize("file", python.files())
def test_every_function_of_a_decision_can_be_changed(file: str) -> None:
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    codes = python._codes(compile((ROOT / file).read_text(), file, "exec"))
    written = {c.co_qualname for c in codes if c.co_flags & CO_OPTIMIZED and "<" not in c.co_qualname}
    assert written == {function.__qualname__ for function in python._functions(module, module)}


def _said() -> tuple[int | None, ...]:
    schedule = RetrySchedule.of("15s 3m")
    return tuple(schedule.delay_ms(step) for step in range(3))


def _in_child(mutant: Mutant) -> str:
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            python.install(mutant)
            assert vars(retry)["RetrySchedule"] is RetrySchedule
            os.write(write, repr(_said()).encode())
        except Exception as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.wait()
    return said
