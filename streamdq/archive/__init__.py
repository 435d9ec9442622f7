"""Dead letters leave Redis for a database, and come back."""

from .archive import Archive

__all__ = ["Archive"]
