"""Exceptions of another process: with the calls that led to them, so that all that reads exceptions here reads these as
well: the retry, the log, the error kept with the attempt, and error reports.
"""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass
from traceback import walk_tb
from types import TracebackType
from typing import Any

from ..operations.attempts.error_text import is_a, is_instruction, text_of

_MOST = 10  # of a chain
_MOST_BYTES = 1024 * 1024  # an exception may carry the data that it complains of
_LONGEST_MESSAGE = 10_000
_CALL = compile("_getframe()", "", "eval")


@dataclass(frozen=True, slots=True)
class RemoteError:
    """``pickled``: None if it can't be, or is large. ``name``: its class's. ``calls``: file, line, function of each,
    the raising one last. ``cause`` and ``context``: as of an exception; beside a cause, nobody sees the context.
    """

    pickled: bytes | None
    name: str
    message: str
    calls: list[tuple[str, int, str]]
    cause: RemoteError | None
    context: RemoteError | None
    suppresses_context: bool

    @classmethod
    def of(cls, error: BaseException, most: int = _MOST) -> RemoteError:
        cause, context = error.__cause__, error.__context__
        name, _, message = text_of(error).partition(": ")
        return cls(
            _pickled(error),
            name,
            message[:_LONGEST_MESSAGE],
            [
                (frame.f_code.co_filename, line, frame.f_code.co_qualname)
                for frame, line in walk_tb(error.__traceback__)
            ],
            cls.of(cause, most - 1) if cause is not None and most else None,
            cls.of(context, most - 1) if context is not None and cause is None and most else None,
            error.__suppress_context__,
        )

    def exception(self) -> BaseException:
        """Without its class here, one that has the name and the message."""
        error = self._loaded().with_traceback(_traceback_of(self.calls))
        error.__cause__ = None if self.cause is None else self.cause.exception()
        error.__context__ = None if self.context is None else self.context.exception()
        error.__suppress_context__ = self.suppresses_context
        return error

    def _loaded(self) -> BaseException:
        if self.pickled is not None:
            with suppress(BaseException):  # whatever its class does
                error = pickle.loads(self.pickled)  # noqa: S301 - of a process of this worker
                if is_a(error, BaseException):
                    return error
        made: type[Exception] = type(self.name, (Exception,), {"__module__": "builtins"})
        return made(self.message)


def _pickled(error: BaseException) -> bytes | None:
    with suppress(BaseException):
        data = pickle.dumps(error)
        return data if len(data) <= _MOST_BYTES or is_instruction(error) else None
    return None


def _traceback_of(calls: list[tuple[str, int, str]]) -> TracebackType | None:
    """Of frames that stand for the calls there: Python makes a frame only of code that runs."""
    found: TracebackType | None = None
    for file, line, function in reversed(calls):
        name = function.rpartition(".")[2]
        code = _CALL.replace(co_filename=file, co_name=name, co_qualname=function, co_firstlineno=line)
        frame: Any = eval(code, {"_getframe": sys._getframe})  # noqa: S307 - the code above
        found = TracebackType(found, frame, -1, line)
    return found
