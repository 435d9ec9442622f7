"""The audit log: one line for each request that may change something, in the log or in a separate file."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from fastapi import Request

from ..errors import InvalidInput
from ..private_files import private
from ..process.logs import Log, log
from ..times.clock import wall_now
from .auth import Identity
from .refusals import peer_of

_audit = Log("streamdq.audit")
_NAMED = {"topic": "topic", "id": "id", "flow": "name"}
"""The fields that say what a request is about, and the parts of its path that have them."""


def about(request: Request, **what: str) -> None:
    """Adds what a request is about, if its path does not say so: ``topic``, ``id`` or ``group``."""
    request.state.about = getattr(request.state, "about", {}) | what


def fields_of(request: Request, who: Identity, **how: Any) -> dict[str, Any]:
    """``action``: the operation's name. ``how``: its ``status``, or with what it ``failed``."""
    path = request.path_params
    named: dict[str, Any] = {field: path[name] for field, name in _NAMED.items() if name in path}
    named |= getattr(request.state, "about", {})
    return {
        "who": who.name, "roles": ",".join(sorted(who.roles)), "peer": peer_of(request),
        "action": request.scope["endpoint"].__name__, **named, **how,
    }  # fmt: skip


class AuditLog:
    """With a ``file``, it gets each line as JSON. Notable requests are in the log in any case, others at debug
    level.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._to: int | None = None
        self._failing = False
        self._cut = False  # the last line is there in part only
        if file is not None:
            try:
                self._to = _opened(file)
            except OSError as error:
                raise InvalidInput(f"audit log: can't write to {file}: {error.strerror}") from None

    def tell(self, notable: bool, fields: dict[str, Any]) -> None:
        (_audit.info if notable else _audit.debug)("request", **fields)
        if self._to is None:
            return
        line = {"at": wall_now().isoformat(timespec="milliseconds"), **fields}
        try:
            self._write(json.dumps(line).encode() + b"\n")
        except OSError as error:
            if not self._failing:
                log.error("audit log not written", file=str(self._file), error=error.strerror)
            self._failing = True
        else:
            self._failing = False

    def _write(self, line: bytes) -> None:
        """One write to a file opened for appending: lines of several processes don't mix. A disk that gets full takes
        a part of one; the next begins a line of its own.
        """
        assert self._to is not None
        whole = b"\n" + line if self._cut else line
        written = os.write(self._to, whole)
        self._cut = written < len(whole)
        if self._cut:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_again(self) -> None:
        """Opens the file again, for use after it was moved away."""
        if self._file is None or self._to is None:
            return
        try:
            fresh = _opened(self._file)
        except OSError as error:
            log.error("audit log not reopened", file=str(self._file), error=error.strerror)
            return
        os.close(self._to)
        self._to, self._cut = fresh, False
        log.info("audit log reopened")

    def close(self) -> None:
        if self._to is not None:
            os.close(self._to)
            self._to = None


def _opened(file: Path) -> int:
    return private(str(file), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
