"""Log lines, written by a thread of their own: who logs waits for nobody, not even where stderr is a pipe that is full
because nobody reads it. What doesn't fit into the queue is dropped and counted, and once lines are written again, one
of them says how many are missing.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TextIO

from ..forks import renew_in_child

MOST_LINES, MOST_BYTES = 10_000, 8 << 20
_STALLED_S = 1.0  # a flush waits no longer than this for the next line to be written
_AGAIN_S = 0.02  # a descriptor that somebody has set to not blocking


class LineHandler(logging.Handler):
    """Writes to a stream, such as stderr, in the background. None: nowhere, as a program without stderr has it.

    A stream without a descriptor is an object in memory, which makes nobody wait: it is written to at once.
    """

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self._stream = stream
        self._writer = LineWriter(self._write, self._lost) if has_descriptor(stream) else None

    def emit(self, record: logging.LogRecord) -> None:
        if self._stream is None:
            return
        line = self._bytes(self._text(record))
        if self._writer is not None:
            self._writer.put(line)
        else:
            try:
                self._stream.write(line.decode(self._encoding))
                self._stream.flush()
            except (OSError, ValueError):  # ValueError: it is closed
                count_lost()

    def _text(self, record: logging.LogRecord) -> str:
        """Of a line whose exception can't be written, the rest; to write one may run the user's code."""
        try:
            return self.format(record)
        except Exception as error:
            rest = copy.copy(record)
            rest.exc_info = rest.exc_text = None
            try:
                return self.format(rest)
            except Exception:
                return self.format(_not_shown(record, error))

    def flush(self) -> None:
        """Waits for the lines to be written, unless nobody takes them. Python does this when the process ends."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Writes what it has, and ends the thread."""
        if self._writer is not None:
            self._writer.flush()
            self._writer.end()
        super().close()

    @property
    def _encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def _bytes(self, text: str) -> bytes:
        return f"{text}\n".encode(self._encoding, "backslashreplace")

    def _lost(self, count: int) -> bytes:
        return self._bytes(self.format(_own_line("log lines dropped", count=count)))

    def _write(self, line: bytes) -> None:
        assert self._stream is not None
        left = memoryview(line)
        while left:
            try:
                # Not by the stream: a thread that waits in there would be fatal when the interpreter ends.
                left = left[os.write(self._stream.fileno(), left) :]
            except BlockingIOError:
                time.sleep(_AGAIN_S)


class LineWriter:
    """A queue of lines, and the thread that writes them; it starts with the first line."""

    def __init__(self, write: Callable[[bytes], None], lost: Callable[[int], bytes]) -> None:
        """``lost`` makes the line that says how many were dropped."""
        self._write, self._lost = write, lost
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """What waits is the parent's to write."""
        self._lines: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # Each of these counts up in one place: in put, or in the thread.
        self._put_bytes = self._taken_bytes = 0
        self._dropped = self._failed = self._reported = 0

    def put(self, line: bytes) -> None:
        """Never blocks. Calls must not overlap; logging's handlers see to that."""
        if self._lines.qsize() >= MOST_LINES or self._put_bytes - self._taken_bytes >= MOST_BYTES:
            self._dropped += 1
            count_lost()
            return
        self._put_bytes += len(line)
        self._lines.put(line)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="streamdq-log", daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread can start now; the next line tries again
                thread.start()
                self._thread = thread

    def flush(self) -> None:
        """Returns when all lines are written, or none has been for a while."""
        if self._thread is None:
            return
        written = threading.Event()
        self._lines.put(written)
        taken = -1
        while taken != self._taken_bytes:
            taken = self._taken_bytes
            if written.wait(_STALLED_S):
                return

    def end(self) -> None:
        """Ends the thread when it has written what was put. A later line starts another one."""
        if self._thread is not None:
            self._lines.put(None)
            self._thread = None

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            try:
                self._write(line)
                self._tell()
            except (OSError, ValueError):  # nobody reads the pipe any more, the disk is full, or the stream is closed
                self._failed += 1
                count_lost()
            self._taken_bytes += len(line)

    def _tell(self) -> None:
        """Of lines that were dropped, as soon as there is room again."""
        missing = self._dropped + self._failed - self._reported
        if missing and self._lines.qsize() < MOST_LINES // 2:
            self._write(self._lost(missing))
            self._reported += missing


class HandedOver:
    """Calls that log, made by a thread of its own, for threads that must not wait: where a program says where its lines
    go, a call waits for their reader. What doesn't fit into the queue is dropped and counted.
    """

    def __init__(self) -> None:
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        self._from = threading.local()
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_there = False

    def begin(self) -> None:
        """From now on the calling thread hands its lines over."""
        self._from.hands_over = True

    def is_from_here(self) -> bool:
        """Whether the calling thread hands its lines over."""
        return getattr(self._from, "hands_over", False)

    def put(self, call: Callable[[], object]) -> None:
        """Never blocks."""
        if self._calls.qsize() >= MOST_LINES:
            count_lost()
            return
        self._calls.put(call)
        with self._lock:
            if not self._is_there:
                with contextlib.suppress(RuntimeError):  # no thread can start now; the next line tries again
                    threading.Thread(target=self._run, name="streamdq-handed-over", daemon=True).start()
                    self._is_there = True

    def flush(self, timeout_s: float) -> None:
        """Returns when all lines are logged, or after so long."""
        logged = threading.Event()
        self.put(logged.set)
        logged.wait(timeout_s)

    def _run(self) -> None:
        """Until nothing is left."""
        while True:
            with self._lock:
                try:
                    call = self._calls.get_nowait()
                except Empty:
                    self._is_there = False
                    return
            call()


def has_descriptor(stream: Any) -> bool:
    """Whether the system knows this stream. False: it is None, closed, or an object in memory."""
    try:
        stream.fileno()
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        return False
    return True


def is_terminal(stream: Any) -> bool:
    """Whether people read it."""
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):  # None, or closed
        return False


def count_lost() -> None:
    """Counts a line that nobody sees. Never raises."""
    with contextlib.suppress(Exception):
        from ..config import Settings  # a program that loses none does not load them for that
        from ..metrics import declared

        declared.LOG_LINES_DROPPED.labels(Settings().namespace).inc()


FIELDS = "streamdq_fields"
"""Of a record: the fields of one of streamdq's own lines."""


def _own_line(event: str, **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("streamdq", logging.WARNING, __file__, 0, event, (), None)
    setattr(record, FIELDS, {"event": event, **fields})
    return record


def _not_shown(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    return _own_line("log line can't be shown", at=f"{record.pathname}:{record.lineno}", error=type(error).__name__)
