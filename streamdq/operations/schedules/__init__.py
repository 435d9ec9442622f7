"""Schedules: define them, change them, run one now."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import changes, define, read, run_now

__all__ = ["changes", "define", "read", "run_now"]
__getattr__ = modules_of(__name__, __all__)
