"""Jobs enqueued in a database's own transactions: they wait in its outbox until a relay puts them into Redis."""

from .changes import cancel, get, reschedule
from .flows import flow
from .producer import create, enqueue

__all__ = ["cancel", "create", "enqueue", "flow", "get", "reschedule"]
