"""The list of mutants that no test can kill."""

from __future__ import annotations

from tests.mutants.__main__ import mutants_in
from tests.mutants.mutant import Mutant
from tests.mutants.survivors import FILE, Listed


def of(was: str, now: str) -> Mutant:
    return Mutant("lua/x.lua", 7, was, now, "")


def test_each_that_is_listed_exists_and_says_why() -> None:
    listed = Listed(FILE.read_text())
    assert not listed.gone(mutants_in({file for file, _, _ in listed.reasons}))
    assert all(listed.reasons.values())
