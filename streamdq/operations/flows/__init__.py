"""Flows: build one, look at it, cancel it."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import builder, one

__all__ = ["builder", "one"]
__getattr__ = modules_of(__name__, __all__)
