"""Exceptions of another process: with the calls that led to them, so that all that reads exceptions here reads these as
well: the retry, the log, the error kept with the attempt, and error reports.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from traceback import walk_tb
from types import TracebackType
from typing import Any

_MOST = 10  # of a chain
_CALL = compile("_getframe()", "", "eval")


@dataclass(frozen=True, slots=True)
class RemoteError:
    """``error``: pickled, or its class's name and message. ``calls``: file, line, function of each, the raising one
    last. ``cause`` and ``context``: as of an exception.
    """

    error: bytes | tuple[str, str]
    calls: list[tuple[str, int, str]]
    cause: RemoteError | None
    context: RemoteError | None
    suppresses_context: bool

    @classmethod
    def of(cls, error: BaseException, most: int = _MOST) -> RemoteError:
        return cls(
            _sent(error),
            [
                (frame.f_code.co_filename, line, frame.f_code.co_qualname)
                for frame, line in walk_tb(error.__traceback__)
            ],
            cls.of(error.__cause__, most - 1) if error.__cause__ is not None and most else None,
            cls.of(error.__context__, most - 1) if error.__context__ is not None and most else None,
            error.__suppress_context__,
        )

    def exception(self) -> BaseException:
        error = _received(self.error).with_traceback(_traceback_of(self.calls))
        error.__cause__ = None if self.cause is None else self.cause.exception()
        error.__context__ = None if self.context is None else self.context.exception()
        error.__suppress_context__ = self.suppresses_context
        return error


def _sent(error: BaseException) -> bytes | tuple[str, str]:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - it was just made; some can be pickled, and not be loaded
    except Exception:
        return type(error).__name__, str(error)
    return data


def _received(sent: bytes | tuple[str, str]) -> BaseException:
    if isinstance(sent, tuple):
        name, message = sent
        made: type[Exception] = type(name, (Exception,), {"__module__": "builtins"})
        return made(message)
    error: BaseException = pickle.loads(sent)  # noqa: S301 - of a process of this worker
    return error


def _traceback_of(calls: list[tuple[str, int, str]]) -> TracebackType | None:
    """Of frames that stand for the calls there: Python makes a frame only of code that runs."""
    found: TracebackType | None = None
    for file, line, function in reversed(calls):
        name = function.rpartition(".")[2]
        code = _CALL.replace(co_filename=file, co_name=name, co_qualname=function, co_firstlineno=line)
        frame: Any = eval(code, {"_getframe": sys._getframe})  # noqa: S307 - the code above
        found = TracebackType(found, frame, -1, line)
    return found
