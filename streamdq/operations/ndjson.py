"""Files and requests of jobs, one JSON value on each line: where the lines are."""

from __future__ import annotations

from collections.abc import Iterator

_LONGEST_ESCAPE = 6  # \\u0061 is an a
_FIELDS_BYTES = 64 * 1024  # what a job has besides its body

NumberedLine = tuple[int, bytes | None]
"""Its number from 1, and the line; None: it is too long to be a job."""


def longest_line(max_body_bytes: int) -> int:
    """How many bytes a job may take on its line."""
    return max_body_bytes * _LONGEST_ESCAPE + _FIELDS_BYTES


class Lines:
    """Cuts what is fed to it into lines, and holds no more of it than the longest line. Blank lines are skipped."""

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
            self.lines_read += 1
            if self._skipping or len(line) > self._longest:
                yield self.lines_read, None
            elif line.strip():
                yield self.lines_read, line
            self._skipping = False
        if self._skipping or len(self._rest) > self._longest:
            self._rest, self._skipping = b"", True

    def end(self) -> Iterator[NumberedLine]:
        """The last line, if it does not end with a newline."""
        if self._skipping or self._rest.strip():
            self.lines_read += 1
            yield self.lines_read, None if self._skipping else self._rest
