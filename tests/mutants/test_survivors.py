"""The list of mutants that no test can kill."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import mutants_in
from tests.mutants.mutant import Mutant
from tests.mutants.survivors import FILE, Listed, entry_of


def of(was: str, now: str) -> Mutant:
    return Mutant("lua/x.lua", 7, was, now, "")


@pytest.mark.parametrize("text", ["", "a = 'x'", "b = '\\31' .. \"y\"", "'''"])
def test_what_is_printed_can_be_listed(text: str) -> None:
    mutant = of(text, "")
    listed = Listed(entry_of(mutant).replace('why = ""', 'why = "because"'))
    assert mutant in listed
    assert of(text, "else") not in listed
    assert listed.reasons[mutant.key] == "because"


def test_what_is_listed_and_no_mutant_any_more_is_found() -> None:
    listed = Listed(entry_of(of("a", "b")) + entry_of(of("c", "d")))
    assert listed.gone([of("a", "b")]) == [("lua/x.lua", "c", "d")]
    assert listed.gone([Mutant("lua/y.lua", 1, "a", "b", "")]) == [], "the file was not asked for"


def test_each_that_is_listed_exists_and_says_why() -> None:
    listed = Listed(FILE.read_text())
    assert not listed.gone(mutants_in({file for file, _, _ in listed.reasons}))
    assert all(listed.reasons.values())
