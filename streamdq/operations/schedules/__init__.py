"""Schedules: define them, change them, run one now."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import schedules

__all__ = ["schedules"]
__getattr__ = modules_of(__name__, __all__)
