"""Dead letters: list them, send them back, delete them."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import of_group

__all__ = ["of_group"]
__getattr__ = modules_of(__name__, __all__)
