"""Ids of entries, in the order of their stream."""

from __future__ import annotations

import pytest

from streamdq.store.entries import FIRST, ms_of, order_of


def test_ids_sort_as_their_stream_does() -> None:
    ids = [FIRST, "9-0", "1795325257596-0", "1795325257596-2", "1795325257596-10", "1795325257599-0"]
    assert sorted(sorted(ids), key=order_of) == ids


def test_the_time_of_an_entry() -> None:
    assert ms_of("1795325257596-10") == 1_795_325_257_596


@pytest.mark.parametrize("text", ["", "-", "5", "5-", "-5", "a-1", "1-a", "("])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="int"):
        order_of(text)
