"""Jobs enqueued in a database's own transactions: they wait in its outbox until a relay puts them into Redis."""

from .producer import create, enqueue

__all__ = ["create", "enqueue"]
