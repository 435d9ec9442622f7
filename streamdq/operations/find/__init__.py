"""A search for jobs, and what is done to those that it finds."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import actions, criteria, search, shown

__all__ = ["actions", "criteria", "search", "shown"]
__getattr__ = modules_of(__name__, __all__)
