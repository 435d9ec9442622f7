"""Checks of a deployment: does everything add up, is this Redis safe, which topic needs somebody."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import audit, doctor

__all__ = ["audit", "doctor"]
__getattr__ = modules_of(__name__, __all__)
