"""The history: of a topic, and of one job."""

from typing import TYPE_CHECKING

from ..first_use import modules_of

if TYPE_CHECKING:
    from . import events, job_history, topic_history

__all__ = ["events", "job_history", "topic_history"]
__getattr__ = modules_of(__name__, __all__)
