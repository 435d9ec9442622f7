"""Jobs: enqueue them, change them, look at one."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import abort, changes, enqueue, enqueue_many, get, pipeline

__all__ = ["abort", "changes", "enqueue", "enqueue_many", "get", "pipeline"]
__getattr__ = modules_of(__name__, __all__)
