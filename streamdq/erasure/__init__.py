"""Erases what is kept of a person or a customer everywhere: in Redis, and in an archive, an outbox and dumps."""

from ..operations.erase.report import Amount, Erased, Remaining
from .everywhere import erase

__all__ = ["Amount", "Erased", "Remaining", "erase"]
