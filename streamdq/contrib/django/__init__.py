"""One Queue for each process of a Django project, jobs enqueued after the commit, and the command ``streamdq_worker``.

Add ``"streamdq.contrib.django"`` to ``INSTALLED_APPS`` for the command. The settings, all optional: ``STREAMDQ_URL``
and ``STREAMDQ_NAMESPACE``, else as for Queue; ``STREAMDQ_WORKER``, such as ``"shop.jobs:worker"``.
"""

from ...errors import MissingExtra

try:
    import django as _django  # noqa: F401
except ImportError:
    raise MissingExtra("django") from None

from .connections import fresh_connections
from .queues import enqueue_on_commit, queue

__all__ = ["enqueue_on_commit", "fresh_connections", "queue"]
