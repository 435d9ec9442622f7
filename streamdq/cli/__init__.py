"""The command `streamdq`."""

from .app import main

__all__ = ["main"]
