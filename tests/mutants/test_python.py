"""What is changed in a decision, and that the change takes effect where the function is used already."""

from __future__ import annotations

import importlib
from inspect import CO_OPTIMIZED

import pytest

from tests.mutants import python
from tests.mutants.mutant import ROOT, mutants_of


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


def test_every_decision_has_mutants_and_tests() -> None:
    for file in python.files():
        source = (ROOT / file).read_text()
        mutants = mutants_of(file, source, python.edits_of(source))
        assert any(python._compiles(mutant.source) for mutant in mutants), file
        assert all((ROOT / path).exists() for path in python.tests_of(file)), file


@pytest.mark.parametrize("file", python.files())
def test_every_function_of_a_decision_can_be_changed(file: str) -> None:
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    codes = python._codes(compile((ROOT / file).read_text(), file, "exec"))
    written = {c.co_qualname for c in codes if c.co_flags & CO_OPTIMIZED and "<" not in c.co_qualname}
    assert written == {function.__qualname__ for function in python._functions(module, module)}
