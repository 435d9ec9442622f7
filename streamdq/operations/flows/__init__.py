"""Flows: build one, look at it, send its dead letters back, cancel it."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import builder, one, retry

__all__ = ["builder", "one", "retry"]
__getattr__ = modules_of(__name__, __all__)
