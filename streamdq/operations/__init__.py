"""Everything that callers can do with a queue. An operation is a generator; Queue and AsyncQueue run it.

``operations.jobs`` is imported when it is first used, and so are the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        act,
        audit,
        criteria,
        doctor,
        find,
        inspect,
        job_history,
        jobs,
        pipeline,
        scale,
        schedules,
        take,
        topics,
        waiting_keys,
    )

__all__ = [
    "act",
    "audit",
    "criteria",
    "doctor",
    "find",
    "inspect",
    "job_history",
    "jobs",
    "pipeline",
    "scale",
    "schedules",
    "take",
    "topics",
    "waiting_keys",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
