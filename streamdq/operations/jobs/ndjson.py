"""Splits files and requests with jobs into lines, one JSON value each."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator

_LONGEST_ESCAPE = 6  # \\u0061 is an a
_FIELDS_BYTES = 64 * 1024  # for a job's fields other than its body

NumberedLine = tuple[int, bytes | None]
"""The line's number, from 1, and its text; None if it is too long to be a job."""


def longest_line(max_body_bytes: int) -> int:
    """How many bytes a job's line may have."""
    return max_body_bytes * _LONGEST_ESCAPE + _FIELDS_BYTES


class Lines:
    """Splits chunks into lines, and keeps at most the longest line in memory. Skips blank lines. A line that is too
    long comes at once, as its end may never come.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = b""
        self._skipping = False
        self.bytes_read = 0
        self.lines_read = 0

    def feed(self, chunk: bytes) -> Iterator[NumberedLine]:
        self.bytes_read += len(chunk)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            if not self._skipping:
                yield from self._line(line)
            self._skipping = False
        if len(self._rest) > self._longest and not self._skipping:
            self._skipping = True
            yield from self._line(self._rest)
        if self._skipping:
            self._rest = b""

    def end(self) -> Iterator[NumberedLine]:
        """The last line, if it does not end with a newline."""
        if self._rest.strip():
            yield from self._line(self._rest)

    def _line(self, line: bytes) -> Iterator[NumberedLine]:
        self.lines_read += 1
        if len(line) > self._longest:
            yield self.lines_read, None
            return
        if self.lines_read == 1:
            line = line.removeprefix(BOM_UTF8)  # programs of Windows write it
        if line.strip():
            yield self.lines_read, line
