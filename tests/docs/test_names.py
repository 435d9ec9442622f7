"""One name for one thing, in code, keys and pages."""

from __future__ import annotations

from tests.docs.names import (
    ROOT,
    found,
    is_used,
    keys_of_page,
    names_of_page,
    parts,
    retired,
    terms,
)
from tests.docs.source import names_of_lua, names_of_python


def test_names_that_have_gone_do_not_come_back() -> None:
    assert found() == {}


def test_the_code_has_the_terms_of_the_glossary() -> None:
    glossary = terms((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    assert len(glossary) > 20
    elsewhere = retired()["glossary"]
    assert [term for term in glossary if not is_used(elsewhere.get(term, term))] == []
    assert [term for term in elsewhere if is_used(term)] == [], "no other name is needed for these"


def test_names_are_found_in_code_alone() -> None:
    assert names_of_python('"""told"""\n_told = a.heard  # rung\n') == {"told", "a", "heard"}
    assert names_of_lua("local k = 'told' -- rung\nerror('was deaf')") == {"local", "k", "told", "error"}
    assert names_of_page("Told `Held.x` and\n```python\nOrders()\n```\n") == {"Held", "x"}
    assert parts({"rung_ms", "DeafHandler", "previous_shard"}) >= {"rung", "deaf"}
    assert not parts({"is_staff", "test_a_ring_is_heard"}) & retired()["words"].keys()
    assert keys_of_page("`{NS}:signs`, `:keyed`, `NS:{TOPIC:SHARD}:lanes` and `a:b`") >= {"signs", "keyed", "lanes"}


def test_terms_of_a_glossary() -> None:
    assert terms("# Glossary\n\nDead letter\n:   A job.\n\nTTR\n:   Time.\n") == ["Dead letter", "TTR"]
    assert is_used("Dead letter")
    assert not is_used("Flux capacitor")
