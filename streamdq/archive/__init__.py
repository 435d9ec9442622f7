"""Moves dead letters from Redis to a database, and sends them back."""

from .archive import Archive

__all__ = ["Archive"]
