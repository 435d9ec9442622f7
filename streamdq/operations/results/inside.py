"""Whether a call comes from a handler, and of which worker."""

from __future__ import annotations

from collections.abc import Container
from contextvars import ContextVar
from typing import NamedTuple

from ...errors import InvalidInput
from .wanted import Wanted


class Inside(NamedTuple):
    """The worker whose handler runs: the namespace, its group, and its topics."""

    namespace: str
    group: str
    topics: Container[str]


inside: ContextVar[Inside | None] = ContextVar("inside", default=None)
"""Set in the context in which a worker's handlers run."""


def check_outside(namespace: str, wanted: Wanted) -> None:
    """
    Raises:
        InvalidInput: this runs in a handler of a worker that the wanted job may need a slot of. If all slots waited so,
            no job would run, and each wait would end by its time-out. A job that has ended needs none.
    """
    worker = inside.get()
    if worker is None or worker.namespace != namespace or wanted.topic not in worker.topics:
        return
    if wanted.group in (None, worker.group):
        raise InvalidInput(
            f"result: job {wanted.id!r} of topic {wanted.topic!r} has not ended, and this handler's worker serves "
            f"{wanted.topic!r} itself: the handler would keep a slot that the job may need. Enqueue a job that uses "
            "its result, with after=, or serve the topic by another worker"
        )
