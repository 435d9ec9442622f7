"""Results of jobs: what a handler returned, and waiting for it."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import earlier, inside, thread, value, waits, wanted

__all__ = ["earlier", "inside", "thread", "value", "waits", "wanted"]
__getattr__ = modules_of(__name__, __all__)
