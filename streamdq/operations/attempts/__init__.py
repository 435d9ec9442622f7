"""Attempts: claim a job, run it, and say how that ended."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import added, progress_reports, take

__all__ = ["added", "progress_reports", "take"]
__getattr__ = modules_of(__name__, __all__)
