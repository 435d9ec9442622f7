"""Erases what is kept of a person or a customer."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import erase, wanted

__all__ = ["erase", "wanted"]
__getattr__ = modules_of(__name__, __all__)
