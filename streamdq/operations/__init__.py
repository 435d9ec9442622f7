"""Everything that callers can do with a queue, in a room for each subject. An operation is a generator; Queue and
AsyncQueue run it.

``operations.jobs.enqueue`` is imported when it is first used, and so are the others.
"""

from typing import TYPE_CHECKING

from .first_use import modules_of

if TYPE_CHECKING:
    from . import attempts, checks, dead_letters, erase, find, flows, history, jobs, keys, results, schedules, topics

__all__ = [
    "attempts",
    "checks",
    "dead_letters",
    "erase",
    "find",
    "flows",
    "history",
    "jobs",
    "keys",
    "results",
    "schedules",
    "topics",
]
__getattr__ = modules_of(__name__, __all__)
