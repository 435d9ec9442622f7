"""Keeps Python's garbage collector from stopping a worker for long.

A full collection visits every object and stops the process meanwhile: with only the imported modules in memory, 40 to
60 ms were measured, in which no job is moved, claimed or started.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled() -> Iterator[None]:
    """What is there now is not looked at until the end: modules, classes and handlers stay as long as the process. What
    was frozen before stays frozen.
    """
    before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not before:
            gc.unfreeze()
