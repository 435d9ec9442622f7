"""What the owner of the queues should do, from all sections, the most urgent first."""

from __future__ import annotations

from ..measures import SLO_MS
from .budget import overdrawn
from .capacity import more_workers
from .errors import bad_hosts, new_errors
from .parts import Tables
from .todo import Advised, Settings, advised

_TELL = ("advice", "capacity", "budget", "error_classes", "hosts")


def do_this(tables: Tables, settings: Settings | None, slo_ms: int = SLO_MS) -> list[Advised] | None:
    """None: no table was made that could tell."""
    if not any(name in tables for name in _TELL):
        return None
    found = [
        *advised(tables, settings),
        *more_workers(tables),
        *overdrawn(tables, slo_ms),
        *new_errors(tables),
        *bad_hosts(tables),
    ]
    return sorted(found, key=lambda one: (one.order, one.topic))
