"""Keys of jobs: which have most to do, and pausing one."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import busiest

__all__ = ["busiest"]
__getattr__ = modules_of(__name__, __all__)
