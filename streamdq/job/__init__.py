"""What a job is, and what one can ask for it: retries, an id that stays taken, durability."""

from .uniqueness import unique

__all__ = ["unique"]
