"""Lines out of chunks that end anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdq.operations.jobs.ndjson import Lines, NumberedLine, longest_line

LONGEST = 8


def cut(text: bytes, ends: list[int]) -> list[bytes]:
    at = [0, *sorted(end % (len(text) + 1) for end in ends), len(text)]
    return [text[begin:end] for begin, end in pairwise(at)]


def lines_of(chunks: list[bytes]) -> tuple[list[NumberedLine], Lines]:
    lines = Lines(LONGEST)
    return [*(line for chunk in chunks for line in lines.feed(chunk)), *lines.end()], lines


@given(st.text("ab \n", max_size=60).map(str.encode), st.lists(st.integers(0, 60), max_size=5))
def test_it_does_not_matter_where_the_chunks_end(text: bytes, ends: list[int]) -> None:
    *whole, last = text.split(b"\n")
    expected = [
        (number, line if len(line) <= LONGEST else None)
        for number, line in enumerate([*whole, last], 1)
        if line.strip() or len(line) > LONGEST
    ]
    found, lines = lines_of(cut(text, ends))
    assert found == expected
    assert lines.bytes_read == len(text)


def test_no_more_is_held_than_the_longest_line() -> None:
    lines = Lines(LONGEST)
    found: list[NumberedLine] = []
    for _ in range(1000):
        found += lines.feed(b"x" * 5)
        assert len(lines._rest) <= LONGEST
    assert found == [(1, None)]
    assert list(lines.feed(b"\n{}\n")) == [(2, b"{}")]
    assert list(lines.end()) == []


def test_a_line_that_is_too_long_is_reported_before_it_ends() -> None:
    lines = Lines(LONGEST)
    assert list(lines.feed(b"{}\n" + b"x" * 9)) == [(1, b"{}"), (2, None)]


@pytest.mark.parametrize("rest", [b"", b"\r\n", b"[1]", b"{}\r\n\xef\xbb\xbf1\n"])
def test_a_byte_order_mark_is_left_out_at_the_beginning_alone(rest: bytes) -> None:
    assert lines_of([b"\xef", b"\xbb\xbf" + rest])[0] == lines_of([rest])[0]


def test_a_line_that_is_too_long_with_its_mark_is_none() -> None:
    assert lines_of([b"\xef\xbb\xbf" + b"1" * LONGEST, b"1\n"])[0] == [(1, None)]


def test_a_body_of_escapes_fits() -> None:
    assert longest_line(100) > len(b"\\u0061" * 100)
