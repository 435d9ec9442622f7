"""The queue of this process, and jobs that belong to a transaction."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from django.conf import settings
from django.db import transaction
from typing_extensions import Unpack

from ...operations.jobs.enqueue import NO_BODY
from ...queue import Queue
from ...topic import JobOptions, Topic

B = TypeVar("B")
_queues: dict[tuple[str | None, str | None], Queue] = {}


def queue() -> Queue:
    """The process's queue, on ``settings.STREAMDQ_URL`` and with the namespace ``settings.STREAMDQ_NAMESPACE``. Threads
    share it, and a forked child makes its own connections. With other settings, as in a test's ``override_settings``,
    it is another one.
    """
    where = (getattr(settings, "STREAMDQ_URL", None), getattr(settings, "STREAMDQ_NAMESPACE", None))
    if where in _queues:
        return _queues[where]
    made = Queue(*where)
    kept = _queues.setdefault(where, made)
    if kept is not made:  # another thread was first
        made.close()
    return kept


@overload
def enqueue_on_commit(topic: Topic[B], body: B, *, using: str | None = None, **options: Unpack[JobOptions]) -> None: ...


@overload
def enqueue_on_commit(
    topic: str, body: Any = ..., *, using: str | None = None, **options: Unpack[JobOptions]
) -> None: ...


def enqueue_on_commit(
    topic: Topic[Any] | str, body: Any = NO_BODY, *, using: str | None = None, **options: Unpack[JobOptions]
) -> None:
    """Enqueues a job when the current transaction has committed; at once if there is none; never if it is rolled back.
    ``using``: the database whose transaction it is. The options are those of ``Queue.enqueue``; a ``delay`` begins at
    the commit.

    Where the process dies between the commit and the call, there is no job. If the call fails, because Redis does not
    answer or an argument is invalid, there is none either. The error is then raised where the transaction ends,
    although it has committed. An outbox has neither gap.
    """

    def enqueue() -> None:
        if isinstance(topic, Topic):
            topic.enqueue(queue(), body, **options)
        else:
            queue().enqueue(topic, body, **options)

    transaction.on_commit(enqueue, using=using)
