"""Topics and their groups: settings, figures, workers."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import configure, scale, stats

__all__ = ["configure", "scale", "stats"]
__getattr__ = modules_of(__name__, __all__)
