"""Logging. The library says what happens and leaves it to the program it is part of where that goes: to structlog where
the program configured it, else to the standard logger ``streamdq``, which is silent below a warning.

`streamdq worker` is such a program and calls ``configure``: lines for people on a terminal, JSON lines for programs
anywhere else. Bodies and passwords are never written.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS = ("debug", "info", "warning", "error")
_SECRET = frozenset({"body", "bodies", "raw_body", "password"})
# Greedy up to the last @ before a slash: a password may hold one.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")


_standard = structlog.wrap_logger(
    logging.getLogger("streamdq"),
    processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
    wrapper_class=structlog.stdlib.BoundLogger,
)


class Log:
    """streamdq's logger. It looks for the program's configuration at each line, as that may come after the import."""

    def __getattr__(self, level: str) -> Any:
        return getattr(structlog.get_logger("streamdq") if structlog.is_configured() else _standard, level)


log = Log()


def hide_credentials(text: str) -> str:
    """The text with the user name and password of every URL in it left out."""
    return _CREDENTIALS.sub("…@", text)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: drops what holds a user's data, and credentials from every text."""
    return {
        name: hide_credentials(value) if isinstance(value, str) else value
        for name, value in event.items()
        if name not in _SECRET
    }


def configure(level: str = "info", *, json: bool | None = None) -> None:
    """Sends structlog and the standard loggers to stderr; ``json`` None: unless that is a terminal."""
    json = not sys.stderr.isatty() if json is None else json
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if json else "%H:%M:%S", utc=json),
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer(default=str)
        if json
        else structlog.dev.ConsoleRenderer(pad_event_to=30, sort_keys=False)
    )
    # A console renders tracebacks itself; in JSON they are one more text.
    traces: list[Processor] = [structlog.processors.format_exc_info] if json else []
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *traces, redact, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
